"""Draws the headline figures of reports as one bar chart: how many times vrt-lite's value, a bar for each other side.

The chart has a background of its own, so that it reads well on a light and on a dark page. Needs matplotlib.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH_INCHES, BAR_INCHES, DPI = 8.8, 0.27, 200
LONGEST = 6.0  # a longer bar is cut off, because all others would be too short
CARD, INK, FAINT, RULE = "#f6f8fa", "#1f2328", "#59636e", "#c4ccd4"
OURS, PEERS = "#1a7f64", ("#8c959f", "#b3a28a", "#9a8fb8", "#87a7b5", "#b58f95")
NAMES = {"ours": "vrt-lite", "stock": "llama-cpp-python's handler", "pyav, all": "PyAV, decoding all"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One quantity: its name and unit, and the value of each side. The other sides are compared with the first."""

    name: str
    unit: str
    values: tuple[tuple[str, float], ...]


def draw(reports: Sequence[Path], out: Path) -> None:
    """Draw the headlines of reports. Raises ClickException for a file that is not a report or has no headline."""
    documents = [_load(path) for path in reports]
    comparisons = [
        Comparison(figure["headline"], figure["unit"], tuple(figure["values"].items()))
        for document in documents
        for figure in document["figures"]
        if figure["headline"] and len(figure["values"]) > 1
    ]
    if not comparisons:
        raise click.ClickException("These reports hold no figure beside a peer's: run verdict, rank or video first.")
    machines = dict.fromkeys(f"{m['cpu']}, {m['threads']} threads" for m in (d["machine"] for d in documents))
    _chart(comparisons, "; ".join(machines)).savefig(out, format="png")


def _load(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return document | {"figures": document["figures"], "machine": document["machine"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise click.ClickException(f"{path} is no report of this bench: {error}.") from error


def _chart(comparisons: Sequence[Comparison], machine: str) -> Figure:
    rows = sum(len(comparison.values) + 1 for comparison in comparisons)
    figure = Figure(figsize=(WIDTH_INCHES, BAR_INCHES * rows + 1.3), dpi=DPI, facecolor=CARD, layout="constrained")
    figure.suptitle("Time for the same work, vrt-lite = 1", x=0.02, ha="left", color=INK, fontsize=14)
    figure.supxlabel(machine, x=0.02, ha="left", color=FAINT, fontsize=9)
    axes: Axes = figure.add_subplot(facecolor=CARD)
    axes.set_title(f"shorter is better; a bar with // is longer than {LONGEST:g}", loc="left", color=FAINT, fontsize=9)
    peers = list(dict.fromkeys(side for comparison in comparisons for side, _ in comparison.values[1:]))
    top, labels = 0, {}
    for comparison in comparisons:
        labels[top + (len(comparison.values) - 1) / 2] = comparison.name
        for row, (side, ratio, text) in enumerate(_bars(comparison), start=top):
            colour = PEERS[peers.index(side) % len(PEERS)] if row > top else OURS
            cut_off = ratio > LONGEST
            axes.barh(row, min(ratio, LONGEST), height=0.8, color=colour, edgecolor=CARD, hatch="//" if cut_off else "")
            axes.annotate(text, (min(ratio, LONGEST), row), (5, 0), textcoords="offset points", va="center", fontsize=9)
        top += len(comparison.values) + 1
    axes.set_yticks(list(labels), list(labels.values()), color=INK, fontsize=10)
    axes.set_xlim(0, 1.8 * min(LONGEST, max(ratio for c in comparisons for _, ratio, _ in _bars(c))))
    axes.invert_yaxis()
    axes.tick_params(length=0, labelbottom=False)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "left")
        spine.set_color(RULE)
    return figure


def _bars(comparison: Comparison) -> Iterator[tuple[str, float, str]]:
    """Yield for each bar the side, its ratio to the first side, and the text beside it."""
    base = comparison.values[0][1]
    for side, value in comparison.values:
        ratio = value / base
        times = "1" if ratio == 1 else f"{ratio:.0f}x" if ratio >= 20 else f"{ratio:.1f}x"
        yield side, ratio, f"{times}   {NAMES.get(side, side)}, {_amount(value)} {comparison.unit}"


def _amount(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"
