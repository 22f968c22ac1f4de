"""A group of clips, its results so far, and the votes and pair outcomes that follow from them. Pure functions.

Clips are numbers from 0 within their group. A result for (i, j) is one judgement with clip i shown as video 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vrt_lite.measures.flags import Flag
from vrt_lite.protocol.answer_form import Scores
from vrt_lite.protocol.messages import Odds
from vrt_lite.protocol.verdict import odds_of
from vrt_lite.records.pairs import JudgedPair, Result, derive_result, join_results


@dataclass(frozen=True, slots=True)
class RankedClip:
    """A clip in a group: its file, its content, and a name that no other clip of the group has.

    `flags` are the faults that are measured of the clip by itself.
    """

    name: str
    path: Path
    sha256: str
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, slots=True)
class ClipGroup:
    """A group of clips made from one prompt, and the results so far, to which new ones are added.

    `alone` are those of clips that were judged by themselves, by number: `results` then follow from them.
    """

    name: str
    prompt: str
    clips: tuple[RankedClip, ...]
    results: dict[tuple[int, int], Result] = field(default_factory=dict[tuple[int, int], Result])
    alone: dict[int, Result] = field(default_factory=dict[int, Result])

    def add_stored(self, results: Iterable[Result]) -> None:
        """Add the stored results that are about these clips and this prompt, one for each order."""
        number = {clip.sha256: i for i, clip in enumerate(self.clips)}
        for result in (result for pair in join_results(results) for result in pair.results):
            i, j = number.get(result.first), number.get(result.second or result.first)
            if i is not None and j is not None and result.prompt == self.prompt:
                self.add(i, j, result)

    def add(self, i: int, j: int, result: Result) -> None:
        """Add the result of a pair, or of one clip (i = j) and so of its pairs with all others."""
        if i != j:
            self.results[i, j] = result
        elif not result.second:
            for other in self.alone.keys() - {i}:
                low, high = (result, self.alone[other]) if i < other else (self.alone[other], result)
                self.results[min(i, other), max(i, other)] = derive_result(low, high)
            self.alone[i] = result

    @property
    def scores(self) -> dict[int, Scores]:
        """The scores of each clip that was judged by itself."""
        return {clip: result.scores[0] for clip, result in self.alone.items() if result.scores}

    def pairs(self) -> dict[tuple[int, int], JudgedPair]:
        """Return the pairs i < j with a result, perhaps a failure, of at least one order."""
        orders = sorted({(min(order), max(order)) for order in self.results})
        return {(i, j): self._join(i, j) for i, j in orders}

    def _join(self, i: int, j: int) -> JudgedPair:
        one, two = self.clips[i].sha256, self.clips[j].sha256
        return JudgedPair(one, two, self.prompt, self.results.get((i, j)), self.results.get((j, i)))


def find_members(groups: Iterable[ClipGroup]) -> Callable[[Result], bool]:
    """Return a test for a result: whether one of the groups has its prompt and its clips."""
    members: dict[str, list[set[str]]] = {}
    for group in groups:
        members.setdefault(group.prompt, []).append({clip.sha256 for clip in group.clips})
    return lambda of: any({of.first, of.second or of.first} <= clips for clips in members.get(of.prompt, ()))


def collect_votes(group: ClipGroup, key: str) -> list[Vote]:
    """Return the votes for one key, one for each judged order: soft where the judge gave probabilities.

    The ratings model the advantage of being shown first, so pairs whose orders disagree count in full. A winner that
    the measures contradict is no vote for either clip.
    """
    votes: list[Vote] = []
    for i, j in sorted(group.results, key=lambda order: (min(order), max(order), order)):
        if preference := group.results[i, j].preferences.get(key):
            tie, one, two = odds_of(preference.winner, preference.odds)
            if preference.undecided:
                one = two = (one + two) / 2
            votes.append(Vote(i, j, (tie, one, two)))
    return votes


@dataclass(frozen=True, slots=True)
class Vote:
    """One judgement of clips `a` and `b`, by number; `a` was shown as video 1.

    `odds` are the judge's probabilities of (tie, a, b), or 1 for the winner alone; `fit` scales them to a sum of 1.
    """

    a: int
    b: int
    odds: Odds


def find_cycles(wins: Iterable[tuple[int, int]], count: int, *, limit: int = 100) -> list[tuple[int, ...]]:
    """Find cycles of preferences: in (i, j, k) i beats j, j beats k and k beats i.

    `wins` holds (i, j) for every pair that i wins, each pair at most once. Returns a shortest cycle for every win that
    lies on one: shortest first, each cycle once, at most `limit`.
    """
    # Sets of clips are integers with a bit for each clip, so that a breadth-first search takes few operations.
    beaten, beating = [0] * count, [0] * count
    for winner, loser in wins:
        beaten[winner] |= 1 << loser
        beating[loser] |= 1 << winner
    found: set[tuple[int, ...]] = set()
    longer: list[tuple[int, int]] = []
    edges = [(i, j) for i in range(count) for j in _list_bits(beaten[i])]
    for i, j in edges:
        third = beaten[j] & beating[i]
        if third:
            found.add(_rotate((i, j, _find_lowest(third))))
        else:
            longer.append((i, j))
    if len(found) < limit:
        paths = (_find_path(j, i, beaten, beating) for i, j in longer)
        found.update(_rotate(path) for path in paths if path)
    return sorted(found, key=lambda cycle: (len(cycle), cycle))[:limit]


def _find_path(start: int, goal: int, beaten: Sequence[int], beating: Sequence[int]) -> tuple[int, ...]:
    """Find a shortest path from `start` to `goal`, both included, `goal` first; empty if there is none."""
    levels = [1 << start]
    visited = levels[0]
    while not visited >> goal & 1:
        reached = 0
        for clip in _list_bits(levels[-1]):
            reached |= beaten[clip]
        levels.append(reached & ~visited)
        if not levels[-1]:
            return ()
        visited |= levels[-1]
    path = [goal]
    for level in reversed(levels[:-1]):
        path.append(_find_lowest(level & beating[path[-1]]))
    return (goal, *reversed(path[1:]))


def _rotate(cycle: tuple[int, ...]) -> tuple[int, ...]:
    """Return the same cycle with its smallest number first."""
    k = cycle.index(min(cycle))
    return cycle[k:] + cycle[:k]


def _find_lowest(clips: int) -> int:
    return (clips & -clips).bit_length() - 1


def _list_bits(clips: int) -> list[int]:
    return [k for k in range(clips.bit_length()) if clips >> k & 1]
