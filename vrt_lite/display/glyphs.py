"""What is drawn with, where the encoding has it and where it has not; the style of each choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import ConsoleOptions

STYLES = ("dim", "cyan", "magenta")
"""By choice: tie, video 1, video 2. No blue: it cannot be read on most dark terminals."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """What is drawn with; `odds` are the bars of tie, video 1 and video 2, told apart without colour too."""

    odds: str
    progress: str
    spinner: str
    dot: str
    rule: str
    ellipsis: str


_UNICODE = Glyphs("·█▒", "█░", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "·", "─", "…")
_ASCII = Glyphs("-12", "#-", "|/-\\", "-", "-", "...")


def glyphs_for(options: ConsoleOptions) -> Glyphs:
    """What this terminal can draw with."""
    return _ASCII if options.ascii_only or options.legacy_windows else _UNICODE
