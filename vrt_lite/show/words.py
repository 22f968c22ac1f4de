"""The words that the terminal, the sheet and the report share: names, choices, outcomes, shares and times.

Also how text is written: `safe` for any terminal, and fitted to its width. Lines break between words, long names lose
their middle, and lists of things become tables; a pipe gets all of it. rich is imported only when something is drawn.

Video 1 is always the first clip given. Frames are numbered 1..N within their video.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from vrt_lite.interfaces import (
    Encoding,
    Loading,
    OrderEnded,
    Predicted,
    Prefill,
    RoundBegan,
    RoundEnded,
    TimeRange,
    Waiting,
    Working,
    Wrote,
)
from vrt_lite.protocol.messages import OVERALL, FrameRef

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

    from vrt_lite.interfaces import Event
    from vrt_lite.records.pairs import Conditions

DIMENSION_NAMES: Final = {
    OVERALL: "Overall",
    "TA": "Prompt alignment (TA)",
    "VQ": "Visual quality (VQ)",
    "MQ": "Motion quality (MQ)",
}
"""What a dimension is called wherever a preset has no names of its own."""
OUTCOMES: Final = {
    "final": "final answer",
    "tool": "asked for frames",
    "correction": "the reply could not be used",
}
"""How a round ended."""
_EXCHANGED = ", clips exchanged"
_HARMLESS = "\u200c\u200d\u00a0\u3000"
"""Joiners, without which Persian and emoji are not spelled, and wide spaces: they are not "printable" to Python."""
STYLES: Final = ("dim", "cyan", "magenta")
"""By choice: tie, video 1, video 2. There is no blue, which is hard to read on most dark terminals."""
SIDE_COLOURS: Final = ("#6b7078", "#0b7285", "#a61e6d")
"""The same on paper, dark enough for it: in pictures and, as `app.css` has them, in reports."""
PAPER, INK, FAINT, LINE = "#fbfaf8", "#1f2328", "#5b626c", "#dcd8d1"
_COMMAND = re.compile(r"(?<=: )vrt-lite [^(;,]+[^(;, ]")
_JOINT = "\x1f"  # stands for a space at which no line breaks; `safe` lets none through
_NARROWEST = 20
GAP = 2
"""Cells between two columns of a table."""


# Names


def name_judge(judge: str, scope: str) -> str:
    """Name a judge with what it sees."""
    return ", ".join(filter(None, (judge, scope)))


def name_round(order: int, number: int) -> str:
    """Name a round; `order` is 1 if the judge saw the clips exchanged."""
    return f"round {number}{_EXCHANGED * order}"


def name_frames(order: int, frames: Sequence[FrameRef], separator: str) -> str:
    """Return the numbers of frames by video as given: in an exchanged order the judge's first is video 2."""
    shown = {clip: [str(f.index + 1) for f in frames if f.clip ^ order == clip] for clip in (0, 1)}
    videos = [f"video {clip + 1}: {', '.join(numbers)}" for clip, numbers in shown.items() if numbers]
    return separator.join(videos) or "no new frames"


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or the plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def list_warnings(conditions: Conditions) -> list[str]:
    """List the warnings that the judgements have, with their number if not all have one, and whether they compare.

    Flags are left out: they stand beside their clips. What speaks of one pair's videos is counted. "12 judgements at
    451584 pixels a frame, 4 at 112896: not comparable".
    """
    lines: list[str] = []
    for of in conditions.warnings:
        if of.kind == "measured_otherwise":
            lines.append(f"In {of.judgements} judgement(s) the measures plainly contradict what the judge says.")
        elif of.kind != "flagged":
            some = f"in {of.judgements} judgement(s): " if of.judgements < conditions.judgements else ""
            lines.append(some + of.example)
    if not conditions.comparable:
        counts: Counter[tuple[int, int | None]] = Counter()
        for of in conditions.made_with:
            if of.max_pixels is not None:
                counts[of.max_pixels, of.tool_max_pixels] += of.judgements
        sizes = (f"{count} at {pixels} ({tool} a requested frame)" for (pixels, tool), count in counts.items())
        lines.append(f"judgements by pixels a frame: {', '.join(sizes)}: not comparable")
    return lines


# The judge at work


def describe_event(event: Event) -> str:
    """Describe what the judge does now, in lower case; empty if the event has no words."""
    match event:
        case Working(what):
            return what
        case Predicted() | OrderEnded():
            return ""
        case Loading(what):
            return f"loading {what}"
        case Waiting(what, attempt):
            return f"waiting for {what}, attempt {attempt}"
        case RoundBegan(order, number):
            return name_round(order, number)
        case Encoding(done, total, order):
            return f"encoding frames{_EXCHANGED * order} ({done} of {total})"
        case Prefill(done, total, order):
            return f"reading{_EXCHANGED * order} ({done} of {total} tokens)"
        case Wrote(text):
            return "writing" if text else ""
        case RoundEnded(_, _, outcome):
            return OUTCOMES.get(outcome, outcome)


# Numbers


def percent(share: float, *, digits: int = 1) -> str:
    """Format a share as a percentage. With digits after the point, only a share of exactly 0 or 1 is 0% or 100%."""
    smallest = 10.0**-digits
    if digits and 0 < share < smallest / 200:
        return f"<{smallest:.{digits}f}%"
    if digits and 1 - smallest / 200 <= share < 1:
        return f">{100 - smallest:.{digits}f}%"
    return f"{share:.{0 if share in (0, 1) else digits}%}"


def format_moment(seconds: float) -> str:
    """Format a moment of a clip, or its length: 2.57 s, or 10:05.0 min."""
    return f"{seconds:.2f} s" if seconds < 600 else f"{int(seconds // 60)}:{seconds % 60:04.1f} min"


def format_time(seconds: float) -> str:
    """Format the time that work takes: 0.4 s, 8 s, 3 min, 2.5 h, 36 h."""
    if seconds < 90:
        return f"{seconds:.{1 if seconds < 1 else 0}f} s"
    hours = seconds / 3600
    return f"{seconds / 60:.0f} min" if hours < 1.5 else f"{hours:.{0 if hours >= 10 else 1}f} h"


def format_range(time: TimeRange) -> str:
    """Format between what work will take: 20 to 60 min, 0.4 to 2 s, 50 s to 3 min; 8 s if that is known."""
    least, most = format_time(time.least), format_time(time.most)
    if least == most:
        return most
    return f"{least.split()[0] if least.split()[1] == most.split()[1] else least} to {most}"


def capitalize_first(text: str) -> str:
    """Return the text with a capital first letter, all else as it is."""
    return text[:1].upper() + text[1:]


# Text on a terminal


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Characters to draw with. `odds` are the bars of tie, video 1 and video 2, which differ without colour too."""

    odds: str
    block: str
    dot: str
    rule: str
    ellipsis: str
    spinner: str


_UNICODE = Glyphs("━█▒", "█", "·", "─", "…", "dots")
_ASCII = Glyphs("-12", "#", "-", "-", "...", "line")


def glyphs_for(options: ConsoleOptions) -> Glyphs:
    """Return the characters that this terminal can show."""
    return _ASCII if options.ascii_only or options.legacy_windows else _UNICODE


def safe(text: str, *, lines: bool = False, encoding: str = "utf-8") -> str:
    """Return text that is harmless on a terminal: a character that is not printable becomes a visible escape.

    That covers ANSI escapes and other control characters, bidirectional marks, invisible characters, line breaks,
    lone surrogates and what `encoding` lacks. `lines` keeps line breaks, and makes tabs spaces.
    """
    if lines:
        text = text.replace("\t", "    ")
    if not text.isprintable():
        text = "".join(
            c if c.isprintable() or c in _HARMLESS or (lines and c == "\n") else ascii(c)[1:-1] for c in text
        )
    return text if text.isascii() else text.encode(encoding, "backslashreplace").decode(encoding)


def console_on(stream: TextIO) -> Console:
    """Return a console that reads nothing as markup."""
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout, each made harmless and fit for the encoding and, on a terminal, for its width."""
    for line in lines:
        print_wrapped(line, sys.stdout)


def print_wrapped(line: str, stream: TextIO | None) -> None:
    """Write a line at once; to a stream that was closed when this process started, nothing."""
    if stream is not None:
        stream.writelines(f"{part}\n" for part in fit_line(line, stream))
        stream.flush()


def fit_line(line: str, stream: TextIO) -> list[str]:
    """Return a line as it is printed: harmless, and in several lines where a terminal is too narrow."""
    return wrap_line(safe(line, encoding=stream.encoding or "utf-8"), terminal_width(stream))


def terminal_width(stream: TextIO) -> int:
    """Return how many columns the terminal has; 0 if the stream is no terminal."""
    return shutil.get_terminal_size().columns if stream.isatty() else 0


def wrap_line(line: str, width: int, *, indent: int = 2) -> list[str]:
    """Break a line between words, the next ones indented. A width of 0 is that of a pipe: nothing is broken.

    A command to copy stays whole where it fits on one line. A word that is longer than the line stays whole too.
    """
    if len(line) <= max(width, 0) or width < _NARROWEST:
        return [line]
    own = len(line) - len(line.lstrip())
    following = " " * (own + indent)
    room = width - len(following)
    kept = _COMMAND.sub(lambda of: of[0].replace(" ", _JOINT) if len(of[0]) <= room else of[0], line)
    parts = textwrap.wrap(kept, width, subsequent_indent=following, break_long_words=False, break_on_hyphens=False)
    return [part.replace(_JOINT, " ") for part in parts]


def cut_middle(name: str, width: int, *, ellipsis: str = "…") -> str:
    """Cut the middle out of a name wider than `width` cells: names of generated clips often differ at the end."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(name) <= width:
        return name
    room = max(width - cell_len(ellipsis), 2)
    start = set_cell_size(name, room // 3)
    end = set_cell_size(name[::-1], room - room // 3)[::-1]
    return f"{start}{ellipsis}{end}"


def cut_words(text: str, width: int, *, ellipsis: str = "…") -> str:
    """Cut the middle out of the words that are wider than a line, so that no word of the text breaks."""
    return " ".join(cut_middle(word, width, ellipsis=ellipsis) for word in text.split(" "))


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their headings; no row is cut short, and a column without a value is left out.

    On a terminal only the widest column breaks, between words. Where even so the table is too wide, each value gets a
    line of its own below the first one of its row.
    """
    columns = [column for column in zip(headings, *rows, strict=True) if any(column[1:]) or not rows]
    if not sys.stdout.isatty():
        print_columns(columns)
        return
    from rich.cells import cell_len
    from rich.measure import Measurement

    console, table = console_on(sys.stdout), begin_table()
    shown = [[safe(cell, encoding=console.encoding) for cell in column] for column in columns]
    widths = [max(map(cell_len, column)) for column in shown]
    for (heading, *_), width in zip(shown, widths, strict=True):
        table.add_column(heading, width=width if width < max(widths) else None)
    for row in zip(*(cells for _, *cells in shown), strict=True):
        table.add_row(*row)
    needed = Measurement.get(console, console.options.update(width=2 * sum(widths)), table).minimum
    if needed > console.width:
        _print_records(columns)
    else:
        console.print(table)


def begin_table() -> Table:
    """Return a table without lines and columns yet."""
    from rich.table import Table

    return Table(
        box=None,
        pad_edge=False,
        padding=(0, GAP, 0, 0),
        header_style="dim",
        caption_style="dim",
        caption_justify="left",
    )


def _print_records(columns: Sequence[Sequence[str]]) -> None:
    """Print each row as lines: its first value, and below it every other one after its heading."""
    (_, *names), *others = columns
    for at, name in enumerate(names, start=1):
        named = ((column[0].lower(), column[at]) for column in others if column[at])
        print_lines([name, *(f"  {f'{heading} {cell}'.strip()}" for heading, cell in named)])


def print_columns(columns: Sequence[Sequence[str]]) -> None:
    """Print columns, each of which begins with its heading, as plain lines."""
    shown = [[safe(cell, encoding=sys.stdout.encoding or "utf-8") for cell in column] for column in columns]
    for row in zip(*([cell.ljust(max(map(len, column))) for cell in column] for column in shown), strict=True):
        print("  ".join(row).rstrip())
