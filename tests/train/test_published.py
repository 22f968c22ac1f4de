"""Labelled sets of real files as cases: labels, frames, traces, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from clips import read_index, write_clip

from train.published_pairs import load_published_pairs
from vrt_lite.errors import UsageError
from vrt_lite.profile import default_profile
from vrt_lite.protocol.messages import FrameRef


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
    found = load_published_pairs(folder)
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
    found = load_published_pairs(folder, traces)
    assert [(case.key, case.script) for case in found] == [("two", ("first", "second"))]
    assert any("one has no trace" in why for why in found.left_out)


def test_a_line_that_is_no_trace_is_named(folder: Path) -> None:
    traces = folder / "traces.jsonl"
    traces.write_text('{"key": "two"}\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"line 1 is not a trace"):
        load_published_pairs(folder, traces)


def test_a_set_without_a_usable_pair_is_refused(folder: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        (folder / name).write_bytes(b"")
    with pytest.raises(UsageError, match="no pair to learn from"):
        load_published_pairs(folder)
