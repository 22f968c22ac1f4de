"""No name reaches the terminal with its control characters; nothing that is written replaces a special file."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from pathlib import Path

import pytest
from golden.make_terminal import draw_screen

from vrt_lite.cli import run
from vrt_lite.disk import draft_of, file_sha256, write_file
from vrt_lite.errors import UsageError
from vrt_lite.ranking.winners import copy_winners
from vrt_lite.records.judgement import Judgement
from vrt_lite.records.ladders import RankedClip
from vrt_lite.viewer.page_file import write_page

only_posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no special files in folders")
CLIP = Path(__file__).parents[1] / "examples" / "star.mp4"
EVIL = "c\x1b]0;PWNED\x07\r\n\u202eb.mp4"


@pytest.mark.parametrize(
    "line",
    [
        "compare EVIL",
        "compare a.mp4 b.mp4 EVIL",
        "compare EVIL b.mp4 --prompt fox",
        "compare a.mp4 b.mp4 --EVIL",
        "compare a.mp4 b.mp4 --prompt-file EVIL",
        "compare a.mp4 b.mp4 --ctx EVIL",
        "compare a.mp4 b.mp4 -p fox --model EVIL",
        "EVIL",
        "--EVIL",
        "rank EVIL -p fox",
        "rank a.mp4 --jobs EVIL",
        "eval EVIL",
        "show EVIL",
        "export foxes -o EVIL",
        "rm EVIL",
        "pull EVIL",
        "report EVIL",
        "estimate --model EVIL",
    ],
)
def test_an_error_shows_what_it_names_escaped(
    line: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([word.replace("EVIL", EVIL) for word in line.split()]) in {2, 3, 4, 7}
    out, err = capfd.readouterr()
    assert all(c.isprintable() or c == "\n" for c in out + err)
    assert "PWNED" not in err or r"\x1b]0;PWNED\x07" in err
    assert "\nb.mp4" not in err


@pytest.mark.skipif(sys.platform != "linux", reason="macOS and Windows have no such names")
def test_a_name_and_a_prompt_that_are_not_utf_8_are_in_the_json(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / os.fsdecode(b"\xff.mp4")
    path.write_bytes(CLIP.read_bytes())
    assert run(["compare", str(path), str(CLIP), "-p", os.fsdecode(b"A \xff fox."), "--json"]) == 0
    judgement = Judgement.from_json(json.loads(capfd.readouterr().out))
    assert (judgement.inputs[0].path, judgement.prompt) == (str(path), "A \udcff fox.")


def test_what_a_stored_model_says_about_itself_is_shown_escaped(own_home: Path) -> None:
    folder = own_home / "models" / "evil"
    folder.mkdir(parents=True)
    files = [{"name": f"{role}\x9b31m.gguf", "role": role, "size": 1, "sha256": ""} for role in ("text", "projector")]
    facts = {**dict.fromkeys(("name", "repository", "revision", "quant", "licence"), EVIL), "verified": False}
    (folder / "manifest.json").write_text(json.dumps({**facts, "files": files, "format": 1}), encoding="utf-8")
    shown = draw_screen(lambda: run(["models"]), 60)
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert all(len(line) <= 60 or len(line.split()) == 1 for line in shown.splitlines())
    assert r"text\x9b31m.gguf, projector\x9b31m.gguf is missing" in " ".join(shown.split())


@only_posix
def test_a_special_file_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    Path("folder").mkdir()
    Path("link to a fifo").symlink_to("fifo")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("socket")  # such a name has at most 107 bytes
    special = sorted(tmp_path.iterdir())
    assert len(special) == 4
    for path in (*special, Path(os.devnull)):
        before = path.lstat()
        with pytest.raises(FileExistsError, match="no regular file"):
            write_file(path, b"data")
        refused = pytest.raises(UsageError, match=r"cannot be written: it is there, and is no regular file\.")
        with refused, write_page(path, "", ("", (), ())):
            pass
        assert (path.lstat().st_mode, path.lstat().st_ino) == (before.st_mode, before.st_ino)
        assert sorted(tmp_path.iterdir()) == special


@only_posix
def test_a_special_file_that_appears_while_writing_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    with pytest.raises(FileExistsError, match="no regular file"), draft_of(path) as draft:
        draft.write_bytes(b"data")
        os.mkfifo(path)
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


@only_posix
def test_no_draft_is_written_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, clip, folder = tmp_path / "victim", tmp_path / "a.mp4", tmp_path / "best"
    victim.write_bytes(b"mine")
    clip.write_bytes(b"a clip")
    folder.mkdir()
    (folder / f".01-a.mp4.{os.getpid()}.part").symlink_to(victim)
    [copied] = copy_winners([("", [RankedClip("a.mp4", clip, file_sha256(clip))])], folder)
    assert copied.read_bytes() == b"a clip"
    monkeypatch.setattr(secrets, "token_hex", lambda _: "guessed")
    (tmp_path / ".guessed.txt").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "new.txt", b"data")
    assert victim.read_bytes() == b"mine"


@only_posix
def test_a_file_that_must_not_be_replaced_stays(tmp_path: Path) -> None:
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    old.write_bytes(b"old")
    with pytest.raises(FileExistsError), draft_of(old, replace=False) as draft:
        draft.write_bytes(b"new")
    with draft_of(new, replace=False) as draft:
        draft.write_bytes(b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"old.txt": b"old", "new.txt": b"new"}
