"""Judgements made by hand: the loop and a scripted judge, over frames of one colour each. No clip, no model."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.interfaces import Observe, ignore
from vrt_lite.judge import Pair, judge_with
from vrt_lite.pair_frames import Workspace
from vrt_lite.profile import default_profile
from vrt_lite.protocol.messages import Dimension, FrameRef, Odds, Reply
from vrt_lite.protocol.verdict import TIE, BothOrders, Verdict, join_orders, make_verdict, prefer
from vrt_lite.recording import ShownPair, record_order
from vrt_lite.records.judgement import (
    Counters,
    FileUsed,
    JudgedClip,
    JudgedOrder,
    Judgement,
    ModelUsed,
    ProfileUsed,
    SettingsUsed,
    Timings,
)
from vrt_lite.video import ClipInfo

FINAL = "<snapshot>Sharp.</snapshot>\n<think>Enough.</think>\n<final answer>TA=0, VQ=2, MQ=1, OA=2</final answer>"
ONE, TWO, TIED = (0.02, 0.91, 0.07), (0.04, 0.03, 0.93), (0.81, 0.12, 0.07)

NO_SHA256 = "0" * 64

Size = tuple[int, int]


def call(*numbers: int) -> str:
    """A round that recommends an answer and asks for frames by the judge's numbers."""
    arguments = {"target_frames": numbers}
    return (
        "<snapshot>Sharp.</snapshot>\n<recommend answer>TA=0, VQ=2, MQ=1, OA=2, CF=2</recommend answer>\n"
        f"<tool_call>{json.dumps({'name': 'select_frames', 'arguments': arguments})}</tool_call>"
    )


@functools.cache
def _validator() -> Any:
    import jsonschema

    from vrt_lite.schema import make_schema

    schema = make_schema()
    return jsonschema.validators.validator_for(schema)(schema)


def check_record(record: Any) -> None:
    """ValidationError if a record's plain data does not follow the schema that is made of the types.

    The schema itself is not checked each time, which takes 50 times as long: test_judgement.py does that.
    """
    _validator().validate(record)


def with_odds(text: str, *odds: Odds) -> Reply:
    """A reply whose answer digits (TA, VQ, MQ, OA) have these probabilities."""
    digits = [text.rindex(f"{key}=") + 3 for key in ("TA", "VQ", "MQ", "OA")]
    return Reply(text, odds=dict(zip(digits, odds, strict=True)))


def sure() -> Reply:
    """A final answer with probabilities: TA tie, VQ video 2, MQ video 1, overall video 2."""
    return with_odds(FINAL, TIED, TWO, ONE, TWO)


def colour(frame: FrameRef) -> tuple[int, int, int]:
    """The colour that all of a frame has, and no other frame."""
    return (200 if frame.clip else 20, 5 * frame.index, 99)


def verdict_of(
    winners: Mapping[str, int], odds: Mapping[str, Odds | None] | None = None, leans: Mapping[str, int] | None = None
) -> Verdict:
    """A final verdict with these winners, probabilities and leans by key."""
    made: Any = {key: prefer(winner, (odds or {}).get(key), (leans or {}).get(key)) for key, winner in winners.items()}
    return make_verdict(made, "final")


class Colours:
    """A frame store of frames of one colour each."""

    def __init__(self, sizes: tuple[Size, Size]) -> None:
        self.sizes = sizes

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        """One plain picture a frame."""
        shapes = [self.sizes[frame.clip][::-1] for frame in frames]
        return [np.full((*shape, 3), colour(f), np.uint8) for shape, f in zip(shapes, frames, strict=True)]


def judgement(
    *scripts: Sequence[str | Reply],
    names: tuple[str, str] = ("a.mp4", "b.mp4"),
    prompt: str = "A fox runs.",
    dimension: str = "",
    sizes: tuple[Size, Size] = ((252, 28), (252, 28)),
    warnings: tuple[str, ...] = (),
    max_pixels: int | None = None,
    observe: Observe = ignore,
) -> Judgement:
    """What comes of these replies, one script an order; without a script the two clips are one file."""
    profile = default_profile()
    clips = (_info(names[0], sizes[0]), _info(names[1], sizes[1]))
    pair = ShownPair(prompt, clips, (_workspace(sizes[0]), _workspace(sizes[1])))
    orders: list[JudgedOrder] = []
    for first, script in enumerate(scripts):
        asked = Pair(prompt, (3.0, 3.0))
        trial = judge_with(asked, profile, ScriptedBackend(script), Colours(sizes), order=first, observe=observe)
        orders.append(record_order(first, trial, pair, profile))
    one, other = (*(order.verdict for order in orders), None, None)[:2]
    joined, both = join_orders(one, other) or BothOrders(TIE), len(orders) == 2
    words = {key: Dimension(dimension or d.name, d.explain) for key, d in profile.dimensions.items()}
    return Judgement(
        prompt=prompt or None,
        model=ModelUsed("vrt-tiny-0", FileUsed("t.gguf", NO_SHA256), FileUsed("p.gguf", NO_SHA256)),
        profile=ProfileUsed("vr-thinker", NO_SHA256),
        inputs=(_clip(clips[0], sizes[0]), _clip(clips[1], sizes[1])),
        settings=SettingsUsed(
            preset=None,
            dimensions={"TA": words["TA"], "VQ": words["VQ"], "MQ": words["MQ"]},
            workspace=profile.workspace,
            first_frames=profile.first_frames,
            window=profile.window,
            rounds=profile.rounds,
            max_pixels=max_pixels or profile.max_pixels,
            tool_max_pixels=max_pixels or profile.tool_max_pixels,
            ctx=None,
            gpu_layers=None,
            threads=None,
            kv_type=None,
            temperature=0.0,
            seed=0,
            both_orders=both,
            cache=True,
        ),
        verdict=joined.verdict,
        orders=tuple(orders),
        disagreements=joined.disagreements,
        warnings=warnings,
        warning_kinds=("test",) * len(warnings),
        timings=Timings(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.83),
        counters=Counters(0, 0, 0, 0, 0),
    )


def _info(name: str, size: Size) -> ClipInfo:
    return ClipInfo(Path(name), NO_SHA256, 1000, *size, 16.0, 3.0, 48, False, "sdr", False)


def _workspace(size: Size) -> Workspace:
    return Workspace(tuple(range(48)), tuple(i / 16 for i in range(48)), size, size)


def _clip(info: ClipInfo, size: Size) -> JudgedClip:
    return JudgedClip(str(info.path), NO_SHA256, 1000, *size, 16.0, 3.0, 48, False, "sdr", size, (), size)
