"""The scores of clips that were judged by themselves: raw, and as a percentile within their folder."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from vrt_lite.measures.flags import describe_flags
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.records.judgement import Record
from vrt_lite.records.ladders import Ladder, Rated
from vrt_lite.runs.export import csv_line, harmless_line


class PlacedScore(msgspec.Struct, frozen=True):
    """A raw score, and the per cent of the other clips that have less, ties by half; null for a clip alone."""

    raw: float
    percentile: float | None


class ScoredClip(Record, frozen=True):
    """A clip and its scores by name, its faults in words, and without scores an `error`."""

    group: str
    clip: Path
    name: str
    sha256: str
    scores: Mapping[str, PlacedScore]
    flags: str
    error: str | None = None


def list_scores(ladder: Ladder) -> list[ScoredClip]:
    """List the clips of a ladder, the best first, then those without a score."""
    every: defaultdict[str, list[float]] = defaultdict(list)
    for name, rated in (item for of in ladder.standings for item in of.ratings.items()):
        bisect.insort(every[name], rated.strength)

    def describe(number: int, ratings: Mapping[str, Rated], error: str | None = None) -> ScoredClip:
        clip = ladder.clips[number]
        scores = {name: _place_score(rated.strength, every[name]) for name, rated in ratings.items()}
        flags = describe_flags(clip.flags)
        return ScoredClip(ladder.group, clip.path, clip.name, clip.sha256, scores, flags, error)

    scored = [describe(of.clip, of.ratings) for of in ladder.standings]
    return scored + [describe(of.clip, {}, of.reason) for of in ladder.unranked]


def _place_score(raw: float, every: Sequence[float]) -> PlacedScore:
    others = len(every) - 1
    place = (bisect.bisect_left(every, raw) + bisect.bisect_right(every, raw) - 1) / 2
    return PlacedScore(raw, round(100 * place / others, 1) if others else None)


def name_scores(clips: Sequence[ScoredClip]) -> list[str]:
    """Return the names of the scores, the overall one first."""
    return list(dict.fromkeys((OVERALL, *(name for clip in clips for name in clip.scores))))


def score_lines(clips: Sequence[ScoredClip]) -> Iterator[str]:
    """Yield the scores as CSV: a heading, and a line for each clip. A cell is empty where there is no value."""
    names = name_scores(clips)
    yield csv_line(
        ("group", "clip", *(f"{name}{of}" for name in names for of in ("", " percentile")), "flags", "error")
    )
    for clip in clips:
        scores = (clip.scores.get(name) for name in names)
        cells = (cell for of in scores for cell in ((of.raw, of.percentile) if of else ("", "")))
        yield harmless_line((clip.group, str(clip.clip), *cells, clip.flags, clip.error))
