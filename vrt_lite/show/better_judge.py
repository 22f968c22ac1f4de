"""Says which better judge fits this machine: `python -m vrt_lite.show.better_judge`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TextIO

from vrt_lite.machine import format_bytes
from vrt_lite.show.words import console_on, format_range

if TYPE_CHECKING:
    from vrt_lite.model_list import ListedModel
    from vrt_lite.records.judgement import Judgement

MOST_SECONDS: Final = 3600
"""How long a pair may take for a judge that is proposed first."""
_SET: Final = ("videogen-rewardbench", "eval")
"""The published set that orders the judges, tied pairs left out."""


def suggest_judge(models: Iterable[ListedModel], free_bytes: int) -> str:
    """Say in a line which of the models, the most accurate first, fits the free memory; "" if none does.

    The first that judges a pair within the hour is taken; if there is none, the first that takes no more than twice as
    long as the quickest.
    """
    slow: list[tuple[float, ListedModel]] = []
    for model in models:
        if model.memory_bytes <= free_bytes:
            seconds = model.seconds.middle if model.seconds else 0.0  # not known before the first judgement on a GPU
            if seconds <= MOST_SECONDS:
                return _describe(model, free_bytes)
            slow.append((seconds, model))
    most = 2 * min((seconds for seconds, _ in slow), default=0.0)
    return next((_describe(model, free_bytes) for seconds, model in slow if seconds <= most), "")


def _describe(model: ListedModel, free_bytes: int) -> str:
    what = " ".join(model.answers.split()[:2]).strip(":,")  # a pair, or a clip
    takes = f"{model.name}, {format_range(model.seconds)} {what}" if model.seconds else model.name
    if model.state == "here":
        return f"A larger judge is here: {takes}: --model {model.name}"
    return f"A larger judge for {format_bytes(free_bytes)} of free memory: {takes}: vrt-lite pull {model.name}"


def find_better_judge() -> str:
    """Say in a line which judge with published figures fits this machine now; "" if none does."""
    from vrt_lite.backends import read_memory  # noqa: PLC0415 - the engine
    from vrt_lite.evaluation.figures import find_published  # noqa: PLC0415
    from vrt_lite.model_list import list_model  # noqa: PLC0415
    from vrt_lite.models.library import recipes  # noqa: PLC0415

    told = find_published(*_SET)
    figures = told.figures if told else ()
    shares = {figure.model: figure.value for figure in figures if figure.measure in ("diff", "sign")}
    ranked = sorted((r for r in recipes().values() if r.published in shares), key=lambda r: -shares[r.published])
    return suggest_judge((list_model(recipe.name) for recipe in ranked), read_memory().free_bytes)


def show_better_judge(judgement: Judgement, stream: TextIO) -> None:
    """Print the line on a terminal, if the judge was a bundled one."""
    from vrt_lite.models import bundled_names  # noqa: PLC0415

    wanted = not judgement.backend and judgement.model.name in bundled_names()
    if wanted and (line := find_better_judge()):
        console_on(stream).print(line, markup=False, highlight=False, style="dim")


if __name__ == "__main__":
    print(find_better_judge())
