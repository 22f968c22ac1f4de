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
from typing import Any, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vrt_lite import __version__
from vrt_lite.reading import describe_types
from vrt_lite.records.judgement import PlainData
from vrt_lite.web.job_queue import ServedJob
from vrt_lite.web.server_state import Lane, ServerState

_Function = TypeVar("_Function", bound=Callable[..., Any])
_ABOUT = (
    "Compares generated videos on this machine. A clip is named by its absolute path in an allowed folder, or by the "
    "id that POST /v1/clips gave. With Accept: text/event-stream, what judges answers with its events."
)


class JsonAnswer(JSONResponse):
    """JSON in ASCII alone: a file name that is not UTF-8 has characters that only an escape can carry."""

    def render(self, content: Any) -> bytes:
        """Encode the content."""
        plain = msgspec.to_builtins(content)
        return json.dumps(plain, allow_nan=False, separators=(",", ":")).encode("ascii")


def answer_error(status: int, kind: str, message: str, *, headers: Mapping[str, str] | None = None) -> JsonAnswer:
    """Answer with an error: its HTTP status, a word for programs, and one line for people."""
    return JsonAnswer({"error": {"kind": kind, "message": message}}, status, headers)


class ErrorAnswer(msgspec.Struct):
    """Why a request was refused, or what it asked for failed: a word for programs, and one line for people."""

    class Told(msgspec.Struct):
        """The error."""

        kind: str
        message: str

    error: Told


ENDPOINTS: list[Endpoint] = []
"""All that there are."""


@dataclass
class Endpoint:
    """One method of one path, a decorator of the function that serves it. A type of a `body` describes what it does.

    A form may hold clips in its fields `files`, in place of the JSON of a `body`. What is answered is an `answer`.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    lane: Lane = "reading"
    status: int = 200
    body: type[msgspec.Struct] | None = None
    answer: type[Any] | None = None
    files: tuple[str, ...] = ()

    def __call__(self, function: _Function) -> _Function:
        """Serve by this function."""
        self.function = function
        signature = inspect.signature(function, eval_str=True)
        self.parameters = signature.parameters
        if "body" in self.parameters and self.body is None:
            self.body = self.parameters["body"].annotation
        if signature.return_annotation is ServedJob:
            self.answer = ServedJob
        ENDPOINTS.append(self)
        return function

    def make_route(self, state: ServerState) -> Route:
        """Make the route; errors are answered elsewhere."""

        async def serve(request: Request) -> Response:
            given: PlainData = {**request.query_params, **request.path_params, "state": state, "request": request}
            if self.body and "body" in self.parameters:
                given["body"] = await state.body_reader.read(request, self.body, *self.files)
            arguments = [given.get(name, parameter.default) for name, parameter in self.parameters.items()]
            if inspect.iscoroutinefunction(self.function):
                return self._answer(await self.function(*arguments))
            return await state.do(self.lane, lambda: self._answer(self.function(*arguments)))

        return Route(self.path, serve, methods=[self.method])

    def describe(self) -> PlainData:
        """Describe it in OpenAPI."""
        words = " ".join((inspect.getdoc(self.body or self.function) or "").split())
        content = _content(self.body) if self.body else {}
        if self.files:
            fields = {name: {"type": "string", "format": "binary"} for name in self.files} | {"fps": {"type": "string"}}
            content["multipart/form-data"] = {"schema": {"type": "object", "properties": fields}}
        return {
            "summary": words.partition(". ")[0].removesuffix(".") + ".",
            "description": words,
            "parameters": [
                {
                    "name": name,
                    "in": "path" if f"{{{name}}}" in self.path else "query",
                    "required": parameter.default is parameter.empty,
                    "schema": {"type": "string"},
                }
                for name, parameter in self.parameters.items()
                if name not in ("state", "request", "body")
            ],
            "responses": {
                "2XX": {"description": "It is done, or has begun.", "content": _content(self.answer)},
                "4XX": {"description": "It is refused; 429 has Retry-After.", "content": _content(ErrorAnswer)},
            },
            **({"requestBody": {"required": True, "content": content}} if content else {}),
        }

    def _answer(self, answer: Any) -> Response:
        return answer if isinstance(answer, Response) else JsonAnswer(answer, self.status)


def describe_api() -> PlainData:
    """Describe the API in OpenAPI 3.1, as plain data."""
    endpoints = [endpoint for endpoint in ENDPOINTS if endpoint.path.startswith("/v1/")]
    kinds = dict.fromkeys(kind for e in endpoints for kind in (e.body, e.answer, ErrorAnswer) if kind)
    _, schemas = describe_types(kinds, ref_template="#/components/schemas/{name}")
    paths: dict[str, PlainData] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = endpoint.describe()
    return {
        "openapi": "3.1.0",
        "info": {"title": "vrt-lite", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _content(kind: type[Any] | None) -> PlainData:
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"} if kind else {"type": "object"}
    return {"application/json": {"schema": schema}}
