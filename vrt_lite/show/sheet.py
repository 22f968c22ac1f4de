"""Draws a contact sheet: the frames that the judge saw, by round, on one PNG.

A set of frames that a later round or the exchanged order shows again is drawn once. Frames are numbered 1..N within
their video; where the judge counts differently (through both videos), its own number stands in brackets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from vrt_lite.disk import draft_of
from vrt_lite.errors import UsageError
from vrt_lite.protocol.messages import FrameRef
from vrt_lite.show.words import (
    FAINT,
    INK,
    LINE,
    PAPER,
    SIDE_COLOURS,
    capitalize_first,
    chosen_share,
    describe_preference,
    describe_recommendation,
    format_moment,
    list_keys,
    name_clips,
    name_dimension,
    name_round,
)

if TYPE_CHECKING:
    from vrt_lite.interfaces import FrameStore
    from vrt_lite.records.judgement import Judgement

_LEGIBLE = 400  # a frame is enlarged by whole steps up to this width and height
_LARGEST = (1280, 720)  # and reduced to this
_ROW = 2400  # the frames of a row take about this many pixels at most
_COLUMNS = 8
_NARROWEST = 640
_TEXT, _TITLE = 18, 26
_MARGIN, _GAP = 48, 18
_LINES = 4
_LONGEST = 1000  # characters; more do not fit into four lines


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame of a video (0 or 1, as given), its caption, and the size to draw it at."""

    ref: FrameRef
    caption: str
    size: tuple[int, int]


def check_place(path: Path) -> None:
    """Raise UsageError for a path that no sheet can be written to, before anything is judged.

    Such a path does not end in .png, is no regular file, or is in a folder that does not exist.
    """
    if path.suffix.lower() != ".png":
        raise UsageError(f"The sheet {path} cannot be written: a sheet is a PNG. Give a name that ends in .png.")
    if not path.parent.is_dir():
        raise UsageError(f"The sheet {path} cannot be written: there is no folder {path.parent}.")
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file"
        raise UsageError(f"The sheet {path} cannot be written: it is {what}. Give a file's name.")


def draw_sheet(judgement: Judgement, frames: FrameStore, path: Path) -> None:
    """Draw the frames that the judge saw as a PNG at `path`, whole or not at all.

    Raises UsageError for a file that cannot be written, VideoError for a frame that cannot be decoded.
    """
    check_place(path)
    sections = _sections(judgement)
    shown = [frame for _, of in sections for frame in of]
    cell = max([max(frame.size[0], _width(frame.caption, _TEXT)) for frame in shown], default=1)
    # As many columns as fit, then as few as give the same number of rows: eight frames are 4 + 4, never 7 + 1.
    most = max((sum(f.ref.clip == clip for f in of) for _, of in sections for clip in (0, 1)), default=1)
    fitting = min(most, _COLUMNS, max(_ROW // cell, 1))
    columns = math.ceil(most / math.ceil(most / fitting))
    width = max(columns * (cell + _GAP) - _GAP, _NARROWEST)
    verdict = f"{_describe_verdict(judgement)}. {describe_recommendation(judgement.verdict)}"
    clips = zip((1, 2), name_clips(judgement), SIDE_COLOURS[1:], strict=True)
    names = [(f"Video {number}: {name}", colour) for number, name, colour in clips]
    strips = [
        _text_strip([(judgement.prompt or "(no prompt)", INK)], _TITLE, width),
        _text_strip([*names, (verdict, INK)], _TEXT, width),
    ]
    for title, of in sections:
        strips.append(_text_strip([(title, INK)], _TITLE, width))
        for row in _rows(of, columns):
            strips.append(_frame_strip(row, frames, cell, width))
    strips.append(_text_strip([(_footnote(judgement, shown), FAINT)], _TEXT, width))
    sheet = Image.new("RGB", (width + 2 * _MARGIN, sum(strip.height for strip in strips) + _GAP), PAPER)
    top = 0
    for strip in strips:
        sheet.paste(strip, (0, top))
        top += strip.height
    try:
        with draft_of(path) as draft:
            sheet.save(draft, "PNG", compress_level=3)  # three times as fast as the default, a tenth larger
    except OSError as error:
        raise UsageError(f"The sheet {str(path)!r} cannot be written: {error.strerror or error}.") from error


def _sections(judgement: Judgement) -> list[tuple[str, list[_Frame]]]:
    """List each set of frames that was shown, under the rounds that showed it, video 1 first."""
    titles: dict[frozenset[FrameRef], list[str]] = {}
    sets: dict[frozenset[FrameRef], list[_Frame]] = {}
    for order in judgement.orders:
        for r in order.rounds:
            shown: list[_Frame] = []
            for f in r.frames:
                number = f.index + 1
                own = f" ({number + judgement.settings.workspace})" if f.video != order.first else ""
                caption = f"Video {f.video}, frame {number}{own}   {format_moment(f.seconds)}"
                size = judgement.inputs[f.video - 1].shown_size
                shown.append(_Frame(FrameRef(f.video - 1, f.index), caption, _drawn_size(*size)))
            if key := frozenset(frame.ref for frame in shown):
                titles.setdefault(key, []).append(name_round(order.first - 1, r.number))
                sets.setdefault(key, sorted(shown, key=lambda frame: frame.ref.clip))
    return [(capitalize_first("; ".join(titles[key])), shown) for key, shown in sets.items()]


def _drawn_size(width: int, height: int) -> tuple[int, int]:
    """Return the size a frame is drawn at: whole steps up while that keeps it small, down if it is huge."""
    steps = max(min(_LEGIBLE // width, _LEGIBLE // height), 1)
    scale = min(_LARGEST[0] / (width * steps), _LARGEST[1] / (height * steps), 1.0) * steps
    return max(round(width * scale), 1), max(round(height * scale), 1)


def _rows(shown: Sequence[_Frame], columns: int) -> Iterator[list[_Frame]]:
    for clip in (0, 1):
        frames = [frame for frame in shown if frame.ref.clip == clip]
        yield from (frames[start : start + columns] for start in range(0, len(frames), columns))


def _footnote(judgement: Judgement, shown: Sequence[_Frame]) -> str:
    if not shown:
        return "The judge was shown no frames: both clips are the same file."
    workspace = judgement.settings.workspace
    return (
        f"The judge can ask for {workspace} frames of each video; they are numbered here from 1 to {workspace}. "
        f"In brackets: its own number, from 1 to {2 * workspace} through both videos."
    )


def _text_strip(paragraphs: Sequence[tuple[str, str]], size: int, width: int) -> Image.Image:
    """Draw paragraphs, each in its colour, across the sheet, with space above them."""
    lines = [(line, colour) for text, colour in paragraphs for line in _wrap(text, size, width)]
    step = round(1.5 * size)
    strip = Image.new("RGB", (width + 2 * _MARGIN, len(lines) * step + _GAP), PAPER)
    draw = ImageDraw.Draw(strip)
    for i, (line, colour) in enumerate(lines):
        draw.text((_MARGIN, _GAP + i * step), line, colour, _font(size))
    return strip


def _frame_strip(row: Sequence[_Frame], frames: FrameStore, cell: int, width: int) -> Image.Image:
    """Draw frames of one video side by side, each with its caption; a bar in the video's colour to their left."""
    colour = SIDE_COLOURS[row[0].ref.clip + 1]
    height = max(frame.size[1] for frame in row)
    strip = Image.new("RGB", (width + 2 * _MARGIN, height + 3 * _TEXT), PAPER)
    draw = ImageDraw.Draw(strip)
    draw.rectangle((_MARGIN - _GAP, 0, _MARGIN - _GAP + 4, height + round(1.5 * _TEXT)), colour)
    for column, (frame, pixels) in enumerate(zip(row, frames.pixels([frame.ref for frame in row]), strict=True)):
        left = _MARGIN + column * (cell + _GAP)
        picture = Image.fromarray(pixels)
        grows = frame.size[0] >= picture.width
        strip.paste(
            picture.resize(frame.size, Image.Resampling.NEAREST if grows else Image.Resampling.LANCZOS), (left, 0)
        )
        draw.rectangle((left - 1, -1, left + frame.size[0], frame.size[1]), outline=LINE)
        draw.text((left, height + _TEXT // 2), frame.caption, colour, _font(_TEXT))
    return strip


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    try:
        return ImageFont.load_default(size)
    except ImportError:  # a Pillow without FreeType has one small bitmap font
        return ImageFont.load_default()


def _width(text: str, size: int) -> int:
    return math.ceil(_font(size).getlength(text))


def _drawable(text: str, size: int) -> str:
    """Return text that the font can draw: no control or bidirectional characters, no surrogates."""
    plain = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)
    if isinstance(_font(size), ImageFont.FreeTypeFont):
        return plain
    return plain.encode("latin-1", "replace").decode("latin-1")


def _wrap(text: str, size: int, width: int) -> list[str]:
    """Break text into lines no wider than `width`, at most `_LINES`; dots stand for what is left out."""
    lines = [""]
    for word in _drawable(text[:_LONGEST], size).split():
        if lines[-1] and _width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
            continue
        lines += [""] if lines[-1] else []
        for character in word:  # a word may be wider than a line, above all in scripts without spaces
            if lines[-1] and _width(lines[-1] + character, size) > width:
                lines.append("")
            lines[-1] += character
    return lines if len(lines) <= _LINES else [*lines[: _LINES - 1], f"{lines[_LINES - 1]} ..."]


def _describe_verdict(judgement: Judgement) -> str:
    """Describe a whole verdict in one line: "Overall: video 2 (0.93); Video Quality (VQ): tie (0.81); …"."""
    parts: list[str] = []
    for key in list_keys(judgement):
        share = chosen_share(judgement.verdict, key).strip()
        words = describe_preference(judgement, key) + (f" ({share})" if share else "")
        parts.append(f"{name_dimension(judgement, key)}: {words}")
    return "; ".join(parts)
