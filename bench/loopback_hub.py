"""Serves the files of one folder on loopback as a repository of the Hugging Face hub: the listing, and byte ranges.

It knows what `vrt-lite pull` asks for: /api/models/REPOSITORY[/revision/REVISION] with names, sizes and sha256, and
/REPOSITORY/resolve/REVISION/FILE with `Range`. Files are sent by the system, without a copy in this process's memory.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from vrt_lite.disk import file_sha256

REVISION = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def serve_folder(folder: Path, repository: str) -> Iterator[str]:
    """Serve a folder as `repository` until the context ends. Returns the address of the hub.

    As on the hub, only weights have a sha256 in the listing.
    """
    files = {path.name: path for path in sorted(folder.iterdir()) if path.is_file()}
    listing = json.dumps(_describe(repository, files)).encode()
    listings = {f"/api/models/{repository}{end}": listing for end in ("", f"/revision/{REVISION}")}
    paths = {f"/{repository}/resolve/{REVISION}/{name}": path for name, path in files.items()}
    with _Server(listings, paths) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def _describe(repository: str, files: dict[str, Path]) -> dict[str, Any]:
    siblings: list[dict[str, Any]] = []
    for name, path in files.items():
        size = path.stat().st_size
        siblings.append({"rfilename": name, "size": size, "blobId": "0" * 40})
        if path.suffix == ".safetensors":
            siblings[-1]["lfs"] = {"sha256": file_sha256(path), "size": size, "pointerSize": 134}
    tags = ["safetensors", "license:apache-2.0"]
    return {"_id": "1", "id": repository, "sha": REVISION, "private": False, "tags": tags, "siblings": siblings}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listings: dict[str, bytes], paths: dict[str, Path]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.listings, self.paths = listings, paths

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that ends in the middle of a file is no error of the server."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Requests are not printed."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        address = unquote(urlsplit(self.path).path)
        if path := self.server.paths.get(address):
            self._send_file(path)
        elif body := self.server.listings.get(address):
            self._begin(200, len(body), {"Content-Type": "application/json"})
            self._write(body)
        else:
            self._begin(404, 0, {"X-Error-Code": "EntryNotFound"})

    def _send_file(self, path: Path) -> None:
        size = path.stat().st_size
        given = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first = int(given[1]) if given else 0
        end = min(int(given[2]) + 1, size) if given and given[2] else size
        if first >= end:
            self._begin(416, 0, {"Content-Range": f"bytes */{size}"})
            return
        headers = {"X-Repo-Commit": REVISION, "ETag": f'"{path.name}"'}
        if given:
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
        self._begin(206 if given else 200, end - first, headers)
        if self.command == "GET":
            self.wfile.flush()
            with path.open("rb") as file:
                self.connection.sendfile(file, first, end - first)

    def _begin(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(length)}).items():
            self.send_header(name, value)
        self.end_headers()

    def _write(self, body: bytes) -> None:
        if self.command == "GET":
            self.wfile.write(body)
