"""What is written never replaces a special file, and never goes through a link that someone has laid."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from pathlib import Path

import pytest

from vrt_lite.disk import draft_of, file_sha256, write_file
from vrt_lite.errors import UsageError
from vrt_lite.ranking.winners import copy_winners
from vrt_lite.records.ladders import RankedClip
from vrt_lite.viewer.page_file import write_page

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no special files in folders")


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


@pytest.fixture
def listening(tmp_path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(os.path.relpath(tmp_path / "socket"))  # such a name has at most 107 bytes
    return tmp_path / "socket"


@pytest.mark.parametrize("kind", ["fifo", "listening", "folder", "link to a fifo", "device"])
def test_a_special_file_is_not_replaced(tmp_path: Path, fifo: Path, listening: Path, kind: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(fifo)
    paths = {"fifo": fifo, "listening": listening, "folder": tmp_path / "folder", "device": Path(os.devnull)}
    path = paths.get(kind, tmp_path / "link")
    before, names = path.lstat(), sorted(tmp_path.iterdir())
    with pytest.raises(FileExistsError, match="no regular file"):
        write_file(path, b"data")
    with (
        pytest.raises(UsageError, match=r"cannot be written: it is there, and is no regular file\."),
        write_page(path, "", ""),
    ):
        pass
    assert (path.lstat().st_mode, path.lstat().st_ino) == (before.st_mode, before.st_ino)
    assert sorted(tmp_path.iterdir()) == names


def test_a_special_file_that_appears_while_writing_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    with pytest.raises(FileExistsError, match="no regular file"), draft_of(path) as draft:
        draft.write_bytes(b"data")
        os.mkfifo(path)
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_in_the_place_of_a_draft_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    monkeypatch.setattr(secrets, "token_hex", lambda _: "guessed")
    (tmp_path / ".guessed.txt").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "new.txt", b"data")
    assert victim.read_bytes() == b"mine"


def test_a_winner_is_not_copied_through_a_link(tmp_path: Path) -> None:
    clip = tmp_path / "a.mp4"
    clip.write_bytes(b"a clip")
    victim, folder = tmp_path / "victim", tmp_path / "best"
    victim.write_bytes(b"mine")
    folder.mkdir()
    (folder / f".01-a.mp4.{os.getpid()}.part").symlink_to(victim)
    [copied] = copy_winners([("", [RankedClip("a.mp4", clip, file_sha256(clip))])], folder)
    assert (copied.read_bytes(), victim.read_bytes()) == (b"a clip", b"mine")


def test_a_file_that_must_not_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError("this drive has no links")

    for link in (os.link, refuse):
        monkeypatch.setattr(os, "link", link)
        with pytest.raises(FileExistsError), draft_of(path, replace=False) as draft:
            draft.write_bytes(b"new")
        with draft_of(tmp_path / link.__name__, replace=False) as draft:
            draft.write_bytes(b"new")
        assert (tmp_path / link.__name__).read_bytes() == b"new"
    assert path.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "link", "refuse"]
