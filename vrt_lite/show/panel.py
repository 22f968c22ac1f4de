"""The verdict as a panel for a person at a terminal, drawn with rich."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from vrt_lite.protocol.messages import OVERALL
from vrt_lite.protocol.verdict import VIDEOS, describe
from vrt_lite.show.pair_words import (
    count_frames,
    describe_measured,
    list_alike,
    list_doubts,
    list_limits,
    list_measures,
    list_preferences,
    name_clips,
    write_headline,
)
from vrt_lite.show.words import STYLES, Glyphs, capitalize_first, cut_words, glyphs_for, percent, safe

if TYPE_CHECKING:
    from vrt_lite.protocol.messages import Odds
    from vrt_lite.records.judgement import Judgement

_WIDEST, _NARROW = 88, 64
_BAR = 20
_ORDER = ((1, "1"), (0, "tie"), (2, "2"))
"""The choices as bars and shares show them, from left to right."""


def draw_verdict(judgement: Judgement, console: Console) -> Panel:
    """Draw the verdict for a terminal: who wins, by how much, after how many rounds, and the warnings."""
    verdict, winner, names = judgement.verdict, judgement.winner, name_clips(judgement)
    glyphs, width = glyphs_for(console.options), min(console.width, _WIDEST) - 4
    narrow = width < _NARROW

    def say(text: str, style: str = "", *, before: str = "") -> Text:
        shown = cut_words(safe(text, encoding=console.encoding), width - len(before), ellipsis=glyphs.ellipsis)
        return Text(shown, style)

    one, two = (f"{name} (video {number})" for number, name in enumerate(names, start=1))
    title = write_headline(verdict, VIDEOS if verdict.overall.undecided else (one, two))
    files = Table.grid(padding=(0, 2))
    for number, name in enumerate(names, start=1):
        files.add_row(Text(f"video {number}", STYLES[number]), say(name, before="video 1  "))
    parts: list[list[RenderableType]] = [
        [
            say(title, f"bold {STYLES[winner]}" if winner else "bold"),
            *(say(of, "yellow") for of in list_doubts(judgement)),
        ],
        [_draw_preferences(judgement, console, narrow=narrow)],
        [say(capitalize_first(line)) for line in describe_measured(judgement)],
        [*_draw_measures(judgement, glyphs, narrow=narrow)],
        [files, say(f" {glyphs.dot} ".join(_summarize(judgement)), "dim")],
        [say(f"{capitalize_first(line)}.", "dim") for line in list_limits(judgement)],
        [say(f"Warning: {warning}", "yellow") for warning in judgement.warnings],
    ]
    spaced = [piece for part in parts if part for piece in (*part, Text(""))][:-1]
    return Panel(Group(*spaced), title=Text("Verdict", "bold"), box=box.ROUNDED, width=width + 4, border_style="dim")


def _draw_preferences(judgement: Judgement, console: Console, *, narrow: bool) -> Table:
    """Draw a row for the overall preference and one for each dimension; a narrow terminal has no room for bars."""
    rows, glyphs = list_preferences(judgement), glyphs_for(console.options)
    table = Table.grid(padding=(0, 1 if narrow else 2))
    if any(of.odds for of in rows):
        heads = (Text(head, STYLES[choice], justify="right") for choice, head in _ORDER)
        table.add_row("", "", *([] if narrow else [""]), *heads)
    for of in rows:
        style = "bold" if of.key == OVERALL else ""
        # Without the probability, which the bar shows; and in two lines, so that the bar keeps its width.
        chosen = describe(of.preference, with_share=False).replace(", ", ",\n")
        cells: list[Text] = []
        if of.odds:
            cells = [] if narrow else [_draw_bar(of.odds, glyphs)]
            cells += [Text(percent(of.odds[choice], digits=0), justify="right") for choice, _ in _ORDER]
        winner = STYLES[of.preference.winner if of.preference else 0]
        name = Text(safe(of.name, encoding=console.encoding), style)
        table.add_row(name, Text(chosen, f"{winner} {style}"), *cells)
    return _fold(table)


def _fold(table: Table) -> Table:
    """Let words that are wider than their column break, where rich would put an ellipsis in any encoding."""
    for column in table.columns:
        column.overflow = "fold"
    return table


def _draw_bar(odds: Odds, glyphs: Glyphs) -> Text:
    """Draw a bar: video 1 from the left, video 2 from the right, the tie between them."""
    one = round(odds[1] * _BAR)
    two = min(round(odds[2] * _BAR), _BAR - one)
    parts = ((1, one), (0, _BAR - one - two), (2, two))
    return Text.assemble(*((glyphs.odds[choice] * cells, STYLES[choice]) for choice, cells in parts), no_wrap=True)


def _draw_measures(judgement: Judgement, glyphs: Glyphs, *, narrow: bool) -> Iterator[RenderableType]:
    """Draw a row for each measure that tells the clips apart, or is missing, and name those that do not."""
    rows = list_measures(judgement)
    table = Table.grid(padding=(0, 1 if narrow else 2))
    heads = (Text(f"video {choice}", STYLES[choice], justify="right") for choice in (1, 2))
    table.add_row(Text("Measured", "dim"), *heads, Text("better", "dim"))
    for row in rows:
        if row.better != 0:
            name = Text(row.name).append("" if narrow else f" ({row.unit})", "dim")
            values = (Text(value.replace("–", glyphs.rule), justify="right") for value in row.values)
            table.add_row(name, *values, Text(row.words, STYLES[row.better or 0]))
    if table.row_count > 1:
        yield _fold(table)
    if alike := list_alike(rows):
        yield Text(f"Measured alike: {alike}", "dim")


def _summarize(judgement: Judgement) -> Iterator[str]:
    """Yield how many frames and rounds it took, which model judged, and how long."""
    if counts := [str(len(order.rounds)) for order in judgement.orders]:
        plural = "" if counts == ["1"] else "s"
        both = " (both orders)" if len(counts) == 2 else ""
        yield f"{count_frames(judgement)} frames in {' + '.join(counts)} round{plural}{both}"
    yield judgement.model.name
    yield f"{judgement.timings.total:.1f} s"
