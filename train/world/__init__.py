"""A world of labelled pairs: a coloured shape over natural grounds, with known faults, drawn from a seed.

    values -> draw, faults, captions -> lessons     what a pair is; NumPy only
    labels, script                                  what is right, and what a perfect judge says of it; pure
    grounds, effects, coding, render, store         its pictures; torch
    files                                           the same as mp4 files

A scene follows from its seed and the share of hidden pairs alone. No two are alike, and no range shares a clip with
another; test seeds also have textures and photographs of their own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from train.cases import Case, Cases, OnDemand
from train.world.draw import RANGE, TEST_RANGE
from train.world.labels import labels_of
from train.world.lessons import LESSONS, scene
from train.world.script import asks
from train.world.script import script as written
from train.world.store import Opening
from train.world.values import Lesson, Scene
from vrt_lite.errors import UsageError
from vrt_lite.judge import Pair

__all__ = ["GRPO", "LESSONS", "SAMPLE", "TEST", "TRAIN", "Lesson", "Scene", "World", "case_of", "scene"]

TRAIN, SAMPLE, GRPO, TEST = 0, RANGE, 2 * RANGE, TEST_RANGE * RANGE
"""The first seeds of ranges that share no pair."""
_FOOTAGE_EVERY = 5


class World(OnDemand):
    """The cases of seeds `first` to `first + count - 1`, each made when it is asked for.

    `hidden` is the share of pairs of which a label cannot be known from the frames shown first. With `footage`, every
    fifth case is one of those instead, in their order. UsageError if the seeds leave their range.
    """

    def __init__(
        self,
        first: int,
        count: int,
        *,
        hidden: float = 0.35,
        device: str = "cpu",
        footage: Cases | None = None,
        lesson: Lesson = "mixed",
    ) -> None:
        if first < 0 or count < 0 or (count and first // RANGE != (first + count - 1) // RANGE):
            raise UsageError(f"Seeds {first} to {first + count - 1} leave their range: each holds {RANGE} seeds.")
        self._seeds = range(first, first + count)
        self._hidden = hidden
        self._device = device
        self._lesson: Lesson = lesson
        self._footage = footage or ()

    def __len__(self) -> int:
        return len(self._seeds)

    def make(self, place: int) -> Case:
        """The case of a seed."""
        if self._footage and place % _FOOTAGE_EVERY == _FOOTAGE_EVERY - 1:
            return self._footage[place // _FOOTAGE_EVERY % len(self._footage)]
        return case_of(scene(self._seeds[place], hidden=self._hidden, lesson=self._lesson), device=self._device)


def case_of(drawn: Scene, *, device: str = "cpu") -> Case:
    """A scene as a case."""
    a, b = drawn.clips
    return Case(
        key=f"world:{drawn.seed}",
        pair=Pair(drawn.caption, (a.seconds, b.seconds), ((a.width, a.height), (b.width, b.height))),
        labels=labels_of(drawn),
        open=Opening(drawn, device),
        defects=tuple(sorted({defect.kind for clip in drawn.clips for defect in clip.defects})),
        evidence=tuple(ref for call in asks(drawn) for ref in call),
        hidden=drawn.hidden,
        script=written(drawn),
        exchanged=partial(case_of, exchanged(drawn), device=device),
    )


def exchanged(drawn: Scene) -> Scene:
    """The scene with its clips in the other order."""
    return replace(drawn, clips=(drawn.clips[1], drawn.clips[0]))
