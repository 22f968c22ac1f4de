"""`python -m train VERB …`: the commands. Only this module turns errors into a line and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from train.data import TableCases, check_tables, load_cases, read_traces
from train.recipe import TrainingRecipe, load_recipe
from vrt_lite.errors import UsageError, VrtError
from vrt_lite.profile import default_profile, load_profile, preset
from vrt_lite.settings import MOST_JOBS, Remote

FOLDER = click.Path(path_type=Path)
STAGES: Final = ("cold-start", "refine", "grpo")
"""The stages that leave a model."""
_BEFORE: Final = {"sample": "cold-start", "refine": "cold-start", "grpo": "refine"}


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def train() -> None:
    """Train a judge that writes VR-Thinker's protocol: cold start, rejection sampling, GRPO.

    RECIPE is a TOML file (train/configs). RUN is a folder for all results. On several GPUs start a stage with
    accelerate launch -m train STAGE RECIPE RUN. A killed stage goes on from its last checkpoint.

    \b
    Exit status:
      0    done
      2    a wrong argument, a recipe or a table that cannot be used
      1    any other failure
    """  # noqa: D301 - click's mark for "do not wrap" is the control character itself


def stage_command(name: str) -> Callable[[Callable[[TrainingRecipe, Path], None]], click.Command]:
    """Make a command, with RECIPE and RUN, of a function that does a stage."""

    def make_command(work: Callable[[TrainingRecipe, Path], None]) -> click.Command:
        @train.command(name, help=work.__doc__)
        @click.argument("recipe", type=FOLDER)
        @click.argument("run", type=FOLDER)
        def command(recipe: Path, run: Path) -> None:
            loaded = load_recipe(recipe)
            check_tables(loaded.data)
            work(loaded, run)
            if _is_first():
                click.echo(f"{name}: done, {run / name}")

        return command

    return make_command


@stage_command("cold-start")
def cold_start(recipe: TrainingRecipe, run: Path) -> None:
    """Learn from written traces; only the judge's replies have a loss."""
    from train.data import replay  # noqa: PLC0415
    from train.sft import supervise  # noqa: PLC0415  torch, only where it is needed
    from train.strict_format import find_flaw  # noqa: PLC0415

    cases = _load(recipe.data.cold_start, Path(recipe.data.traces))
    flaws = {case.key: find_flaw(replay(case, case.script, recipe.profile)[1].rounds) for case in cases}
    if loose := [f"{key}, {flaw}" for key, flaw in flaws.items() if flaw]:
        _tell(f"{len(loose)} of {len(flaws)} traces do not have the strict format, and are learned so: {loose[0]}")
    start = recipe.model.source
    supervise(recipe.cold_start, cases, recipe=recipe, start=start, run=run / "cold-start")


@stage_command("sample")
def sample(recipe: TrainingRecipe, run: Path) -> None:
    """Sample traces from the cold start's model. Keep those with a right form and right judgements."""
    from train.sample import sample as sample_traces  # noqa: PLC0415  torch

    sample_traces(recipe, _start_of(run, "sample"), _load(recipe.data.sample), run / "sample" / "traces.jsonl")


@stage_command("refine")
def refine(recipe: TrainingRecipe, run: Path) -> None:
    """Learn from the traces that `sample` kept."""
    from train.sft import supervise  # noqa: PLC0415  torch

    start, traces = _start_of(run, "refine"), run / "sample" / "traces.jsonl"
    kept = sum(bool(replies) for replies in read_traces(traces).values())
    if kept < recipe.refine.samples:
        _tell(f"{kept} traces were kept of the {recipe.refine.samples} to learn from.")
    cases = _load(recipe.data.sample, traces)
    supervise(recipe.refine, cases, recipe=recipe, start=start, run=run / "refine")


@stage_command("grpo")
def grpo(recipe: TrainingRecipe, run: Path) -> None:
    """Train with GRPO: VR-Thinker's reward, and rollouts with its memory window."""
    from train.grpo import reinforce  # noqa: PLC0415  torch

    reinforce(recipe, _load(recipe.data.grpo), start=_start_of(run, "grpo"), run=run / "grpo")


@train.command()
@click.argument("recipe", type=FOLDER)
@click.argument("run", type=FOLDER)
@click.option("--stage", "stages", type=click.Choice(STAGES), multiple=True, help="[default: all that are finished]")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Pairs judged at once.")
def evaluate(recipe: Path, run: Path, stages: tuple[str, ...], jobs: int) -> None:
    """Export each stage's model to RUN/STAGE/pair, and evaluate it on the test table as `vrt-lite eval` does."""
    from train.stage_evaluation import evaluate as evaluate_stage  # noqa: PLC0415  the engine
    from vrt_lite.show.evaluation_sections import show_figures  # noqa: PLC0415

    loaded = load_recipe(recipe)
    check_tables(loaded.data)
    finished = stages or [stage for stage in STAGES if (run / stage / "model").is_dir()]
    if not finished:
        raise UsageError(f"{run} has no finished stage: begin with python -m train cold-start RECIPE {run}.")
    for stage in finished:
        _model_of(run, stage)
        show_figures(evaluate_stage(loaded, run / stage, jobs=jobs), judge=stage, run=run.name)


@train.command("dry-run")
@click.argument("recipe", type=FOLDER)
@click.option("--gpus", type=click.IntRange(1), default=8, show_default=True)
@click.option("--whole", is_flag=True, help="Weights are not sharded over the GPUs: plain data parallelism.")
def dry_run(recipe: Path, gpus: int, whole: bool) -> None:
    """Say which memory, tokens a step and hours each stage takes. Only the model's config.json is read."""
    from train.dry_run import describe  # noqa: PLC0415  torch

    click.echo("\n".join(describe(load_recipe(recipe), gpus=gpus, sharded=gpus > 1 and not whole)))


@train.command("write-traces")
@click.argument("table", type=FOLDER)
@click.option("--backend", required=True, metavar="URL", help="An OpenAI-compatible server: http://HOST:8000/v1.")
@click.option("--model", metavar="NAME", help="The model's name there. [default: its only one]")
@click.option("--out", type=FOLDER, default=Path("traces.jsonl"), show_default=True)
@click.option("--tries", type=click.IntRange(1), default=4, show_default=True, help="Traces asked for of a pair.")
@click.option("--jobs", type=click.IntRange(1, MOST_JOBS), default=1, show_default=True, help="Pairs at once.")
@click.option("--preset", "dimensions", help="The dimensions' words. [default: the set's]")
@click.option("--profile", type=FOLDER, help="Another protocol than VR-Thinker's.")
def write_traces(
    table: Path,
    backend: str,
    model: str | None,
    out: Path,
    tries: int,
    jobs: int,
    dimensions: str | None,
    profile: Path | None,
) -> None:
    """Let a strong model write traces of TABLE's pairs; keep those that are well-formed and right in all.

    The same command goes on with the pairs that were not asked about.
    """
    from dataclasses import replace  # noqa: PLC0415

    from train.data import read_table  # noqa: PLC0415
    from train.write_traces import write_traces as write  # noqa: PLC0415

    how = load_profile(profile) if profile else default_profile()
    if words := dimensions or (None if profile else read_table(table).place.layout.preset):
        how = replace(how, dimensions=preset(words))
    cases = _load(str(table))
    kept = write(cases, Remote(backend, served_model=model), how, out, tries=tries, jobs=jobs, progress=_tell)
    click.echo(f"{kept} traces of {len(cases)} pairs in {out}")


def _load(table: str, traces: Path | None = None) -> TableCases:
    """Load a table's cases, and say how many pairs are left out."""
    cases = load_cases(Path(table), traces)
    if cases.left_out:
        _tell(f"{table}: {len(cases)} pairs; {len(cases.left_out)} are left out, the first: {cases.left_out[0]}")
    return cases


def _start_of(run: Path, stage: str) -> Path:
    """Return the model with which a stage starts."""
    return _model_of(run, _BEFORE[stage])


def _model_of(run: Path, stage: str) -> Path:
    """Return a stage's finished model. The UsageError for a missing model names the command that makes it."""
    if not (run / stage / "model").is_dir():
        raise UsageError(
            f"{run / stage} has no model: finish the stage with python -m train {stage} RECIPE {run} first."
        )
    return run / stage / "model"


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _tell(line: str) -> None:
    """Write a line to standard error, once for all processes."""
    if _is_first():
        click.echo(line, err=True)


def main() -> None:
    """Run a command. A known error (VrtError) becomes one line and an exit status."""
    try:
        train(prog_name="python -m train")
    except VrtError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    finally:
        leave_group()


def leave_group() -> None:
    """Leave the group of processes that a launcher started, if there is one.

    gloo runs its own threads. An interpreter that ends while they run sometimes aborts, although its work is done.
    """
    torch = sys.modules.get("torch")
    if torch and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
