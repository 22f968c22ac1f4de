"""Draws pairs of a curriculum: two clips, one of them with one fault. All random numbers are NumPy's.

Most pairs have equal content. The clips are as varied as in all of the world: still and moving cameras, with and
without a subject, smooth and rough backgrounds. The fault is often a subject that contradicts the caption. Otherwise
both clips match it, or the pictures cannot decide it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, get_args

import numpy as np

from train.world.captions import draw_checkable_caption, draw_unrelated_caption
from train.world.draw import COLOURS, DIRECTIONS, FORMS, ScenePlan, clips_of, other_looks, pick, with_defects
from train.world.draw import scene as mixed
from train.world.draw_faults import draw_single_fault
from train.world.labels import labels_of, labels_of_first_frames
from train.world.values import Lesson, Looks, Scene

LESSONS: Final[tuple[Lesson, ...]] = get_args(Lesson)
_PACES = ("still", "still", "slow", "fast", "fast")
_CAPTIONS, _WRONG = 0.6, 0.5
"""Share of the clips with a subject that have a caption about it, and share of those of which one contradicts it."""
TWINS = 0.65
"""Share of the pairs whose clips differ only in the fault. The others teach the judge to look at each clip alone."""
_PARTS: Final[dict[Lesson, tuple[int, ...]]] = {"strong": (2, 3), "clear": (1, 2, 3), "weak": (1,)}
"""In how many parts of its looks a wrong subject differs from the caption."""


def scene(seed: int, *, hidden: float = 0.35, lesson: Lesson = "mixed") -> Scene:
    """Draw the pair of a seed in a lesson. `hidden` is for the lesson "mixed", as in `train.world.draw.scene`."""
    if lesson == "mixed":
        return mixed(seed, hidden=hidden)
    rng = np.random.default_rng((seed, 8, LESSONS.index(lesson)))
    plan = ScenePlan(seed, pick(rng, _PACES), twins=bool(rng.random() < TWINS))
    looks = None
    if rng.random() < (0.85 if plan.pace == "still" else 0.5):
        looks = Looks(pick(rng, tuple(COLOURS)), pick(rng, FORMS), pick(rng, tuple(DIRECTIONS)))
    caption_looks = looks if rng.random() < _CAPTIONS else None
    if caption_looks and rng.random() < _WRONG:
        a, b = clips_of(rng, plan, (looks, other_looks(rng, caption_looks, pick(rng, _PARTS[lesson]))))
        clips = (a, b) if rng.random() < 0.5 else (b, a)
    else:
        clip, other = clips_of(rng, plan, (looks, looks))
        a, b = draw_single_fault(rng, clip, lesson, twins=plan.twins)
        first, second = (clip, other) if a else (other, clip)
        clips = (with_defects(first, a), with_defects(second, b))
    caption = draw_checkable_caption(rng, caption_looks) if caption_looks else draw_unrelated_caption(rng)
    drawn = Scene(seed, caption, caption_looks, clips, False)
    return replace(drawn, hidden=labels_of(drawn) != labels_of_first_frames(drawn))
