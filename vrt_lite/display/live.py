"""The judge at work on a terminal: status, progress, and its reasoning as it streams.

Knows rich and the tags' headings. What the judge writes passes `safe` and reaches rich as Text, never as markup.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from rich.cells import cell_len, chop_cells
from rich.console import Console, Group, RenderableType
from rich.text import Text

from vrt_lite.display.escape import safe
from vrt_lite.display.glyphs import Glyphs, glyphs_for
from vrt_lite.display.plain import name_frames, name_round, name_wait
from vrt_lite.display.terminal import REFRESHES_PER_SECOND, append_bar, live_on, spinner
from vrt_lite.interfaces import Encoding, Event, Loading, Prefill, RoundBegan, RoundEnded, Waiting, Wrote
from vrt_lite.protocol.frames import FrameRef

_TAIL_ROWS = 12
_WIDEST = 88
_WIDEST_BAR = 40
_HEADINGS = {
    "snapshot": ("Snapshot", ""),
    "think": ("Reasoning", ""),
    "recommend answer": ("Recommends", "bold"),
    "recommended answer": ("Recommends", "bold"),
    "answer": ("Answers", "bold"),
    "final answer": ("Final answer", "bold green"),
    "tool call": ("Asks for frames", "dim"),
}
"""By tag: its heading, and the style of what stands in it. Other tags are text."""
# Bounded, as the parser's are; a tag that is still being written is held back until it can be told.
_TAG = re.compile(r"<[ \t\n]{0,4}(/?)[ \t\n]{0,4}([a-z]{1,12}(?:[ _][a-z]{1,8})?)[ \t\n]{0,4}>", re.IGNORECASE)
_TAG_BEGUN = re.compile(r"<[^<>]{0,32}\Z")
_WORD = re.compile(r"\s*\S+|\s+")


class LiveView:
    """The judge at work on a terminal. The status and the last rows of its reasoning go when the view closes.

    With `verbose` finished rows are printed above the status instead, and stay. Tokens are only collected as they
    come; rows are laid out a few times a second, each once.
    """

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self._console = console
        self._glyphs = glyphs_for(console.options)
        self._verbose = verbose
        # Taken inside rich's own lock by its refresh thread, so nothing may be printed while it is held.
        self._lock = threading.Lock()
        self._rows: deque[Text] = deque(maxlen=None if verbose else _TAIL_ROWS)
        self._flow = _Flow()
        self._pieces: list[str] = []
        self._stage = _Stage("Opening the clips")
        self._began = self._printed = time.monotonic()
        self._live = live_on(console, self._render)

    def __enter__(self) -> LiveView:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._lay_out(end=True)
            self._stage = _Stage("")
        self._live.stop()
        if self._verbose and self._rows:
            self._console.print(*self._rows, sep="\n")

    def observe(self, event: Event) -> None:
        """Take note of what happened; the screen follows when it is due."""
        rows: list[Text] = []
        with self._lock:
            self._note(event)
            if self._verbose and time.monotonic() - self._printed > 1 / REFRESHES_PER_SECOND:
                self._lay_out()
                self._printed = time.monotonic()
                rows = list(self._rows)
                self._rows.clear()
        if rows:
            self._console.print(*rows, sep="\n")
            self._live.refresh()

    def _note(self, event: Event) -> None:
        match event:
            case Wrote(""):
                pass
            case Wrote(text):
                self._pieces.append(text)
                self._stage = _Stage("Writing")
            case Waiting(what, attempt):
                waited = safe(name_wait(what, attempt), encoding=self._console.encoding)
                self._stage = _Stage(waited[:1].upper() + waited[1:])
            case Loading(what):
                self._stage = _Stage(f"Loading {safe(what, encoding=self._console.encoding)}")
            case Encoding(done, total):
                self._stage = _Stage(f"Encoding frames {done} of {total}", done, total)
            case Prefill(done, total):
                self._stage = _Stage(f"Reading {done} of {total} tokens", done, total)
            case RoundBegan(order, number, frames):
                self._stage = _Stage("Choosing frames")
                self._rows.extend(_round_rows(order, number, frames, self._console.width, self._glyphs))
            case RoundEnded(_, _, outcome):
                self._lay_out(end=True)
                self._stage = _Stage("Finishing")
                if outcome == "correction":
                    self._rows.append(Text("The reply could not be used; the judge is told why.", "yellow"))
            case _:
                assert_never(event)

    def _lay_out(self, *, end: bool = False) -> None:
        """Turn what was written since into rows."""
        new = safe("".join(self._pieces), lines=True, encoding=self._console.encoding)
        self._pieces.clear()
        rows, self._flow = _settle(_Flow(self._flow.text + new, self._flow.tag), self._console.width, end=end)
        self._rows.extend(rows)

    def _render(self) -> RenderableType:
        """The last rows that fit, the row being written, and the status; called by rich's refresh thread."""
        width, height = self._console.size
        with self._lock:
            self._lay_out()
            last = self._flow.row()
            rows = [*self._rows, last] if last else [*self._rows]
            stage = self._stage
        if not stage.label:
            return Text("", end="")
        # Rows laid out before the terminal became narrower are folded again.
        folded = [part for row in rows for part in (row.wrap(self._console, width) if row.cell_len > width else [row])]
        shown = folded[-min(_TAIL_ROWS, max(height - 2, 1)) :]
        return Group(*shown, _status(stage, time.monotonic() - self._began, width, self._glyphs))


@dataclass(frozen=True, slots=True)
class _Stage:
    """What happens now, and how much of it is done if that is known."""

    label: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class _Flow:
    """Streamed text that may still change its layout, and the tag that it stands in."""

    text: str = ""
    tag: str = ""

    def row(self) -> Text | None:
        """The text as the row it would be now."""
        shown = _TAG_BEGUN.sub("", self.text).strip()
        return _row(shown, self.tag) if shown else None


def _settle(flow: _Flow, width: int, *, end: bool) -> tuple[list[Text], _Flow]:
    """The rows that are final, and the text that is not: a row or a tag still being written (none at the `end`)."""
    rows: list[Text] = []
    tag, position = flow.tag, 0
    for found in _TAG.finditer(flow.text):
        name = found[2].lower().replace("_", " ")
        if name not in _HEADINGS:
            continue
        rows += _paragraphs(flow.text[position : found.start()], tag, width)
        tag, position = "" if found[1] else name, found.end()
        if tag:
            rows.append(Text(_HEADINGS[tag][0], "dim italic"))
    rest = flow.text[position:]
    if end:
        return [*rows, *_paragraphs(rest, tag, width)], _Flow()
    begun = _TAG_BEGUN.search(rest)
    held = begun[0] if begun else ""
    whole, newline, last = rest.removesuffix(held).rpartition("\n")
    *full, last = _fill(last, width - 2)
    rows += _paragraphs(whole + newline, tag, width)
    rows += [_row(line.strip(), tag) for line in full]
    return rows, _Flow(last + held, tag)


def _paragraphs(text: str, tag: str, width: int) -> list[Text]:
    return [_row(row.strip(), tag) for line in text.split("\n") if line.strip() for row in _fill(line, width - 2)]


def _row(text: str, tag: str) -> Text:
    return Text(f"  {text}", _HEADINGS[tag][1] if tag else "dim")


def _fill(text: str, width: int) -> list[str]:
    """Text broken into rows of at most `width` cells, at least one; only the last can change when text is added."""
    rows = [""]
    for word in _WORD.findall(text):
        if cell_len(rows[-1] + word) <= width or not word.strip():
            rows[-1] += word
        else:
            first, *more = chop_cells(word.lstrip(), max(width, 2))
            rows += [first, *more]
    return rows if rows[0] or len(rows) == 1 else rows[1:]


def _round_rows(order: int, number: int, frames: Sequence[FrameRef], width: int, glyphs: Glyphs) -> list[Text]:
    """A rule with the frames in it, or above them where it is too narrow."""
    title, detail = name_round(order, number).capitalize(), name_frames(order, frames, f" {glyphs.dot} ")
    begin = Text(glyphs.rule * 2, "dim").append(f" {title} ", "not dim bold")
    under = _fill(detail, width - 2)
    if begin.cell_len + cell_len(detail) + 3 < width:
        begin.append(f"{glyphs.dot} {detail} ", "not dim")
        under = []
    begin.append(glyphs.rule * max(min(width, _WIDEST) - begin.cell_len, 0))
    rows = [begin, *(Text(f"  {line.strip()}") for line in under)]
    if order and number == 1:
        note = "Shown the other way round: what the judge now calls Video 1 is video 2."
        rows += [Text(f"  {line.strip()}", "yellow") for line in _fill(note, width - 2)]
    return rows


def _status(stage: _Stage, seconds: float, width: int, glyphs: Glyphs) -> Text:
    """One row: a spinner, what happens, how far it is, and the time since the start."""
    clock = f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"
    row = Text(f"{spinner(seconds, glyphs)} {stage.label}", no_wrap=True, overflow="crop")
    row.truncate(max(width - len(clock) - 2, 1))
    room = min(width - row.cell_len - len(clock) - 4, _WIDEST_BAR)
    append_bar(row, stage.done, stage.total, room=room, glyphs=glyphs)
    return row.append(f"  {clock}", "dim")
