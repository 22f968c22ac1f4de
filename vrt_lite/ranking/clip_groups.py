"""A group of clips that are ranked together, and its results so far.

Clips are numbers from 0 within their group. A result for (i, j) is one judgement with clip i shown as video 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from vrt_lite.records.ladders import RankedClip
from vrt_lite.records.pairs import JudgedPair, Result, derive_result, join_results


class ClipGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """A group of clips made from one prompt, and the results so far, to which new ones are added.

    `alone` are those of clips that were judged by themselves, by number: `results` then follow from them.
    """

    name: str
    prompt: str
    clips: tuple[RankedClip, ...]
    results: dict[tuple[int, int], Result] = {}
    alone: dict[int, Result] = {}

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
    def judged(self) -> tuple[Result, ...]:
        """The judgements that were made: of clips, or of pairs."""
        return tuple((self.alone or self.results).values())

    def pairs(self) -> dict[tuple[int, int], JudgedPair]:
        """Return the pairs i < j with a result, perhaps a failure, of at least one order."""
        content, get = [clip.sha256 for clip in self.clips], self.results.get
        return {
            (i, j): JudgedPair(content[i], content[j], self.prompt, get((i, j)), get((j, i)))
            for i, j in sorted({(min(order), max(order)) for order in self.results})
        }


def add_stored(groups: Iterable[ClipGroup], results: Iterable[Result]) -> None:
    """Add to each group the stored results that are about its clips and its prompt, one for each order."""
    stored = [result for pair in join_results(results) for result in pair.results]
    for group in groups:
        number = {clip.sha256: i for i, clip in enumerate(group.clips)}
        for result in stored:
            i, j = number.get(result.first), number.get(result.second or result.first)
            if i is not None and j is not None and result.prompt == group.prompt:
                group.add(i, j, result)


def find_members(groups: Iterable[ClipGroup]) -> Callable[[Result], bool]:
    """Return a test for a result: whether one of the groups has its prompt and its clips."""
    members: dict[str, list[set[str]]] = {}
    for group in groups:
        members.setdefault(group.prompt, []).append({clip.sha256 for clip in group.clips})
    return lambda of: any({of.first, of.second or of.first} <= clips for clips in members.get(of.prompt, ()))
