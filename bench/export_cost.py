"""Compares the export of a checkpoint with a copy of its files: seconds and memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

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
    command = [sys.executable, "-m", "convert", "export", str(source), "--out", str(out)]
    began = time.perf_counter()
    peak = _peak_of([*command, "--type", kind, "--projector-type", kind])
    exported = time.perf_counter() - began
    figures = [
        Figure("export", "s", {"ours": exported, "copy": copied}),
        Figure("peak memory", "GB", {"ours": peak / 1e9}),
    ]
    title = f"Exporting {size / 1e9:.1f} GB as {kind}"
    return Report("export", title, {"source": source.name, "type": kind, "bytes": size}, figures)


def _peak_of(command: list[str]) -> int:
    """Run a command. Returns its peak resident memory in bytes, without mapped files.

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
