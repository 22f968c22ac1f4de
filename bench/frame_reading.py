"""Reads a few frames of a long video with vrt-lite's reader and the other installed readers, one process each."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np

from bench.judging_cost import read_ahead
from bench.measurements import Figure, Report
from bench.readers import READERS
from vrt_lite.errors import VideoError
from vrt_lite.protocol.messages import evenly_spaced
from vrt_lite.video import open_clip

NEAR_LEVELS = 4.0
"""Limit of the mean difference of two readings of a frame. Colour conversions differ less, neighbouring frames more."""
_ROOT = Path(__file__).resolve().parents[1]


def measure(file: Path, *, frames: int) -> Report:
    """Read `frames` evenly spaced frames in every way that is installed, and compare what they show."""
    try:
        with open_clip(file) as clip:
            info = clip.info
    except VideoError as error:
        raise click.ClickException(str(error)) from error
    indices = evenly_spaced(info.frames, frames)
    read_ahead([str(file)])
    seconds: dict[str, float] = {}
    peaks: dict[str, float] = {}
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        mine: np.ndarray[Any, Any] | None = None
        for name, (module, _) in READERS.items():
            if not importlib.util.find_spec(module):
                notes.append(f"{name}: not measured: {module} is not installed")
                continue
            out = Path(temporary) / "frames.npy"
            found = _read(name, file, out, indices)
            if isinstance(found, str):
                notes.append(f"{name}: not measured: {found}")
                continue
            seconds[name], peaks[name] = found["seconds"], found["peak_resident_bytes"] / 1e9
            shown = np.load(out).astype(np.float32)
            mine = shown if mine is None else mine
            difference = np.abs(shown - mine).mean(axis=(1, 2, 3)).max()
            if name != "ours":
                same = "the same frames" if difference < NEAR_LEVELS else "OTHER FRAMES"
                notes.append(f"{name}: {same} (largest mean difference of a frame {difference:.2f} of 255 levels)")
            click.echo(f"{name}: {seconds[name]:.2f} s", err=True)
    minutes = info.duration_seconds / 60
    headline = f"{frames} frames of {minutes:.0f} min of {info.height}p"
    figures = [Figure(headline, "s", seconds, headline), Figure("peak memory", "GB", peaks)]
    title = f"{frames} frames out of {minutes:.1f} minutes of {info.width}x{info.height}, {info.frames} frames"
    options = {"frames": list(indices), "size": [info.width, info.height], "seconds": info.duration_seconds}
    return Report("video", title, {**options, "bytes": info.size_bytes}, figures, notes)


def _read(name: str, file: Path, out: Path, indices: tuple[int, ...]) -> dict[str, Any] | str:
    """Read the frames with one reader. Returns its cost, or why it failed."""
    command = [sys.executable, "-m", "bench.readers", name, str(file.resolve()), str(out), *map(str, indices)]
    child = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, encoding="utf-8", check=False)
    if child.returncode:
        lines = [line for line in child.stderr.splitlines() if line.strip()] or ["it gave no reason"]
        return f"it ended with status {child.returncode}: {lines[-1]:.200}"
    return json.loads(child.stdout.splitlines()[-1])
