"""The words that tell how a run goes: how long it will take, and each judgement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vrt_lite.show.words import format_range, write_headline

if TYPE_CHECKING:
    from vrt_lite.interfaces import TimeRange
    from vrt_lite.ranking.clip_groups import ClipGroup
    from vrt_lite.ranking.rank import RankProgress

LONG_SECONDS = 60.0
"""What takes as long is said before it begins, and less of it is suggested."""


def describe_prediction(predicted: TimeRange | None, judgements: int, budget: int) -> str:
    """Say how long so many judgements will take, and what a budget takes if that is long; empty if it is not known."""
    if not predicted or not judgements:
        return ""
    each = predicted.times(1 / judgements)
    words = f"; {format_range(each)} each here, {format_range(predicted)} in all"
    if predicted.middle >= LONG_SECONDS and 0 < budget <= judgements / 2:
        words += f" (--budget {budget}: {format_range(each.times(budget))})"
    return words


def describe_judgement(groups: Sequence[ClipGroup], progress: RankProgress) -> str:
    """Describe one judgement of a ranking in a line, by the clips' names."""
    number, i, j = progress.label
    one, two = (groups[number].clips[clip].name for clip in (i, j))
    verdict = progress.result.verdict
    words = write_headline(verdict, (one, two)) if verdict else f"no verdict ({progress.result.error})"
    if i == j:
        scores = progress.result.scores
        told = ", ".join(f"{name} {score.value:.3g}" for name, score in scores[0].items()) if scores else words
        return f"{one}: {told}"
    return f"{one} and {two}: {words}"
