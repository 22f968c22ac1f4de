"""The pairs of a run: both orders of a pair brought together, and the frames that they showed. Knows the store's light
columns and whole judgements, and that there may be tens of thousands: one whole judgement is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vrt_lite.errors import UsageError
from vrt_lite.protocol.tags import OVERALL
from vrt_lite.protocol.verdict import MIRROR, Preference, Verdict, average, disagreements
from vrt_lite.report.case import Case, Footage, exchanged, read_case, together
from vrt_lite.report.nodes import Node
from vrt_lite.report.pictures import Album
from vrt_lite.runs.judged import Result

if TYPE_CHECKING:
    from vrt_lite.runs.run import Run


@dataclass(slots=True)
class Match:
    """Two clips and a prompt, in the order first judged, and every judgement of them: in that order, or exchanged.

    Each judgement is its key, whether it is exchanged, and its error or its source. `verdicts` are about the clips in
    this order, the first of each way round.
    """

    first: str
    second: str
    prompt: str
    keys: list[str] = field(default_factory=list[str])
    exchanged: list[bool] = field(default_factory=list[bool])
    verdicts: dict[bool, Verdict] = field(default_factory=dict[bool, Verdict])
    errors: list[str] = field(default_factory=list[str])
    sources: list[str] = field(default_factory=list[str])

    def take(self, result: Result) -> None:
        """Add a judgement."""
        exchanged = result.first != self.first
        self.keys.append(result.key)
        self.exchanged.append(exchanged)
        self.sources.append(result.source)
        if result.verdict is None:
            self.errors.append(result.error)
        else:
            self.verdicts.setdefault(exchanged, result.verdict.mirrored() if exchanged else result.verdict)

    @property
    def disagree(self) -> bool:
        """Whether the two orders choose differently overall."""
        return len(self.verdicts) == 2 and OVERALL in disagreements(*self.verdicts.values())

    @property
    def overall(self) -> Preference | None:
        """What the orders come to overall; None without any verdict."""
        verdicts = list(self.verdicts.values())
        return (average(*verdicts) if len(verdicts) == 2 else verdicts[0]).overall if verdicts else None


@dataclass(slots=True)
class Seen:
    """What a run showed of one clip: the frames of first rounds, and those asked for."""

    clip: Footage
    first: set[int] = field(default_factory=set[int])
    asked: set[int] = field(default_factory=set[int])


@dataclass(frozen=True, slots=True)
class Overview:
    """What a kind of run shows first."""

    title: str
    content: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Material:
    """All that an overview may draw on. `numbers` is each pair's page by both clips' sha256, in either order."""

    run: Run
    matches: list[Match]
    seen: Mapping[str, Seen]
    album: Album
    names: Mapping[str, str]
    numbers: Mapping[tuple[str, str, str], int]


def matches_of(run: Run) -> list[Match]:
    """The pairs of a run, in the order first judged."""
    found: dict[tuple[str, str, str], Match] = {}
    for result in run.results():
        low, high = sorted((result.first, result.second))
        match = found.setdefault((low, high, result.prompt), Match(result.first, result.second, result.prompt))
        match.take(result)
    return list(found.values())


def case_of(run: Run, match: Match) -> Case | None:
    """A pair with its judgements read whole, its clips in the match's order; None if none of them has a verdict."""
    case: Case | None = None
    for key, turned in zip(match.keys, match.exchanged, strict=True):
        judgement = run.judgement(key)
        if judgement is None:
            continue
        read = exchanged(read_case(judgement)) if turned else read_case(judgement)
        if case is None:
            case = read
        elif {order.first for order in case.orders}.isdisjoint(order.first for order in read.orders):
            case = together(case, read)
    return case


def seen_in(run: Run, matches: list[Match]) -> dict[str, Seen]:
    """What the run showed of each clip, by its sha256."""
    found: dict[str, Seen] = {}
    for match in matches:
        for key in match.keys:
            judgement = run.judgement(key)
            if judgement is not None:
                _see(judgement, found)
    return found


def _see(judgement: Mapping[str, Any], found: dict[str, Seen]) -> None:
    case = read_case(judgement)
    clips = [found.setdefault(clip.sha256, Seen(clip)) for clip in case.clips]
    for order in case.orders:
        for turn in order.turns:
            for still in turn.stills:
                seen = clips[still.video - 1]
                (seen.first if turn.number == 1 else seen.asked).add(still.source)


@dataclass(frozen=True, slots=True)
class Labels:
    """What people said of a pair: its name in their table, and winners by key in the match's order."""

    name: str
    winners: Mapping[str, int]


def labels_of(run: Run) -> dict[str, Mapping[str, Any]]:
    """What an evaluation keeps of each pair, by the key of its judgement."""
    return {value["key"]: value for _, value in run.items("pair") if isinstance(value.get("key"), str)}


def label_of(match: Match, labels: Mapping[str, Mapping[str, Any]]) -> Labels | None:
    """The labels of a match; a table's A is shown first in the order "given"."""
    for key, turned in zip(match.keys, match.exchanged, strict=True):
        if label := labels.get(key):
            mirrored = (label.get("order") == "swapped") != turned
            given = {name: winner for name, winner in label.get("labels", {}).items() if winner in (0, 1, 2)}
            winners = {name: MIRROR[winner] if mirrored else winner for name, winner in given.items()}
            return Labels(str(label.get("name") or label.get("row", "")), winners)
    return None


def checked(run: Run) -> None:
    """UsageError for a run with nothing in it."""
    if next(iter(run.results()), None) is None and not run.about.get("figures"):
        raise UsageError(f"Run {run.name!r} has no judgements yet: there is nothing to report.")
