"""The commands that judge test pairs: `evaluate`, `agree`, `calibrate`; `figures` shows the results."""

from __future__ import annotations

import json
import math
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from train.command_options import (
    FOLDER,
    choose_device,
    choose_precision,
    end_unfinished,
    footage_option,
    load_cases,
    load_test_cases,
    minutes_option,
    pairs_option,
    print_progress,
)
from train.pair_tables import check_tables
from train.recipe import TrainingRecipe, load_recipe
from train.stages import STAGES, TRAINED, check_unseen, learnt_from_tables, model_of, record_tables
from train.train_all import CALIBRATED, CALIBRATION
from train.views import VIEWS, View
from vrt_lite.disk import write_file
from vrt_lite.errors import UsageError
from vrt_lite.profile import PROFILE_NAME

if TYPE_CHECKING:
    from train.assessment.outcomes import Judged
    from train.training_cases import Cases, TrainingCase


@click.command()
@click.argument("recipe", type=FOLDER)
@click.argument("run", type=FOLDER)
@click.option(
    "--stage", "stages", multiple=True, help="cold-start, refine, grpo, a checkpoint, or a GGUF. [default: all]"
)
@click.option(
    "--view", "views", type=click.Choice(VIEWS), multiple=True, help="Frames that a call shows. [default: all]"
)
@click.option("--batch", type=click.IntRange(min=1), default=16, show_default=True, help="Cases judged at a time.")
@pairs_option
@footage_option
@minutes_option
def evaluate(recipe: Path, run: Path, stages: tuple[str, ...], views: tuple[View, ...], **options: Any) -> None:
    """Judge test pairs after each stage: with the frames asked for, with random frames, and without the tool.

    No stage has seen these pairs, and no temperature was fitted on them. At most --pairs of a table are judged.

    Writes outcomes and figures to RUN/evaluate/STAGE, and pictures and tables to RUN/evaluate.
    """
    from train.assessment import assess  # noqa: PLC0415

    loaded, device = load_recipe(recipe), choose_device()
    check_unseen(loaded, run)
    cases = load_test_cases(loaded, options["pairs"], options["footage"], device)
    ends = math.inf if options["minutes"] is None else time.monotonic() + 60 * options["minutes"]
    reports: dict[str, Any] = {}
    for name in stages or [stage for stage in STAGES if (run / stage / "model").is_dir()]:
        folder = run / "evaluate" / _folder_name(name, footage=options["footage"] is not None)
        model = model_of(run, name) if name in STAGES else name
        by_view = _judge_by_view(
            loaded, model, cases, views or VIEWS, name=name, folder=folder, batch=options["batch"], ends=ends
        )
        if by_view is None:
            end_unfinished("evaluate")
        reports[folder.name] = assess.report(by_view, about={"judge": name, "pairs": len(cases)})
        assess.write_report(reports[folder.name], folder)
    _print_reports(reports, run)


def _judge_by_view(
    recipe: TrainingRecipe,
    model: Path | str,
    cases: Cases,
    views: tuple[View, ...],
    *,
    name: str,
    folder: Path,
    batch: int,
    ends: float,
) -> dict[View, Judged] | None:
    """Judge the cases with one model in each view. Returns None if the time `ends` (time.monotonic) came first."""
    from train.assessment import assess  # noqa: PLC0415

    device = choose_device()
    by_view: dict[View, Judged] = {}
    with assess.open_judge(model, device=device, precision=choose_precision(recipe, device), batch=batch) as judge:
        for view in views:
            outcomes = assess.evaluate(
                judge,
                cases,
                folder=folder,
                view=view,
                minutes=None if ends == math.inf else max((ends - time.monotonic()) / 60, 0.0),
                progress=lambda done, total, view=view: print_progress(f"{name}, {view}", done, total),
            )
            if outcomes is None:
                return None
            by_view[view] = outcomes
    return by_view


@click.command()
@click.argument("recipe", type=FOLDER)
@click.argument("checkpoint", type=FOLDER)
@click.argument("gguf", type=FOLDER)
@click.option("--out", type=FOLDER, required=True, help="Folder for the outcomes of both.")
@click.option("--pairs", type=click.IntRange(min=1), default=200, show_default=True)
@footage_option
@minutes_option
def agree(recipe: Path, checkpoint: Path, gguf: Path, out: Path, minutes: float | None, **options: Any) -> None:
    """Count the test pairs on which CHECKPOINT in transformers and GGUF in llama.cpp give the same verdict."""
    from train.assessment import assess  # noqa: PLC0415
    from train.assessment.text_tables import agreements  # noqa: PLC0415

    loaded = load_recipe(recipe)
    check_tables(loaded.data)
    with ExitStack() as stack:
        one = stack.enter_context(assess.open_checkpoint(checkpoint))
        other = stack.enter_context(assess.open_gguf(gguf))
        cases = load_test_cases(loaded, options["pairs"], options["footage"], "cpu")
        agreement = assess.agree(one, other, cases, folder=out, minutes=minutes)
    if agreement is None:
        end_unfinished("agree")
    (out / "agreement.json").write_text(json.dumps(agreement, indent=1) + "\n", encoding="utf-8")
    click.echo(agreements(agreement))


@click.command()
@click.argument("judge", type=FOLDER)
@click.option("--out", type=FOLDER, help="Folder for the outcomes. [default: RUN/calibrate, or PAIR-calibrate]")
@click.option("--pairs", type=click.IntRange(min=4), default=400, show_default=True, help="The most pairs of a source.")
@click.option("--recipe", type=FOLDER, help="Pairs of this recipe's source. [default: the world]")
@click.option("--footage", type=FOLDER, help="Pairs from this folder of real footage as well.")
@click.option(
    "--hidden", type=click.FloatRange(0, 1), help="Share of hidden evidence. [default: the recipe's, or 0.35]"
)
@minutes_option
def calibrate(judge: Path, out: Path | None, recipe: Path | None, minutes: float | None, **options: Any) -> None:
    """Fit the temperatures of JUDGE to pairs that it never saw, and write them to its profile.

    JUDGE is a RUN, whose last model is calibrated, a checkpoint, or the folder of a GGUF pair. Every second pair is for
    fitting. The others give the expected calibration error (ECE) before and after. `evaluate` has none of these pairs.
    """
    from train.assessment import assess  # noqa: PLC0415
    from train.calibration import describe_fits, fit_temperatures, write_temperatures  # noqa: PLC0415

    of_run = (judge / STAGES[-1] / "model").is_dir()
    folder = judge / STAGES[-1] / "model" if of_run else judge
    out = out or (judge / CALIBRATION if of_run else judge.with_name(f"{judge.name}-{CALIBRATION}"))
    if not (folder / PROFILE_NAME).is_file():
        raise UsageError(
            f"{folder} has no {PROFILE_NAME} to write temperatures to: name a run, a checkpoint or a pair."
        )
    loaded_recipe = load_recipe(recipe) if recipe else None
    if of_run:
        _check_source(loaded_recipe, judge)
    device = choose_device()
    cases = _calibration_cases(loaded_recipe, device=device, **options)
    with assess.open_judge(folder, device=device, precision="float32" if device == "cpu" else "bfloat16") as loaded:
        outcomes = assess.evaluate(
            loaded, cases, folder=out, minutes=minutes, progress=lambda done, of: print_progress("calibrate", done, of)
        )
        profile = loaded.profile
    if outcomes is None:
        end_unfinished("calibrate")
    unread = {case.key for case in cases if not profile.understands(case.pair.caption)}
    fits = fit_temperatures(list(outcomes.values()), profile.temperatures, unread=unread)
    if fits:
        write_temperatures(folder, {key: of.temperature for key, of in fits.items()})
    write_file(out / CALIBRATED, (json.dumps({key: asdict(of) for key, of in fits.items()}, indent=1) + "\n").encode())
    none = f"calibrate: {len(cases)} pairs gave too few labelled probabilities, so nothing was fitted."
    click.echo(describe_fits(fits) if fits else none)


def _check_source(recipe: TrainingRecipe | None, run: Path) -> None:
    """Record whose pairs a run is calibrated with. Raises UsageError for pairs that its stages may have seen."""
    if recipe is None or recipe.data.source == "world":
        if learnt_from_tables(run):
            raise UsageError(f"{run} learnt from tables of pairs: give its recipe with --recipe, for its data.test.")
        return
    check_unseen(recipe, run, TRAINED)
    record_tables(recipe, run, CALIBRATION)


def _calibration_cases(
    recipe: TrainingRecipe | None, *, device: str, pairs: int, footage: Path | None, hidden: float | None
) -> list[TrainingCase]:
    """Return the pairs for fitting: of a recipe's test table, or of the world; and of footage, if there is a folder."""
    from train.calibration import FIRST_SEED  # noqa: PLC0415
    from train.world import TEST, World  # noqa: PLC0415

    if recipe and recipe.data.source == "tables":
        check_tables(recipe.data)
        cases = [*load_cases(recipe, "calibrate", pairs, device=device)]
    else:
        share = hidden if hidden is not None else recipe.data.hidden if recipe else 0.35
        cases = [*World(TEST + FIRST_SEED, pairs, hidden=share, device=device)]
    if footage:
        from train.footage.footage_pairs import FootagePairs  # noqa: PLC0415  the decoder

        cases += FootagePairs(footage, "test", first=FIRST_SEED, count=pairs)
    return cases


@click.command()
@click.argument("run", type=FOLDER)
def figures(run: Path) -> None:
    """Draw the curves and the evaluations of RUN again, and print the tables."""
    from train.assessment.assess import load_report  # noqa: PLC0415

    reports = {path.parent.name: load_report(path) for path in sorted((run / "evaluate").glob("*/figures.json"))}
    _print_reports({name: reports[name] for name in sorted(reports, key=lambda n: (n not in STAGES, n))}, run)


def _folder_name(name: str, *, footage: bool) -> str:
    """Return a folder's name for a stage, a path or a model, and its test pairs."""
    if name in STAGES:
        short: str = name
    else:
        path = Path(name)
        short = f"{path.parent.parent.name}-{path.parent.name}" if path.name == "model" else path.stem or "bundled"
    return short + ("-footage" if footage else "")


def _print_reports(reports: dict[str, Any], run: Path) -> None:
    """Print the tables, draw the charts that belong to them, and print the charts' paths."""
    from train.assessment import assess, charts, text_tables  # noqa: PLC0415  matplotlib

    if not reports:
        raise UsageError(f"{run} has no finished stage and no evaluation: begin with python -m train cold-start.")
    click.echo(text_tables.stages(reports))
    judged = {name: run / "evaluate" / name for name in STAGES if "asked" in reports.get(name, {}).get("views", {})}
    for differences in (assess.gains(judged), *(report["differences"] for report in reports.values())):
        if differences:
            click.echo(f"\n{text_tables.differences(differences)}")
    last = list(reports.values())[-1]["views"]
    if asked := last.get("asked"):
        for table in (text_tables.dimensions, text_tables.groups, text_tables.reliability):
            click.echo(f"\n{table(asked)}")
    for path in charts.draw(reports, run / "evaluate", run=run):
        click.echo(path)
