"""`python -m train.tiny VERB RUN`: makes the small default judge, its heads and its text model."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from vrt_lite.errors import UsageError, VrtError

_FOLDER = click.Path(file_okay=False, path_type=Path)
_run = click.argument("run", type=_FOLDER)
_footage = click.option("--footage", type=_FOLDER, help="Its folder; fetched if it is empty. [default: RUN/footage]")
_minutes = click.option("--minutes", type=click.FloatRange(0), help="Stop after these; the same command goes on.")
_clips = click.option("--clips", type=_FOLDER, help="Keep the clips in this folder too.")
_scale = click.option(
    "--scale", type=click.FloatRange(0.02), default=1.0, show_default=True, help="Share of the scenes."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def tiny() -> None:
    """Make clips with known faults, measure them, fit the heads, train the text model. RUN holds all results."""


@tiny.command()
@_run
@_footage
@_minutes
@_clips
@_scale
def make(run: Path, footage: Path | None, minutes: float | None, clips: Path | None, scale: float) -> None:
    """Make and measure the clips that RUN lacks. Exit status 3: the minutes are over."""
    if not _make(run, footage, minutes, clips, scale):
        sys.exit(3)


@tiny.command()
@_run
def fit(run: Path) -> None:
    """Fit the heads: RUN/heads.npz."""
    from train.tiny.heads import fit as fit_heads  # noqa: PLC0415  lightgbm
    from train.tiny.making import load  # noqa: PLC0415
    from vrt_lite.measures.definitions import DEFINITIONS  # noqa: PLC0415

    fit_heads(load(run), tuple(DEFINITIONS), run / "heads.npz", say=click.echo)


@tiny.command()
@_run
@click.option("--heads", type=click.Path(dir_okay=False, path_type=Path), help="[default: RUN/heads.npz]")
def evaluate(run: Path, heads: Path | None) -> None:
    """Print what the heads get on scenes that nothing was fitted on."""
    from train.tiny.figures_of_heads import evaluate as evaluate_heads  # noqa: PLC0415
    from train.tiny.making import load  # noqa: PLC0415

    evaluate_heads(load(run), heads or run / "heads.npz", say=click.echo)


@tiny.command()
@_run
@_footage
@_minutes
def text(run: Path, footage: Path | None, minutes: float | None) -> None:
    """Train the text model to read what was measured: RUN/text/pair. Exit status 3: the minutes are over."""
    from train.tiny.text_model import NAME, train  # noqa: PLC0415  torch
    from vrt_lite.conversion.convert_folder import export_pair  # noqa: PLC0415

    if not train(run, _fetch(run, footage), minutes=minutes, say=click.echo):
        sys.exit(3)
    export_pair(run / "text" / "model", run / "text" / "pair", name=NAME, authorship={"license": "MIT"})


@tiny.command()
@_run
@_footage
@click.option("--judge", help="Another judge: a folder or a name. [default: RUN/text/pair]")
@click.option("--pairs", type=click.IntRange(1), default=300, show_default=True)
def read(run: Path, footage: Path | None, judge: str | None, pairs: int) -> None:
    """Print how well the text model reads reports, on pairs that it never saw."""
    from train.tiny.text_figures import evaluate as evaluate_text  # noqa: PLC0415

    evaluate_text(judge or str(run / "text" / "pair"), _fetch(run, footage), pairs=pairs, say=click.echo)


@tiny.command(name="all")
@_run
@_footage
@_minutes
@_clips
@_scale
@click.pass_context
def everything(
    context: click.Context, run: Path, footage: Path | None, minutes: float | None, clips: Path | None, scale: float
) -> None:
    """Do all of it, one after the other."""
    if not _make(run, footage, minutes, clips, scale):
        sys.exit(3)
    context.invoke(fit, run=run)
    context.invoke(evaluate, run=run, heads=None)
    context.invoke(text, run=run, footage=footage, minutes=minutes)
    context.invoke(read, run=run, footage=footage, judge=None, pairs=300)


def _make(run: Path, footage: Path | None, minutes: float | None, clips: Path | None, scale: float) -> bool:
    from train.tiny.making import make_all  # noqa: PLC0415

    return make_all(run, _fetch(run, footage), scale=scale, minutes=minutes, clips=clips, say=click.echo)


def _fetch(run: Path, footage: Path | None) -> Path:
    from train.tiny.footage.packages import fetch  # noqa: PLC0415
    from train.tiny.footage.survey import SURVEY, survey  # noqa: PLC0415

    folder = footage or run / "footage"
    if not (folder / SURVEY).exists():
        fetch(folder, progress=click.echo)
        survey(folder)
    return folder


if __name__ == "__main__":
    try:
        tiny(prog_name="python -m train.tiny")
    except VrtError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
