"""The verbs that write what is measured: models and checkpoints of random weights, a long clip."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from bench import random_checkpoint
from vrt_lite.conversion.type_names import PROJECTOR_TYPES

_F = TypeVar("_F", bound=Callable[..., Any])
FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)
SHAPE = click.Choice(sorted(random_checkpoint.SHAPES))


def cut_options(command: _F) -> _F:
    """Add the options that make a shape smaller."""
    command = click.option("--layers", type=click.IntRange(min=1), help="Fewer text layers.")(command)
    return click.option("--vision-layers", type=click.IntRange(min=1), help="Fewer vision layers.")(command)


def cut_shape(name: str, layers: int | None, vision_layers: int | None) -> random_checkpoint.CheckpointShape:
    """Return a published shape with fewer layers. UsageError if it cannot have so few."""
    try:
        return random_checkpoint.cut(random_checkpoint.SHAPES[name], layers=layers, vision_layers=vision_layers)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@click.command("model")
@click.argument("shape", type=SHAPE)
@click.argument("folder", type=FOLDER)
@click.option("--type", "text_type", type=click.Choice(["q4_k_m", "q8_0", "f16", "bf16", "f32"]), default="q4_k_m")
@click.option("--projector-type", type=click.Choice(["f32", *PROJECTOR_TYPES]), default="q8_0")
@cut_options
def write_model(
    shape: str, folder: Path, text_type: str, projector_type: str, layers: int | None, vision_layers: int | None
) -> None:
    """Write a GGUF pair of random weights."""
    from bench.random_pair import write_pair  # noqa: PLC0415

    start = time.perf_counter()
    name = f"random-{shape}" + (f"-{layers}-layers" if layers else "")
    model_shape = cut_shape(shape, layers, vision_layers)
    files = write_pair(folder, name, model_shape, text_type=text_type, projector_type=projector_type)
    size = sum(file.stat().st_size for file in files)
    click.echo(f"{', '.join(file.name for file in files)}: {size / 1e9:.2f} GB in {time.perf_counter() - start:.0f} s")


@click.command("checkpoint")
@click.argument("shape", type=SHAPE)
@click.argument("folder", type=FOLDER)
@cut_options
def write_checkpoint(shape: str, folder: Path, layers: int | None, vision_layers: int | None) -> None:
    """Write a checkpoint of random weights (BF16 safetensors)."""
    start = time.perf_counter()
    size = random_checkpoint.write(folder, cut_shape(shape, layers, vision_layers))
    click.echo(f"{size / 1e9:.1f} GB in {time.perf_counter() - start:.0f} s")


@click.command("clip")
@click.argument("file", type=FILE)
@click.option("--minutes", type=click.FloatRange(min=0.1), default=10.0, show_default=True)
@click.option("--size", type=(int, int), default=(1920, 1080), show_default=True, help="Width and height.")
def write_clip(file: Path, minutes: float, size: tuple[int, int]) -> None:
    """Write a long H.264 video with a keyframe every two seconds."""
    from bench.longclip import write_long_clip  # noqa: PLC0415

    start = time.perf_counter()
    frames = write_long_clip(file, seconds=60 * minutes, size=size)
    click.echo(f"{frames} frames, {file.stat().st_size / 1e6:.0f} MB in {time.perf_counter() - start:.0f} s")
