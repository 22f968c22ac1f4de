"""Pairs as a user names them: every form is read, and what is wrong is named with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from convert_commands import run_convert

from convert.clip_pairs import EXAMPLE, ClipPair, collect_pairs, read_pairs
from vrt_lite.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "clips").mkdir()
    for name in ("a", "b", "c, d"):
        (tmp_path / "clips" / f"{name}.mp4").write_bytes(b"")
    return tmp_path


def test_csv_and_jsonl_say_the_same(folder: Path) -> None:
    captions = ["A cat jumps.", 'It says "hi", twice.', "日本\u2028two lines"]
    rows = [{"id": i, "b": "clips/b.mp4", "caption": text, "a": "clips/c, d.mp4"} for i, text in enumerate(captions)]
    lines = ["id,caption,a,b"]
    lines += [
        f'{row["id"]},"{row["caption"].replace(chr(34), chr(34) * 2)}","clips/c, d.mp4",clips/b.mp4' for row in rows
    ]
    (folder / "list.csv").write_text("\r\n".join(lines) + "\r\n", "utf-8-sig", newline="")
    text = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (folder / "list.jsonl").write_text(text, "utf-8")
    expected = tuple(ClipPair(folder / "clips" / "c, d.mp4", folder / "clips" / "b.mp4", text) for text in captions)
    assert read_pairs(folder / "list.csv") == expected
    assert read_pairs(folder / "list.jsonl") == expected
    named = ClipPair(folder / "clips" / "a.mp4", folder / "clips" / "b.mp4", "one")
    assert collect_pairs([(named.a, named.b)], ["one"], file=folder / "list.csv") == (named, *expected)
    assert collect_pairs([(named.a, named.b)]) == (ClipPair(named.a, named.b, ""),)
    assert collect_pairs([]) == ()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("list.txt", "", "must end in .csv, .jsonl, .ndjson, .tsv"),
        ("list.csv", "", "holds no pair"),
        ("list.csv", "a,b,caption\n", "holds no pair"),
        ("list.csv", "x,b\nclips/a.mp4,clips/b.mp4\n", "line 1 lacks the columns a, caption"),
        ("list.csv", "a,b\nclips/a.mp4,clips/b.mp4\n", "line 1 lacks the columns caption"),
        ("list.csv", "a,b,caption\nclips/a.mp4,clips/b.mp4\n", "line 2 has 2 cells, not 3"),
        ("list.csv", "a,b,caption\n,clips/b.mp4,x\n", "line 2 must give a, b and caption"),
        ("list.csv", "a,b,caption\nclips/a.mp4,clips/none.mp4,x\n", "line 2 names"),
        ("list.csv", 'a,b,caption\nclips/a.mp4,"clips/b.mp4,x\n', "is not CSV: unexpected end"),
        ("list.jsonl", '{"a": "clips/a.mp4", "b": "clips/b.mp4"', "line 1 is not JSON"),
        ("list.jsonl", "\n[1]", "line 2 is not a JSON object"),
        ("list.jsonl", '{"a": "clips/a.mp4", "b": 3, "caption": ""}', "line 1 must give a, b and caption"),
    ],
)
def test_what_is_no_list_is_refused_by_line(folder: Path, name: str, text: str, message: str) -> None:
    (folder / name).write_text(text, "utf-8")
    with pytest.raises(UsageError, match=message) as refused:
        read_pairs(folder / name)
    assert str(folder / name) in str(refused.value)


def test_a_file_that_is_not_there_or_not_utf_8_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_pairs(folder / "none.csv")
    (folder / "latin.csv").write_bytes(b"a,b,caption\n\xe9")
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        read_pairs(folder / "latin.csv")


def test_the_example_is_there() -> None:
    assert EXAMPLE.a.is_file()
    assert EXAMPLE.b.is_file()


def test_verify_refuses_wrong_arguments_in_one_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    clips = ["--clips", "examples/a.mp4", "examples/b.mp4"]
    for arguments, message in (
        (["convert", "models", "--caption", "x"], "--caption is given 1 times and --clips 0 times"),
        (["convert", "models", *clips, *clips, "--caption", "x"], "--caption is given 1 times and --clips 2 times"),
        (["convert", "models", "--clips", "none.mp4", "examples/b.mp4"], "--clips names none.mp4, which is no file"),
        (["convert", "models", "--pairs", "README.md"], "README.md is no list of pairs"),
        (["convert", "models", "--revision", "main"], "convert is no repository: leave it out"),
    ):
        status, out, err = run_convert(capfd, "verify", *arguments)
        assert (status, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("convert: ")
        assert message in err
