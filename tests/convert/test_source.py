"""A folder or a repository: which of them, and the real client against a hub on loopback."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from convert_commands import run_convert
from hub_server import Hub, serving
from pull_commands import isolate_client
from synthetic_checkpoint import make

from convert.source import locate
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.errors import UsageError


def test_a_repository_is_exported_as_the_folder_of_its_name(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    isolate_client(tmp_path / "hf", monkeypatch)
    make(tmp_path / "judge", shards=2)
    (tmp_path / "judge" / "README.md").write_text("A judge.", "utf-8")
    direct = export_pair(tmp_path / "judge", tmp_path / "direct")
    (tmp_path / "judge" / "pytorch_model.bin").write_bytes(b"not asked for")
    files = {path.name: path.read_bytes() for path in (tmp_path / "judge").iterdir()}
    out = ("--out", tmp_path / "out")
    with serving(Hub(files, repository="owner/judge")) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        for revision in ("main", hub.commit):
            status, printed, err = run_convert(capfd, "export", "owner/judge", "--revision", revision, *out)
            assert (status, err) == (0, ""), err
            assert [line.split()[0] for line in printed.splitlines()] == [file.sha256 for file in direct]
        assert {"config.json", "model-00002-of-00002.safetensors"} < {name for name, _ in hub.ranges}
        assert "pytorch_model.bin" not in {name for name, _ in hub.ranges}
        asked = len(hub.ranges)
        assert run_convert(capfd, "export", "owner/judge", *out)[0] == 0
        assert len(hub.ranges) == asked
        for arguments in (("owner/other",), ("owner/judge", "--revision", "v2")):
            failed = run_convert(capfd, "export", *arguments, *out)
            assert (failed[0], failed[1], failed[2].count("\n")) == (4, "", 1)
            assert failed[2].startswith(f"convert: {arguments[0]} is not at {hub.url}")
    # What is there serves a second time, without the hub.
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    shutil.rmtree(tmp_path / "out")
    assert run_convert(capfd, "export", "owner/judge", *out)[1] == printed
    failed = run_convert(capfd, "export", "owner/other", *out)
    assert (failed[0], failed[2].count("\n")) == (4, 1)
    assert "cannot be reached" in failed[2]


def test_a_folder_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "judge").mkdir(parents=True)
    assert locate("owner/judge") == Path("owner/judge")
    for path in ("/absent/folder", "./absent/folder", "absent", "a/b/c", "../a", "a/.b"):
        assert locate(path) == Path(path)  # and is then refused as a folder
    with pytest.raises(UsageError, match="no repository: leave it out"):
        locate("owner/judge", revision="main")
