"""The commands that train: one for each stage, and `all`. Each continues where it ended, in legs of --minutes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import NoReturn

import click

from train.command_options import (
    FOLDER,
    choose_device,
    choose_drawing_device,
    end_unfinished,
    load_cases,
    minutes_option,
    pairs_option,
    print_status,
)
from train.recipe import TrainingRecipe, load_recipe
from train.stages import (
    TRAINED,
    check_recipe,
    check_unseen,
    start_of,
    starting_model,
    traces_of,
)
from train.step_sizes import count_processes, describe_step, is_first_process
from train.strict_format import find_flaw
from train.traces import replay
from train.train_all import LEG_OVER, train_all
from train.training_cases import Cases
from vrt_lite.errors import NoVerdictError, UsageError


def stage_command(name: str) -> Callable[[Callable[..., bool]], click.Command]:
    """Make a command of a function that trains a stage and returns whether it is finished.

    The command takes RECIPE, RUN and --minutes.
    """

    def make_command(work: Callable[..., bool]) -> click.Command:
        @wraps(work)
        def command(recipe: Path, run: Path, minutes: float | None) -> None:
            loaded = load_recipe(recipe)
            check_recipe(loaded, run, name)
            if is_first_process():
                (run / name / LEG_OVER).unlink(missing_ok=True)
                print_status(describe_step(loaded, name, count_processes()))
            if not work(loaded, run, minutes):
                _end_leg(run / name)
            if is_first_process():
                click.echo(f"{name}: done, {run / name}")

        for option in (minutes_option, click.argument("run", type=FOLDER), click.argument("recipe", type=FOLDER)):
            command = option(command)
        return click.command(name)(command)

    return make_command


def _end_leg(folder: Path) -> NoReturn:
    """End a stage's leg whose minutes are over: with status 3, or with 0 under a launcher, which fails at any other."""
    if not is_first_process():
        sys.exit()
    (folder / LEG_OVER).touch()
    if "RANK" in os.environ:
        print_status(f"{folder.name}: this leg is over; run the same command again to continue.")
        sys.exit()
    end_unfinished(folder.name)


@stage_command("cold-start")
def cold_start(recipe: TrainingRecipe, run: Path, minutes: float | None) -> bool:
    """Learn from written traces; only the judge's replies have a loss."""
    from train.supervised import supervise  # noqa: PLC0415  torch, only where it is needed

    device = choose_drawing_device(recipe)
    cases = load_cases(recipe, "cold-start", device=device)
    if recipe.data.source == "tables" and is_first_process():
        _print_loose_traces(cases, recipe)
    return supervise(
        recipe.cold_start,
        cases,
        start=starting_model(recipe, run),
        run=run / "cold-start",
        recipe_all=recipe,
        minutes=minutes,
    )


def _print_loose_traces(cases: Cases, recipe: TrainingRecipe) -> None:
    """Print how many written traces do not have the strict format: they are learnt as they are.

    Raises UsageError for a trace that ends without a verdict.
    """
    flaws: dict[str, str] = {}
    for case in cases:
        try:
            flaws[case.key] = find_flaw(replay(case, case.script, recipe.profile)[1].rounds)
        except NoVerdictError as error:
            raise UsageError(f"The trace of {case.key} in {recipe.data.traces} cannot be learnt: {error}") from error
    if loose := [f"{key}, {flaw}" for key, flaw in flaws.items() if flaw]:
        print_status(f"cold-start: {len(loose)} of {len(flaws)} traces do not have the strict format: {loose[0]}")


@stage_command("sample")
def sample(recipe: TrainingRecipe, run: Path, minutes: float | None) -> bool:
    """Sample traces from the cold start's model. Keep those with a right form and right judgements."""
    from train import rejection  # noqa: PLC0415  torch

    cases = load_cases(recipe, "sample", device=choose_device())
    return rejection.sample(recipe, start_of(run, "sample"), cases, run / "sample" / "traces.jsonl", minutes=minutes)


@stage_command("refine")
def refine(recipe: TrainingRecipe, run: Path, minutes: float | None) -> bool:
    """Learn from the traces that `sample` kept."""
    from train.supervised import supervise  # noqa: PLC0415  torch
    from train.traces import read_traces  # noqa: PLC0415

    start = start_of(run, "refine")
    traces = read_traces(traces_of(recipe, run))
    if len(traces) < recipe.refine.samples and is_first_process():
        print_status(f"refine: {len(traces)} traces were kept of the {recipe.refine.samples} asked for.")
    return supervise(
        recipe.refine,
        load_cases(recipe, "refine", device=choose_drawing_device(recipe)),
        start=start,
        run=run / "refine",
        recipe_all=recipe,
        traces=traces,
        minutes=minutes,
    )


@stage_command("grpo")
def grpo(recipe: TrainingRecipe, run: Path, minutes: float | None) -> bool:
    """Train with GRPO: VR-Thinker's reward, and rollouts with its memory window."""
    from train.grpo import reinforce  # noqa: PLC0415  torch

    cases = load_cases(recipe, "grpo", device=choose_device())
    return reinforce(recipe, cases, start=start_of(run, "grpo"), run=run / "grpo", minutes=minutes)


@click.command("all")
@click.argument("recipe", type=FOLDER)
@click.argument("run", type=FOLDER)
@pairs_option
@minutes_option
def all_stages(recipe: Path, run: Path, pairs: int, minutes: float | None) -> None:
    """Run all stages one after the other, calibrate and export the last model to RUN/pair, and evaluate.

    With footage in the recipe its held-back clips are judged as well. A stage that is done is not done again.
    """
    loaded, footage = load_recipe(recipe), []
    check_unseen(loaded, run, TRAINED)
    calibration = ["--pairs", str(max(min(pairs, 400), 4)), "--recipe", str(recipe)]
    if loaded.data.footage:
        calibration += ["--footage", loaded.data.footage]
        footage = [["--footage", loaded.data.footage, "--pairs", str(min(pairs, 400)), "--view", "asked"]]
    evaluations = [["--pairs", str(pairs)], *footage]
    status = train_all(
        loaded,
        recipe,
        run,
        minutes=minutes,
        calibration=calibration,
        evaluations=evaluations,
        report=print_status,
    )
    if status:
        sys.exit(status)
    click.echo(f"all: done, {run}")
