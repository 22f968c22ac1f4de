"""Draws reports' headline figures as one bar chart: times as much as ours, a bar a peer.

A card of its own background, so that it reads on a light and on a dark page. Pillow only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from PIL import Image, ImageDraw, ImageFont

SCALE = 2  # drawn large: crisp on a dense screen
WIDTH, MARGIN, LABELS, VALUES = 880, 28, 230, 150
LONGEST = 6.0  # a bar of more is cut off, or all others would vanish beside it
BAR, GAP, GROUP_GAP, TITLE, FOOT = 20, 6, 22, 62, 34
CARD, EDGE, INK, FAINT, RULE = "#f6f8fa", "#d0d7de", "#1f2328", "#59636e", "#c4ccd4"
OURS, PEERS = "#1a7f64", ("#8c959f", "#b3a28a", "#9a8fb8", "#87a7b5", "#b58f95")
NAMES = {"ours": "vrt-lite", "stock": "llama-cpp-python's handler", "pyav, all": "PyAV, decoding all"}


@dataclass(frozen=True, slots=True)
class Group:
    """One quantity: its name and unit, and sides with their values, the one to compare with first."""

    name: str
    unit: str
    values: tuple[tuple[str, float], ...]


def draw(reports: Sequence[Path], out: Path) -> None:
    """Write the chart of these reports' headlines. ClickException for a file that is no report or has none."""
    documents = [_load(path) for path in reports]
    groups = [
        Group(figure["headline"], figure["unit"], tuple(figure["values"].items()))
        for document in documents
        for figure in document["figures"]
        if figure["headline"] and len(figure["values"]) > 1
    ]
    if not groups:
        raise click.ClickException("These reports hold no figure beside a peer's: run verdict, rank or video first.")
    machines = dict.fromkeys(f"{m['cpu']}, {m['threads']} threads" for m in (d["machine"] for d in documents))
    _chart(groups, "; ".join(machines)).save(out, "PNG", optimize=True)


def _load(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return document | {"figures": document["figures"], "machine": document["machine"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise click.ClickException(f"{path} is no report of this bench: {error}.") from error


def _chart(groups: Sequence[Group], machine: str) -> Image.Image:
    heights = [len(group.values) * (BAR + GAP) - GAP for group in groups]
    height = TITLE + sum(heights) + GROUP_GAP * (len(groups) - 1) + FOOT + 2 * MARGIN
    picture = Image.new("RGBA", (WIDTH * SCALE, height * SCALE), (0, 0, 0, 0))
    pen = ImageDraw.Draw(picture)
    pen.rounded_rectangle((0, 0, WIDTH * SCALE - 1, height * SCALE - 1), 12 * SCALE, CARD, EDGE, SCALE)
    _write(pen, (MARGIN, MARGIN), "Time for the same work, vrt-lite = 1", 19, INK)
    _write(pen, (MARGIN, MARGIN + 27), f"shorter is better; a bar torn off is longer than {LONGEST:g}", 13, FAINT)
    peers = list(dict.fromkeys(side for group in groups for side, _ in group.values[1:]))
    longest = min(LONGEST, max(value / group.values[0][1] for group in groups for _, value in group.values))
    room = WIDTH - 2 * MARGIN - LABELS - VALUES
    top = MARGIN + TITLE
    left = MARGIN + LABELS
    for group, tall in zip(groups, heights, strict=True):
        _write(pen, (MARGIN, top + tall / 2), group.name, 15, INK, anchor="lm")
        base = group.values[0][1]
        for i, (side, value) in enumerate(group.values):
            y, ratio = top + i * (BAR + GAP), value / base
            colour = OURS if i == 0 else PEERS[peers.index(side) % len(PEERS)]
            end = left + max(room * min(ratio / longest, 1), 3)
            pen.rounded_rectangle(tuple(SCALE * n for n in (left, y, end, y + BAR)), 3 * SCALE, colour)
            if ratio > longest:
                torn = ((end - 22, y + BAR + 2), (end - 15, y - 2), (end - 10, y - 2), (end - 17, y + BAR + 2))
                pen.polygon([(SCALE * a, SCALE * b) for a, b in torn], CARD)
            told = (f"{ratio:.0f}x" if ratio >= 20 else f"{ratio:.1f}x") if i else "1"
            _write(pen, (end + 7, y + BAR / 2), told, 14, INK, anchor="lm", bold=True)
            told_width = pen.textlength(told, _font(14)) / SCALE
            what = f"{NAMES.get(side, side)}, {_amount(value)} {group.unit}"
            # Behind the bar, or inside where that would leave the card.
            behind = end + 7 + told_width + 8
            fits = behind + _width(pen, what) < WIDTH - MARGIN
            at, ink = (behind, FAINT) if fits else (left + 8, INK)
            _write(pen, (at, y + BAR / 2), what, 12, ink, anchor="lm")
        top += tall + GROUP_GAP
    pen.line([SCALE * n for n in (left, MARGIN + TITLE - 6, left, top - GROUP_GAP + 6)], RULE, SCALE)
    _write(pen, (MARGIN, height - MARGIN), machine, 12, FAINT, anchor="ls")
    return picture


def _amount(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size * SCALE)


def _width(pen: ImageDraw.ImageDraw, text: str) -> float:
    return pen.textlength(text, _font(12)) / SCALE


def _write(
    pen: ImageDraw.ImageDraw,
    at: tuple[float, float],
    text: str,
    size: int,
    colour: str,
    *,
    anchor: str = "la",
    bold: bool = False,
) -> None:
    x, y = at
    stroke = {"stroke_width": 1, "stroke_fill": colour} if bold else {}
    pen.text((x * SCALE, y * SCALE), text, colour, _font(size), anchor, **stroke)
