"""Draws pairs of a curriculum: the same clip twice, one of them with one fault. All random numbers are NumPy's.

The clips are as varied as in all of the world: still and moving cameras, with and without a subject, smooth and rough
backgrounds. Both clips match the caption, or the pictures cannot decide it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, get_args

import numpy as np

from train.world.captions import draw_checkable_caption, draw_unrelated_caption
from train.world.draw import COLOURS, DIRECTIONS, FORMS, ScenePlan, clip_of, pick, with_defects
from train.world.draw import scene as mixed
from train.world.draw_faults import draw_single_fault
from train.world.labels import labels_of, labels_of_first_frames
from train.world.values import Lesson, Looks, Scene

LESSONS: Final[tuple[Lesson, ...]] = get_args(Lesson)
_PACES = ("still", "still", "slow", "fast", "fast")


def scene(seed: int, *, hidden: float = 0.35, lesson: Lesson = "mixed") -> Scene:
    """Draw the pair of a seed in a lesson. `hidden` is for the lesson "mixed", as in `train.world.draw.scene`."""
    if lesson == "mixed":
        return mixed(seed, hidden=hidden)
    rng = np.random.default_rng((seed, 8, LESSONS.index(lesson)))
    plan = ScenePlan(seed, pick(rng, _PACES), twins=True)
    looks = None
    if rng.random() < (0.85 if plan.pace == "still" else 0.5):
        looks = Looks(pick(rng, tuple(COLOURS)), pick(rng, FORMS), pick(rng, tuple(DIRECTIONS)))
    caption_looks = looks if rng.random() < 0.4 else None
    clip = clip_of(rng, plan, looks)
    a, b = draw_single_fault(rng, clip, lesson)
    caption = draw_checkable_caption(rng, caption_looks) if caption_looks else draw_unrelated_caption(rng)
    drawn = Scene(seed, caption, caption_looks, (with_defects(clip, a), with_defects(clip, b)), False)
    return replace(drawn, hidden=labels_of(drawn) != labels_of_first_frames(drawn))
