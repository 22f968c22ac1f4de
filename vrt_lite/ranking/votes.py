"""Votes, and what they say by count alone: who is preferred to whom, and which preferences go round in a circle.

Standard library only. Refuses to know strengths (ratings.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vrt_lite.protocol.messages import Odds


@dataclass(frozen=True, slots=True)
class Vote:
    """One judgement of clips `a` and `b`, by number; `a` was shown as video 1.

    `odds` are the judge's probabilities of (tie, a, b), or all on one; they are scaled to sum to 1.
    """

    a: int
    b: int
    odds: Odds


def cycles(wins: Iterable[tuple[int, int]], count: int, *, limit: int = 100) -> list[tuple[int, ...]]:
    """Preferences that go round: (i, j, k) says that i beats j, j beats k and k beats i.

    `wins` holds (i, j) for every pair that i wins, each pair at most once. For every win that lies on a cycle, a
    shortest one is given; shortest first, each once, at most `limit`.
    """
    # Sets of clips are integers, a bit a clip: a breadth-first search is then a few operations a clip.
    beaten, beating = [0] * count, [0] * count
    for winner, loser in wins:
        beaten[winner] |= 1 << loser
        beating[loser] |= 1 << winner
    found: set[tuple[int, ...]] = set()
    longer: list[tuple[int, int]] = []
    edges = [(i, j) for i in range(count) for j in _bits(beaten[i])]
    for i, j in edges:
        third = beaten[j] & beating[i]
        if third:
            found.add(_rotated((i, j, _lowest(third))))
        else:
            longer.append((i, j))
    if len(found) < limit:
        paths = (_path(j, i, beaten, beating) for i, j in longer)
        found.update(_rotated(path) for path in paths if path)
    return sorted(found, key=lambda cycle: (len(cycle), cycle))[:limit]


def _path(start: int, goal: int, beaten: Sequence[int], beating: Sequence[int]) -> tuple[int, ...]:
    """A shortest path of preferences from `start` to `goal`, both included, `goal` first; empty if there is none."""
    levels = [1 << start]
    seen = levels[0]
    while not seen >> goal & 1:
        reached = 0
        for clip in _bits(levels[-1]):
            reached |= beaten[clip]
        levels.append(reached & ~seen)
        if not levels[-1]:
            return ()
        seen |= levels[-1]
    path = [goal]
    for level in reversed(levels[:-1]):
        path.append(_lowest(level & beating[path[-1]]))
    return (goal, *reversed(path[1:]))


def _rotated(cycle: tuple[int, ...]) -> tuple[int, ...]:
    """The same cycle, its smallest number first."""
    k = cycle.index(min(cycle))
    return cycle[k:] + cycle[:k]


def _lowest(clips: int) -> int:
    return (clips & -clips).bit_length() - 1


def _bits(clips: int) -> list[int]:
    return [k for k in range(clips.bit_length()) if clips >> k & 1]
