"""Pairs of a curriculum: the same clip twice, one of them with one fault. Chance is NumPy's alone.

What is seen is as varied as in the world itself: still and moving cameras, with and without a subject, smooth and rough
grounds. The caption is one that both clips meet, or one that the pictures can neither confirm nor deny.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, get_args

import numpy as np

from train.world.captions import arbitrary, checked
from train.world.draw import COLOURS, DIRECTIONS, FORMS, Plan, clip_of, pick, with_defects
from train.world.draw import scene as mixed
from train.world.faults import single
from train.world.labels import labels_at_first, labels_of
from train.world.values import Lesson, Looks, Scene

LESSONS: Final[tuple[Lesson, ...]] = get_args(Lesson)
_PACES = ("still", "still", "slow", "fast", "fast")


def scene(seed: int, *, hidden: float = 0.35, lesson: Lesson = "mixed") -> Scene:
    """The pair of a seed in a lesson; `hidden` is for pairs of all kinds, as `train.world.draw` has it."""
    if lesson == "mixed":
        return mixed(seed, hidden=hidden)
    rng = np.random.default_rng((seed, 8, LESSONS.index(lesson)))
    plan = Plan(seed, pick(rng, _PACES), twins=True)
    looks = None
    if rng.random() < (0.85 if plan.pace == "still" else 0.5):
        looks = Looks(pick(rng, tuple(COLOURS)), pick(rng, FORMS), pick(rng, tuple(DIRECTIONS)))
    wanted = looks if rng.random() < 0.4 else None
    clip = clip_of(rng, plan, looks)
    a, b = single(rng, clip, lesson)
    caption = checked(rng, wanted) if wanted else arbitrary(rng)
    drawn = Scene(seed, caption, wanted, (with_defects(clip, a), with_defects(clip, b)), False)
    return replace(drawn, hidden=labels_of(drawn) != labels_at_first(drawn))
