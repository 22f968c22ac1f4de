"""The leaderboard of a ranking: a table on a terminal, aligned plain lines elsewhere, and the notes below it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from vrt_lite.measures.flags import describe_flags
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.protocol.verdict import describe
from vrt_lite.show.table import GAP, write_columns
from vrt_lite.show.words import Glyphs, console_on, describe_frame_sizes, describe_warnings, glyphs_for, safe
from vrt_lite.show.wrapping import cut_middle, write_lines

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType
    from rich.text import Text

    from vrt_lite.ranking.clip_groups import RankedClip
    from vrt_lite.ranking.ladder import Ladder, Rated, Standing
    from vrt_lite.ranking.participants import ExcludedClip
    from vrt_lite.records.pairs import JudgedPair, OrderCounts

_RATED = ("RANK", "CLIP", "RATING", "LOW", "HIGH", "GROUP")
_COUNTED = ("WON", "TIED", "LOST", "UNDECIDED")
_MOST_NAMED = 3
_INTERVAL, _SCALE_LINE, _LETTERS, _FLAGGED = "95 %", " ", "", "FLAGGED"
"""Headings of a board: the interval in numbers, the interval drawn on one scale, the groups, and measured faults."""
_LEFT = ("CLIP", _SCALE_LINE, _LETTERS, _FLAGGED)
_ENOUGH = 30
"""Cells for a clip's name below which a board leaves out other columns."""
_SCALE = 16


def show_ladders(
    ladders: Sequence[Ladder],
    left_out: Sequence[ExcludedClip],
    *,
    run: str,
    judge: str = "",
    scope: str = "",
    verbose: bool = False,
    stream: TextIO | None = None,
) -> None:
    """Print the leaderboard of each group, its notes, the clips that were left out, and the judge's and run's names.

    `scope` says what the judge sees. Of many notes of a kind the first three are printed, and all if `verbose`.
    """
    to = stream or sys.stdout
    for number, ladder in enumerate(ladders):
        if number:
            to.write("\n")
        if len(ladders) > 1 or ladder.group:
            write_lines([f"{ladder.group or ladder.prompt}:"], to)
        names = [clip.name for clip in ladder.clips]
        if to.isatty():
            console = console_on(to)
            console.print(draw_board(ladder, console))
            _, names = _choose_columns(ladder, console)
        else:
            headings = (*_RATED, *ladder.judged, *_COUNTED, *([_FLAGGED] if ladder.flagged else []))
            write_columns(headings, [_cells(standing, ladder) for standing in ladder.standings], to)
        write_lines(_notes(ladder, names, None if verbose else _MOST_NAMED), to)
    write_lines((f"left out: {str(out.path)!r} {out.reason}" for out in left_out if out.broken), to)
    write_lines((f"note: {str(out.path)!r} {out.reason}" for out in left_out if not out.broken), to)
    named = f"judge: {judge}, {scope}" if scope else f"judge: {judge}"
    write_lines([*([named] if judge else []), f"run: {run}"], to)


def show_conclusions(ladders: Sequence[Ladder], *, stream: TextIO | None = None) -> None:
    """Print one line for each group: the best clip, those that are as good, and those that are flagged.

    "Best: a.mp4. As good: b.mp4. Flagged: c.mp4 (stutter)."
    """
    for ladder in ladders:
        if line := describe_conclusion(ladder):
            group = f"{ladder.group}: " if ladder.group else ""
            write_lines([f"{group}{line}"], stream or sys.stdout)


def describe_conclusion(ladder: Ladder) -> str:
    """Say which clip is best, which are as good and which are flagged, at most three each; empty without a verdict."""
    names = [clip.name for clip in ladder.clips]
    flagged = [f"{names[i]} ({', '.join(flag.fault for flag in ladder.clips[i].flags)})" for i in ladder.flagged]
    best, *alike = [names[i] for i in ladder.best] or [""]
    parts = (("Best", [best] if best else []), ("As good", alike), ("Flagged", flagged))
    return " ".join(f"{what}: {name_first(which)}." for what, which in parts if which)


def name_first(names: Sequence[str]) -> str:
    """Return the first three names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def show_winners(
    chosen: Sequence[tuple[str, Sequence[RankedClip]]], copies: Sequence[Path], *, stream: TextIO | None = None
) -> None:
    """Print the winners' files, best first, and where they were copied to."""
    targets = iter(copies)
    for group, clips in chosen:
        for place, clip in enumerate(clips, start=1):
            copy = next(targets, None)
            of_group, copied = f" of {group}" if group else "", f" -> {copy}" if copy else ""
            write_lines([f"winner {place}{of_group}: {clip.path}{copied}"], stream or sys.stdout)


def draw_board(ladder: Ladder, console: Console, most: int | None = None) -> RenderableType:
    """Return the places as a table that fits the console. `most` limits the rows to the best."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    columns, names = _choose_columns(ladder, console, most=most)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for heading in columns:
        folds = heading in (_LETTERS, _FLAGGED)
        table.add_column(heading.strip(), justify="left" if heading in _LEFT else "right", no_wrap=not folds)
    for number, standing in enumerate(ladder.standings[:most]):
        style = "bold" if standing.rank == 1 else ""
        row = {heading: cells[number] for heading, cells in columns.items()}
        row["CLIP"].append(names[standing.clip], style)
        row["RATING"].stylize(style)
        table.add_row(*row.values())
    more = len(ladder.standings) - len(ladder.standings[:most])
    return Group(table, Text(f"and {more} more", "dim")) if more else table


def _choose_columns(
    ladder: Ladder, console: Console, *, most: int | None = None
) -> tuple[dict[str, list[Text]], list[str]]:
    """Choose the columns of a board. Returns the cells by heading, and the names of all clips as the board shows them.

    Long names take the room that there is, then that of the scale, the dimensions, the interval and the flags, in this
    order. A name that is still too long loses its middle.
    """
    from rich.cells import cell_len
    from rich.text import Text

    glyphs = glyphs_for(console.options)
    columns: dict[str, list[Text]] = {
        heading: [] for heading in ("#", "CLIP", "RATING", _INTERVAL, _SCALE_LINE, *ladder.judged, _LETTERS)
    } | ({_FLAGGED: []} if ladder.flagged else {})
    for standing in ladder.standings[:most]:
        rated = standing.ratings[OVERALL]
        columns["#"].append(Text(str(standing.rank)))
        columns["CLIP"].append(Text())
        columns["RATING"].append(Text(_signed(rated.strength)))
        interval = "" if rated.low is None else " ".join(map(_signed, rated.span))
        columns[_INTERVAL].append(Text(interval, "dim"))
        columns[_SCALE_LINE].append(_interval(rated, ladder, glyphs))
        for key in ladder.judged:
            columns[key].append(Text(_signed(standing.ratings[key].strength)))
        columns[_LETTERS].append(Text(_letters(standing), "dim", overflow="fold"))
        if ladder.flagged:
            columns[_FLAGGED].append(Text(describe_flags(ladder.clips[standing.clip].flags), "yellow"))
    names = [safe(clip.name, encoding=console.encoding) for clip in ladder.clips]
    enough = min(max(map(cell_len, names), default=0), _ENOUGH)
    widths = {heading: max(map(cell_len, [heading, *map(str, cells)])) for heading, cells in columns.items()}
    for headings in ((), (_SCALE_LINE,), ladder.judged, (_INTERVAL,), (_FLAGGED,)):
        for heading in headings:
            columns.pop(heading, None)
        room = console.width - sum(widths[heading] + GAP for heading in columns if heading != "CLIP")
        if room >= enough:
            break
    return columns, [cut_middle(name, max(room, len("CLIP")), ellipsis=glyphs.ellipsis) for name in names]


def _interval(rated: Rated, ladder: Ladder, glyphs: Glyphs) -> Text:
    """Return the interval as a line, the rating as a block in it, on one scale for the ladder."""
    from rich.text import Text

    ratings = [standing.ratings[OVERALL] for standing in ladder.standings]
    lowest, highest = min(r.span[0] for r in ratings), max(r.span[1] for r in ratings)
    scale = (_SCALE - 1) / ((highest - lowest) or 1.0)
    low, at, high = (round((value - lowest) * scale) for value in (rated.span[0], rated.strength, rated.span[1]))
    cells = [" "] * _SCALE
    cells[low : high + 1] = glyphs.rule * (high + 1 - low)
    cells[at] = glyphs.block
    return Text("".join(cells), "cyan")


def _cells(standing: Standing, ladder: Ladder) -> tuple[str, ...]:
    rated = standing.ratings[OVERALL]
    return (
        str(standing.rank),
        ladder.clips[standing.clip].name,
        *("" if value is None else _signed(value, 2) for value in (rated.strength, rated.low, rated.high)),
        _letters(standing),
        *(_signed(standing.ratings[key].strength, 2) for key in ladder.judged),
        *map(str, (standing.won, standing.tied, standing.lost, standing.undecided)),
        *([describe_flags(ladder.clips[standing.clip].flags)] if ladder.flagged else []),
    )


def _notes(ladder: Ladder, names: Sequence[str], most: int | None) -> Iterator[str]:
    """Yield the notes below the places, a line each, with the clips' names as the board shows them."""
    pairs = {clips: pair for clips, pair in ladder.pairs.items() if pair.joined}
    if ladder.first is None:
        yield f"scored: {ladder.judgements} clips, each by itself; the other order of a pair is its mirror"
    else:
        yield f"judged: {len(pairs)} of {ladder.possible} pairs, {ladder.judgements} judgement(s)"
    if groups := _equal_groups(ladder, names):
        yield from _first_lines([f"cannot be told apart: {', '.join(group)}" for group in groups], most)
    elif len(ladder.standings) > 1 and ladder.first:
        yield "every clip can be told from the next"
    cycles = [" > ".join(names[clip] for clip in (*cycle, cycle[0])) for cycle in ladder.cycles]
    yield from _first_lines([f"goes round: {cycle}" for cycle in cycles], most)
    if pairs and ladder.first:
        yield _position_effect(ladder.first)
    if differing := [(pair, (names[i], names[j])) for (i, j), pair in pairs.items() if pair.disagreements]:
        yield _describe_orders(ladder.orders)
        yield from _first_lines([_disagreement(*of) for of in differing], most)
    if ladder.failures:
        why = next(error for pair in ladder.pairs.values() for error in pair.errors)
        yield f"warning: {ladder.failures} judgement(s) gave no verdict, for example: {why}"
    yield from _first_lines([f"not ranked: {names[clip]}: {why}" for clip, why in ladder.unranked], most)
    yield from (f"warning: {line}" for line in describe_warnings(ladder.conditions))
    if sizes := describe_frame_sizes(ladder.conditions):
        yield f"warning: {sizes}"


def _equal_groups(ladder: Ladder, names: Sequence[str]) -> list[list[str]]:
    """Return the names in each group of more than one clip that cannot be told apart."""
    groups: dict[str, list[str]] = {}
    for standing in ladder.standings:
        for letter in standing.letters:
            groups.setdefault(letter, []).append(names[standing.clip])
    return [group for group in groups.values() if len(group) > 1]


def _letters(standing: Standing) -> str:
    """Return the letters of the groups that a clip is in."""
    return ("," if any(len(letter) > 1 for letter in standing.letters) else "").join(standing.letters)


def _position_effect(first: Rated) -> str:
    """Say how much it helps to be shown first, as odds."""
    odds, low, high = (math.exp(max(min(value, 20.0), -20.0)) for value in (first.strength, *first.span))
    effect = "no effect found" if low <= 1 <= high else "helps" if odds > 1 else "harms"
    return f"being shown first: {effect} (odds x{odds:.2f}, 95 % {low:.2f} to {high:.2f})"


def _describe_orders(orders: OrderCounts) -> str:
    """Say in how many pairs the two orders choose differently, overall and by dimension."""
    overall = f"overall in {orders.differ[OVERALL]} of {orders.pairs} pairs judged in both"
    undecided = f"{orders.undecided[OVERALL]} of them undecided"
    dimensions = ", ".join(
        f"{key} in {count}" + (f" of {orders.judged[key]}" if orders.judged[key] < orders.pairs else "")
        for key, count in orders.differ.items()
        if key != OVERALL
    )
    return f"orders disagree {overall}, {undecided}; {dimensions}"


def _disagreement(pair: JudgedPair, names: tuple[str, str]) -> str:
    """Say where the two orders of a pair choose differently, and the overall result."""
    overall = f"; overall {describe(pair.preferences[OVERALL], names)}" if OVERALL in pair.disagreements else ""
    return f"orders disagree: {' and '.join(names)} on {', '.join(pair.disagreements)}{overall}"


def _first_lines(lines: Sequence[str], most: int | None) -> Iterator[str]:
    yield from lines[:most]
    if more := len(lines[len(lines) if most is None else most :]):
        yield f"and {more} more of these: -v lists them"


def _signed(value: float, digits: int = 1) -> str:
    return f"{round(value, digits) + 0.0:+.{digits}f}"  # no "-0.0"
