"""Decides who is served: the Host and Origin of every request, and a token on any address but loopback.

A page of another site cannot reach the server: the name in its Host is not ours, even if it leads to this machine, and
its requests carry its own Origin. Every answer gets the headers that keep a page from loading or running other things.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import secrets
from collections.abc import Collection
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vrt_lite.web.endpoints import answer_error

COOKIE: Final = "vrt_lite_token"
_HOST: Final = re.compile(r"(?:(?P<name>[a-z0-9._-]+)|\[(?P<address>[0-9a-z:.%]+)\])(?::[0-9]{1,5})?")
_HEADERS: Final = {
    # That of all that is no page: it loads and runs nothing.
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server at this address."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


class AccessMiddleware:
    """The ASGI application in front of all others. `token` is needed from everyone, unless it is empty.

    `names` are those that a reverse proxy answers to; it may add TLS, and must pass the Host on.
    """

    def __init__(self, app: ASGIApp, *, host: str, names: Collection[str], token: str) -> None:
        self._app = app
        self._host = host.lower()
        self._names = frozenset(name.lower() for name in names)
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        answer = self._refuse(request) or self._ask_for_token(request)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refuse(self, request: Request) -> Response | None:
        """Return the refusal of a request that another site may have caused; None for any other."""
        headers = request.headers
        hosts = headers.getlist("host")
        found = _HOST.fullmatch(hosts[0].lower()) if len(hosts) == 1 else None
        name = (found["name"] or found["address"]) if found else ""
        if not self._is_ours(name):
            return answer_error(
                421,
                "host",
                "This server does not answer to that name. Use the address that it printed; behind a proxy start it "
                "with --host-name NAME.",
            )
        schemes = {request.url.scheme, "https"} if name in self._names else {request.url.scheme}
        is_foreign = not {f"{scheme}://{hosts[0]}" for scheme in schemes}.issuperset(headers.getlist("origin"))
        navigates = headers.get("sec-fetch-mode") == "navigate" and request.method == "GET"
        if is_foreign or (headers.get("sec-fetch-site") in ("cross-site", "same-site") and not navigates):
            return answer_error(403, "origin", "Requests from pages of other sites are not served.")
        return None

    def _is_ours(self, name: str) -> bool:
        """Return whether a Host names an address or this server. DNS rebinding uses other names."""
        reached_from_elsewhere = not is_loopback(self._host) and (name == self._host or _is_address(name))
        return name in self._names or is_loopback(name) or reached_from_elsewhere

    def _ask_for_token(self, request: Request) -> Response | None:
        """Return what a request without the token gets; None if it has it, in a header, a cookie or the address."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        bearer = given.strip() if scheme.lower() == "bearer" else ""
        if not self._token or self._is_token(bearer) or self._is_token(request.cookies.get(COOKIE, "")):
            return None
        if request.method == "GET" and self._is_token(request.query_params.get("token", "")):
            rest = request.url.remove_query_params("token").query
            # Not "//": that would lead to another host.
            answer = RedirectResponse("/" + request.scope["path"].lstrip("/\\") + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
            return answer
        answer = answer_error(401, "token", "This server needs its token. Open the address that it printed.")
        answer.headers["www-authenticate"] = "Bearer"
        return answer

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())


def _is_address(name: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False
