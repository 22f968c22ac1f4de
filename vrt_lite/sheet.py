"""Draws a contact sheet: the frames that the judge saw, by round, on one PNG.

Knows Pillow and layout. Refuses to know decoding (the frame store's) and models. A set of frames that a later round
or the exchanged order shows again is drawn once. Frames are numbered 1..N within their video; where the judge calls
one by another number (it counts through both videos), that stands in brackets.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from vrt_lite.errors import UsageError
from vrt_lite.protocol.frames import FrameRef
from vrt_lite.protocol.tags import DIMENSIONS, OVERALL
from vrt_lite.protocol.verdict import Preference, describe

if TYPE_CHECKING:
    from vrt_lite.interfaces import FrameStore
    from vrt_lite.judgement import Judgement

_PAPER, _INK, _FAINT, _LINE = "#fbfaf8", "#1f2328", "#6b7280", "#d9d6d0"
_COLOURS = (_FAINT, "#0b7285", "#a61e6d")
"""By choice: tie, video 1, video 2; the terminal's cyan and magenta, dark enough for paper."""

_LEGIBLE = 400  # a frame is enlarged by whole steps up to this width and height
_LARGEST = (1280, 720)  # and reduced to this
_ROW = 2400  # the frames of a row take about this many pixels at most
_COLUMNS = 8
_NARROWEST = 640
_LINES = 3
_LONGEST = 1000  # characters; more do not fit into three lines


@dataclass(frozen=True, slots=True)
class _Section:
    """Frames as given, each with the judge's number for it, and the rounds that showed just these."""

    title: str
    frames: tuple[tuple[FrameRef, int], ...]

    def of(self, clip: int) -> list[tuple[FrameRef, int]]:
        """The frames of one clip."""
        return [(frame, number) for frame, number in self.frames if frame.clip == clip]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Sizes in pixels, by clip: of a frame, of a row's cells and how many; `unit` is the size of the text."""

    shown: tuple[tuple[int, int], ...]
    columns: tuple[int, ...]
    cells: tuple[int, ...]
    unit: int

    @property
    def margin(self) -> int:
        """Left and right of everything."""
        return 3 * self.unit

    @property
    def content(self) -> int:
        """The width between the margins."""
        rows = (n * (cell + self.unit) - self.unit for n, cell in zip(self.columns, self.cells, strict=True))
        return max(*rows, _NARROWEST)


def check_place(path: Path) -> None:
    """Refuse a path that no sheet can be written to: before anything is judged, or the verdict would be lost.

    UsageError for a name that is no PNG's, a folder, and one in a folder that is not there.
    """
    if path.suffix.lower() != ".png":
        raise UsageError(f"The sheet {path} cannot be written: a sheet is a PNG. Give a name that ends in .png.")
    if not path.parent.is_dir():
        raise UsageError(f"The sheet {path} cannot be written: there is no folder {path.parent}.")
    if path.is_dir():
        raise UsageError(f"The sheet {path} cannot be written: it is a folder. Give a file's name.")


def draw_sheet(judgement: Judgement, frames: FrameStore, path: Path) -> None:
    """Draw the frames that the judge saw as a PNG at `path`, whole or not at all.

    Raises UsageError for a file that cannot be written, VideoError for a frame that cannot be decoded.
    """
    check_place(path)
    sections = _sections(judgement)
    layout = _layout(judgement, sections)
    strips = [_header(judgement, layout)]
    for section in sections:
        strips.append(_title(section.title, layout))
        strips += [
            _row(judgement, frames, row, layout)
            for clip in (0, 1)
            for row in _rows(section.of(clip), layout.columns[clip])
        ]
    strips.append(_footer(judgement, sections, layout))
    sheet = Image.new("RGB", (layout.content + 2 * layout.margin, sum(strip.height for strip in strips)), _PAPER)
    top = 0
    for strip in strips:
        sheet.paste(strip, (0, top))
        top += strip.height
    _write(sheet, path)


def _sections(judgement: Judgement) -> list[_Section]:
    workspace: int = judgement.settings["workspace"]
    titles: dict[frozenset[FrameRef], list[str]] = {}
    first: dict[frozenset[FrameRef], tuple[tuple[FrameRef, int], ...]] = {}
    for order in judgement.orders:
        for r in order.rounds:
            shown = tuple((order.given(frame), frame.number(workspace)) for frame in r.shown)
            if same := frozenset(frame for frame, _ in shown):
                titles.setdefault(same, []).append(
                    f"round {r.number}{' with the clips exchanged' if order.first else ''}"
                )
                first.setdefault(same, shown)
    return [_Section(", and ".join(titles[same]).capitalize(), shown) for same, shown in first.items()]


def _layout(judgement: Judgement, sections: list[_Section]) -> _Layout:
    shown = [_shown_size(*clip.workspace.size) for clip in judgement.clips]
    columns: list[int] = []
    for clip, (width, _) in enumerate(shown):
        most = max((len(section.of(clip)) for section in sections), default=1) or 1
        # As many columns as fit, then as few as give the same number of rows: eight frames are 4 + 4, never 7 + 1.
        fitting = min(most, _COLUMNS, max(_ROW // width, 1))
        columns.append(math.ceil(most / math.ceil(most / fitting)))
    unit = min(max(max(n * width for n, (width, _) in zip(columns, shown, strict=True)) // 64, 15), 28)
    cells = [width for width, _ in shown]
    for section in sections:
        for frame, number in section.frames:
            caption = sum(_width(part, unit) for part in _caption(judgement, frame, number)) + 2 * unit
            cells[frame.clip] = max(cells[frame.clip], caption)
    if columns[0] == columns[1]:
        # Frames of one time stand above each other.
        cells = [max(cells)] * 2
    return _Layout(tuple(shown), tuple(columns), tuple(cells), unit)


def _shown_size(width: int, height: int) -> tuple[int, int]:
    """The size a frame is drawn at: whole steps up while that keeps it small, down if it is huge."""
    steps = max(min(_LEGIBLE // width, _LEGIBLE // height), 1)
    scale = min(_LARGEST[0] / (width * steps), _LARGEST[1] / (height * steps), 1.0) * steps
    return max(round(width * scale), 1), max(round(height * scale), 1)


def _rows(frames: list[tuple[FrameRef, int]], columns: int) -> Iterator[list[tuple[FrameRef, int]]]:
    for start in range(0, len(frames), columns):
        yield frames[start : start + columns]


def _caption(judgement: Judgement, frame: FrameRef, number: int) -> tuple[str, str]:
    own = f" ({number})" if number != frame.index + 1 else ""
    seconds = judgement.clips[frame.clip].workspace.seconds[frame.index]
    return f"Video {frame.clip + 1}, frame {frame.index + 1}{own}", f"{seconds:.2f} s"


def _strip(layout: _Layout, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", (layout.content + 2 * layout.margin, height), _PAPER)
    return image, ImageDraw.Draw(image)


def _header(judgement: Judgement, layout: _Layout) -> Image.Image:
    """The prompt, the files, and the verdict as one bar overall and one per dimension."""
    unit, margin = layout.unit, layout.margin
    large = round(1.5 * unit)
    prompt = _wrap(judgement.prompt or "(no prompt)", large, layout.content)
    image, draw = _strip(layout, round((len(prompt) * 2 + 13.5) * unit))
    y = 2 * unit
    for line in prompt:
        _write_text(draw, (margin, y), line, large, _INK if judgement.prompt else _FAINT)
        y += 2 * unit
    y += unit // 2
    alike = judgement.clips[0].info.path.name == judgement.clips[1].info.path.name
    for choice, clip in enumerate(judgement.clips, start=1):
        draw.rectangle((margin, y + 1, margin + unit - 2, y + unit - 1), _COLOURS[choice])
        label = f"Video {choice}   {clip.info.path if alike else clip.info.path.name}"
        left = margin + round(1.6 * unit)
        _write_text(draw, (left, y), label, unit, _INK, layout.content - (left - margin))
        y += round(1.7 * unit)
    y += unit
    overall = "Overall (only recommended)" if judgement.verdict.source == "recommended" else "Overall"
    each = (layout.content - 6 * unit) // 4
    for i, key in enumerate((OVERALL, *DIMENSIONS)):
        name = overall if key == OVERALL else judgement.settings["dimensions"][key]["name"]
        preference = judgement.verdict.preferences[key]
        # Probabilities of a verdict without a model would look like something it said.
        preference = replace(preference, odds=None) if judgement.verdict.source == "identical" else preference
        _preference(draw, (margin + i * (each + 2 * unit), y), name, preference, each, unit)
    return image


def _preference(
    draw: ImageDraw.ImageDraw, at: tuple[int, int], name: str, preference: Preference, width: int, unit: int
) -> None:
    """A dimension: its name, who wins it, and the probabilities as video 1, tie, video 2 from left to right."""
    x, y = at
    _write_text(draw, (x, y), name, unit, _FAINT, width)
    winner, odds = preference.winner, preference.odds
    words = describe(preference)
    lines = f"{words[0].upper()}{words[1:]}".split(", ")
    if not preference.undecided and odds and odds[winner] == max(odds):  # a dead heat's tie may be improbable
        lines[0] += f"  {odds[winner]:.0%}"
    for place, line in enumerate(lines):
        size = round((1.3 if len(lines) == 1 else 1.0) * unit)
        _write_text(draw, (x, y + round(1.5 * unit) + place * size), line, size, _COLOURS[winner], width)
    top, bottom = y + round(3.5 * unit), y + 4 * unit
    if odds:
        draw.rectangle((x, top, x + width - 1, bottom), _LINE)
        one, two = round(odds[1] * width), round(odds[2] * width)
        if one:
            draw.rectangle((x, top, x + one - 1, bottom), _COLOURS[1])
        if two:
            draw.rectangle((x + width - two, top, x + width - 1, bottom), _COLOURS[2])


def _title(title: str, layout: _Layout) -> Image.Image:
    unit, margin = layout.unit, layout.margin
    image, draw = _strip(layout, round(3.6 * unit))
    draw.line((margin, 0, margin + layout.content - 1, 0), _LINE, max(unit // 12, 1))
    _write_text(draw, (margin, round(1.2 * unit)), title, round(1.3 * unit), _INK, layout.content)
    return image


def _row(judgement: Judgement, frames: FrameStore, row: list[tuple[FrameRef, int]], layout: _Layout) -> Image.Image:
    """Some frames of one clip side by side, each with its caption; a bar in the clip's colour to their left."""
    unit, margin = layout.unit, layout.margin
    clip = row[0][0].clip
    width, height = layout.shown[clip]
    image, draw = _strip(layout, height + round(3.2 * unit))
    colour = _COLOURS[clip + 1]
    draw.rectangle((margin - unit, 0, margin - unit + unit // 4, height + round(1.7 * unit)), colour)
    pixels = frames.pixels([frame for frame, _ in row])
    for column, ((frame, number), array) in enumerate(zip(row, pixels, strict=True)):
        x = margin + column * (layout.cells[clip] + unit)
        picture = Image.fromarray(array)
        grows = width >= picture.width
        image.paste(
            picture.resize((width, height), Image.Resampling.NEAREST if grows else Image.Resampling.LANCZOS), (x, 0)
        )
        draw.rectangle((x - 1, -1, x + width, height), outline=_LINE)
        name, seconds = _caption(judgement, frame, number)
        below = height + round(0.6 * unit)
        _write_text(draw, (x, below), name, unit, colour)
        _write_text(draw, (x + _width(name, unit) + unit, below), seconds, unit, _FAINT)
    return image


def _footer(judgement: Judgement, sections: list[_Section], layout: _Layout) -> Image.Image:
    workspace = judgement.settings["workspace"]
    words = f"The judge can ask for {workspace} frames of each video; they are numbered here from 1 to {workspace}."
    if any(number != frame.index + 1 for section in sections for frame, number in section.frames):
        words += f" In brackets: its own number, from 1 to {2 * workspace} through both videos."
    if not sections:
        words = "The judge was shown no frames: both clips are the same file."
    lines = _wrap(words, layout.unit, layout.content)
    image, draw = _strip(layout, round((len(lines) * 1.5 + 3) * layout.unit))
    draw.line((layout.margin, 0, layout.margin + layout.content - 1, 0), _LINE, max(layout.unit // 12, 1))
    for i, line in enumerate(lines):
        _write_text(draw, (layout.margin, round((1 + 1.5 * i) * layout.unit)), line, layout.unit, _FAINT)
    return image


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    try:
        return ImageFont.load_default(size)
    except ImportError:  # a Pillow without FreeType has one small bitmap font
        return ImageFont.load_default()


def _drawable(text: str, size: int) -> str:
    """Text that the font takes: no control or bidirectional characters, no surrogates; on one line."""
    plain = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)
    if isinstance(_font(size), ImageFont.FreeTypeFont):
        return plain
    return plain.encode("latin-1", "replace").decode("latin-1")


def _width(text: str, size: int) -> int:
    return math.ceil(_font(size).getlength(_drawable(text, size)))


def _write_text(
    draw: ImageDraw.ImageDraw, at: tuple[int, int], text: str, size: int, fill: str, width: int | None = None
) -> None:
    """One line; if it is wider than `width`, its middle makes way for dots."""
    if width is not None and _width(text, size) > width:
        keep = min(len(text) - 1, 5 * width // size)  # no letter is narrower than a fifth of its height
        while keep > 2 and _width(f"{text[: keep // 2]}...{text[-keep // 2 :]}", size) > width:
            keep = min(keep - 1, keep * 9 // 10)
        text = f"{text[: keep // 2]}...{text[-keep // 2 :]}"
    draw.text(at, _drawable(text, size), fill, _font(size))


def _wrap(text: str, size: int, width: int) -> list[str]:
    """Lines no wider than `width`, at most `_LINES`; what is left out is shown by dots."""
    lines = [""]
    for word in text[:_LONGEST].split():
        lines += [""] if lines[-1] else []
        if len(lines) > 1 and _width(f"{lines[-2]} {word}", size) <= width:
            lines[-2:] = [f"{lines[-2]} {word}"]
            continue
        for character in word:  # a word may be wider than a line, in scripts without spaces above all
            if lines[-1] and _width(lines[-1] + character, size) > width:
                lines.append("")
            lines[-1] += character
        if len(lines) > _LINES:
            return [*lines[: _LINES - 1], f"{lines[_LINES - 1]} ..."]
    return lines


def _write(sheet: Image.Image, path: Path) -> None:
    """Write beside the target first: a sheet is there whole or not at all."""
    draft = path.parent / f".{secrets.token_hex(8)}.png"
    try:
        try:
            sheet.save(draft, "PNG", compress_level=3)  # three times as fast as the default, a tenth larger
            draft.replace(path)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"The sheet {str(path)!r} cannot be written: {error.strerror or error}.") from error
