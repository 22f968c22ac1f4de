"""The verdict as a panel for a person at a terminal. Knows rich and layout; the words are `plain`'s."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from vrt_lite.display.escape import safe
from vrt_lite.display.glyphs import STYLES, Glyphs, glyphs_for
from vrt_lite.display.plain import count_frames, name_clips, name_dimension, say_recommended
from vrt_lite.protocol.tags import DIMENSIONS, OVERALL
from vrt_lite.protocol.verdict import describe

if TYPE_CHECKING:
    from vrt_lite.judgement import Judgement
    from vrt_lite.protocol.messages import Odds

_WIDEST = 88
_STACKED_BELOW = 64
_BAR = 20


@dataclass(frozen=True, slots=True)
class VerdictPanel:
    """The verdict for a person at a terminal: who wins, by how much, on what grounds, and what to beware of."""

    judgement: Judgement

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _WIDEST)
        parts = [part for part in self._parts(options, width - 4) if part]
        spaced = [piece for part in parts for piece in (*part, Text(""))][:-1]
        yield Panel(Group(*spaced), title=Text("Verdict", "bold"), box=box.ROUNDED, width=width, border_style="dim")

    def _parts(self, options: ConsoleOptions, width: int) -> Iterator[list[RenderableType]]:
        judgement, encoding, glyphs = self.judgement, options.encoding, glyphs_for(options)
        names = [safe(name, encoding=encoding) for name in name_clips(judgement)]
        winner = judgement.winner
        headline = f"{_shorten(names[winner - 1], glyphs)} (video {winner}) is better" if winner else "A tie"
        if judgement.verdict.overall.undecided:
            headline = describe(judgement.verdict.overall).capitalize()
        head: list[RenderableType] = [Text(headline, f"bold {STYLES[winner]}" if winner else "bold")]
        if judgement.verdict.source == "recommended":
            head.append(Text(say_recommended(judgement), "yellow"))
        if judgement.disagreements:
            keys = [safe(name_dimension(judgement, key), encoding=encoding) for key in judgement.disagreements]
            head.append(Text(f"Shown the other way round, the judge decides otherwise on {', '.join(keys)}.", "yellow"))
        yield head
        yield [_preferences(judgement, width, encoding, glyphs)]
        files = Table.grid(padding=(0, 2))
        for choice, name in enumerate(names, start=1):
            files.add_row(Text(f"video {choice}", STYLES[choice]), Text(name, overflow="fold"))
        yield [files, Text(_facts(judgement, encoding, glyphs), "dim")]
        warnings = [f"Warning: {safe(warning, encoding=encoding)}" for warning in judgement.warnings]
        yield [Text(warning, "yellow", overflow="fold") for warning in warnings]


def _preferences(judgement: Judgement, width: int, encoding: str, glyphs: Glyphs) -> RenderableType:
    """One row overall and one per dimension; on a narrow terminal the bars stand below the names."""
    rows: list[tuple[Text, Text, Odds | None]] = []
    for key in (OVERALL, *DIMENSIONS):
        preference = judgement.verdict.preferences[key]
        style = "bold" if key == OVERALL else ""
        name = Text(safe(name_dimension(judgement, key), encoding=encoding), style, overflow="fold")
        # What is undecided takes two lines, or no room would be left for the bar; its share stands beside that.
        words = describe(replace(preference, odds=None)).replace(", ", ",\n")
        winner = Text(words, f"{STYLES[preference.winner]} {style}", no_wrap=True)
        # Probabilities of a verdict without a model would look like something it said.
        rows.append((name, winner, None if judgement.verdict.source == "identical" else preference.odds))
    return _stacked(rows, width, glyphs) if width < _STACKED_BELOW else _side_by_side(rows, glyphs)


def _side_by_side(rows: list[tuple[Text, Text, Odds | None]], glyphs: Glyphs) -> Table:
    table = Table.grid(padding=(0, 2))
    if any(odds for _, _, odds in rows):
        heads = (("1", 1), ("tie", 0), ("2", 2))
        table.add_row("", "", "", *(Text(head, STYLES[choice], justify="right") for head, choice in heads))
    for name, winner, odds in rows:
        shares = [Text(f"{odds[choice]:.0%}", justify="right") for choice in (1, 0, 2)] if odds else []
        table.add_row(name, winner, *([_bar(odds, _BAR, glyphs), *shares] if odds else []))
    return table


def _stacked(rows: list[tuple[Text, Text, Odds | None]], width: int, glyphs: Glyphs) -> Group:
    lines: list[Text] = []
    for name, winner, odds in rows:
        lines.append(Text.assemble(name, ": ", winner, overflow="fold"))
        if odds:
            shares = f" {glyphs.dot} ".join((f"1 {odds[1]:.0%}", f"tie {odds[0]:.0%}", f"2 {odds[2]:.0%}"))
            lines.append(_bar(odds, max(min(width - 28, _BAR), 4), glyphs).append(f"  {shares}"))
    return Group(*lines)


def _bar(odds: Odds, width: int, glyphs: Glyphs) -> Text:
    """Video 1 from the left, video 2 from the right, the tie between them."""
    one = round(odds[1] * width)
    two = min(round(odds[2] * width), width - one)
    bar = Text(overflow="fold")
    for choice, cells in ((1, one), (0, width - one - two), (2, two)):
        bar.append(glyphs.odds[choice] * cells, STYLES[choice])
    return bar


def _facts(judgement: Judgement, encoding: str, glyphs: Glyphs) -> str:
    facts = [safe(judgement.model.name, encoding=encoding), f"{judgement.total_seconds:.1f} s"]
    rounds = [len(order.rounds) for order in judgement.orders]
    if rounds:
        ran = " + ".join(map(str, rounds))
        plural = "" if ran == "1" else "s"
        both = " (both orders)" if len(rounds) == 2 else ""
        facts[:0] = [f"{count_frames(judgement)} frames in {ran} round{plural}{both}"]
    return f" {glyphs.dot} ".join(facts)


def _shorten(name: str, glyphs: Glyphs, *, longest: int = 48) -> str:
    """A long name without its middle: generated clips often differ at the end."""
    return name if len(name) <= longest else name[: longest // 3] + glyphs.ellipsis + name[-longest // 2 :]
