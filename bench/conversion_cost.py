"""Compares `vrt-lite pull` of a checkpoint with the way in two steps: export as BF16, then llama.cpp's quantiser.

The checkpoint has random weights in shards, and comes from a hub on loopback. The two steps read the same files from
the disk.
"""

from __future__ import annotations

import filecmp
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bench import random_checkpoint
from bench.command_cost import CommandCost, run_measured
from bench.loopback_hub import serve_folder
from bench.measurements import Figure, Report
from bench.random_checkpoint import CheckpointShape

_SPARE_BYTES = 500_000_000
_LEAST_SHARDS = 3
_FIGURES: tuple[tuple[str, str, Callable[[CommandCost], float]], ...] = (
    ("whole", "s", lambda cost: cost.seconds),
    ("peak disk beside the checkpoint", "GB", lambda cost: cost.disk_bytes / 1e9),
    ("peak resident memory", "GB", lambda cost: cost.resident_bytes / 1e9),
    ("the same without mapped files", "GB", lambda cost: cost.own_bytes / 1e9),
)


def measure(folder: Path, name: str, shape: CheckpointShape, *, quant: str, two_steps: bool) -> Report:
    """Pull the checkpoint that `folder` holds, and convert it in two steps as well if `two_steps` is set.

    The checkpoint is written if it is not there, and stays. Results are removed. Raises click.ClickException for a
    command that fails, or too little disk.
    """
    checkpoint = _checkpoint(folder.resolve(), name, shape)
    shards = [path.stat().st_size for path in sorted(checkpoint.glob("*.safetensors"))]
    _check_disk(folder, (1.8 if two_steps else 1) * sum(shards))
    with tempfile.TemporaryDirectory(prefix="results-", dir=checkpoint.parent) as temporary:
        home, made = Path(temporary) / "home", Path(temporary) / "two-steps"
        costs = {"pull": _pull(checkpoint, home, quant)}
        [model] = (home / "models").iterdir()
        pulled = {path.name: path.stat().st_size for path in model.glob("*.gguf")}
        result = sum(pulled.values())
        allowed = result + sum(sorted(shards)[-2:]) + _SPARE_BYTES
        notes = [
            f"{len(shards)} shards of {sum(shards) / 1e9:.2f} GB in all; the result has {result / 1e9:.2f} GB",
            f"peak disk of the pull: {_share(costs['pull'].disk_bytes, allowed)} (the result, two shards and 0.5 GB)",
        ]
        detail: dict[str, Any] = {"shards": shards, "result": result, "allowed_disk": allowed}
        if two_steps:
            costs["two steps"] = _convert_in_two_steps(checkpoint, made, quant)
            equal, _, _ = filecmp.cmpfiles(model, made, list(pulled), shallow=False)
            detail["bytes_equal"] = sorted(equal)
            notes.append(f"the bytes of {len(equal)} of {len(pulled)} files are equal")
            slower = costs["pull"].seconds / costs["two steps"].seconds
            notes.append(f"the pull takes {slower:.2f} times as long as the two steps")
    figures = [Figure(name, unit, {side: of(cost) for side, cost in costs.items()}) for name, unit, of in _FIGURES]
    options = {"shape": name, "layers": shape.layers, "vision_layers": shape.tower.depth, "type": quant}
    return Report("convert", f"{checkpoint.name} as {quant}", options, figures, notes, detail)


def _share(taken: int, allowed: int) -> str:
    return f"{taken / 1e9:.2f} GB, {'at most' if taken <= allowed else 'MORE THAN'} {allowed / 1e9:.2f} GB"


def _checkpoint(folder: Path, name: str, shape: CheckpointShape) -> Path:
    """Return the folder of the checkpoint, whose name says the shape. It has three shards or more."""
    checkpoint = folder / f"random-{name}-{shape.layers}-{shape.tower.depth}"
    if not (checkpoint / "config.json").is_file():
        size = random_checkpoint.size_bytes(shape)
        _check_disk(folder, size)
        least = min(random_checkpoint.SHARD_BYTES, size // _LEAST_SHARDS)
        random_checkpoint.write(checkpoint, shape, shard_bytes=least)
    return checkpoint


def _check_disk(folder: Path, needed: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise click.ClickException(f"{folder} has {free / 1e9:.1f} GB free; {needed / 1e9:.1f} GB are needed")


def _pull(checkpoint: Path, home: Path, quant: str) -> CommandCost:
    repository = f"bench/{checkpoint.name}"
    home.mkdir()
    with serve_folder(checkpoint, repository) as address:
        environment = {"VRT_LITE_HOME": str(home), "HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0"}
        command = [sys.executable, "-m", "vrt_lite", "pull", f"{repository}:{quant}"]
        return run_measured(command, folder=home, environment=environment)


def _convert_in_two_steps(checkpoint: Path, folder: Path, quant: str) -> CommandCost:
    """Export and quantise the checkpoint into `folder`, where the pair has the names that `pull` gives it."""
    convert = [sys.executable, "-m", "convert"]
    types = ["--type", "bf16", "--projector-type", "f16"]
    exported = run_measured([*convert, "export", str(checkpoint), "--out", str(folder), *types], folder=folder)
    return exported + run_measured([*convert, "quantize", str(folder), "--type", quant], folder=folder)
