"""Routes from plain functions: their parameters say what a request may hold, and are its description too.

A parameter `state` is what the server holds, `request` the request itself, `body` its JSON as the type of the endpoint.
Any other is a part of the path or a value of the query. A coroutine runs on the event loop; any other function may take
its time: it runs in the threads of a lane. What a function returns is sent as JSON, unless it is a response.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vrt_lite import __version__
from vrt_lite.web.request_bodies import read_body
from vrt_lite.web.server_state import Lane, state_of

_Method = Literal["GET", "POST", "DELETE"]
_ABOUT = (
    "Compares generated videos on this machine. A clip is named by its absolute path in an allowed folder, or by the "
    "id that POST /v1/clips gave. With Accept: text/event-stream, what judges answers with its events."
)


class JsonAnswer(JSONResponse):
    """JSON in ASCII alone: a file name that is not UTF-8 has characters that only an escape can carry."""

    def render(self, content: Any) -> bytes:
        """Encode the content."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class ErrorAnswer(msgspec.Struct):
    """Why a request was refused, or what it asked for failed: a word for programs, and one line for people."""

    class Told(msgspec.Struct):
        """The error."""

        kind: str
        message: str

    error: Told


@dataclass(frozen=True)
class Endpoint:
    """One method of one path. A form may hold clips in its fields `files`, in place of the JSON of a `body`.

    If it `is_shared`, equal requests at the same time share the work.
    """

    method: _Method
    path: str
    function: Callable[..., Any]
    lane: Lane = "reading"
    status: int = 200
    body: type[msgspec.Struct] | None = None
    answer: type[Any] | None = None
    files: tuple[str, ...] = ()
    is_shared: bool = False

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The function's parameters, by name."""
        return inspect.signature(self.function).parameters

    def make_route(self) -> Route:
        """Make the route; errors are answered elsewhere."""
        parameters = self.parameters

        async def serve(request: Request) -> Response:
            state = state_of(request)
            given: dict[str, Any] = {**request.query_params, **request.path_params, "state": state, "request": request}
            if self.body and "body" in parameters:
                given["body"] = read_body(await state.body_reader.read_json(request), self.body)
            arguments = [given.get(name, parameter.default) for name, parameter in parameters.items()]
            if inspect.iscoroutinefunction(self.function):
                answer = await self.function(*arguments)
            elif self.is_shared:
                answer = await state.lanes[self.lane].do(self.function, *arguments)
            else:
                answer = await state.lanes[self.lane].do(partial(self.function, *arguments))
            return answer if isinstance(answer, Response) else JsonAnswer(answer, self.status)

        return Route(self.path, serve, methods=[self.method])


def describe_endpoints(endpoints: tuple[Endpoint, ...]) -> dict[str, Any]:
    """Describe endpoints in OpenAPI 3.1, as plain data."""
    kinds = dict.fromkeys(kind for e in endpoints for kind in (e.body, e.answer, ErrorAnswer) if kind)
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _describe(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "vrt-lite", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _describe(endpoint: Endpoint) -> dict[str, Any]:
    words = " ".join((inspect.getdoc(endpoint.function) or "").split())
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path" if f"{{{name}}}" in endpoint.path else "query",
            "required": parameter.default is parameter.empty,
            "schema": {"type": "string"},
        }
        for name, parameter in endpoint.parameters.items()
        if name not in ("state", "request", "body")
    ]
    content = _content(endpoint.body) if endpoint.body else {}
    if endpoint.files:
        clip = {"type": "string", "format": "binary"}
        fields = dict.fromkeys(endpoint.files, clip) | {"fps": {"type": "string"}}
        content["multipart/form-data"] = {"schema": {"type": "object", "properties": fields}}
    told: dict[str, Any] = {
        "summary": words.partition(". ")[0].removesuffix(".") + ".",
        "description": words,
        "responses": {
            "2XX": {"description": "It is done, or has begun.", "content": _content(endpoint.answer)},
            "4XX": {"description": "It is refused; 429 has Retry-After.", "content": _content(ErrorAnswer)},
        },
    }
    if parameters:
        told["parameters"] = parameters
    if content:
        told["requestBody"] = {"required": True, "content": content}
    return told


def _content(kind: type[Any] | None) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"} if kind else {"type": "object"}
    return {"application/json": {"schema": schema}}
