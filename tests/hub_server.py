"""A small server that speaks as much of the Hugging Face hub as the client asks of it, and misbehaves on demand.

Endpoints: /api/models/REPO[/revision/REV] with siblings, sizes and LFS digests; /REPO/resolve/REV/PATH for HEAD and
GET, which redirects to /cdn/… as the hub does; Range. Everything is in memory.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

CHUNK = 64 * 1024


@dataclass
class Hub:
    """What the server holds, how it misbehaves, and what it was asked for; dictionaries are by file."""

    files: dict[str, bytes]
    repository: str = "someone/judge-GGUF"
    kind: str = "model"  # or "dataset", whose addresses begin otherwise
    commit: str = "5037fcf163dd95d1e41d1974465f0898ed108ca2"
    licence: str = "mit"
    base: Hub | None = None  # the repository that this one was made from, which the same server has
    small: set[str] = field(default_factory=set)  # listed without a digest, as the hub does with small files
    listed: dict[str, Any] = field(default_factory=dict)  # more siblings, as they stand: hostile, without content
    cuts: dict[str, list[int]] = field(default_factory=dict)  # the connection is closed at these bytes, each once
    flips: dict[str, int] = field(default_factory=dict)  # so many times it is sent with one bit flipped
    short: dict[str, int] = field(default_factory=dict)  # it is stored with so many bytes less than is listed
    longer: dict[str, int] = field(default_factory=dict)  # so many bytes more are sent than are listed
    failing: dict[str, int] = field(default_factory=dict)  # the status in its place; 403 says that it is gated
    status: int = 200
    seconds_per_chunk: float = 0.0
    sent: dict[str, int] = field(default_factory=dict)  # the bytes that clients took
    ranges: list[tuple[str, int]] = field(default_factory=list)  # file and first byte of downloads that began
    url: str = ""

    @property
    def page(self) -> str:
        return f"/{self.repository}" if self.kind == "model" else f"/datasets/{self.repository}"

    def siblings(self) -> list[dict[str, Any]]:
        found = [{"rfilename": "README.md", "size": 3, "blobId": "0" * 40}] if "README.md" not in self.files else []
        for name, data in self.files.items():
            lfs = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            digest = {} if name in self.small else {"lfs": lfs}
            found.append({"rfilename": name, "size": len(data), "blobId": "1" * 40, **digest})
        return found + [{"rfilename": name, **rest} for name, rest in self.listed.items()]

    def info(self) -> dict[str, Any]:
        tags = ["gguf", f"license:{self.licence}", *([f"base_model:{self.base.repository}"] if self.base else [])]
        names = {"_id": "1", "id": self.repository, "modelId": self.repository}
        return {**names, "sha": self.commit, "private": False, "tags": tags, "siblings": self.siblings()}


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """The hub on a free port of loopback; its address is `hub.url`."""

    class Bound(_Handler):
        state = hub

    with _Server(("127.0.0.1", 0), Bound) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        hub.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed is no error here."""


class _Handler(BaseHTTPRequestHandler):
    state: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        # One connection may ask for both repositories.
        self.state = hub = type(self).state
        path = unquote(urlsplit(self.path).path)
        name = path.removeprefix("/cdn/")
        if hub.base and (hub.base.repository in path or name in hub.base.files):
            self.state = hub = hub.base
            hub.url = type(self).state.url
        listing = f"/api/{hub.kind}s/{hub.repository}"
        if hub.status != 200:
            self._answer(hub.status, b"{}")
        elif path in (listing, f"{listing}/revision/main", f"{listing}/revision/{hub.commit}"):
            self._answer(200, json.dumps(hub.info()).encode())
        elif path.startswith(f"{listing}/revision"):
            self._answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif path.startswith(begin := f"{hub.page}/resolve/{hub.commit}/"):
            self._redirect(path.removeprefix(begin))
        elif status := hub.failing.get(name):
            self._answer(status, b"{}", {"X-Error-Code": "GatedRepo"} if status == 403 else {})
        elif path.startswith("/cdn/"):
            self._send(name)
        else:
            self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def _redirect(self, name: str) -> None:
        data = self.state.files[name]
        digest = f'"{hashlib.sha256(data).hexdigest()}"'
        # As with the hub, another host: of the first one's answers the client takes the digest.
        place = f"{self.state.url.replace('127.0.0.1', 'localhost')}/cdn/{name}"
        linked = {"X-Repo-Commit": self.state.commit, "X-Linked-Size": str(len(data)), "X-Linked-ETag": digest}
        self._answer(302, b"", {"Location": place, **linked, "ETag": digest})

    def _send(self, name: str) -> None:
        hub, data = self.state, self.state.files[name]
        begin = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(begin[1]) if begin else 0
        if hub.flips.get(name, 0) > 0:
            hub.flips[name] -= 1
            middle = (start + len(data)) // 2
            data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        data = data[: len(data) - hub.short.get(name, 0)]
        if self.command == "GET":
            hub.ranges.append((name, start))
        self.send_response(206 if begin else 200)
        whole = len(data) + hub.longer.get(name, 0)
        self.send_header("Content-Length", str(whole - start))
        if begin:
            self.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
        self.end_headers()
        cuts = hub.cuts.get(name, [])
        end = cuts.pop(0) if cuts else whole
        for at in range(start, min(end, whole), CHUNK):
            chunk = data[at : min(at + CHUNK, end)].ljust(min(CHUNK, end - at), b"\0")
            try:
                self.wfile.write(chunk)
            except OSError:  # the client died, which is what some tests are about
                break
            hub.sent[name] = hub.sent.get(name, 0) + len(chunk)
            time.sleep(hub.seconds_per_chunk)
        if end < whole:
            self.close_connection = True

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
