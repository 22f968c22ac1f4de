"""Traces: replayed by inference's own loop, kept in a file that survives a kill."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from train.traces import Trace, append_rows, append_traces, keep_rows, read_rows, read_traces, replay
from train.training_cases import TrainingCase
from vrt_lite.errors import NoVerdictError, UsageError
from vrt_lite.interfaces import FrameStore
from vrt_lite.judge import Pair
from vrt_lite.profile import Profile, default_profile
from vrt_lite.protocol.messages import FrameRef, Image, Text

PROFILE = replace(default_profile(), workspace=8, first_frames=2, frames_per_call=2, rounds=4, window=1)


@contextlib.contextmanager
def _no_frames(profile: Profile) -> Iterator[FrameStore]:
    raise AssertionError("a replay opens no frames")
    yield


CASE = TrainingCase("one", Pair("a cat", (1.0, 2.0)), {"TA": 1, "VQ": 1, "MQ": 1, "OA": 1}, _no_frames)


def _call(*numbers: int) -> str:
    arguments = f'{{"name": "select_frames", "arguments": {{"target_frames": {list(numbers)}}}}}'
    recommended = "<recommend answer>TA=0, VQ=0, MQ=0, OA=0, CF=2</recommend answer>"
    return f"<think>more</think>{recommended}<tool_call>{arguments}</tool_call>"


FINAL = "<final answer>TA=1, VQ=1, MQ=1, OA=1</final answer>"


def test_a_replay_sees_through_the_window() -> None:
    visible, trial = replay(CASE, [_call(2, 3), _call(10), FINAL], PROFILE)
    assert [r.outcome for r in trial.rounds] == ["tool", "tool", "final"]
    assert len(visible) == 3
    assert visible[1][-1].frames == (FrameRef(0, 1, called=True), FrameRef(0, 2, called=True))
    assert visible[2][3].frames == ()
    assert Text(PROFILE.forgotten_text) in visible[2][3].parts
    assert visible[2][-1].parts[1] == Image(FrameRef(1, 1, called=True))
    assert visible[2][2].parts[0].text == _call(2, 3)


def test_a_replay_corrects_as_inference_does() -> None:
    visible, trial = replay(CASE, [_call(99), FINAL], PROFILE)
    assert trial.rounds[0].outcome == "correction"
    assert "There are 16 frames numbered in range [1,16]" in visible[1][-1].parts[0].text


def test_replies_that_end_too_early_are_no_trial() -> None:
    with pytest.raises(NoVerdictError, match="no reply for round 2"):
        replay(CASE, [_call(2)], PROFILE)


def test_a_file_of_traces_gives_back_what_was_added(tmp_path: Path) -> None:
    file = tmp_path / "new" / "traces.jsonl"
    one, two = Trace("a", ("x\ny", "ü")), Trace("b", ())
    assert read_traces(file) == []
    append_traces(file, [one])
    append_traces(file, [two, one])
    assert read_traces(file) == [one, two, one]


def test_a_line_that_was_cut_short_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    append_traces(file, [Trace("a", ("x",))])
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"key": "b", "repl')
    assert read_traces(file) == [Trace("a", ("x",))]
    append_traces(file, [Trace("c", ("z",))])
    assert read_traces(file) == [Trace("a", ("x",)), Trace("c", ("z",))]
    assert file.read_bytes().startswith(whole)


def test_lines_beyond_a_count_can_be_dropped(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    keep_rows(file, 1)
    append_rows(file, [{"n": n} for n in range(3)])
    keep_rows(file, 5)
    assert [row["n"] for row in read_rows(file)] == [0, 1, 2]
    keep_rows(file, 1)
    append_rows(file, [{"n": 9}])
    assert [row["n"] for row in read_rows(file)] == [0, 9]


@pytest.mark.parametrize("text", ["no json\n", '{"key": 1}\n', "[1]\n"])
def test_another_kind_of_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"other\.jsonl"):
        read_traces(file)
