"""The verdict as a panel for a person at a terminal, drawn with rich."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from vrt_lite.protocol.messages import OVERALL
from vrt_lite.protocol.verdict import VIDEOS, describe
from vrt_lite.show.efforts import describe_effort, describe_skipped_order
from vrt_lite.show.measure_rows import describe_measured, split_measure_rows
from vrt_lite.show.words import (
    STYLES,
    Glyphs,
    capitalize_first,
    count_frames,
    describe_disagreements,
    describe_recommendation,
    glyphs_for,
    list_keys,
    name_clips,
    name_dimension,
    percent,
    safe,
    shown_odds,
    write_headline,
)
from vrt_lite.show.wrapping import cut_middle, cut_words

if TYPE_CHECKING:
    from vrt_lite.protocol.messages import Odds
    from vrt_lite.records.judgement import Judgement

_WIDEST = 88
_STACKED_BELOW, _NARROW = 64, 48
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
        parts = [part for part in self._parts(options, width - 4) if part]
        spaced = [piece for part in parts for piece in (*part, Text(""))][:-1]
        yield Panel(Group(*spaced), title=Text("Verdict", "bold"), box=box.ROUNDED, width=width, border_style="dim")

    def _parts(self, options: ConsoleOptions, width: int) -> Iterator[list[RenderableType]]:
        judgement, encoding, glyphs = self.judgement, options.encoding, glyphs_for(options)
        verdict, winner = judgement.verdict, judgement.winner
        names = [safe(name, encoding=encoding) for name in name_clips(judgement)]
        room = width - len(" (video 1) is narrowly better (0.63)")
        short = [
            cut_middle(name, max(min(room, _LONGEST_NAME), _SHORTEST_NAME), ellipsis=glyphs.ellipsis) for name in names
        ]
        one, two = (f"{name} (video {number})" for number, name in enumerate(short, start=1))
        disputed = [safe(name_dimension(judgement, key), encoding=encoding) for key in judgement.disagreements]
        doubts = (describe_recommendation(verdict), describe_disagreements(disputed))
        yield [
            Text(
                write_headline(verdict, VIDEOS if verdict.overall.undecided else (one, two)),
                f"bold {STYLES[winner]}" if winner else "bold",
            ),
            *(Text(doubt, "yellow") for doubt in doubts if doubt),
        ]
        yield [_preferences(judgement, width, encoding, glyphs)]
        yield [Text(capitalize_first(line), overflow="fold") for line in describe_measured(judgement)]
        yield _measures(judgement, width, glyphs)
        files = Table.grid(padding=(0, 2))
        for choice, name in enumerate(names, start=1):
            room = max(width - len("video 1  "), _SHORTEST_NAME)
            files.add_row(Text(f"video {choice}", STYLES[choice]), cut_middle(name, room, ellipsis=glyphs.ellipsis))
        yield [files, Text(_summary(judgement, encoding, glyphs), "dim")]
        lines = (describe_skipped_order(judgement), describe_effort(judgement), judgement.scope)
        about = [f"{capitalize_first(text)}." for text in lines if text]
        yield [Text(safe(text, encoding=encoding), "dim", overflow="fold") for text in about]
        warnings = [f"Warning: {safe(warning, encoding=encoding)}" for warning in judgement.warnings]
        yield [Text(cut_words(warning, width, ellipsis=glyphs.ellipsis), "yellow") for warning in warnings]


def _preferences(judgement: Judgement, width: int, encoding: str, glyphs: Glyphs) -> RenderableType:
    """Draw a row for the overall preference and one for each dimension; on a narrow terminal bars are below names."""
    rows: list[tuple[Text, Text, Odds | None]] = []
    for key in list_keys(judgement):
        preference = judgement.verdict.all_preferences.get(key)
        style = "bold" if key == OVERALL else ""
        name = Text(safe(name_dimension(judgement, key), encoding=encoding), style, overflow="fold")
        # Without the probability, which the bar shows.
        words = describe(preference, with_share=False)
        winner = Text(words, f"{STYLES[preference.winner if preference else 0]} {style}", no_wrap=True)
        rows.append((name, winner, shown_odds(judgement.verdict, key)))
    return _stacked(rows, width, glyphs) if width < _STACKED_BELOW else _side_by_side(rows, glyphs)


def _side_by_side(rows: list[tuple[Text, Text, Odds | None]], glyphs: Glyphs) -> Table:
    table = Table.grid(padding=(0, 2))
    if any(odds for _, _, odds in rows):
        table.add_row("", "", "", *(Text(head, STYLES[choice], justify="right") for choice, head in _ORDER))
    for name, winner, odds in rows:
        shares = [Text(percent(odds[choice], digits=0), justify="right") for choice, _ in _ORDER] if odds else []
        # "Undecided, leans to" takes two lines, so that the bar keeps its width.
        words = Text(winner.plain.replace(", ", ",\n"), winner.style, no_wrap=True)
        table.add_row(name, words, *([_bar(odds, _BAR, glyphs), *shares] if odds else []))
    return table


def _stacked(rows: list[tuple[Text, Text, Odds | None]], width: int, glyphs: Glyphs) -> Group:
    lines: list[Text] = []
    for name, winner, odds in rows:
        lines.append(Text.assemble(name, ": ", winner, overflow="fold"))
        if odds:
            shares = f" {glyphs.dot} ".join(f"{head}: {percent(odds[choice], digits=0)}" for choice, head in _ORDER)
            lines.append(_bar(odds, max(min(width - 28, _BAR), 4), glyphs).append(f"  {shares}"))
    return Group(*lines)


def _measures(judgement: Judgement, width: int, glyphs: Glyphs) -> list[RenderableType]:
    """Draw a row for each measure that tells the clips apart; a narrow terminal leaves out the unit."""
    rows, names = split_measure_rows(judgement.measures)
    alike: list[RenderableType] = [Text(f"Measured alike: {names}", "dim")] if names else []
    if not rows:
        return alike
    table = Table.grid(padding=(0, 1 if width < _NARROW else 2))
    head = "{}" if width < _NARROW else "video {}"
    heads = (Text(head.format(choice), STYLES[choice], justify="right") for choice in (1, 2))
    table.add_row(Text("Measured", "dim"), *heads, Text("better", "dim"))
    for row in rows:
        name = Text(row.name).append(f" ({row.unit})" if width >= _STACKED_BELOW else "", "dim")
        values = (Text(value.replace("–", glyphs.rule), justify="right") for value in row.values)
        table.add_row(name, *values, Text(row.words, STYLES[row.better or 0]))
    return [table, *alike]


def _bar(odds: Odds, width: int, glyphs: Glyphs) -> Text:
    """Draw a bar: video 1 from the left, video 2 from the right, the tie between them."""
    one = round(odds[1] * width)
    two = min(round(odds[2] * width), width - one)
    bar = Text(overflow="fold")
    for choice, cells in ((1, one), (0, width - one - two), (2, two)):
        bar.append(glyphs.odds[choice] * cells, STYLES[choice])
    return bar


def _summary(judgement: Judgement, encoding: str, glyphs: Glyphs) -> str:
    """Say how many frames and rounds it took, which model judged, and how long."""
    parts = [safe(judgement.model.name, encoding=encoding), f"{judgement.timings.total:.1f} s"]
    if counts := [str(len(order.rounds)) for order in judgement.orders]:
        plural = "" if counts == ["1"] else "s"
        both = " (both orders)" if len(counts) == 2 else ""
        parts.insert(0, f"{count_frames(judgement)} frames in {' + '.join(counts)} round{plural}{both}")
    return f" {glyphs.dot} ".join(parts)
