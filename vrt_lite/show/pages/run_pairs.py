"""The pairs of a run: both orders of each pair joined, the labels of a pair, and the frames that were shown.

There may be tens of thousands of pairs: only light columns are kept, and one whole judgement is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vrt_lite.evaluation.cases import EvalCase, read_cases
from vrt_lite.judgement import JudgedClip, Judgement
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.protocol.verdict import MIRROR, Preference, Verdict, average, disagreements
from vrt_lite.recording import exchange_clips, join_orders
from vrt_lite.runs.both_orders import select_counted
from vrt_lite.runs.question import Result
from vrt_lite.show.pages.pair_page import PairLabel

if TYPE_CHECKING:
    from vrt_lite.runs.run import Run
    from vrt_lite.show.pages.frame_album import FrameAlbum


@dataclass(slots=True)
class PairOfRun:
    """Two clips and a prompt, in the order first judged, and the judgement that counts for each order.

    For each judgement there are its key, whether it showed the clips exchanged, and its error or its source.
    `verdicts` are about the clips in this order: the first one for each order shown.
    """

    first: str
    second: str
    prompt: str
    keys: list[str] = field(default_factory=list[str])
    exchanged: list[bool] = field(default_factory=list[bool])
    verdicts: dict[bool, Verdict] = field(default_factory=dict[bool, Verdict])
    errors: list[str] = field(default_factory=list[str])
    sources: list[str] = field(default_factory=list[str])

    def add(self, result: Result) -> None:
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
    def orders_disagree(self) -> bool:
        """Whether the two orders choose differently overall."""
        return len(self.verdicts) == 2 and OVERALL in disagreements(*self.verdicts.values())

    @property
    def overall(self) -> Preference | None:
        """The overall result of both orders; None without any verdict."""
        verdicts = list(self.verdicts.values())
        return (average(*verdicts) if len(verdicts) == 2 else verdicts[0]).overall if verdicts else None


@dataclass(slots=True)
class ShownClip:
    """The frames that a run showed of one clip: in first rounds, and when the judge requested them."""

    clip: JudgedClip
    first: set[int] = field(default_factory=set[int])
    called: set[int] = field(default_factory=set[int])


@dataclass(frozen=True, slots=True)
class RunMaterial:
    """Everything that the overview of a run may show. Clips are named by their sha256.

    `numbers` is each pair's page by both clips, in either order, and the prompt.
    """

    run: Run
    pairs: list[PairOfRun]
    shown: Mapping[str, ShownClip]
    album: FrameAlbum
    names: Mapping[str, str]
    numbers: Mapping[tuple[str, str, str], int]


def read_pairs(run: Run) -> list[PairOfRun]:
    """Read the pairs of a run, in the order first judged."""
    found: dict[tuple[str, str, str], PairOfRun] = {}
    for result in select_counted(run.results()).values():
        low, high = sorted((result.first, result.second))
        pair = found.setdefault((low, high, result.prompt), PairOfRun(result.first, result.second, result.prompt))
        pair.add(result)
    return list(found.values())


def read_pair(run: Run, pair: PairOfRun) -> Judgement | None:
    """Read the judgements of a pair and join them, its clips in the pair's order; None if there is no verdict."""
    joined: Judgement | None = None
    for key, exchanged in zip(pair.keys, pair.exchanged, strict=True):
        stored = run.judgement(key)
        if stored is None:
            continue
        read = exchange_clips(stored) if exchanged else stored
        if joined is None:
            joined = read
        elif {order.first for order in joined.orders}.isdisjoint(order.first for order in read.orders):
            joined = join_orders(joined, read)
    return joined


def read_shown_clips(run: Run, pairs: list[PairOfRun]) -> dict[str, ShownClip]:
    """Read what the run showed of each clip, by its sha256."""
    found: dict[str, ShownClip] = {}
    for key in (key for pair in pairs for key in pair.keys):
        judgement = run.judgement(key)
        if judgement is None:
            continue
        clips = [found.setdefault(clip.sha256, ShownClip(clip)) for clip in judgement.inputs]
        for this in (r for order in judgement.orders for r in order.rounds):
            for frame in this.frames:
                clip = clips[frame.video - 1]
                (clip.first if this.number == 1 else clip.called).add(frame.source_frame)
    return found


def read_labels(run: Run) -> dict[str, EvalCase]:
    """Read the cases of an evaluation, by the key of their judgement; other runs have none."""
    return {case.key: case for case in read_cases(run) if case.key}


def find_label(pair: PairOfRun, labels: Mapping[str, EvalCase]) -> PairLabel | None:
    """Find the label of a pair, if it has one; a table's A is shown first in the order "given"."""
    for key, exchanged in zip(pair.keys, pair.exchanged, strict=True):
        if case := labels.get(key):
            mirrored = (case.order == "swapped") != exchanged
            winners = {name: MIRROR[winner] if mirrored else winner for name, winner in case.labels.items()}
            return PairLabel(case.name, winners)
    return None
