"""Compares the export of a checkpoint with a copy of its files: seconds and memory."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from bench.command_cost import run_measured
from bench.measurements import Figure, Report


def measure(source: Path, out: Path, kind: str) -> Report:
    """Export `source` into `out` and copy it, in one run."""
    shards = sorted(source.glob("*.safetensors"))
    size = sum(shard.stat().st_size for shard in shards)
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    for shard in shards:
        copy = shutil.copyfile(shard, out / "copy.part")
        Path(copy).unlink()
    copied = time.perf_counter() - began
    command = [sys.executable, "-m", "convert", "export", str(source.resolve()), "--out", str(out.resolve())]
    cost = run_measured([*command, "--type", kind, "--projector-type", kind])
    figures = [
        Figure("export", "s", {"ours": cost.seconds, "copy": copied}),
        Figure("peak memory", "GB", {"ours": cost.own_bytes / 1e9}),
    ]
    title = f"Exporting {size / 1e9:.1f} GB as {kind}"
    return Report("export", title, {"source": source.name, "type": kind, "bytes": size}, figures)
