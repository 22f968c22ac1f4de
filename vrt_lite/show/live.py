"""The judge at work on a terminal: status, progress, and its reasoning as it streams.

All that the judge writes goes through `safe` and reaches rich as Text, never as markup.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells
from rich.console import Console, Group, RenderableType
from rich.text import Text

from vrt_lite.interfaces import Encoding, Event, Predicted, Prefill, RoundBegan, RoundEnded, Wrote
from vrt_lite.protocol.messages import FrameRef
from vrt_lite.show.words import (
    Glyphs,
    capitalize_first,
    describe_event,
    format_range,
    format_time,
    glyphs_for,
    live_on,
    name_frames,
    name_round,
    safe,
    spinner_for,
    status_row,
)

_TAIL_ROWS = 12
_WIDEST = 88
_PRINT_EVERY_SECONDS = 0.1
_HEADINGS = {
    "snapshot": ("Snapshot", ""),
    "think": ("Reasoning", ""),
    "recommend answer": ("Recommends", "bold"),
    "recommended answer": ("Recommends", "bold"),
    "answer": ("Answers", "bold"),
    "final answer": ("Final answer", "bold green"),
    "tool call": ("Asks for frames", "dim"),
}
"""By tag: its heading, and the style of its text. Any other tag is text."""
# The repeats are bounded, as the parser's are. An unfinished tag waits until it is known to be one.
_TAG = re.compile(r"<[ \t\n]{0,4}(/?)[ \t\n]{0,4}([a-z]{1,12}(?:[ _][a-z]{1,8})?)[ \t\n]{0,4}>", re.IGNORECASE)
_UNFINISHED_TAG = re.compile(r"<[^<>]{0,32}\Z")
_WORD = re.compile(r"\s*\S+|\s+")


class LiveView:
    """Shows the judge at work on a terminal. The status and the last rows of its reasoning vanish at the end.

    With `verbose` finished rows are printed above the status instead, and stay. Tokens are only collected when they
    come; rows are laid out a few times a second, each once.
    """

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self._console = console
        self._glyphs = glyphs_for(console.options)
        self._spinner = spinner_for(console)
        self._verbose = verbose
        # rich's refresh thread takes this inside its own lock, so nothing may be printed while it is held.
        self._lock = threading.Lock()
        self._rows: deque[Text] = deque(maxlen=None if verbose else _TAIL_ROWS)
        self._unfinished = _Unfinished()
        self._pieces: list[str] = []
        self._stage: tuple[str, int, int] = ("Opening the clips", 0, 0)
        self._predicted = ""
        self._start = self._printed = time.monotonic()
        self._live = live_on(console, self._render)

    def __enter__(self) -> LiveView:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._lay_out(end=True)
            self._stage = ("", 0, 0)
        self._live.stop()
        if self._verbose and self._rows:
            self._console.print(*self._rows, sep="\n")

    def observe(self, event: Event) -> None:
        """Record what happened; the screen follows at its next refresh."""
        rows: list[Text] = []
        with self._lock:
            self._record(event)
            if self._verbose and time.monotonic() - self._printed > _PRINT_EVERY_SECONDS:
                self._lay_out()
                self._printed = time.monotonic()
                rows = list(self._rows)
                self._rows.clear()
        if rows:
            self._console.print(*rows, sep="\n")
            self._live.refresh()

    def _record(self, event: Event) -> None:
        words = capitalize_first(safe(describe_event(event), encoding=self._console.encoding))
        match event:
            case Predicted(predicted, longer):
                self._predicted = f" of {format_range(longer or predicted)}"
            case Wrote(text):
                self._pieces.append(text)
                self._stage = (words, 0, 0) if words else self._stage
            case Encoding(done, total) | Prefill(done, total):
                self._stage = (words, done, total)
            case RoundBegan(order, number, frames):
                self._stage = ("Choosing frames", 0, 0)
                self._rows.extend(_round_rows(order, number, frames, self._console.width, self._glyphs))
            case RoundEnded(_, _, outcome):
                self._lay_out(end=True)
                self._stage = ("Finishing", 0, 0)
                if outcome == "correction":
                    self._rows.append(Text("The reply could not be used. The judge gets the reason.", "yellow"))
            case _:
                self._stage = (words, 0, 0)

    def _lay_out(self, *, end: bool = False) -> None:
        """Turn what was written since the last call into rows."""
        new = safe("".join(self._pieces), lines=True, encoding=self._console.encoding)
        self._pieces.clear()
        text = _Unfinished(self._unfinished.text + new, self._unfinished.tag)
        rows, self._unfinished = _finish_rows(text, self._console.width, end=end)
        self._rows.extend(rows)

    def _render(self) -> RenderableType:
        """Return the last rows that fit, the row being written, and the status. rich's refresh thread calls this."""
        width, height = self._console.size
        with self._lock:
            self._lay_out()
            last = self._unfinished.row()
            rows = [*self._rows, last] if last else [*self._rows]
            words, done, total = self._stage
        if not words:
            return Text("", end="")
        # Rows from before the terminal became narrower are folded again.
        folded = [part for row in rows for part in (row.wrap(self._console, width) if row.cell_len > width else [row])]
        shown = folded[-min(_TAIL_ROWS, max(height - 2, 1)) :]
        shown_time = f"{format_time(time.monotonic() - self._start)}{self._predicted}"
        return Group(*shown, status_row(self._spinner, words, shown_time, width, done=done, total=total))


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """Streamed text whose layout may still change, and the tag around it."""

    text: str = ""
    tag: str = ""

    def row(self) -> Text | None:
        """Return the text as the row it would be now."""
        shown = _UNFINISHED_TAG.sub("", self.text).strip()
        return _row(shown, self.tag) if shown else None


def _finish_rows(streamed: _Unfinished, width: int, *, end: bool) -> tuple[list[Text], _Unfinished]:
    """Return the rows that will not change, and the text that may: an unfinished row or tag (none at the `end`)."""
    rows: list[Text] = []
    tag, position = streamed.tag, 0
    for found in _TAG.finditer(streamed.text):
        name = found[2].lower().replace("_", " ")
        if name not in _HEADINGS:
            continue
        rows += _text_rows(streamed.text[position : found.start()], tag, width)
        tag, position = "" if found[1] else name, found.end()
        if tag:
            rows.append(Text(_HEADINGS[tag][0], "dim italic"))
    rest = streamed.text[position:]
    if end:
        return [*rows, *_text_rows(rest, tag, width)], _Unfinished()
    unfinished = _UNFINISHED_TAG.search(rest)
    held = unfinished[0] if unfinished else ""
    whole, newline, last = rest.removesuffix(held).rpartition("\n")
    *full, last = _fill(last, width - 2)
    rows += _text_rows(whole + newline, tag, width)
    rows += [_row(line, tag) for line in full]
    return rows, _Unfinished(last + held, tag)


def _text_rows(text: str, tag: str, width: int) -> list[Text]:
    return [_row(row, tag) for line in text.split("\n") if line.strip() for row in _fill(line, width - 2)]


def _row(text: str, tag: str) -> Text:
    return Text(f"  {text.strip()}", _HEADINGS[tag][1] if tag else "dim")


def _fill(text: str, width: int) -> list[str]:
    """Break text into rows of at most `width` cells, at least one; only the last can change when text is added."""
    rows = [""]
    for word in _WORD.findall(text):
        if cell_len(rows[-1] + word) <= width or not word.strip():
            rows[-1] += word
        else:
            first, *more = chop_cells(word.lstrip(), max(width, 2))
            rows += [first, *more]
    return rows if rows[0] or len(rows) == 1 else rows[1:]


def _round_rows(order: int, number: int, frames: Sequence[FrameRef], width: int, glyphs: Glyphs) -> list[Text]:
    """Draw a rule with the frames in it, or with the frames below it if it is too narrow."""
    title, detail = capitalize_first(name_round(order, number)), name_frames(order, frames, f" {glyphs.dot} ")
    rule = Text(glyphs.rule * 2, "dim").append(f" {title} ", "not dim bold")
    fits = rule.cell_len + cell_len(detail) + 3 < width
    if fits:
        rule.append(f"{glyphs.dot} {detail} ", "not dim")
    rule.append(glyphs.rule * max(min(width, _WIDEST) - rule.cell_len, 0))
    rows = [rule] if fits else [rule, *(Text(f"  {line.strip()}") for line in _fill(detail, width - 2))]
    if order and number == 1:
        note = "Shown the other way round: what the judge now calls Video 1 is video 2."
        rows += [Text(f"  {line.strip()}", "yellow") for line in _fill(note, width - 2)]
    return rows
