"""Real-shape cost, with random weights: write a checkpoint of that shape, export it beside a plain copy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import psutil

from bench import checkpoint


@click.group(help=__doc__)
def cli() -> None:
    """Nothing is shared between the verbs."""


@cli.command("checkpoint")
@click.argument("shape", type=click.Choice(sorted(checkpoint.SHAPES)))
@click.argument("folder", type=click.Path(path_type=Path))
def write_checkpoint(shape: str, folder: Path) -> None:
    """Write a random checkpoint."""
    began = time.perf_counter()
    size = checkpoint.write(folder, shape)
    click.echo(f"{size / 1e9:.1f} GB in {time.perf_counter() - began:.0f} s")


@cli.command("export")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--type", "kind", default="f16")
def measure_export(source: Path, out: Path, kind: str) -> None:
    """Export a checkpoint and copy it, in one run; prints the two rates, their ratio and the peak memory."""
    shards = sorted(source.glob("*.safetensors"))
    size = sum(shard.stat().st_size for shard in shards)
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    for shard in shards:
        copy = shutil.copyfile(shard, out / "copy.part")
        Path(copy).unlink()
    copied = time.perf_counter() - began
    command = [sys.executable, "-m", "convert", "export", str(source), "--out", str(out)]
    began = time.perf_counter()
    peak = _peak_of([*command, "--type", kind, "--projector-type", kind])
    exported = time.perf_counter() - began
    figures = {
        "bytes": size,
        "copy_mb_per_second": round(size / copied / 1e6),
        "export_mb_per_second": round(size / exported / 1e6),
        "ratio": round(copied / exported, 3),
        "peak_resident_mb": round(peak / 1e6),
    }
    click.echo(json.dumps(figures))


def _peak_of(command: list[str]) -> int:
    """Run a command; its peak resident memory in bytes, files mapped by it left out.

    A mapped file counts as resident while the system has room for it, and is given back when it has not.
    """
    peak = 0
    with subprocess.Popen(command) as child:
        process = psutil.Process(child.pid)
        while child.poll() is None:
            try:
                memory = process.memory_info()
            except psutil.Error:
                break
            peak = max(peak, memory.rss - getattr(memory, "shared", 0))
            time.sleep(0.05)
    if child.returncode:
        raise SystemExit(child.returncode)
    return peak


if __name__ == "__main__":
    cli()
