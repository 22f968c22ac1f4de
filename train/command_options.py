"""Shared parts of the commands of `python -m train`: options, the device, the test pairs, progress messages."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from train.stages import cases_for
from train.step_sizes import is_first_process
from train.train_all import UNFINISHED

if TYPE_CHECKING:
    from train.recipe import Precision, TrainingRecipe
    from train.training_cases import Cases

FOLDER = click.Path(path_type=Path)
minutes_option = click.option(
    "--minutes", type=click.FloatRange(min=0), help="End this leg after so many minutes. [default: no limit]"
)
pairs_option = click.option(
    "--pairs", type=click.IntRange(min=1), default=2000, show_default=True, help="The most test pairs."
)
footage_option = click.option("--footage", type=FOLDER, help="Test pairs from this folder of real footage instead.")


def choose_device() -> str:
    """Return the GPU of this process ("cuda:N") if there is one, else "cpu"."""
    import torch  # noqa: PLC0415

    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"


def choose_drawing_device(recipe: TrainingRecipe) -> str:
    """Return the device on which a supervised stage renders clips. Worker processes cannot share a GPU."""
    return "cpu" if recipe.data.workers else choose_device()


def choose_precision(recipe: TrainingRecipe, device: str) -> Precision:
    """Return the recipe's precision on a GPU, and "float32" on a CPU."""
    return "float32" if device == "cpu" else recipe.model.precision


def load_cases(recipe: TrainingRecipe, stage: str, count: int | None = None, *, device: str) -> Cases:
    """Return the cases of a stage (`train.stages.cases_for`), and print how many pairs of its table are left out."""
    cases = cases_for(recipe, stage, count, device=device)
    left_out: tuple[str, ...] = getattr(cases, "left_out", ())
    if left_out and is_first_process():
        print_status(f"{stage}: {len(cases)} pairs; {len(left_out)} are left out, the first: {left_out[0]}")
    return cases


def load_test_cases(recipe: TrainingRecipe, pairs: int, footage: Path | None, device: str) -> Cases:
    """Return at most `pairs` test cases of the recipe's source, or of a folder of footage."""
    if footage is None:
        return load_cases(recipe, "test", pairs, device=device)
    from train.footage.footage_pairs import FootagePairs  # noqa: PLC0415

    return FootagePairs(footage, "test", count=pairs)


def print_progress(what: str, done: int, total: int) -> None:
    """Write "WHAT: DONE of TOTAL" to standard error, over the previous line."""
    click.echo(f"\r{what}: {done} of {total} ", nl=done == total, err=True)


def print_status(text: str) -> None:
    """Write a line to standard error."""
    click.echo(text, err=True)


def end_unfinished(verb: str) -> NoReturn:
    """Print that this leg's minutes are over, and exit with status 3."""
    click.echo(f"{verb}: this leg is over; run the same command again to continue.", err=True)
    sys.exit(UNFINISHED)
