"""Which frames there are: references, workspaces and the prompt's numbering.

Knows how a clip is sampled and numbered. Refuses to know pixels, files and clocks: a frame is named
by clip and index, never held. Indices are 0-based; only `number` and `from_number` speak the prompt's 1..N.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class FrameRef:
    """One frame of a workspace: `clip` 0 or 1 in prompt order, `index` 0-based inside that clip's workspace.

    `called` marks a frame that a tool call brought: it is shown within a pixel range of its own.
    """

    clip: int
    index: int
    called: bool = False

    def number(self, workspace: int) -> int:
        """This frame in the prompt's numbering, 1..N over both videos (`workspace` frames each)."""
        return self.clip * workspace + self.index + 1


def from_number(number: int, workspace: int) -> FrameRef:
    """The frame that the prompt calls `number`; ValueError outside 1..2·workspace."""
    if not 1 <= number <= 2 * workspace:
        raise ValueError(f"frame {number} is outside 1 to {2 * workspace}")
    return FrameRef(*divmod(number - 1, workspace))


def evenly_spaced(total: int, count: int) -> tuple[int, ...]:
    """`round(linspace(0, total - 1, count))`, halves to even: the same arithmetic as NumPy's."""
    if total < 1 or count < 1:
        raise ValueError(f"cannot take {count} of {total} frames: both must be at least 1")
    if count == 1:
        return (0,)
    step = (total - 1) / (count - 1)
    return (*(round(i * step) for i in range(count - 1)), total - 1)


def shown_first(workspace: int, count: int, clip: int) -> tuple[FrameRef, ...]:
    """The `count` evenly spaced workspace frames that a judge sees before it asks for any."""
    return tuple(FrameRef(clip, index) for index in evenly_spaced(workspace, count))


def sample_workspace(ticks: Sequence[int], workspace: int, shown: int) -> tuple[int, ...]:
    """Source frame of every workspace position, chosen by presentation time.

    `ticks` are the sorted presentation timestamps of all source frames, in any unit. Positions lie evenly
    between the first and the last; each takes the nearest frame in time (halves to the even index). At a
    constant rate that is `evenly_spaced(len(ticks), workspace)`. A clip with fewer frames than the `shown`
    first gives each of those positions a frame of its own and repeats the last.
    """
    total = len(ticks)
    if total < shown:
        starts = [ref.index for ref in shown_first(workspace, shown, 0)]
        return tuple(min(total, bisect_right(starts, position)) - 1 for position in range(workspace))
    if _constant_rate(ticks):
        return evenly_spaced(total, workspace)
    first, span = ticks[0], ticks[-1] - ticks[0]
    return tuple(
        _nearest(ticks, first * parts + span * position, parts)
        for parts in (max(workspace - 1, 1),)
        for position in range(workspace)
    )


def _constant_rate(ticks: Sequence[int]) -> bool:
    """Whether every timestamp is within one tick of an even spacing (containers round to their time base)."""
    first, span, last = ticks[0], ticks[-1] - ticks[0], max(len(ticks) - 1, 1)
    return all(abs((tick - first) * last - span * i) <= last for i, tick in enumerate(ticks))


def _nearest(ticks: Sequence[int], target: int, scale: int) -> int:
    """Index of the tick nearest to target/scale, in exact integers; a tie goes to the even index."""
    right = bisect_left(ticks, target, key=lambda tick: tick * scale)
    if right == 0:
        return 0
    if right == len(ticks):
        return right - 1
    left = right - 1
    before, after = target - ticks[left] * scale, ticks[right] * scale - target
    if before == after:
        return left if left % 2 == 0 else right
    return left if before < after else right
