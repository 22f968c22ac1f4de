"""A whole training, from a recipe to a judge and its figures: the verb `all`.

Every part is a verb that runs in its own process. So its memory and threads are gone before the next part starts, and a
killed run continues with the unfinished part.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from train.recipe import TrainingRecipe
from train.stages import STAGES, model_of

PAIR = "pair"
"""The folder of a run's GGUF pair."""
CALIBRATION = "calibrate"
"""The verb, and the folder of its outcomes in a run."""
CALIBRATED = "temperatures.json"
"""What was fitted, in that folder. It is there when the calibration is done."""
UNFINISHED = 3
"""Exit status of a leg whose minutes ended first: the same command continues."""
_TRACES = "sample"


def verbs(recipe: TrainingRecipe) -> tuple[str, ...]:
    """Return the stages of a recipe, in order."""
    first = ("pretrain",) if recipe.pretrain.samples else ()
    return (*first, "cold-start", _TRACES, "refine", "grpo")


def train_all(
    recipe: TrainingRecipe,
    path: Path,
    run: Path,
    *,
    minutes: float | None,
    calibration: list[str],
    evaluations: list[list[str]],
    report: Callable[[str], None],
) -> int:
    """Run everything that a run lacks: stages, calibration and export of the last stage's model, evaluations.

    `calibration` and each of `evaluations` are the options of their verb.
    Returns the exit status: 0 when all is done, 3 if the minutes ended first, or the status of the failed verb.
    """
    ends = math.inf if minutes is None else time.monotonic() + 60 * minutes

    def call(*arguments: str) -> int:
        left = [] if minutes is None else ["--minutes", f"{max(ends - time.monotonic(), 0) / 60:.3f}"]
        return subprocess.run([sys.executable, "-m", "train", *arguments, *left], check=False).returncode

    for verb in verbs(recipe):
        if (run / verb / "model").is_dir():
            continue
        report(f"{verb}: started")
        if status := call(verb, str(path), str(run)):
            return status
    if not (run / CALIBRATION / CALIBRATED).is_file() and (status := call(CALIBRATION, str(run), *calibration)):
        return status
    if not (run / PAIR).is_dir():
        _export(recipe, run)
        report(f"export: {run / PAIR}")
    for arguments in evaluations:
        if status := call("evaluate", str(path), str(run), *arguments):
            return status
    return 0


def _export(recipe: TrainingRecipe, run: Path) -> None:
    """Export the last stage's model as a GGUF pair. The folder appears only when it is complete."""
    from vrt_lite.conversion.export_pair import export_pair  # noqa: PLC0415  only where a model is written

    part = run / f"{PAIR}.part"
    export_pair(model_of(run, STAGES[-1]), part, name=recipe.name, authorship={"license": "MIT"})
    part.replace(run / PAIR)
