"""A whole training, from a recipe to a judge and its figures: the verb `all`.

Every part is a verb that runs in its own process. So its memory and threads are gone before the next part starts, and a
killed run continues with the unfinished part. A stage may have a launcher, which starts it on several processes.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from train.recipe import TrainingRecipe
from train.stages import STAGES, TRAINED, model_of
from vrt_lite.errors import UsageError

PAIR = "pair"
"""The folder of a run's GGUF pair."""
CALIBRATION = "calibrate"
"""The verb, and the folder of its outcomes in a run."""
CALIBRATED = "temperatures.json"
"""What was fitted, in that folder. It is there when the calibration is done."""
UNFINISHED = 3
"""Exit status of a leg whose minutes ended first: the same command continues."""
LEG_OVER = "leg-over"
"""The file in a stage's folder that says so, too: a launcher passes on no exit status but success and failure."""


def find_launcher(recipe: TrainingRecipe, verb: str) -> tuple[str, ...]:
    """Return the words that start a stage: its launcher in the recipe, or this Python.

    A program beside this Python comes before those on the PATH. Raises UsageError for a program that is not there.
    """
    key = verb.replace("-", "_")
    words: tuple[str, ...] = getattr(recipe.launchers, key)
    if not words:
        return (sys.executable,)
    beside = str(Path(sys.executable).parent)
    program = shutil.which(words[0], path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))
    if program is None:
        raise UsageError(
            f"launchers.{key} of recipe {recipe.name} begins with {words[0]!r}, which is not installed here: install "
            "it, or leave the launcher out to train in one process."
        )
    return (program, *words[1:])


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
    starts = {verb: find_launcher(recipe, verb) for verb in TRAINED}

    def call(*arguments: str, start: Sequence[str] = (sys.executable,)) -> int:
        left = [] if minutes is None else ["--minutes", f"{max(ends - time.monotonic(), 0) / 60:.3f}"]
        return subprocess.run([*start, "-m", "train", *arguments, *left], check=False).returncode

    for verb, start in starts.items():
        if (run / verb / "model").is_dir():
            continue
        report(f"{verb}: started")
        over = run / verb / LEG_OVER
        over.unlink(missing_ok=True)
        status = call(verb, str(path), str(run), start=start)
        if over.is_file():
            return UNFINISHED
        if status:
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
    from vrt_lite.conversion.convert_folder import export_pair  # noqa: PLC0415  only where a model is written

    part = run / f"{PAIR}.part"
    export_pair(model_of(run, STAGES[-1]), part, name=recipe.name, authorship={"license": "MIT"})
    part.replace(run / PAIR)
