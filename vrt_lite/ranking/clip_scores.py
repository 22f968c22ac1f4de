"""The scores of clips that were judged by themselves: raw, and as a percentile within their folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vrt_lite.measures.flags import describe_flags
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.records.ladders import Ladder, RankedClip
from vrt_lite.runs.export import csv_line, make_harmless


@dataclass(frozen=True, slots=True)
class ScoredClip:
    """A clip's scores by name, and for each the percentile: the per cent of the others that have less, ties by half.

    Without scores there is an `error`. A clip alone has no percentiles.
    """

    group: str
    clip: RankedClip
    scores: Mapping[str, float]
    percentiles: Mapping[str, float | None]
    error: str = ""

    def to_json(self) -> dict[str, object]:
        """Return plain data."""
        about = {"group": self.group, "clip": str(self.clip.path), "sha256": self.clip.sha256}
        scores = {name: {"raw": raw, "percentile": self.percentiles[name]} for name, raw in self.scores.items()}
        return {**about, "scores": scores, "flags": describe_flags(self.clip.flags), "error": self.error or None}


def list_scores(ladder: Ladder) -> list[ScoredClip]:
    """List the clips of a ladder, the best first, then those without a score."""
    scores = [{name: rated.strength for name, rated in of.ratings.items()} for of in ladder.standings]
    found: list[ScoredClip] = []
    for standing, own in zip(ladder.standings, scores, strict=True):
        percentiles = {name: _find_percentile(raw, [of[name] for of in scores]) for name, raw in own.items()}
        found.append(ScoredClip(ladder.group, ladder.clips[standing.clip], own, percentiles))
    return found + [ScoredClip(ladder.group, ladder.clips[of.clip], {}, {}, of.reason) for of in ladder.unranked]


def _find_percentile(raw: float, every: Sequence[float]) -> float | None:
    others = len(every) - 1
    less, equal = sum(other < raw for other in every), sum(other == raw for other in every) - 1
    return round(100 * (less + equal / 2) / others, 1) if others else None


def name_scores(clips: Sequence[ScoredClip]) -> list[str]:
    """Return the names of the scores, the overall one first."""
    names = dict.fromkeys(name for clip in clips for name in clip.scores)
    return [OVERALL, *(name for name in names if name != OVERALL)]


def score_lines(clips: Sequence[ScoredClip]) -> Iterator[str]:
    """Yield the scores as CSV: a heading, and a line for each clip. A cell is empty where there is no value."""
    names = name_scores(clips)
    yield csv_line(
        ("group", "clip", *(f"{name}{of}" for name in names for of in ("", " percentile")), "flags", "error")
    )
    for clip in clips:
        values = [of.get(name) for name in names for of in (clip.scores, clip.percentiles)]
        texts = (clip.group, str(clip.clip.path), describe_flags(clip.clip.flags), clip.error)
        group, path, flags, error = map(make_harmless, texts)
        yield csv_line((group, path, *("" if value is None else value for value in values), flags, error))
