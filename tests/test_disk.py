"""Whole files or none, locks between processes, and waits with an end."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from vrt_lite.disk import draft_of, file_sha256, is_plain_name, locked, write_file


def test_a_draft_becomes_the_file_only_when_its_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")
    with draft_of(path) as draft:
        draft.write_text("new", encoding="utf-8")
        assert (draft.suffix, path.read_text(encoding="utf-8")) == (".html", "old")
    assert path.read_text(encoding="utf-8") == "new"
    with pytest.raises(KeyboardInterrupt), draft_of(path) as draft:
        draft.write_text("half", encoding="utf-8")
        raise KeyboardInterrupt
    assert path.read_text(encoding="utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_take_its_place_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="taken"):
        write_file(tmp_path / "taken", b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    write_file(tmp_path / "free", b"data")
    assert file_sha256(tmp_path / "free") == hashlib.sha256(b"data").hexdigest()


def test_names_that_leave_their_folder_on_some_system_are_not_plain() -> None:
    assert is_plain_name("a-é.mp4")
    for name in ("", ".", "..", "a/b", "a\\b", "C:x", "x\0", "x\n", " x", "x.", 'a"b'):
        assert not is_plain_name(name), name


@pytest.mark.parametrize("dies", [False, True])
def test_a_lock_is_waited_for_and_freed_by_a_death(own_home: Path, *, dies: bool) -> None:
    program = (
        "import sys, time\nfrom vrt_lite.disk import locked\n"
        "with locked('owner/model'):\n    print('locked', flush=True)\n    time.sleep(float(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, "600" if dies else "0.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "locked\n"
        if dies:
            process.kill()
            process.wait()
        waits: list[str] = []
        with locked("owner/model", lambda: waits.append("once")):
            assert waits == ([] if dies else ["once"])
    assert (own_home / "locks" / "owner--model").is_file()
