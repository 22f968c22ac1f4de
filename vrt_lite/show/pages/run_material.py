"""What a run's report shows beside its pairs: the labels of a pair, and the frames that were shown of each clip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vrt_lite.protocol.verdict import MIRROR
from vrt_lite.records.judgement import JudgedClip
from vrt_lite.records.labelled import EvalCase
from vrt_lite.records.pairs import JudgedPair
from vrt_lite.show.pages.pair_page import PairLabel

if TYPE_CHECKING:
    from vrt_lite.runs.run import Run
    from vrt_lite.show.pages.frame_album import FrameAlbum


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
    pairs: list[JudgedPair]
    shown: Mapping[str, ShownClip]
    album: FrameAlbum
    names: Mapping[str, str]
    numbers: Mapping[tuple[str, str, str], int]


def read_shown_clips(run: Run, pairs: list[JudgedPair]) -> dict[str, ShownClip]:
    """Read what the run showed of each clip, by its sha256."""
    found: dict[str, ShownClip] = {}
    for result in (result for pair in pairs for result in pair.results):
        judgement = run.judgement(result.key)
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
    return {case.key: case for case in run.cases() if case.key}


def find_label(pair: JudgedPair, labels: Mapping[str, EvalCase]) -> PairLabel | None:
    """Find the label of a pair, if it has one; a table's A is shown first in the order "given"."""
    for result in pair.results:
        if case := labels.get(result.key):
            mirrored = (case.order == "swapped") != (result is pair.swapped)
            winners = {name: MIRROR[winner] if mirrored else winner for name, winner in case.labels.items()}
            return PairLabel(case.name, winners)
    return None
