"""Tables of pairs, two of which share none by content, their cases, and files of traces."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from clips import read_index, write_clip
from msgspec.structs import replace

from train.data import append_rows, check_tables, load_cases, read_rows, read_table, read_traces
from train.recipe import Tables
from vrt_lite.errors import UsageError
from vrt_lite.profile import default_profile
from vrt_lite.protocol.messages import FrameRef

Row = tuple[str, str, str, str]


def write_table(path: Path, rows: Iterable[Row]) -> str:
    """Write a table of (id, a, b, prompt), in each of which the first clip is better."""
    lines = [f'{name},{a},{b},"{prompt}",A' for name, a, b, prompt in rows]
    path.write_text("\n".join(["id,a,b,prompt,overall", *lines]) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def data(tmp_path: Path) -> Tables:
    """Four tables without a common pair; clips are compared, not decoded."""
    for name in "abcdefgh":
        (tmp_path / f"{name}.mp4").write_bytes(f"clip {name}".encode())
    return Tables(
        traces="traces.jsonl",
        cold_start=write_table(tmp_path / "cold.csv", [("one", "a.mp4", "b.mp4", "a cat")]),
        sample=write_table(tmp_path / "sample.csv", [("one", "a.mp4", "c.mp4", "a cat")]),
        grpo=write_table(
            tmp_path / "grpo.csv", [("one", "a.mp4", "b.mp4", "a dog"), ("two", "a.mp4", "d.mp4", "a cat")]
        ),
        test=write_table(tmp_path / "test.csv", [("x", "e.mp4", "f.mp4", "a cat"), ("y", "g.mp4", "h.mp4", "a cat")]),
    )


@pytest.mark.parametrize("prompt", ["a cat", "  a   cat "])
@pytest.mark.parametrize("clips", [("new1.mp4", "new2.mp4"), ("new2.mp4", "new1.mp4")])
def test_a_shared_pair_is_named_under_any_name_and_in_any_order(
    data: Tables, tmp_path: Path, clips: tuple[str, str], prompt: str
) -> None:
    shutil.copy(tmp_path / "a.mp4", tmp_path / "new1.mp4")
    shutil.copy(tmp_path / "c.mp4", tmp_path / "new2.mp4")
    write_table(tmp_path / "test.csv", [("x", "e.mp4", "f.mp4", "a cat"), ("seven", *clips, prompt)])
    expected = f"data.sample ({data.sample}) and data.test ({data.test}) share a pair: 'one' and 'seven' have the same"
    with pytest.raises(UsageError, match=re.escape(expected)):
        check_tables(data)
    (tmp_path / "new2.mp4").write_bytes(b"clip x")  # of the same size
    check_tables(data)


def test_one_table_for_two_stages_is_refused(data: Tables) -> None:
    with pytest.raises(UsageError, match=r"data\.cold_start .* and data\.grpo .* share a pair: 'one' and 'one'"):
        check_tables(replace(data, grpo=data.cold_start))


def test_two_pairs_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"a")
    table = write_table(tmp_path / "t.csv", [("x", "a.mp4", "a.mp4", "1"), ("y", "a.mp4", "a.mp4", "2")] * 2)
    with pytest.raises(UsageError, match=r"has two pairs 'x' \(rows 1 and 3\): give each an id of its own"):
        read_table(Path(table))


def test_rows_without_clips_are_left_out_with_a_reason(data: Tables, tmp_path: Path) -> None:
    rows = [("x", "a.mp4", "b.mp4", ""), ("y", "a.mp4", "lost.mp4", "")]
    table = read_table(Path(write_table(tmp_path / "t.csv", rows)))
    assert [pair.row.name for pair in table.pairs] == ["x"]
    assert len(table.left_out) == 1 and "lost.mp4" in table.left_out[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_clip(tmp_path / "a.mp4", frames=48, fps=16)
    write_clip(tmp_path / "b.mp4", frames=96, fps=16)
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    rows = [
        "id,a,b,prompt,overall,TA",
        "one,a.mp4,b.mp4,a cat,A,same",
        "two,b.mp4,a.mp4,a dog,B,",
        "bad,a.mp4,broken.mp4,x,A,",
    ]
    (tmp_path / "pairs.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path


def test_a_set_gives_cases_and_says_what_it_leaves_out(folder: Path) -> None:
    found = load_cases(folder)
    assert [case.key for case in found] == ["one", "two"]
    assert len(found.left_out) == 1
    assert "bad" in found.left_out[0]
    first, second = found[:]
    assert first.labels == {"OA": 1, "TA": 0}
    assert second.labels == {"OA": 2}
    assert first.pair.caption == "a cat"
    assert first.pair.durations == pytest.approx((3.0, 6.0))
    with first.open(default_profile()) as frames:
        shown = frames.pixels([FrameRef(0, 47), FrameRef(1, 47), FrameRef(1, 0)])
    assert [read_index(picture) for picture in shown] == [47, 95, 0]


def test_traces_choose_the_pairs(folder: Path) -> None:
    traces = folder / "traces.jsonl"
    traces.write_text(json.dumps({"key": "two", "replies": ["first", "second"]}) + "\n", encoding="utf-8")
    found = load_cases(folder, traces)
    assert [(case.key, case.script) for case in found] == [("two", ("first", "second"))]
    assert any("one has no trace" in why for why in found.left_out)


def test_a_set_without_a_usable_pair_is_refused(folder: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        (folder / name).write_bytes(b"")
    with pytest.raises(UsageError, match="no pair to learn from"):
        load_cases(folder)


def test_lines_that_a_kill_cut_short_are_written_again(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    append_rows(path, [{"key": "é 1", "replies": ["a\nb"]}, {"key": 2, "replies": None}])
    with path.open("ab") as file:
        file.write(b'{"key": "3", "repl')
    assert read_traces(path) == {"é 1": ("a\nb",), "2": ()}
    append_rows(path, [{"key": "3", "replies": ["c"]}])
    assert [row["key"] for row in read_rows(path)] == ["é 1", 2, "3"]
    path.write_text('{"key": "1", "replies": ["whole, and the file ends here"]}', encoding="utf-8")
    assert len(read_traces(path)) == 1
    path.write_text('{"key"\n{}\n', encoding="utf-8")
    with pytest.raises(UsageError, match="line 1 is not JSON"):
        read_traces(path)
    assert read_traces(tmp_path / "none.jsonl") == {}
