"""The verdict as a panel for a person at a terminal, drawn with rich."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
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
from vrt_lite.show.words import STYLES, Glyphs, capitalize_first, glyphs_for, percent, safe
from vrt_lite.show.wrapping import cut_middle, cut_words

if TYPE_CHECKING:
    from vrt_lite.protocol.messages import Odds
    from vrt_lite.records.judgement import Judgement

_WIDEST, _NARROW = 88, 64
_BAR = 20
_LONGEST_NAME, _SHORTEST_NAME = 48, 8
_ORDER = ((1, "1"), (0, "tie"), (2, "2"))
"""The choices as bars and shares show them, from left to right."""


@dataclass(frozen=True, slots=True)
class VerdictPanel:
    """The verdict on a terminal: who wins, by how much, after how many rounds, and the warnings."""

    judgement: Judgement

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _WIDEST)
        parts = [part for part in self._list_parts(options, width - 4) if part]
        spaced = [piece for part in parts for piece in (*part, Text(""))][:-1]
        yield Panel(Group(*spaced), title=Text("Verdict", "bold"), box=box.ROUNDED, width=width, border_style="dim")

    def _list_parts(self, options: ConsoleOptions, width: int) -> Iterator[Sequence[RenderableType]]:
        judgement, glyphs = self.judgement, glyphs_for(options)
        verdict, winner = judgement.verdict, judgement.winner

        def say(text: str, style: str = "") -> Text:
            return Text(cut_words(safe(text, encoding=options.encoding), width, ellipsis=glyphs.ellipsis), style)

        def fit(clip: str, room: int) -> str:
            return cut_middle(safe(clip, encoding=options.encoding), room, ellipsis=glyphs.ellipsis)

        room = max(min(width - len(" (video 1) is narrowly better (0.63)"), _LONGEST_NAME), _SHORTEST_NAME)
        names = name_clips(judgement)
        one, two = (f"{fit(clip, room)} (video {number})" for number, clip in enumerate(names, start=1))
        title = write_headline(verdict, VIDEOS if verdict.overall.undecided else (one, two))
        doubts = [say(doubt, "yellow") for doubt in list_doubts(judgement)]
        yield [Text(title, f"bold {STYLES[winner]}" if winner else "bold"), *doubts]
        yield [_draw_preferences(judgement, options, is_narrow=width < _NARROW)]
        yield [say(capitalize_first(line)) for line in describe_measured(judgement)]
        yield _draw_measures(judgement, glyphs, is_narrow=width < _NARROW)
        files = Table.grid(padding=(0, 2))
        for number, clip in enumerate(names, start=1):
            room = max(width - len("video 1  "), _SHORTEST_NAME)
            files.add_row(Text(f"video {number}", STYLES[number]), fit(clip, room))
        yield [files, say(f" {glyphs.dot} ".join(_summarize(judgement)), "dim")]
        yield [say(f"{capitalize_first(line)}.", "dim") for line in list_limits(judgement)]
        yield [say(f"Warning: {warning}", "yellow") for warning in judgement.warnings]


def _draw_preferences(judgement: Judgement, options: ConsoleOptions, *, is_narrow: bool) -> Table:
    """Draw a row for the overall preference and one for each dimension; a narrow terminal has no room for bars."""
    rows, glyphs = list_preferences(judgement), glyphs_for(options)
    table = Table.grid(padding=(0, 1 if is_narrow else 2))
    if any(of.odds for of in rows):
        bar = [] if is_narrow else [""]
        table.add_row("", "", *bar, *(Text(head, STYLES[choice], justify="right") for choice, head in _ORDER))
    for of in rows:
        style = "bold" if of.key == OVERALL else ""
        # Without the probability, which the bar shows; and in two lines, so that the bar keeps its width.
        chosen = describe(of.preference, with_share=False).replace(", ", ",\n")
        cells: list[Text] = []
        if of.odds:
            cells = [] if is_narrow else [_draw_bar(of.odds, glyphs)]
            cells += [Text(percent(of.odds[choice], digits=0), justify="right") for choice, _ in _ORDER]
        winner = STYLES[of.preference.winner if of.preference else 0]
        name = Text(safe(of.name, encoding=options.encoding), style)
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


def _draw_measures(judgement: Judgement, glyphs: Glyphs, *, is_narrow: bool) -> list[RenderableType]:
    """Draw a row for each measure that tells the clips apart, or is missing, and name those that do not."""
    rows = list_measures(judgement)
    table = Table.grid(padding=(0, 1 if is_narrow else 2))
    heads = (Text(f"video {choice}", STYLES[choice], justify="right") for choice in (1, 2))
    table.add_row(Text("Measured", "dim"), *heads, Text("better", "dim"))
    for row in rows:
        if row.better != 0:
            name = Text(row.name).append("" if is_narrow else f" ({row.unit})", "dim")
            values = (Text(value.replace("–", glyphs.rule), justify="right") for value in row.values)
            table.add_row(name, *values, Text(row.words, STYLES[row.better or 0]))
    alike = list_alike(rows)
    return [
        *([_fold(table)] if table.row_count > 1 else []),
        *([Text(f"Measured alike: {alike}", "dim")] if alike else []),
    ]


def _summarize(judgement: Judgement) -> Iterator[str]:
    """Yield how many frames and rounds it took, which model judged, and how long."""
    if counts := [str(len(order.rounds)) for order in judgement.orders]:
        plural = "" if counts == ["1"] else "s"
        both = " (both orders)" if len(counts) == 2 else ""
        yield f"{count_frames(judgement)} frames in {' + '.join(counts)} round{plural}{both}"
    yield judgement.model.name
    yield f"{judgement.timings.total:.1f} s"
