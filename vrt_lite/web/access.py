"""Decides who is served: the Host and Origin of every request, and a token on any address but loopback.

A page of another site cannot reach the server: the name in its Host is not ours, even if it leads to this machine, and
its requests carry its own Origin. Every answer gets the headers that keep a page from loading or running other things.
"""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vrt_lite.web.endpoints import JsonAnswer

COOKIE: Final = "vrt_lite_token"
POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""That of all that is no page: it loads and runs nothing."""
_WRONG_NAME: Final = (
    "This server does not answer to that name. Use the address that it printed; behind a proxy start it with "
    "--host-name NAME."
)
_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server at this address."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


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
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refuse(scope, Headers(scope=scope)) or self._ask_for_token(scope, Headers(scope=scope))
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refuse(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the refusal of a request that another site may have caused; None for any other."""
        hosts = headers.getlist("host")
        name = _read_name(hosts[0]) if len(hosts) == 1 else ""
        if not self._is_ours(name):
            return _refusal(
                421,
                "host",
                _WRONG_NAME,
            )
        schemes = {scope["scheme"], "https"} if name in self._names else {scope["scheme"]}
        if not {f"{scheme}://{hosts[0]}" for scheme in schemes}.issuperset(headers.getlist("origin")):
            return _refusal(403, "origin", "Requests from pages of other sites are not served.")
        site, navigates = headers.get("sec-fetch-site", ""), headers.get("sec-fetch-mode") == "navigate"
        if site in ("cross-site", "same-site") and not (navigates and scope["method"] == "GET"):
            return _refusal(403, "origin", "Requests from pages of other sites are not served.")
        return None

    def _is_ours(self, name: str) -> bool:
        """Return whether a Host names an address or this server. DNS rebinding uses other names."""
        if name in self._names:
            return True
        if is_loopback(self._host):
            return is_loopback(name)
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name)
            return True
        return name in ("localhost", self._host)

    def _ask_for_token(self, scope: Scope, headers: Headers) -> Response | None:
        """Return what a request without the token gets; None if it has it, in a header, a cookie or the address."""
        if not self._token:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if (scheme.lower() == "bearer" and self._is_token(given.strip())) or self._is_token(_read_cookie(headers)):
            return None
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if scope["method"] == "GET" and self._is_token(query.pop("token", [""])[0]):
            rest = urlencode(query, doseq=True)
            # Not "//": that would lead to another host.
            answer = RedirectResponse("/" + scope["path"].lstrip("/\\") + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
            return answer
        answer = _refusal(401, "token", "This server needs its token. Open the address that it printed.")
        answer.headers["www-authenticate"] = "Bearer"
        return answer

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())


def _read_name(host: str) -> str:
    """Return the name in a Host, without its port; empty if there is none."""
    try:
        parts = urlsplit(f"//{host}")
        name, _ = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return ""
    return "" if parts.username is not None or parts.path or parts.query or parts.fragment else name


def _read_cookie(headers: Headers) -> str:
    with contextlib.suppress(CookieError):
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        return found.value if found else ""
    return ""


def _refusal(status: int, kind: str, message: str) -> Response:
    return JsonAnswer({"error": {"kind": kind, "message": message}}, status)
