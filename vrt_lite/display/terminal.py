"""What the views on a terminal share: the console, how it is drawn over, a spinner and a bar. Knows rich, so it is
imported where a terminal is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.live import Live

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from vrt_lite.display.glyphs import Glyphs

REFRESHES_PER_SECOND = 10
_NARROWEST_BAR = 4


def console_on(stream: TextIO) -> Console:
    """A console that takes nothing for markup."""
    return Console(file=stream, highlight=False, markup=False, emoji=False)


def live_on(console: Console, render: Callable[[], RenderableType]) -> Live:
    """Draws what `render` gives, in a thread of its own; it is gone from the screen when that ends."""
    return Live(
        get_renderable=render,
        console=console,
        transient=True,
        refresh_per_second=REFRESHES_PER_SECOND,
        vertical_overflow="crop",
    )


def spinner(seconds: float, glyphs: Glyphs) -> str:
    """Where it has turned to after so many seconds."""
    return glyphs.spinner[int(seconds * REFRESHES_PER_SECOND) % len(glyphs.spinner)]


def append_bar(row: Text, done: int, total: int, *, room: int, glyphs: Glyphs) -> None:
    """Add a bar of `room` cells, if the total is known and that is enough to see something."""
    if total and room >= _NARROWEST_BAR:
        filled = room * done // total
        row.append("  ").append(glyphs.progress[0] * filled, "cyan").append(glyphs.progress[1] * (room - filled), "dim")
