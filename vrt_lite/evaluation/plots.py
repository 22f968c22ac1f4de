"""An evaluation's figures as pictures: cards of their own background, so that they read on light and dark pages.

Pillow only. Knows marks and colours; computes nothing. Every picture says in words what its marks are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageDraw, ImageFont

from vrt_lite.errors import UsageError
from vrt_lite.evaluation.wording import call_set

SCALE: Final = 2  # drawn large: crisp on a dense screen
WIDTH, MARGIN, TITLE = 880, 28, 62
LABELS, VALUES, ROW = 250, 130, 26
CARD, EDGE, INK, FAINT, RULE = "#f6f8fa", "#d0d7de", "#1f2328", "#59636e", "#c4ccd4"
OURS, OTHER = "#1a7f64", "#8c959f"
DIFF = "#8a5a00"
_MEASURES = ("tau", "diff", "calibrated", "sign")
# Always tie has no diff to draw: it is 0.
_BASELINES = (
    ("tie", "tau", "always tie"),
    ("commonest", "tau", "commonest answer"),
    ("commonest", "diff", "commonest answer"),
)
_NAMES = {"OA": "overall", "TA": "alignment", "VQ": "visual quality", "MQ": "motion quality"}


def draw_plots(figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the pictures that there are figures for into a folder, which is made; their paths."""
    made: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, picture in pictures(figures):
            made.append(folder / f"{name}.png")
            picture.save(made[-1], "PNG", optimize=True)
    except OSError as error:
        raise UsageError(f"The plots cannot be written to {folder}: {error.strerror or error}.") from error
    return made


def pictures(figures: Mapping[str, Any]) -> list[tuple[str, Image.Image]]:
    """Pictures by name: accuracy, published, lengths, confusion, cost; those for which there are figures."""
    drawn: list[tuple[str, Image.Image]] = []
    makers: tuple[tuple[str, Callable[[Mapping[str, Any]], Image.Image | None]], ...] = (
        ("accuracy", _accuracy),
        ("published", _published),
        ("lengths", _lengths),
        ("confusion", _confusion),
        ("rounds", _rounds),
    )
    for name, make in makers:
        if (picture := make(figures)) is not None:
            drawn.append((name, picture))
    return drawn


def _accuracy(figures: Mapping[str, Any]) -> Image.Image | None:
    rows: list[tuple[str, Mapping[str, Any], str]] = []
    for key, of in figures["accuracy"].items():
        shares = [
            *((name, of[name], colour) for name, colour in zip(_MEASURES, (OURS, DIFF) * 2, strict=True)),
            *((f"{name}, {measure}", of["baselines"][kind][measure], OTHER) for kind, measure, name in _BASELINES),
        ]
        rows += [(f"{_NAMES[key]}, {name}", share, colour) for name, share, colour in shares if share["of"]]
    subtitle = (
        "% right with 95 % intervals; tau and calibrated count ties, diff and sign leave them out; grey: no judge"
    )
    return _dots(f"{call_set(figures)}: accuracy", subtitle, rows) if rows else None


def _published(figures: Mapping[str, Any]) -> Image.Image | None:
    own = figures["accuracy"].get("OA")
    if not figures["published"] or not figures["published"]["models"] or not own or own["tau"]["value"] is None:
        return None
    rows: list[tuple[str, Mapping[str, Any], str]] = []
    for i, measure in enumerate(("tau", "diff")):
        for model, values in figures["published"]["models"].items():
            rows.append((f"{model}, {measure}", {"value": values[i], "low": None, "high": None}, OTHER))
        rows.append((f"this run, {measure}", own[measure], (OURS, DIFF)[i]))
        if whole := figures["baselines"].get("OA"):
            rows += [
                (f"{name}, {measure}", whole[kind][measure], OTHER) for kind, of, name in _BASELINES if of == measure
            ]
    subtitle = f"% right, overall judgment; {figures['pairs']['judged']} pairs here, with 95 % intervals"
    drawn = [row for row in rows if row[1]["value"] is not None]
    return _dots(f"{call_set(figures)}: beside what is published", subtitle, drawn)


def _lengths(figures: Mapping[str, Any]) -> Image.Image | None:
    units = {"clip": "s", "prompt": "characters"}
    rows: list[tuple[str, Mapping[str, Any], str]] = []
    for kind, bands in figures["bands"].items():
        for band in bands if len(bands) > 1 else ():
            rows.append((f"{kind} {band['low']:g} to {band['high']:g} {units[kind]}", band["tau"], OURS))
    for of in figures["subsets"]:
        rows.append((f"{of['name']} (top 10 %)", of["tau"], DIFF))
    kept = [row for row in rows if row[1]["value"] is not None]
    return _dots(f"{call_set(figures)}: tau by length", "% right with 95 % intervals", kept) if kept else None


def _rounds(figures: Mapping[str, Any]) -> Image.Image | None:
    histogram: Mapping[str, int] = figures["cost"]["rounds_histogram"]
    total = sum(histogram.values())
    if not total:
        return None
    rows = [
        (f"{n} round{'s' if n != '1' else ''}", {"value": count / total, "low": None, "high": None, "of": count}, OURS)
        for n, count in histogram.items()
    ]
    return _dots(f"{call_set(figures)}: rounds a judgement", f"% of {total} judgements", rows, bars=True)


def _confusion(figures: Mapping[str, Any]) -> Image.Image | None:
    """Labels against verdicts, of the main dimension."""
    table: Sequence[Sequence[int]] | None = figures["confusion"].get(figures["main"])
    if table is None or not any(map(sum, table)):
        return None
    side, left, top = 84, MARGIN + 150, MARGIN + TITLE + 28
    height = top + 3 * side + MARGIN
    picture, pen = _card(f"{call_set(figures)}: labels and verdicts", f"pairs, {_NAMES[figures['main']]}", height)
    names = ("A better", "B better", "tie")
    most = max(map(max, table))
    for i, name in enumerate(names):
        _write(pen, (left - 12, top + side * (i + 0.5)), f"label: {name}", 14, INK, anchor="rm")
        _write(pen, (left + 140 * (i + 0.5), top - 8), f"verdict: {name}", 13, FAINT, anchor="ms")
        for j, count in enumerate(table[i]):
            box = (left + 140 * j + 2, top + side * i + 2, left + 140 * (j + 1) - 2, top + side * (i + 1) - 2)
            share = count / most
            fill = _mixed(CARD, OURS if i == j else OTHER, 0.15 + 0.85 * share if count else 0.05)
            pen.rounded_rectangle(tuple(SCALE * n for n in box), 4 * SCALE, fill)
            middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
            _write(pen, middle, str(count), 18, "#ffffff" if share > 0.6 and i == j else INK, anchor="mm", bold=True)
    return picture


def _dots(
    title: str, subtitle: str, rows: Sequence[tuple[str, Mapping[str, Any], str]], *, bars: bool = False
) -> Image.Image:
    """A row a share: its value, and a whisker for its interval, on one scale from 0 to 100 %."""
    foot = 26
    height = MARGIN + TITLE + ROW * len(rows) + foot + MARGIN
    picture, pen = _card(title, subtitle, height)
    left, right, top = MARGIN + LABELS, WIDTH - MARGIN - VALUES, MARGIN + TITLE
    bottom = top + ROW * len(rows)
    for tick in (0, 25, 50, 75, 100):
        x = left + (right - left) * tick / 100
        pen.line([SCALE * n for n in (x, top, x, bottom)], RULE, SCALE if tick else 2 * SCALE)
        _write(pen, (x, bottom + 6), f"{tick} %", 12, FAINT, anchor="ma")
    for i, (label, share, colour) in enumerate(rows):
        y = top + ROW * (i + 0.5)
        _write(pen, (left - 12, y), _fit(pen, label, LABELS - 12), 14, INK, anchor="rm")
        x = left + (right - left) * share["value"]
        if bars:
            pen.rounded_rectangle(tuple(SCALE * n for n in (left, y - 7, max(x, left + 2), y + 7)), 2 * SCALE, colour)
        else:
            if share["low"] is not None:
                ends = [left + (right - left) * share[name] for name in ("low", "high")]
                pen.line([SCALE * n for n in (ends[0], y, ends[1], y)], colour, 2 * SCALE)
                for end in ends:
                    pen.line([SCALE * n for n in (end, y - 4, end, y + 4)], colour, 2 * SCALE)
            pen.ellipse([SCALE * n for n in (x - 5, y - 5, x + 5, y + 5)], colour)
        told = f"{100 * share['value']:.1f}"
        if share["low"] is not None:
            told += f"  ({100 * share['low']:.0f}-{100 * share['high']:.0f})"
        elif bars:
            told += f"  ({share['of']})"
        _write(pen, (right + 14, y), told, 14, INK, anchor="lm")
    return picture


def _card(title: str, subtitle: str, height: float) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    picture = Image.new("RGBA", (WIDTH * SCALE, round(height) * SCALE), (0, 0, 0, 0))
    pen = ImageDraw.Draw(picture)
    pen.rounded_rectangle((0, 0, WIDTH * SCALE - 1, round(height) * SCALE - 1), 12 * SCALE, CARD, EDGE, SCALE)
    _write(pen, (MARGIN, MARGIN), title, 19, INK)
    _write(pen, (MARGIN, MARGIN + 27), subtitle, 13, FAINT)
    return picture, pen


def _mixed(one: str, other: str, share: float) -> str:
    pairs = zip(bytes.fromhex(one[1:]), bytes.fromhex(other[1:]), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size * SCALE)


def _fit(pen: ImageDraw.ImageDraw, text: str, room: float) -> str:
    while len(text) > 4 and pen.textlength(text, _font(14)) / SCALE > room:
        text = f"{text[:-4]}..."
    return text


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
    stroke: dict[str, Any] = {"stroke_width": 1, "stroke_fill": colour} if bold else {}
    pen.text((at[0] * SCALE, at[1] * SCALE), text, colour, _font(size), anchor, **stroke)
