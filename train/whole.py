"""A whole training, from a recipe to a judge and its figures: the verb `all`.

Every part is a verb of its own, run in a process of its own, so that one's memory and threads are gone before the next
begins, and a killed run goes on with the part that it was in. Knows the verbs' names and their order.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from train.recipe import Recipe
from train.stages import STAGES, model_of

PAIR = "pair"
"""The folder of a run that has its GGUF pair."""
UNFINISHED = 3
"""Exit status of a leg whose minutes ended first: the same command goes on."""
_TRACES = "sample"


def verbs(recipe: Recipe) -> tuple[str, ...]:
    """The stages of a recipe, in their order."""
    first = ("pretrain",) if recipe.pretrain.samples else ()
    return (*first, "cold-start", _TRACES, "refine", "grpo")


def train_all(
    recipe: Recipe,
    path: Path,
    run: Path,
    *,
    minutes: float | None,
    evaluations: list[list[str]],
    say: Callable[[str], None],
) -> int:
    """Run all that is left of a run: its stages, the export of the last one's model, the evaluations.

    Returns the exit status: 0 when all is done, 3 when the minutes ended first, or that of the verb that failed.
    """
    ends = math.inf if minutes is None else time.monotonic() + 60 * minutes

    def call(*arguments: str) -> int:
        left = [] if minutes is None else ["--minutes", f"{max(ends - time.monotonic(), 0) / 60:.3f}"]
        return subprocess.run([sys.executable, "-m", "train", *arguments, *left], check=False).returncode

    for verb in verbs(recipe):
        if (run / verb / "model").is_dir():
            continue
        say(f"{verb}: begun")
        if status := call(verb, str(path), str(run)):
            return status
    if not (run / PAIR).is_dir():
        _export(recipe, run)
        say(f"export: {run / PAIR}")
    for arguments in evaluations:
        if status := call("evaluate", str(path), str(run), *arguments):
            return status
    return 0


def _export(recipe: Recipe, run: Path) -> None:
    """The last stage's model as a GGUF pair. The folder is there when it is whole."""
    from convert.export import export_pair  # noqa: PLC0415  only where a model is written

    part = run / f"{PAIR}.part"
    export_pair(model_of(run, STAGES[-1]), part, name=recipe.name, authorship={"license": "MIT"})
    part.replace(run / PAIR)
