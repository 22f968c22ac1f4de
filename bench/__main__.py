"""Measures what judging costs, beside other ways to do the same: random weights of the published shapes, real videos.

Every measuring verb prints a table and writes the figures, with the machine they were taken on, to --json FILE.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click
import psutil

from bench import random_checkpoint
from bench.peak_memory import memory
from vrt_lite.conversion.type_names import PROJECTOR_TYPES

_F = TypeVar("_F", bound=Callable[..., Any])
FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)
SHAPE = click.Choice(sorted(random_checkpoint.SHAPES))
LEAST_PIXELS = 16 * 784  # the stock handler enlarges what is much smaller


def _json_option(command: _F) -> _F:
    return click.option("--json", "report_file", type=FILE, help="Write the figures here.")(command)


def _cut_options(command: _F) -> _F:
    command = click.option("--layers", type=click.IntRange(min=1), help="Fewer text layers.")(command)
    return click.option("--vision-layers", type=click.IntRange(min=1), help="Fewer vision layers.")(command)


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


def _shape(name: str, layers: int | None, vision_layers: int | None) -> random_checkpoint.CheckpointShape:
    try:
        return random_checkpoint.cut(random_checkpoint.SHAPES[name], layers=layers, vision_layers=vision_layers)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@click.group(help=__doc__)
def cli() -> None:
    """The group of verbs. They share nothing."""


@cli.command("model")
@click.argument("shape", type=SHAPE)
@click.argument("folder", type=FOLDER)
@click.option("--type", "text_type", type=click.Choice(["q4_k_m", "q8_0", "f16", "bf16", "f32"]), default="q4_k_m")
@click.option("--projector-type", type=click.Choice(["f32", *PROJECTOR_TYPES]), default="q8_0")
@_cut_options
def write_model(
    shape: str, folder: Path, text_type: str, projector_type: str, layers: int | None, vision_layers: int | None
) -> None:
    """Write a GGUF pair of random weights."""
    from bench.random_pair import write_pair  # noqa: PLC0415

    start = time.perf_counter()
    name = f"random-{shape}" + (f"-{layers}-layers" if layers else "")
    model_shape = _shape(shape, layers, vision_layers)
    files = write_pair(folder, name, model_shape, text_type=text_type, projector_type=projector_type)
    size = sum(file.stat().st_size for file in files)
    click.echo(f"{', '.join(file.name for file in files)}: {size / 1e9:.2f} GB in {time.perf_counter() - start:.0f} s")


@cli.command("checkpoint")
@click.argument("shape", type=SHAPE)
@click.argument("folder", type=FOLDER)
@_cut_options
def write_checkpoint(shape: str, folder: Path, layers: int | None, vision_layers: int | None) -> None:
    """Write a checkpoint of random weights (BF16 safetensors)."""
    start = time.perf_counter()
    size = random_checkpoint.write(folder, _shape(shape, layers, vision_layers))
    click.echo(f"{size / 1e9:.1f} GB in {time.perf_counter() - start:.0f} s")


@cli.command("clip")
@click.argument("file", type=FILE)
@click.option("--minutes", type=click.FloatRange(min=0.1), default=10.0, show_default=True)
@click.option("--size", type=(int, int), default=(1920, 1080), show_default=True, help="Width and height.")
def write_clip(file: Path, minutes: float, size: tuple[int, int]) -> None:
    """Write a long H.264 video with a keyframe every two seconds."""
    from bench.longclip import write_long_clip  # noqa: PLC0415

    start = time.perf_counter()
    frames = write_long_clip(file, seconds=60 * minutes, size=size)
    click.echo(f"{frames} frames, {file.stat().st_size / 1e6:.0f} MB in {time.perf_counter() - start:.0f} s")


@cli.command("verdict")
@_model_options
@click.option("--sides", default="ours,former,stock,transformers", show_default=True, help="In the order they run.")
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
@_cut_options
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

    cut_shape = _shape(shape, layers, vision_layers)
    measure(folder, shape, cut_shape, quant=quant, two_steps=two_steps).print_and_save(report_file)


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


cli.add_command(memory)

if __name__ == "__main__":
    cli(prog_name="python -m bench")
