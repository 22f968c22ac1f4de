"""Computes labels from faults.

Points count against a clip:

* **Alignment (TA)**: one for each of colour, form and direction that differs from the caption; three if there is no
  subject. None if the pictures cannot decide the caption.
* **Visual quality (VQ)**: the level (1 slight, 2 clear, 3 strong) of each visual fault. A burst counts one level less,
  and so does a fault of one region; never below 1.
* **Motion quality (MQ)**: the level of each motion fault, for any duration: a few neighbouring frames show how strong
  a fault is, but not how long it lasts.

In each dimension the clip with fewer points is better; equal points are a tie. The overall label (OA) compares the sums
of all points, in which alignment counts twice: one mismatch weighs as much as a clear fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from train.tiny.world.defects import VISUAL
from train.tiny.world.values import Defect, Looks, Scene
from vrt_lite.protocol.messages import Choice

MISSING = 3
ALIGNMENT_WEIGHT = 2


@dataclass(frozen=True, slots=True)
class Points:
    """The points against one clip, by dimension."""

    ta: int = 0
    vq: int = 0
    mq: int = 0

    @property
    def total(self) -> int:
        """The points for the overall label."""
        return ALIGNMENT_WEIGHT * self.ta + self.vq + self.mq


def points_of(scene: Scene) -> tuple[Points, Points]:
    """Compute both clips' points."""
    a, b = (points(clip.defects, count_mismatches(scene.caption_looks, clip.looks)) for clip in scene.clips)
    return a, b


def labels_of(scene: Scene) -> dict[str, Choice]:
    """Compute the labels of a pair, by key."""
    return labels(*points_of(scene))


def labels_of_first_frames(scene: Scene) -> dict[str, Choice]:
    """Compute the labels that a pair would have if only the faults in the first frames counted."""
    a, b = (
        points(tuple(d for d in clip.defects if not d.hidden), count_mismatches(scene.caption_looks, clip.looks))
        for clip in scene.clips
    )
    return labels(a, b)


def labels(first: Points, second: Points) -> dict[str, Choice]:
    """Compute the labels from two clips' points."""
    return {
        "TA": _fewer(first.ta, second.ta),
        "VQ": _fewer(first.vq, second.vq),
        "MQ": _fewer(first.mq, second.mq),
        "OA": _fewer(first.total, second.total),
    }


def points(defects: tuple[Defect, ...], ta: int) -> Points:
    """Compute one clip's points from its faults and its mismatches."""
    visual = sum(weight(defect) for defect in defects if defect.kind in VISUAL)
    return Points(ta, visual, sum(weight(defect) for defect in defects if defect.kind not in VISUAL))


def weight(defect: Defect) -> int:
    """Return the points of one fault."""
    if defect.kind not in VISUAL:
        return defect.level
    return max(1, defect.level - defect.brief - (defect.region is not None))


def count_mismatches(caption_looks: Looks | None, shown: Looks | None) -> int:
    """Count the parts of the looks in which a clip differs from the caption (TA points)."""
    if caption_looks is None:
        return 0
    if shown is None:
        return MISSING
    return sum(
        (
            caption_looks.colour != shown.colour,
            caption_looks.form != shown.form,
            caption_looks.direction != shown.direction,
        )
    )


def _fewer(a: int, b: int) -> Choice:
    return cast(Choice, 0 if a == b else 1 if a < b else 2)
