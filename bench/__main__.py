"""Measures what judging costs, beside other ways to do the same: random weights of the published shapes, real videos.

Every measuring verb prints a table and writes the figures, with the machine they were taken on, to --json FILE.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click
import psutil

from bench.peak_memory import memory
from bench.write_commands import FILE, FOLDER, SHAPE, cut_options, cut_shape, write_checkpoint, write_clip, write_model

_F = TypeVar("_F", bound=Callable[..., Any])
LEAST_PIXELS = 16 * 784  # the stock handler enlarges what is much smaller


def _json_option(command: _F) -> _F:
    return click.option("--json", "report_file", type=FILE, help="Write the figures here.")(command)


def _model_options(command: _F) -> _F:
    for option in (
        click.option("--model", type=FOLDER, required=True, help="A folder with a GGUF pair, as `model` writes it."),
        click.option("--max-pixels", type=click.IntRange(min=LEAST_PIXELS), default=768 * 784, show_default=True),
        click.option("--threads", type=click.IntRange(min=1), default=lambda: len(_cpus()), help="All by default."),
        click.option("--engine", multiple=True, metavar="NAME=VALUE", help="One of our engine's settings, as JSON."),
        click.option("--stock-ctx", type=click.IntRange(min=512), default=16_384, show_default=True),
        click.option("--stock-projector", type=FILE, help="The stock handler's, in F16 or Q8_0."),
        click.option("--former", type=FOLDER, help="A checkout of an earlier state, for the side `former`."),
    ):
        command = option(command)
    return _json_option(command)


def _cpus() -> list[int]:
    process = psutil.Process()
    return process.cpu_affinity() if hasattr(process, "cpu_affinity") else list(range(psutil.cpu_count() or 1))


@click.group(help=__doc__)
def cli() -> None:
    """The group of verbs. They share nothing."""


@cli.command("verdict")
@_model_options
@click.option(
    "--sides",
    default="ours,former,stock,transformers",
    show_default=True,
    help="In the order they run; in-turn and at-once are both orders.",
)
@click.option("--rounds", "rounds", type=click.IntRange(1, 3), multiple=True, default=(2, 3), show_default=True)
@click.option("--repeat", type=click.IntRange(min=1), default=1, help="Medians; the order turns each time.")
@click.option("--checkpoint", "checkpoint_folder", type=FOLDER, help="The same shape for transformers.")
@click.option("--dtype", type=click.Choice(["bfloat16", "float32"]), default="bfloat16", help="For transformers.")
def measure_verdict(sides: str, rounds: tuple[int, ...], repeat: int, report_file: Path | None, **common: Any) -> None:
    """Verdicts of two and of three rounds, against the stock handler and transformers."""
    from bench.judging_cost import verdict  # noqa: PLC0415
    from bench.side import SIDES  # noqa: PLC0415

    chosen = _sides(sides, SIDES)
    verdict(_job(**common), chosen, rounds=rounds, repeat=repeat).print_and_save(report_file)


@cli.command("rank")
@_model_options
@click.option("--clips", type=click.IntRange(min=2), default=6, show_default=True)
@click.option("--rounds", type=click.IntRange(1, 3), default=1, show_default=True, help="Of every judgement.")
@click.option("--sample", type=click.IntRange(min=1), help="Judgements that the stock side does; multiplied up.")
@click.option("--order", default="ours,stock", show_default=True)
def measure_rank(
    clips: int, rounds: int, sample: int | None, order: str, report_file: Path | None, **common: Any
) -> None:
    """Clips judged in all ordered pairs: thirty judgements of six clips."""
    from bench.judging_cost import rank  # noqa: PLC0415

    chosen = _sides(order, ("ours", "former", "stock"))
    rank(_job(**common), clips=clips, rounds=rounds, sample=sample, order=chosen).print_and_save(report_file)


@cli.command("gpu")
@_model_options
@click.option("--cpu/--no-cpu", default=True, help="Also the same verdicts on the CPU.")
@click.option("--rounds", "rounds", type=click.IntRange(1, 3), multiple=True, default=(2, 3), show_default=True)
def measure_gpu(report_file: Path | None, cpu: bool, rounds: tuple[int, ...], **common: Any) -> None:
    """Verdicts with all, half and none of the layers on a GPU; needs llama-cpp-python built with a GPU back end."""
    from bench.gpu import measure  # noqa: PLC0415

    measure(_job(**common), cpu=cpu, rounds=rounds).print_and_save(report_file)


@cli.command("batch")
@click.argument("folder", type=FOLDER)
@_json_option
def measure_batch(folder: Path, report_file: Path | None) -> None:
    """One token written in each of 1, 2, 4 and 8 conversations, in one evaluation."""
    from bench.batch_cost import measure_steps  # noqa: PLC0415

    measure_steps(folder, repeat=9).print_and_save(report_file)


@cli.command("projectors")
@click.argument("folder", type=FOLDER)
@_json_option
def measure_projectors(folder: Path, report_file: Path | None) -> None:
    """A frame pair encoded with each projector of a folder."""
    from bench.batch_cost import measure_projectors  # noqa: PLC0415

    measure_projectors(folder).print_and_save(report_file)


@cli.command("video")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--frames", type=click.IntRange(min=1), default=8, show_default=True)
@_json_option
def measure_video(file: Path, frames: int, report_file: Path | None) -> None:
    """A few frames out of a long video, against other readers."""
    from bench.frame_reading import measure  # noqa: PLC0415

    measure(file, frames=frames).print_and_save(report_file)


@cli.command("overhead")
@click.option("--repeat", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--threads", type=click.IntRange(min=1), help="The engine's own choice by default.")
@click.option("--profile", "profiled", is_flag=True, help="Also where the rest goes, by function.")
@_json_option
def measure_overhead(repeat: int, threads: int | None, profiled: bool, report_file: Path | None) -> None:
    """The share of `compare` outside vision, prefill and writing, with the bundled judge."""
    from bench.overhead import measure  # noqa: PLC0415

    measure(repeat=repeat, threads=threads, profiled=profiled).print_and_save(report_file)


@cli.command("export")
@click.argument("source", type=FOLDER)
@click.argument("out", type=FOLDER)
@click.option("--type", "kind", default="f16")
@_json_option
def measure_export(source: Path, out: Path, kind: str, report_file: Path | None) -> None:
    """Export a checkpoint, against a plain copy of its files."""
    from bench.export_cost import measure  # noqa: PLC0415

    measure(source, out, kind).print_and_save(report_file)


@cli.command("convert")
@click.argument("shape", type=SHAPE)
@click.argument("folder", type=FOLDER)
@click.option("--type", "quant", default="q4_k_m", show_default=True, help="Of the text model.")
@click.option("--two-steps", is_flag=True, help="Also export as BF16 and quantise, and compare the bytes.")
@cut_options
@_json_option
def measure_conversion(
    shape: str,
    folder: Path,
    quant: str,
    two_steps: bool,
    layers: int | None,
    vision_layers: int | None,
    report_file: Path | None,
) -> None:
    """Pull a random checkpoint from a hub on loopback: seconds, disk and memory.

    FOLDER gets the checkpoint, which stays for the next run, and meanwhile the results.
    """
    from bench.conversion_cost import measure  # noqa: PLC0415

    cut = cut_shape(shape, layers, vision_layers)
    measure(folder, shape, cut, quant=quant, two_steps=two_steps).print_and_save(report_file)


@cli.command("plot")
@click.argument("reports", type=click.Path(path_type=Path, dir_okay=False, exists=True), nargs=-1, required=True)
@click.option("-o", "--out", type=FILE, required=True)
def draw_plot(reports: tuple[Path, ...], out: Path) -> None:
    """Draw the headline figures of reports as one chart (PNG)."""
    from bench.cost_chart import draw  # noqa: PLC0415

    draw(reports, out)


def _sides(given: str, known: Sequence[str]) -> list[str]:
    chosen = given.split(",")
    if unknown := [side for side in chosen if side not in known]:
        raise click.UsageError(f"side {unknown[0]!r} is unknown; known are {', '.join(known)}")
    return chosen


def _job(
    *,
    model: Path,
    max_pixels: int,
    threads: int,
    stock_ctx: int,
    engine: tuple[str, ...],
    stock_projector: Path | None = None,
    former: Path | None = None,
    checkpoint_folder: Path | None = None,
    dtype: str = "bfloat16",
) -> Any:
    from bench.side import Job  # noqa: PLC0415
    from vrt_lite.errors import VrtError  # noqa: PLC0415
    from vrt_lite.models import find  # noqa: PLC0415

    try:
        files = find(model)
    except VrtError as error:
        raise click.ClickException(str(error)) from error
    return Job(
        side="ours",
        text=str(files.text.resolve()),
        projector=str(files.projector.resolve()),
        plan=(),
        threads=threads,
        max_pixels=max_pixels,
        stock_context=stock_ctx,
        checkpoint=str(checkpoint_folder.resolve()) if checkpoint_folder else "",
        dtype=dtype,
        engine=dict(map(_setting, engine)),
        stock_projector=str(stock_projector.resolve()) if stock_projector else "",
        former=str(former.resolve()) if former else "",
    )


def _setting(given: str) -> tuple[str, Any]:
    from vrt_lite.machine import EngineSettings  # noqa: PLC0415

    name, _, value = given.partition("=")
    known = [f.name for f in fields(EngineSettings)]
    if name not in known:
        raise click.UsageError(f"engine setting {name!r} is unknown; known are {', '.join(known)}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@cli.command("training")
@click.option("--checkpoint", type=FOLDER, required=True, help="As `checkpoint` writes it, with few layers.")
@click.option("--max-pixels", type=click.IntRange(min=784), default=128 * 784, show_default=True)
@_json_option
def measure_training_cost(checkpoint: Path, max_pixels: int, report_file: Path | None) -> None:
    """A step of each stage of training with a LoRA, beside what `train dry-run` computes. Needs the extra train."""
    from bench.measurements import Figure, Report  # noqa: PLC0415
    from bench.training_cost import measure_training  # noqa: PLC0415

    rows = measure_training(checkpoint.resolve(), max_pixels=max_pixels)
    figures = [
        Figure(f"{row['stage']}: memory", "GB", {"measured": row["bytes"] / 1e9, "computed": row["computed"] / 1e9})
        for row in rows
    ]
    figures += [Figure(f"{row['stage']}: a step", "s", {"measured": row["seconds"]}) for row in rows]
    title = "A step of each stage of training, on the processor"
    Report("training", title, {"max_pixels": max_pixels}, figures, detail=rows).print_and_save(report_file)


for command in (memory, write_model, write_checkpoint, write_clip):
    cli.add_command(command)

if __name__ == "__main__":
    cli(prog_name="python -m bench")
