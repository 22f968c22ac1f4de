"""Pairs of clips as a user names them, what is wrong named with its line, and their judging for `convert verify`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from convert_commands import run_convert

from convert.clip_pairs import EXAMPLE, ClipPair, collect_pairs, read_pairs
from convert.verdicts import agreement, judge_pairs
from convert.verify import divergence
from vrt_lite.errors import UsageError
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.profile import PIXELS_PER_TOKEN, default_profile
from vrt_lite.protocol.messages import Conversation, Reply

CALL = '<think>look</think><tool_call>{"name": "select_frames", "arguments": {"target_frames": [1, 49]}}</tool_call>'
ANSWER = "<think>done</think><final answer>TA=1, VQ=0, MQ=2, OA=1</final answer>"
CHOICES = {"TA": 1, "VQ": 0, "MQ": 2, "OA": 1}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clips").mkdir()
    for name in ("a", "b", "c, d"):
        (tmp_path / "clips" / f"{name}.mp4").write_bytes(b"")
    return tmp_path


def test_csv_and_jsonl_say_the_same(folder: Path) -> None:
    captions = ["A cat jumps.", 'It says "hi", twice.', "日本\u2028two lines"]
    lines = ["id,caption,a,b"]
    lines += [f'1,"{text.replace(chr(34), chr(34) * 2)}","clips/c, d.mp4",clips/b.mp4' for text in captions]
    (folder / "list.csv").write_text("\r\n".join(lines) + "\r\n", "utf-8-sig", newline="")
    rows = [{"id": 1, "b": "clips/b.mp4", "caption": text, "a": "clips/c, d.mp4"} for text in captions]
    (folder / "list.jsonl").write_text("\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows), "utf-8")
    a, b, c = (folder / "clips" / f"{name}.mp4" for name in ("a", "b", "c, d"))
    expected = tuple(ClipPair(c, b, text) for text in captions)
    assert read_pairs(folder / "list.csv") == expected
    assert read_pairs(folder / "list.jsonl") == expected
    assert collect_pairs([(a, b)], ["one"], file=folder / "list.csv") == (ClipPair(a, b, "one"), *expected)
    assert collect_pairs([(a, b)]) == (ClipPair(a, b, ""),)
    assert collect_pairs([]) == ()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("list.txt", "", "must end in .csv, .jsonl, .ndjson, .tsv"),
        ("list.csv", "", "holds no pair"),
        ("list.csv", "a,b,caption\n", "holds no pair"),
        ("list.csv", "a,b\nclips/a.mp4,clips/b.mp4\n", "line 1 lacks the columns caption"),
        ("list.csv", "a,b,caption\n,clips/b.mp4,x\n", "line 2 must give a, b and caption"),
        ("list.csv", "a,b,caption\nclips/a.mp4,clips/none.mp4,x\n", "line 2 names"),
        ("list.jsonl", '{"a": "clips/a.mp4", "b": 3, "caption": ""}', "line 1 must give a, b and caption"),
    ],
)
def test_what_is_no_list_is_refused_by_line(folder: Path, name: str, text: str, message: str) -> None:
    (folder / name).write_text(text, "utf-8")
    with pytest.raises(UsageError, match=message) as refused:
        read_pairs(folder / name)
    assert str(folder / name) in str(refused.value)


def test_verify_refuses_wrong_arguments_in_one_line(capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "list.txt").write_text("")
    clips = ["--clips", "clips/a.mp4", "clips/b.mp4"]
    for arguments, message in (
        (["--caption", "x"], "--caption is given 1 times and --clips 0 times"),
        ([*clips, *clips, "--caption", "x"], "--caption is given 1 times and --clips 2 times"),
        (["--clips", "none.mp4", "clips/b.mp4"], "--clips names none.mp4, which is no file"),
        (["--pairs", "list.txt"], "list.txt is no list of pairs"),
        (["--revision", "main"], "clips is no repository: leave it out"),
    ):
        status, out, err = run_convert(capfd, "verify", "clips", "models", *arguments)
        assert (status, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("convert: ")
        assert message in err


@dataclass
class Scripted:
    """Says its turns in order and notes the sizes of the frames that each showed."""

    turns: Sequence[str]
    sizes: list[set[tuple[int, ...]]] = field(default_factory=list)

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        shown = [frame for message in conversation for frame in message.frames]
        self.sizes.append({picture.shape for picture in frames.pixels(shown)})
        return Reply(self.turns[len(self.sizes) - 1])


def test_pairs_are_judged_by_the_real_loop_with_frames_of_the_size_asked_for() -> None:
    profile = replace(default_profile(), max_pixels=24 * PIXELS_PER_TOKEN)
    script = Scripted([CALL, ANSWER, ANSWER.replace("TA=1", "TA=2"), *["nothing"] * (profile.retries + 1)])
    assert [*judge_pairs([EXAMPLE] * 3, profile, script, size="displayed")] == [CHOICES, {**CHOICES, "TA": 2}, None]
    assert script.sizes == [{(140, 252, 3)}] * len(script.turns)
    fitted = Scripted([ANSWER])
    assert [*judge_pairs([EXAMPLE], profile, fitted, size="fitted")] == [CHOICES]
    assert fitted.sizes == [{(84, 168, 3)}]


def test_agreement_counts_judgements() -> None:
    one = CHOICES
    assert agreement([one], [one]) == "4 of 4 on 1 pair"
    assert agreement([one, one], [one, {**one, "VQ": 2}]) == "7 of 8 on 2 pairs"
    assert agreement([one, one], [None, one]) == "4 of 8 on 2 pairs"
    assert agreement([one, None], [one, one]) == "4 of 4 on 1 of 2 pairs"
    assert agreement([None, None], [one, None]) == "none by the reference on 2 pairs"


def test_the_divergence_of_two_predictions() -> None:
    theirs, mine = (np.log(np.array([[half, 1 - half]], np.float32)) for half in (0.5, 0.25))
    assert divergence(theirs + 3, mine) == pytest.approx([0.5 * np.log(2) + 0.5 * np.log(2 / 3)], rel=1e-5)
    assert divergence(theirs, theirs) == pytest.approx([0])
