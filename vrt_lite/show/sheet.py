"""Draws a contact sheet: the frames that the judge saw, by round, on one PNG.

A set of frames that a later round or the exchanged order shows again is drawn once. Frames are numbered 1..N within
their video; where the judge counts differently (through both videos), its own number stands in brackets.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from vrt_lite.disk import draft_of
from vrt_lite.errors import UsageError
from vrt_lite.protocol.messages import FrameRef
from vrt_lite.show.pair_words import describe_recommendation, list_preferences, name_clips
from vrt_lite.show.words import FAINT, INK, LINE, PAPER, SIDE_COLOURS, capitalize_first, format_moment, name_round

if TYPE_CHECKING:
    from vrt_lite.interfaces import FrameStore
    from vrt_lite.records.judgement import Judgement

_LEGIBLE = 400  # a frame is enlarged by whole steps up to this width and height
_LARGEST = (1280, 720)  # and reduced to this
_ROW = 2400  # the frames of a row take about this many pixels at most
_NARROWEST = 640
_TEXT, _TITLE = 18, 26
_MARGIN, _GAP = 48, 18
_LINES = 4


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
    sections = _list_sections(judgement)
    rows = [[frame for frame in of if frame.ref.clip == clip] for of in sections.values() for clip in (0, 1)]
    cell = max(
        [max(of.size[0], math.ceil(_font(_TEXT).getlength(of.caption))) for row in rows for of in row], default=1
    )
    # As many columns as fit, then as few as give the same number of rows: eight frames are 4 + 4, never 7 + 1.
    most = max(map(len, rows), default=1) or 1
    columns = math.ceil(most / math.ceil(most / max(_ROW // cell, 1)))
    width = max(columns * (cell + _GAP) - _GAP, _NARROWEST)
    strips = list(_draw_head(judgement, width))
    for title, of in sections.items():
        strips.append(_draw_text([(title, INK)], _TITLE, width))
        for clip in (0, 1):
            shown = [frame for frame in of if frame.ref.clip == clip]
            for start in range(0, len(shown), columns):
                strips.append(_draw_row(shown[start : start + columns], frames, cell, width))
    workspace = judgement.settings.workspace
    numbered = (
        f"The judge can ask for {workspace} frames of each video; they are numbered here from 1 to {workspace}. "
        f"In brackets: its own number, from 1 to {2 * workspace} through both videos."
    )
    none = "The judge was shown no frames: both clips are the same file."
    strips.append(_draw_text([(numbered if sections else none, FAINT)], _TEXT, width))
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


def _draw_head(judgement: Judgement, width: int) -> Iterator[Image.Image]:
    """Draw the prompt, the clips' names, and the whole verdict: "Overall: video 2 (0.93); Visual quality (VQ): tie"."""
    names = enumerate(name_clips(judgement), start=1)
    parts = [f"{of.name}: {of.words}" + (f" ({of.share})" if of.share else "") for of in list_preferences(judgement)]
    verdict = f"{'; '.join(parts)}. {describe_recommendation(judgement.verdict)}"
    yield _draw_text([(judgement.prompt or "(no prompt)", INK)], _TITLE, width)
    clips = [(f"Video {number}: {name}", SIDE_COLOURS[number]) for number, name in names]
    yield _draw_text([*clips, (verdict, INK)], _TEXT, width)


def _list_sections(judgement: Judgement) -> dict[str, list[_Frame]]:
    """List each set of frames that was shown, under the rounds that showed it."""
    titles: dict[frozenset[FrameRef], list[str]] = {}
    sets: dict[frozenset[FrameRef], list[_Frame]] = {}
    for order in judgement.orders:
        for r in order.rounds:
            shown: list[_Frame] = []
            for f in r.frames:
                number = f.index + 1
                own = f" ({number + judgement.settings.workspace})" if f.video != order.first else ""
                caption = f"Video {f.video}, frame {number}{own}   {format_moment(f.seconds)}"
                size = _choose_size(*judgement.inputs[f.video - 1].shown_size)
                shown.append(_Frame(FrameRef(f.video - 1, f.index), caption, size))
            if key := frozenset(frame.ref for frame in shown):
                titles.setdefault(key, []).append(name_round(order.first - 1, r.number))
                sets.setdefault(key, shown)
    return {capitalize_first("; ".join(titles[key])): shown for key, shown in sets.items()}


def _choose_size(width: int, height: int) -> tuple[int, int]:
    """Return the size a frame is drawn at: whole steps up while that keeps it small, down if it is huge."""
    steps = max(min(_LEGIBLE // width, _LEGIBLE // height), 1)
    scale = min(_LARGEST[0] / (width * steps), _LARGEST[1] / (height * steps), 1.0) * steps
    return max(round(width * scale), 1), max(round(height * scale), 1)


def _draw_text(paragraphs: Sequence[tuple[str, str]], size: int, width: int) -> Image.Image:
    """Draw paragraphs, each in its colour and of so many lines at most, across the sheet, with space above them."""
    font, step = _font(size), round(1.5 * size)
    room = int(width / font.getlength("0"))
    lines: list[tuple[str, str]] = []
    for text, colour in paragraphs:
        # What no font draws: control and bidirectional characters, lone surrogates.
        plain = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)
        lines += ((line, colour) for line in textwrap.wrap(plain, room, max_lines=_LINES, placeholder=" ..."))
    strip = Image.new("RGB", (width + 2 * _MARGIN, len(lines) * step + _GAP), PAPER)
    draw = ImageDraw.Draw(strip)
    for i, (line, colour) in enumerate(lines):
        draw.text((_MARGIN, _GAP + i * step), line, colour, font)
    return strip


def _draw_row(row: Sequence[_Frame], frames: FrameStore, cell: int, width: int) -> Image.Image:
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
        resampling = Image.Resampling.NEAREST if grows else Image.Resampling.LANCZOS
        strip.paste(picture.resize(frame.size, resampling), (left, 0))
        draw.rectangle((left - 1, -1, left + frame.size[0], frame.size[1]), outline=LINE)
        draw.text((left, height + _TEXT // 2), frame.caption, colour, _font(_TEXT))
    return strip


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
