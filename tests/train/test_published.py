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


def test_a_case_in_the_other_order(folder: Path) -> None:
    first, _ = load_published_pairs(folder)[:]
    assert first.exchanged
    other = first.exchanged()
    assert other.labels == {"OA": 2, "TA": 0}
    assert other.pair.durations == pytest.approx((6.0, 3.0))
    with other.open(default_profile()) as frames:
        shown = frames.pixels([FrameRef(0, 47), FrameRef(1, 47)])
    assert [read_index(picture) for picture in shown] == [95, 47]
    assert other.exchanged
    assert (other.exchanged().pair, other.exchanged().labels) == (first.pair, first.labels)


def test_a_trace_teaches_both_orders(folder: Path) -> None:
    """Its own trace of the other order comes before the exchanged one."""
    lines: list[dict[str, object]] = [
        {"key": "one", "replies": ["Video 1. VQ=1"]},
        {"key": "two", "replies": ["Video 1. VQ=1"]},
        {"key": "two", "replies": ["Video 2, surely. VQ=2"], "order": "swapped"},
    ]
    traces = folder / "traces.jsonl"
    traces.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    one, two = load_published_pairs(folder, traces)[:]
    assert one.exchanged and two.exchanged
    assert one.script == two.script == ("Video 1. VQ=1",)
    assert (one.exchanged().script, two.exchanged().script) == (("Video 2. VQ=2",), ("Video 2, surely. VQ=2",))
    traces.write_text('{"key": "one", "replies": [], "order": "random"}\n', encoding="utf-8")
    with pytest.raises(UsageError, match="line 1 is not a trace: it needs key and replies, and may have order"):
        load_published_pairs(folder, traces)


def test_a_number_of_pairs_is_drawn_and_a_part_is_kept_apart(folder: Path) -> None:
    rows = [f"p{n},a.mp4,b.mp4,cat {n},A" for n in range(12)]
    table = folder / "many.csv"
    table.write_text("\n".join(["id,a,b,prompt,overall", *rows]) + "\n", encoding="utf-8")
    few, more = ({case.key for case in load_published_pairs(table, most=most)} for most in (3, 7))
    assert (len(few), len(more)) == (3, 7) and few < more
    fit, report = ([case.key for case in load_published_pairs(table, part=part)] for part in ("fit", "report"))
    assert (len(fit), len(report)) == (3, 9)
    assert {key.split()[0] for key in (*fit, *report)} == {f"p{n}" for n in range(12)}
    table.write_text("\n".join(["id,a,b,prompt,overall", *reversed(rows)]) + "\n", encoding="utf-8")
    assert {case.key for case in load_published_pairs(table, part="fit")} == set(fit)
    # Another pair under the same name has another key, so that its outcome is not taken for the old one's.
    table.write_text(table.read_text("utf-8").replace("cat", "dog"), encoding="utf-8")
    assert not {case.key for case in load_published_pairs(table)} & {*fit, *report}
    changed = [case.key for part in ("fit", "report") for case in load_published_pairs(table, part=part)]
    assert len(changed) == 12 and not {*changed} & {*fit, *report}


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
