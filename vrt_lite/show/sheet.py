"""Draws a contact sheet: the frames that the judge saw, by round, on one PNG.

A set of frames that a later round or the exchanged order shows again is drawn once. Frames are numbered 1..N within
their video; where the judge counts differently (through both videos), its own number stands in brackets.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from vrt_lite.disk import draft_of
from vrt_lite.errors import UsageError
from vrt_lite.protocol.messages import FrameRef
from vrt_lite.show.pair_words import describe_recommendation, list_preferences, name_clips
from vrt_lite.show.words import FAINT, INK, LINE, PAPER, SIDE_COLOURS, capitalize_first, format_moment, name_round, safe

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


def check_place(path: Path) -> None:
    """Raise UsageError for a path that no sheet can be written to, before anything is judged.

    Such a path does not end in .png, is no regular file, or is in a folder that does not exist.
    """
    fault = ""
    if path.suffix.lower() != ".png":
        fault = "a sheet is a PNG. Give a name that ends in .png"
    elif not path.parent.is_dir():
        fault = f"there is no folder {path.parent}"
    elif path.exists() and not path.is_file():
        fault = "it is no regular file"
    if fault:
        raise UsageError(f"The sheet {path} cannot be written: {fault}.")


def draw_sheet(judgement: Judgement, frames: FrameStore, path: Path) -> None:
    """Draw the frames that the judge saw as a PNG at `path`, whole or not at all.

    Raises UsageError for a file that cannot be written, VideoError for a frame that cannot be decoded.
    """
    check_place(path)
    sections = _list_sections(judgement)
    sizes = [_choose_size(*clip.shown_size) for clip in judgement.inputs]
    captions = (caption for shown in sections.values() for caption in shown.values())
    cell = max([size[0] for size in sizes] + [math.ceil(_font(_TEXT).getlength(caption)) for caption in captions])
    # As many columns as fit, then as few as give the same number of rows: eight frames are 4 + 4, never 7 + 1.
    most = max((sum(ref.clip == clip for ref in shown) for shown in sections.values() for clip in (0, 1)), default=1)
    columns = math.ceil(most / math.ceil(most / max(_ROW // cell, 1)))
    width = max(columns * (cell + _GAP) - _GAP, _NARROWEST)
    strips = _draw_head(judgement, width)
    for title, shown in sections.items():
        strips.append(_draw_text([(title, INK)], _TITLE, width))
        for clip in (0, 1):
            row = [(ref, caption) for ref, caption in shown.items() if ref.clip == clip]
            for start in range(0, len(row), columns):
                strips.append(_draw_row(row[start : start + columns], frames, sizes[clip], cell))
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
        sheet.paste(strip, (_MARGIN - _GAP, top))
        top += strip.height
    try:
        with draft_of(path) as draft:
            sheet.save(draft, "PNG", compress_level=3)  # three times as fast as the default, a tenth larger
    except OSError as error:
        raise UsageError(f"The sheet {str(path)!r} cannot be written: {error.strerror or error}.") from error


def _draw_head(judgement: Judgement, width: int) -> list[Image.Image]:
    """Draw the prompt, the clips' names, and the whole verdict: "Overall: video 2 (0.93); Visual quality (VQ): tie"."""
    names = enumerate(name_clips(judgement), start=1)
    parts = [f"{of.name}: {of.words}" + (f" ({of.share})" if of.share else "") for of in list_preferences(judgement)]
    verdict = f"{'; '.join(parts)}. {describe_recommendation(judgement.verdict)}"
    clips = [(f"Video {number}: {name}", SIDE_COLOURS[number]) for number, name in names]
    prompt = _draw_text([(judgement.prompt or "(no prompt)", INK)], _TITLE, width)
    return [prompt, _draw_text([*clips, (verdict, INK)], _TEXT, width)]


def _list_sections(judgement: Judgement) -> dict[str, Mapping[FrameRef, str]]:
    """List each set of frames that was shown, with their captions, under the rounds that showed it."""
    sections: dict[frozenset[FrameRef], tuple[list[str], dict[FrameRef, str]]] = {}
    for order in judgement.orders:
        for r in order.rounds:
            captions: dict[FrameRef, str] = {}
            for f in r.frames:
                own = f" ({f.index + 1 + judgement.settings.workspace})" if f.video != order.first else ""
                caption = f"Video {f.video}, frame {f.index + 1}{own}   {format_moment(f.seconds)}"
                captions[FrameRef(f.video - 1, f.index)] = caption
            if captions:
                titles, _ = sections.setdefault(frozenset(captions), ([], captions))
                titles.append(name_round(order.first - 1, r.number))
    return {capitalize_first("; ".join(titles)): captions for titles, captions in sections.values()}


def _choose_size(width: int, height: int) -> tuple[int, int]:
    """Return the size a frame is drawn at: whole steps up while that keeps it small, down if it is huge."""
    steps = max(min(_LEGIBLE // width, _LEGIBLE // height), 1)
    scale = min(_LARGEST[0] / width, _LARGEST[1] / height, steps)
    return max(round(width * scale), 1), max(round(height * scale), 1)


def _draw_text(paragraphs: Sequence[tuple[str, str]], size: int, width: int) -> Image.Image:
    """Draw paragraphs, each in its colour and of so many lines at most, with space above them."""
    font, step = _font(size), round(1.5 * size)
    room = int(width / font.getlength("0"))
    lines = [
        (line, colour)
        for text, colour in paragraphs
        for line in textwrap.wrap(safe(text, lines=True), room, max_lines=_LINES, placeholder=" ...")
    ]
    strip = Image.new("RGB", (width + _GAP, len(lines) * step + _GAP), PAPER)
    draw = ImageDraw.Draw(strip)
    for i, (line, colour) in enumerate(lines):
        draw.text((_GAP, _GAP + i * step), line, colour, font)
    return strip


def _draw_row(row: Sequence[tuple[FrameRef, str]], frames: FrameStore, size: tuple[int, int], cell: int) -> Image.Image:
    """Draw frames of one video side by side, each with its caption; a bar in the video's colour to their left."""
    refs = [ref for ref, _ in row]
    colour = SIDE_COLOURS[refs[0].clip + 1]
    strip = Image.new("RGB", (len(row) * (cell + _GAP) + _GAP, size[1] + 3 * _TEXT), PAPER)
    draw = ImageDraw.Draw(strip)
    draw.rectangle((0, 0, 4, size[1] + round(1.5 * _TEXT)), colour)
    for column, ((_, caption), pixels) in enumerate(zip(row, frames.pixels(refs), strict=True)):
        left = _GAP + column * (cell + _GAP)
        picture = Image.fromarray(pixels)
        resampling = Image.Resampling.NEAREST if size[0] >= picture.width else Image.Resampling.LANCZOS
        strip.paste(picture.resize(size, resampling), (left, 0))
        draw.rectangle((left - 1, -1, left + size[0], size[1]), outline=LINE)
        draw.text((left, size[1] + _TEXT // 2), caption, colour, _font(_TEXT))
    return strip


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
