"""A group of clips, its results so far, and the votes and pair outcomes that follow from them. Pure functions.

Clips are numbers from 0 within their group. A result for (i, j) is one judgement with clip i shown as video 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vrt_lite.measures.flags import Flag
from vrt_lite.protocol.answer_form import Scores
from vrt_lite.protocol.messages import Odds
from vrt_lite.protocol.verdict import Preference, Verdict, join_orders, odds_of
from vrt_lite.runs.both_orders import OrderCounts, count_orders, select_counted
from vrt_lite.runs.question import Result, derive_result


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
        for result in select_counted(results).values():
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

    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs i < j with a result, perhaps a failure, of at least one order."""
        return sorted({(min(order), max(order)) for order in self.results})


def find_members(groups: Iterable[ClipGroup]) -> Callable[[str, str, str], bool]:
    """Return a test for two clips' sha256 and a prompt: whether one of the groups has that prompt and both clips.

    The second is "" for what was judged of one clip.
    """
    members: dict[str, list[set[str]]] = {}
    for group in groups:
        members.setdefault(group.prompt, []).append({clip.sha256 for clip in group.clips})
    return lambda first, second, prompt: any({first, second or first} <= clips for clips in members.get(prompt, ()))


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """Both orders of one pair i < j joined: `preferences` by key, where 1 is i and 2 is j.

    `preferences` has the keys that were judged; it is empty if neither order gave a verdict. `disagreements` are the
    keys on which the orders choose differently. `judgements` are the keys of both judgements in the store, that of the
    order (i, j) first; "" stands for an order that was not judged.
    """

    i: int
    j: int
    preferences: Mapping[str, Preference]
    disagreements: tuple[str, ...]
    judgements: tuple[str, str]
    errors: tuple[str, ...]


def join_orders_of_pair(group: ClipGroup, i: int, j: int) -> PairOutcome:
    """Join both orders of a pair; return the outcome."""
    results = [group.results.get((i, j)), group.results.get((j, i))]
    one, other = read_verdicts(group, i, j)
    both = join_orders(one, other)
    return PairOutcome(
        i,
        j,
        both.verdict.preferences if both else {},
        both.disagreements if both else (),
        (results[0].key if results[0] else "", results[1].key if results[1] else ""),
        tuple(result.error for result in results if result and result.error),
    )


def read_verdicts(group: ClipGroup, i: int, j: int) -> tuple[Verdict | None, Verdict | None]:
    """Return the verdicts of both orders of a pair, both about i as clip 1; None where there is none."""
    one, other = (group.results.get(order) for order in ((i, j), (j, i)))
    mirrored = other.verdict.mirrored() if other and other.verdict else None
    return one.verdict if one else None, mirrored


def count_order_disagreements(group: ClipGroup) -> OrderCounts:
    """Count how often the two orders of the group's pairs disagree."""
    both = (read_verdicts(group, i, j) for i, j in group.pairs())
    return count_orders((one, other) for one, other in both if one and other)


def collect_votes(group: ClipGroup, key: str) -> list[Vote]:
    """Return the votes for one key, one for each judged order: soft where the judge gave probabilities.

    The ratings model the advantage of being shown first, so pairs whose orders disagree count in full. A winner that
    the measures contradict is no vote for either clip.
    """
    votes: list[Vote] = []
    for i, j in group.pairs():
        for a, b in ((i, j), (j, i)):
            result = group.results.get((a, b))
            if result and key in result.winners:
                tie, one, two = odds_of(result.winners[key], result.odds.get(key))
                if key in result.leans:
                    one = two = (one + two) / 2
                votes.append(Vote(a, b, (tie, one, two)))
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
