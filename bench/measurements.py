"""Reports a measurement: the figures of all sides in one run, the machine, a table, a JSON file.

A time means something only as a ratio to the time of a peer in the same run.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import psutil

_PACKAGES = (
    *("vrt-lite", "llama-cpp-python", "av", "numpy", "pillow", "torch", "transformers"),
    *("opencv-python-headless", "opencv-python", "decord", "torchcodec"),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity by side. The others are compared with the first side; less is better.

    `headline` is its name in a chart; "" keeps it out of charts.
    """

    name: str
    unit: str
    values: Mapping[str, float]
    headline: str = ""

    @property
    def ratios(self) -> dict[str, float]:
        """Each other side's value divided by the value of the first side."""
        (_, mine), *peers = self.values.items()
        return {peer: value / mine for peer, value in peers if mine > 0}


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a verb: its options, its figures, and notes about them."""

    verb: str
    title: str
    options: Mapping[str, Any]
    figures: Sequence[Figure]
    notes: Sequence[str] = ()
    detail: Any = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        figures = [
            {
                "name": f.name,
                "unit": f.unit,
                "values": {side: round(value, 6) for side, value in f.values.items()},
                "ratios": {peer: round(ratio, 4) for peer, ratio in f.ratios.items()},
                "headline": f.headline,
            }
            for f in self.figures
        ]
        return {
            "bench": self.verb,
            "title": self.title,
            "machine": machine(),
            "options": dict(self.options),
            "figures": figures,
            "notes": list(self.notes),
            "detail": self.detail,
        }

    def table(self) -> str:
        """Format the figures as aligned plain text, with a ratio for each other side."""
        sides = list(dict.fromkeys(side for figure in self.figures for side in figure.values))
        head = ["", "unit", sides[0], *(cell for side in sides[1:] for cell in (side, "ratio"))]
        rows = [head]
        for figure in self.figures:
            row = [figure.name, figure.unit]
            for side in sides:
                value, ratio = figure.values.get(side), figure.ratios.get(side)
                row.append("-" if value is None else _short(value))
                if side != sides[0]:
                    row.append("-" if ratio is None else f"{ratio:.2f}")
            rows.append(row)
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        lines = ["  ".join(_cell(row[i], widths[i], i) for i in range(len(head))).rstrip() for row in rows]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([self.title, "", *lines, *(f"  {note}" for note in self.notes)])

    def print_and_save(self, file: Path | None) -> None:
        """Print the table, and write the JSON if a file is given."""
        click.echo(self.table())
        if file:
            file.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")


def _cell(text: str, width: int, column: int) -> str:
    return text.ljust(width) if column < 2 else text.rjust(width)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"


def machine() -> dict[str, Any]:
    """Describe the machine and the package versions of this measurement."""
    return {
        "cpu": cpu_name(),
        "cores": psutil.cpu_count(logical=False),
        "threads": psutil.cpu_count(),
        "usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def cpu_name() -> str:
    """Return the system's name of the processor."""
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def forget_peak() -> None:
    """Let `peak_resident_bytes` count from here on. On Linux alone: elsewhere a process keeps its peak."""
    forgetting = Path("/proc/self/clear_refs")
    if forgetting.exists():
        forgetting.write_text("5", encoding="ascii")


def peak_resident_bytes() -> int:
    """Return the peak resident memory of this process, including mapped files."""
    status = Path("/proc/self/status")
    if status.is_file() and (line := re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="utf-8"))):
        # On Linux a child's ru_maxrss starts with its parent's memory.
        return int(line[1]) * 1024
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return int(getattr(psutil.Process().memory_info(), "peak_wset", 0))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
