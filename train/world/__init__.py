"""The world: labelled pairs of synthetic clips. A coloured shape over a natural background, with known faults.

    values -> draw, draw_faults, captions            what a pair is; NumPy only
    labels, script                                   the right labels, and what a perfect judge writes; pure
    grounds, effects, coding, render, drawn_frames   its pictures; torch
    write_set                                        pairs as mp4 files

A scene depends only on its seed and on the share of hidden pairs. Every scene is different, and two ranges of seeds
never share a clip. Test seeds also have their own textures and photographs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from train.training_cases import Cases, LazyCases, TrainingCase
from train.world.draw import RANGE, TEST_RANGE, scene
from train.world.drawn_frames import SceneOpener
from train.world.labels import labels_of
from train.world.script import frames_to_call
from train.world.script import script as written
from train.world.values import Scene
from vrt_lite.errors import UsageError
from vrt_lite.judge import Pair

__all__ = ["GRPO", "SAMPLE", "TEST", "TRAIN", "Scene", "World", "case_of", "exchanged", "scene"]

TRAIN, SAMPLE, GRPO, TEST = 0, RANGE, 2 * RANGE, TEST_RANGE * RANGE
"""The first seeds of ranges that share no pair."""


class World(LazyCases):
    """The cases of seeds `first` to `first + count - 1`. Each case is built when it is used.

    `hidden` is the share of pairs that have a label which the first frames do not show. With `footage`, every
    `footage_every`th case comes from there instead, in order. Raises UsageError if the seeds are not all in one range.
    """

    def __init__(
        self,
        first: int,
        count: int,
        *,
        hidden: float = 0.35,
        device: str = "cpu",
        footage: Cases | None = None,
        footage_every: int = 5,
    ) -> None:
        if first < 0 or count < 0 or (count and first // RANGE != (first + count - 1) // RANGE):
            raise UsageError(f"Seeds {first} to {first + count - 1} leave their range: each holds {RANGE} seeds.")
        self._seeds = range(first, first + count)
        self._hidden = hidden
        self._device = device
        self._footage, self._every = footage or (), footage_every

    def __len__(self) -> int:
        return len(self._seeds)

    def make(self, place: int) -> TrainingCase:
        """Build the case of a seed."""
        if self._footage and place % self._every == self._every - 1:
            return self._footage[place // self._every % len(self._footage)]
        return case_of(scene(self._seeds[place], hidden=self._hidden), device=self._device)


def case_of(drawn: Scene, *, device: str = "cpu") -> TrainingCase:
    """Build the case of a scene."""
    a, b = drawn.clips
    return TrainingCase(
        key=f"world:{drawn.seed}",
        pair=Pair(drawn.caption, (a.seconds, b.seconds), ((a.width, a.height), (b.width, b.height))),
        labels=labels_of(drawn),
        open=SceneOpener(drawn, device),
        defects=tuple(sorted({defect.kind for clip in drawn.clips for defect in clip.defects})),
        evidence=tuple(ref for call in frames_to_call(drawn) for ref in call),
        hidden=drawn.hidden,
        script=written(drawn),
        exchanged=partial(case_of, exchanged(drawn), device=device),
    )


def exchanged(drawn: Scene) -> Scene:
    """Return the scene with its clips in the other order."""
    return replace(drawn, clips=(drawn.clips[1], drawn.clips[0]))
