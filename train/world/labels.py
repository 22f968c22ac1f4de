"""The rule from faults to labels. Pure.

Points count against a clip:

* **Alignment (TA)**: one for each of colour, form and direction that is not as the caption asks; three if there is no
  subject. None if the caption asks for nothing that the pictures could show.
* **Visual quality (VQ)**: the level (1 slight, 2 clear, 3 strong) of each visual fault. A burst counts one level less,
  and so does a fault of one region; never below 1.
* **Motion quality (MQ)**: the level of each fault of motion, however long it lasts: a few neighbouring frames
  show how strong it is and cannot show how long.

In each dimension the clip with fewer points is better; equal points are a tie. Overall (OA) the points are added up,
alignment twice: a wrong subject weighs as a clear fault. Fewer is better, an equal sum is a tie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from train.world.defects import VISUAL
from train.world.values import Defect, Looks, Scene
from vrt_lite.protocol.tags import Choice

MISSING = 3
ALIGNMENT_WEIGHT = 2


@dataclass(frozen=True, slots=True)
class Points:
    """What counts against one clip."""

    ta: int = 0
    vq: int = 0
    mq: int = 0

    @property
    def total(self) -> int:
        """What counts overall."""
        return ALIGNMENT_WEIGHT * self.ta + self.vq + self.mq


def points_of(scene: Scene) -> tuple[Points, Points]:
    """Both clips' points."""
    a, b = (points(clip.defects, alignment(scene.wanted, clip.looks)) for clip in scene.clips)
    return a, b


def labels_of(scene: Scene) -> dict[str, Choice]:
    """The labels of a pair by key."""
    return labels(*points_of(scene))


def labels_at_first(scene: Scene) -> dict[str, Choice]:
    """The labels of what the frames that are shown first have."""
    a, b = (
        points(tuple(d for d in clip.defects if not d.hidden), alignment(scene.wanted, clip.looks))
        for clip in scene.clips
    )
    return labels(a, b)


def labels(first: Points, second: Points) -> dict[str, Choice]:
    """The labels that two clips' points give."""
    return {
        "TA": _fewer(first.ta, second.ta),
        "VQ": _fewer(first.vq, second.vq),
        "MQ": _fewer(first.mq, second.mq),
        "OA": _fewer(first.total, second.total),
    }


def points(defects: tuple[Defect, ...], ta: int) -> Points:
    """One clip's points from its faults and its points of alignment."""
    visual = sum(weight(defect) for defect in defects if defect.kind in VISUAL)
    return Points(ta, visual, sum(weight(defect) for defect in defects if defect.kind not in VISUAL))


def weight(defect: Defect) -> int:
    """What one fault counts."""
    if defect.kind not in VISUAL:
        return defect.level
    return max(1, defect.level - defect.brief - (defect.region is not None))


def alignment(wanted: Looks | None, shown: Looks | None) -> int:
    """Points of alignment of a clip that shows `shown` where `wanted` is asked for."""
    if wanted is None:
        return 0
    if shown is None:
        return MISSING
    return sum((wanted.colour != shown.colour, wanted.form != shown.form, wanted.direction != shown.direction))


def _fewer(a: int, b: int) -> Choice:
    return cast(Choice, 0 if a == b else 1 if a < b else 2)
