"""Fits text to the width of a terminal: lines break between words, names lose their middle. A pipe gets all of it."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import TextIO

from vrt_lite.show.words import safe

_COMMAND = re.compile(r"(?<=: )vrt-lite [^(;,]+[^(;, ]")
_JOINT = "\x1f"  # stands for a space at which no line breaks; `safe` lets none through
_NARROWEST = 20


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
