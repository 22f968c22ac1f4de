"""A leaderboard: live while clips are being judged, in plain lines where there is no terminal, and at the end.

Knows rich, widths and words; rich is imported only where a terminal is. Refuses to know how ratings come about.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from vrt_lite.display.escape import safe
from vrt_lite.protocol.tags import DIMENSIONS, OVERALL
from vrt_lite.protocol.verdict import describe

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType
    from rich.text import Text

    from vrt_lite.display.glyphs import Glyphs
    from vrt_lite.ranking.contest import Contestant, Outcome
    from vrt_lite.ranking.field import LeftOut
    from vrt_lite.ranking.ladder import Ladder, Rated, Standing

_HEADINGS = ("RANK", "CLIP", "RATING", "LOW", "HIGH", "GROUP", *DIMENSIONS, "WON", "TIED", "LOST", "UNDECIDED")
_MOST_LINES = 10
_NARROW, _WIDE = 56, 80
_SCALE = 16


def show_ladders(
    ladders: Sequence[Ladder], left_out: Sequence[LeftOut], *, run: str, stream: TextIO | None = None
) -> None:
    """Print the leaderboard of each group: a table on a terminal, aligned plain lines elsewhere; then what to know."""
    to = stream or sys.stdout
    encoding = to.encoding or "utf-8"
    for number, ladder in enumerate(ladders):
        if number:
            to.write("\n")
        if len(ladders) > 1 or ladder.group:
            to.write(f"{safe(f'{ladder.group or ladder.prompt}:', encoding=encoding)}\n")
        if to.isatty():
            from vrt_lite.display.glyphs import glyphs_for  # noqa: PLC0415
            from vrt_lite.display.terminal import console_on  # noqa: PLC0415 - rich only for a terminal

            console = console_on(to)
            console.print(board(ladder, console.width, glyphs=glyphs_for(console.options), encoding=encoding))
        else:
            _write_plain(ladder, to)
        to.writelines(f"{safe(line, encoding=encoding)}\n" for line in facts(ladder))
    to.writelines(f"{safe(line, encoding=encoding)}\n" for line in _left_out(left_out))
    to.write(f"{safe(f'run: {run}', encoding=encoding)}\n")


def show_winners(
    chosen: Sequence[tuple[str, Sequence[Contestant]]], copies: Sequence[Path], *, stream: TextIO | None = None
) -> None:
    """Print the winners' files, best first, and where they were copied to; nothing if there are none."""
    to = stream or sys.stdout
    targets = iter(copies)
    for group, clips in chosen:
        for place, clip in enumerate(clips, start=1):
            copied = next(targets, None)
            where = f" -> {copied}" if copied else ""
            line = f"winner {place}{f' of {group}' if group else ''}: {clip.path}{where}"
            to.write(f"{safe(line, encoding=to.encoding or 'utf-8')}\n")


def facts(ladder: Ladder) -> Iterator[str]:
    """What to know beside the places, a line each."""
    names = [clip.name for clip in ladder.clips]
    pairs = [pair for pair in ladder.outcomes if pair.preferences]
    yield f"judged: {len(pairs)} of {ladder.possible} pairs, {ladder.judgements} judgement(s)"
    groups = _together(ladder)
    if groups:
        yield from _few([f"cannot be told apart: {', '.join(group)}" for group in groups])
    elif len(ladder.standings) > 1:
        yield "every clip can be told from the next"
    yield from _few([f"goes round: {' > '.join(names[i] for i in (*cycle, cycle[0]))}" for cycle in ladder.cycles])
    if pairs:
        yield _position(ladder.first)
    differing = [pair for pair in pairs if pair.disagreements]
    if differing:
        undecided = sum(pair.preferences[OVERALL].undecided for pair in pairs)
        yield f"orders disagree in {len(differing)} of {len(pairs)} pairs; {undecided} pairs are undecided overall"
        yield from _few([_differing(pair, (names[pair.i], names[pair.j])) for pair in differing])
    if ladder.failures:
        why = next(error for pair in ladder.outcomes for error in pair.errors)
        yield f"warning: {ladder.failures} judgement(s) gave no verdict, for example: {why}"
    yield from _few([f"not ranked: {names[clip]}: {why}" for clip, why in ladder.unranked])
    if not ladder.prompt:
        yield "warning: No prompt was given: alignment was judged without one."


def board(
    ladder: Ladder, width: int, *, glyphs: Glyphs, encoding: str = "utf-8", most: int | None = None
) -> RenderableType:
    """The places as a table no wider than `width`; on a narrow terminal, rank, clip and rating alone.

    `most` rows are shown at most, the best.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("CLIP", overflow="fold", ratio=1 if width < _NARROW else None)
    table.add_column("RATING", justify="right", no_wrap=True)
    if width >= _NARROW:
        table.add_column("95 %", justify="right", no_wrap=True)
    if width >= _WIDE:
        table.add_column("", no_wrap=True)
        for key in DIMENSIONS:
            table.add_column(key, justify="right", no_wrap=True)
    table.add_column("", style="dim", overflow="fold")
    lowest, highest = _span(ladder)
    for standing in ladder.standings[:most]:
        rated = standing.ratings[OVERALL]
        style = "bold" if standing.rank == 1 else ""
        cells: list[Text] = [
            Text(str(standing.rank), style),
            Text(safe(ladder.clips[standing.clip].name, encoding=encoding), style),
            Text(_signed(rated.strength), style),
        ]
        if width >= _NARROW:
            cells.append(Text(f"{_signed(rated.low)} {_signed(rated.high)}", "dim"))
        if width >= _WIDE:
            cells.append(_bar(rated, lowest, highest, glyphs))
            cells += [Text(_signed(standing.ratings[key].strength)) for key in DIMENSIONS]
        cells.append(Text(_joined(standing.together)))
        table.add_row(*cells)
    return table


def _write_plain(ladder: Ladder, to: TextIO) -> None:
    encoding = to.encoding or "utf-8"
    rows = [_HEADINGS, *(_cells(standing, ladder) for standing in ladder.standings)]
    shown = [[safe(cell, encoding=encoding) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        to.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")


def _cells(standing: Standing, ladder: Ladder) -> tuple[str, ...]:
    rated = standing.ratings[OVERALL]
    return (
        str(standing.rank),
        ladder.clips[standing.clip].name,
        *(_signed(value, 2) for value in (rated.strength, rated.low, rated.high)),
        _joined(standing.together),
        *(_signed(standing.ratings[key].strength, 2) for key in DIMENSIONS),
        str(standing.won),
        str(standing.tied),
        str(standing.lost),
        str(standing.undecided),
    )


def _together(ladder: Ladder) -> list[list[str]]:
    """The names in each group of more than one clip that cannot be told apart."""
    groups: dict[str, list[str]] = {}
    for standing in ladder.standings:
        for letter in standing.together:
            groups.setdefault(letter, []).append(ladder.clips[standing.clip].name)
    return [names for names in groups.values() if len(names) > 1]


def _joined(letters: Sequence[str]) -> str:
    return ("," if any(len(letter) > 1 for letter in letters) else "").join(letters)


def _position(first: Rated) -> str:
    """What being shown first is worth, as odds."""
    odds, low, high = (math.exp(max(min(value, 20.0), -20.0)) for value in (first.strength, first.low, first.high))
    found = "no effect found" if low <= 1 <= high else "helps" if odds > 1 else "harms"
    return f"being shown first: {found} (odds x{odds:.2f}, 95 % {low:.2f} to {high:.2f})"


def _differing(pair: Outcome, names: tuple[str, str]) -> str:
    """A pair whose orders choose differently: on what, and what they come to overall."""
    overall = f"; overall {describe(pair.preferences[OVERALL], names)}" if OVERALL in pair.disagreements else ""
    return f"orders disagree: {' and '.join(names)} on {', '.join(pair.disagreements)}{overall}"


def _left_out(left_out: Sequence[LeftOut]) -> Iterator[str]:
    yield from (f"left out: {str(out.path)!r} {out.reason}" for out in left_out if out.broken)
    yield from (f"note: {str(out.path)!r} {out.reason}" for out in left_out if not out.broken)


def _few(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        yield f"and {len(lines) - _MOST_LINES} more of these"


def _span(ladder: Ladder) -> tuple[float, float]:
    rated = [standing.ratings[OVERALL] for standing in ladder.standings]
    return min((r.low for r in rated), default=0.0), max((r.high for r in rated), default=0.0)


def _bar(rated: Rated, lowest: float, highest: float, glyphs: Glyphs) -> Text:
    """The interval as a line, the rating as a block in it."""
    from rich.text import Text

    cells = [" "] * _SCALE
    scale = (_SCALE - 1) / ((highest - lowest) or 1.0)
    low, at, high = (round((value - lowest) * scale) for value in (rated.low, rated.strength, rated.high))
    cells[low : high + 1] = glyphs.rule * (high + 1 - low)
    cells[at] = glyphs.progress[0]
    return Text("".join(cells), "cyan")


def _signed(value: float, digits: int = 1) -> str:
    return f"{round(value, digits) + 0.0:+.{digits}f}"  # no "-0.0"
