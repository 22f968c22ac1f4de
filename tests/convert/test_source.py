"""A folder or a repository: which of them, and the real client against a hub on loopback."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from synthetic_checkpoint import make

from convert.source import Source, locate
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
Answer = tuple[int, bytes, dict[str, str]]


class Hub(BaseHTTPRequestHandler):
    """One repository, owner/judge, with one revision, v1."""

    folder: ClassVar[Path]
    served: ClassVar[set[str]]

    def answer(self) -> Answer:
        path = self.path.partition("?")[0]
        if path == "/api/models/owner/judge/revision/v1":
            return (
                200,
                json.dumps({"id": "owner/judge", "sha": COMMIT, "siblings": self.files("rfilename")}).encode(),
                {},
            )
        if path.startswith("/api/models/owner/judge/revision/"):
            return 404, b"{}", {"X-Error-Code": "RevisionNotFound"}
        if path == f"/api/models/owner/judge/tree/{COMMIT}":
            return 200, json.dumps(self.files("path")).encode(), {}
        name = path.removeprefix(f"/owner/judge/resolve/{COMMIT}/")
        if name != path:
            data = (self.folder / name).read_bytes()
            self.served.add(name)
            return 200, data, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": COMMIT}
        return 404, b"{}", {"X-Error-Code": "RepoNotFound"}

    def files(self, key: str) -> list[dict[str, object]]:
        paths = sorted(self.folder.iterdir())
        return [
            {key: p.name, "type": "file", "size": p.stat().st_size, "oid": hashlib.sha1(p.read_bytes()).hexdigest()}
            for p in paths
        ]

    def reply(self, *, body: bool) -> None:
        status, data, headers = self.answer()
        self.send_response(status)
        for key, value in {"Content-Type": "application/json", "Content-Length": f"{len(data)}", **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def do_GET(self) -> None:
        self.reply(body=True)

    def do_HEAD(self) -> None:
        self.reply(body=False)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    make(tmp_path / "published", shards=2)
    (tmp_path / "published" / "pytorch_model.bin").write_bytes(b"not asked for")
    Hub.folder, Hub.served = tmp_path / "published", set()
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def export(tmp_path: Path, endpoint: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_DISABLE_XET": "1"}
    environment.pop("HF_HUB_OFFLINE", None)
    command = [sys.executable, "-m", "convert", "export", *arguments, "--out", str(tmp_path / "out")]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_a_repository_is_exported_as_the_folder_of_its_name(tmp_path: Path, endpoint: str) -> None:
    done = export(tmp_path, endpoint, "owner/judge", "--revision", "v1")
    assert (done.returncode, done.stderr) == (0, "")
    assert {"config.json", "model-00002-of-00002.safetensors"} < Hub.served
    assert "pytorch_model.bin" not in Hub.served
    shutil.copytree(tmp_path / "published", tmp_path / "judge")
    direct = export_pair(tmp_path / "judge", tmp_path / "direct")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [file.sha256 for file in direct]
    # The cache serves a second time, from what cannot be reached any more.
    nowhere = "http://127.0.0.1:9"
    assert export(tmp_path, nowhere, "owner/judge", "--revision", "v1").stdout == done.stdout
    for arguments, message in (
        (("owner/other",), "the hub has no such repository"),
        (("owner/judge", "--revision", "v2"), "has no revision 'v2'"),
    ):
        failed = export(tmp_path, endpoint, *arguments)
        assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (4, "", 1)
        assert failed.stderr.startswith(f"convert: {arguments[0]} is no folder here, and ")
        assert message in failed.stderr
    failed = export(tmp_path, nowhere, "owner/other")
    assert (failed.returncode, failed.stderr.count("\n")) == (4, 1)
    assert "cannot be reached" in failed.stderr


def test_a_folder_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "judge").mkdir(parents=True)
    assert locate("owner/judge") == Source(Path("owner/judge"))
    for path in ("/absent/folder", "./absent/folder", "absent", "a/b/c", "../a", "a/.b"):
        assert locate(path) == Source(Path(path))  # and is then refused as a folder
    with pytest.raises(UsageError, match="no repository: leave it out"):
        locate("owner/judge", revision="main")
