"""Says which better judge fits this machine: `python -m vrt_lite.show.better_judge`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vrt_lite import __version__
from vrt_lite.backends import describe_machine, read_memory
from vrt_lite.machine import format_bytes
from vrt_lite.models import bundled_names
from vrt_lite.models.library import ListedModel, find_stored
from vrt_lite.show.words import console_on, format_range
from vrt_lite.tuning import keep, kept_path, read_kept

if TYPE_CHECKING:
    from vrt_lite.records.judgement import Judgement

MOST_SECONDS: Final = 3600
"""How long a pair may take for a judge that is proposed first."""
UNKNOWN: Final = "Larger judges, and what they take here: vrt-lite models"
_SET: Final = ("videogen-rewardbench", "eval")
"""The published set that orders the judges, tied pairs left out."""


def suggest_judge(candidates: Iterable[ListedModel], free_bytes: int) -> str:
    """Say in a line which of the judges, the most accurate first, fits the free memory; "" if none does.

    The first that judges a pair within the hour is taken; if there is none, the first that takes no more than twice as
    long as the quickest.
    """
    # The time is not known before the first judgement on a GPU.
    times = {of: of.seconds.middle if of.seconds else 0.0 for of in candidates if of.memory_bytes <= free_bytes}
    quickest = min(times.values(), default=0.0)
    most = MOST_SECONDS if quickest <= MOST_SECONDS else 2 * quickest
    best = next((of for of, seconds in times.items() if seconds <= most), None)
    if best is None:
        return ""
    judged = "a clip" if best.answers.startswith("a clip") else "a pair"
    takes = f"{best.name}, {format_range(best.seconds)} {judged}" if best.seconds else best.name
    if find_stored(best.name):
        return f"A larger judge is here: {takes}: --model {best.name}"
    return f"A larger judge for {format_bytes(free_bytes)} of free memory: {takes}: vrt-lite pull {best.name}"


def keep_candidates(models: Iterable[ListedModel]) -> list[ListedModel]:
    """Choose the judges with published figures, the most accurate first, and keep them for `show_better_judge`."""
    from vrt_lite.evaluation.published import find_published  # noqa: PLC0415
    from vrt_lite.models.library import recipes  # noqa: PLC0415

    told = find_published(*_SET)
    shares = {of.model: of.value for of in (told.figures if told else ()) if of.measure in ("diff", "sign")}
    known = {name: shares[of.published] for name, of in recipes().items() if of.published in shares}
    found = sorted((of for of in models if of.name in known), key=lambda of: -known[of.name])
    with contextlib.suppress(OSError):
        keep(_kept_at(), found)
    return found


def show_better_judge(judgement: Judgement) -> None:
    """Print the line on a terminal, if the judge was a bundled one. It is of what is known already: nothing waits."""
    if judgement.backend or judgement.model.name not in bundled_names():
        return
    candidates: list[ListedModel] | None = read_kept(_kept_at(), list[ListedModel])
    if line := UNKNOWN if candidates is None else suggest_judge(candidates, read_memory().free_bytes):
        console_on(sys.stdout).print(line, style="dim")


def _kept_at() -> Path:
    return kept_path("judges", __version__, describe_machine())


if __name__ == "__main__":
    from vrt_lite.model_list import list_models

    print(suggest_judge(keep_candidates(list_models()), read_memory().free_bytes))
