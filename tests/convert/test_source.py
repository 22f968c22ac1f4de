"""A folder or a repository: which of them, and the real client against a hub on loopback."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from synthetic_checkpoint import make, write_json

from convert.source import Source, locate
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.disk import file_sha256
from vrt_lite.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
API = "api/models/owner/judge"
NOWHERE = "http://127.0.0.1:9"
BATCH = """
import sys
from convert.__main__ import main
for arguments in sys.argv[1:]:
    sys.argv = ["convert", "export", *arguments.split()]
    try:
        main()
    except SystemExit as ended:
        print("status", ended.code)
"""
"""A program that runs several commands: the client reads the hub's address once."""


class Hub(SimpleHTTPRequestHandler):
    """Answers with the files of a folder, and notes their names."""

    asked: ClassVar[set[str]] = set()

    def end_headers(self) -> None:
        self.send_header("ETag", f'"{hashlib.sha1(self.path.encode()).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("X-Error-Code", "RevisionNotFound" if self.path.startswith(f"/{API}") else "RepoNotFound")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        self.asked.add(self.path.rpartition("/")[2])


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """A hub with one repository, owner/judge, and its one revision, v1."""
    folder = tmp_path / "owner" / "judge" / "resolve" / COMMIT
    make(folder, shards=2)
    (folder / "pytorch_model.bin").write_bytes(b"not asked for")
    files = {path.name: path.stat().st_size for path in folder.iterdir()}
    info = {"id": "owner/judge", "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
    listed = [{"path": name, "type": "file", "size": size, "oid": name} for name, size in files.items()]
    for name, value in (("revision/v1", info), (f"tree/{COMMIT}", listed)):
        (tmp_path / API / name).parent.mkdir(parents=True)
        write_json(tmp_path / API / name, value)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def export(tmp_path: Path, endpoint: str, *commands: str) -> list[str]:
    """Run commands one after the other; what they print, each with its status."""
    environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_DISABLE_XET": "1"}
    environment.pop("HF_HUB_OFFLINE", None)
    program = [sys.executable, "-u", "-c", BATCH, *(f"{command} --out {tmp_path / 'out'}" for command in commands)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(program, cwd=ROOT, env=environment, check=True, **pipes).stdout.splitlines()


def test_a_repository_is_exported_as_the_folder_of_its_name(tmp_path: Path, endpoint: str) -> None:
    told = export(tmp_path, endpoint, "owner/judge --revision v1", "owner/other", "owner/judge --revision v2")
    assert {"config.json", "model-00002-of-00002.safetensors"} < Hub.asked
    assert "pytorch_model.bin" not in Hub.asked
    shutil.copytree(tmp_path / "owner" / "judge" / "resolve" / COMMIT, tmp_path / "judge")
    direct = export_pair(tmp_path / "judge", tmp_path / "direct")
    assert [line.split()[0] for line in told[:2]] == [file_sha256(file) for file in direct]
    assert (told[2], told[4], told[6:]) == ("status 0", "status 4", ["status 4"])
    assert told[3].startswith("convert: owner/other is no folder here, and the hub has no such repository")
    assert "has no revision 'v2'" in told[5]
    # The cache serves a second time, from what cannot be reached any more.
    again = export(tmp_path, NOWHERE, "owner/judge --revision v1", "owner/other")
    assert again[:3] == told[:3]
    assert "cannot be reached" in again[3]
    assert again[4:] == ["status 4"]


def test_a_folder_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "judge").mkdir(parents=True)
    assert locate("owner/judge") == Source(Path("owner/judge"))
    for path in ("/absent/folder", "./absent/folder", "absent", "a/b/c", "../a", "a/.b"):
        assert locate(path) == Source(Path(path))  # and is then refused as a folder
    with pytest.raises(UsageError, match="no repository: leave it out"):
        locate("owner/judge", revision="main")
