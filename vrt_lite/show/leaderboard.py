"""The leaderboard of a ranking: a table on a terminal, aligned plain lines elsewhere, and the notes below it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from vrt_lite.measures.flags import describe_flags
from vrt_lite.protocol.messages import DIMENSIONS, OVERALL
from vrt_lite.protocol.verdict import describe
from vrt_lite.show.words import (
    GAP,
    Glyphs,
    begin_table,
    console_on,
    cut_middle,
    glyphs_for,
    list_warnings,
    name_judge,
    print_columns,
    print_lines,
    safe,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from vrt_lite.records.ladders import ExcludedClip, Ladder, LadderPair, RankedClip, Rated

_CLIP, _SCALE, _GROUP, _FLAGGED = "CLIP", "95 %", "GROUP", "FLAGGED"
_COUNTED = ("WON", "TIED", "LOST", "UNDECIDED")
_SPARE: Final = (_COUNTED, (_SCALE,), DIMENSIONS, ("LOW", "HIGH"), (_FLAGGED,))
"""The columns that a board leaves out for long names, in this order."""
_STYLES: Final = {"LOW": "dim", "HIGH": "dim", _SCALE: "cyan", _GROUP: "dim", _FLAGGED: "yellow"}
_MOST_NAMED = 3
_ENOUGH = 28
"""Cells for a clip's name below which a board leaves out other columns."""
_CELLS = 16
"""Cells of the scale on which a board draws intervals."""


def show_ladders(
    ladders: Sequence[Ladder],
    left_out: Sequence[ExcludedClip],
    *,
    run: str,
    judge: str,
    scope: str = "",
    verbose: bool = False,
) -> None:
    """Print the leaderboard of each group, its notes, the clips that were left out, and the judge's and run's names.

    `scope` says what the judge sees. Of many notes of a kind the first three are printed, and all if `verbose`.
    """
    for number, ladder in enumerate(ladders):
        if number:
            print()
        if len(ladders) > 1 or ladder.group:
            print_lines([f"{ladder.group or ladder.prompt}:"])
        if sys.stdout.isatty() and ladder.standings:
            console = console_on(sys.stdout)
            console.print(draw_board(ladder, console))
        else:
            print_columns([[heading, *cells] for heading, cells in list_columns(ladder).items()])
        print_lines(list_notes(ladder, most=None if verbose else _MOST_NAMED))
        print_lines(f"warning: {line}" for line in list_warnings(ladder.conditions))
    print_lines(f"{'left out' if out.broken else 'note'}: {str(out.path)!r} {out.reason}" for out in left_out)
    print_lines([f"judge: {name_judge(judge, scope)}", f"run: {run}"])


def show_conclusions(ladders: Sequence[Ladder]) -> None:
    """Print one line for each group: the best clip, those that are as good, and those that are flagged.

    "Best: a.mp4. As good: b.mp4. Flagged: c.mp4 (stutter)."
    """
    for ladder in ladders:
        if line := describe_conclusion(ladder):
            group = f"{ladder.group}: " if ladder.group else ""
            print_lines([f"{group}{line}"])


def describe_conclusion(ladder: Ladder) -> str:
    """Say which clip is best, which are as good and which are flagged, at most three each; empty without a verdict."""
    names = [clip.name for clip in ladder.clips]
    flagged = [f"{names[i]} ({', '.join(flag.fault for flag in ladder.clips[i].flags)})" for i in ladder.flagged]
    best = [names[i] for i in ladder.best]
    parts = {"Best": best[:1], "As good": best[1:], "Flagged": flagged}
    return " ".join(f"{what}: {name_first(which)}." for what, which in parts.items() if which)


def name_first(names: Sequence[str]) -> str:
    """Return the first three names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def show_winners(chosen: Sequence[tuple[str, Sequence[RankedClip]]], copies: Sequence[Path]) -> None:
    """Print the winners' files, best first, and where they were copied to."""
    targets = iter(copies)
    for group, clips in chosen:
        for place, clip in enumerate(clips, start=1):
            copy = next(targets, None)
            of_group, copied = f" of {group}" if group else "", f" -> {copy}" if copy else ""
            print_lines([f"winner {place}{of_group}: {clip.path}{copied}"])


def list_columns(ladder: Ladder, most: int | None = None, *, glyphs: Glyphs | None = None) -> dict[str, list[str]]:
    """List the cells of a leaderboard by heading, a cell a place; of `most` places at most.

    With `glyphs` the intervals are drawn too, and numbers are rounded for it. A column without a value is left out.
    """
    standings, digits = ladder.standings[:most], 1 if glyphs else 2
    overall = [of.ratings[OVERALL] for of in standings]

    def sign(values: Iterable[float | None]) -> list[str]:
        # Adding 0 makes no "-0.0".
        return ["" if value is None else f"{round(value, digits) + 0.0:+.{digits}f}" for value in values]

    columns = {
        "RANK": [str(of.rank) for of in standings],
        _CLIP: [of.name for of in standings],
        "RATING": sign(of.strength for of in overall),
        "LOW": sign(of.low for of in overall),
        "HIGH": sign(of.high for of in overall),
        _SCALE: _draw_intervals(overall, glyphs) if glyphs else [],
        # Letters of two characters are told apart by commas.
        _GROUP: [("," if any(len(letter) > 1 for letter in of.letters) else "").join(of.letters) for of in standings],
        **{key: sign(of.ratings[key].strength for of in standings) for key in ladder.judged},
        **{heading: [str(getattr(of, heading.lower())) for of in standings] for heading in _COUNTED},
        _FLAGGED: [describe_flags(ladder.clips[of.clip].flags) for of in standings],
    }
    return {heading: cells for heading, cells in columns.items() if any(cells)}


def draw_board(ladder: Ladder, console: Console, most: int | None = None) -> Table:
    """Return the places as a table that fits the console. `most` limits the rows to the best.

    Long names take the room that there is, then that of `_SPARE`. One that is still too long loses its middle.
    """
    from rich.cells import cell_len

    glyphs = glyphs_for(console.options)
    columns = list_columns(ladder, most, glyphs=glyphs)
    names = [safe(name, encoding=console.encoding) for name in columns.pop(_CLIP, [])]
    widths = {heading: GAP + max(map(cell_len, [heading, *cells])) for heading, cells in columns.items()}
    enough, room = min(max(map(cell_len, names), default=0), _ENOUGH), console.width - sum(widths.values())
    for headings in _SPARE:
        if room < enough:
            room += sum(widths.pop(heading, 0) for heading in headings)
    columns[_CLIP] = [cut_middle(name, max(room, len(_CLIP)), ellipsis=glyphs.ellipsis) for name in names]
    shown = ["RANK", _CLIP, *list(widths)[1:]]
    table = begin_table()
    for heading in shown:
        justify = "left" if heading in (_CLIP, _SCALE, _GROUP, _FLAGGED) else "right"
        table.add_column(heading, justify=justify, style=_STYLES.get(heading), overflow="fold")
    for rank, *cells in zip(*(columns[heading] for heading in shown), strict=True):
        table.add_row(rank, *cells, style="bold" if rank == "1" else "")
    if more := len(ladder.standings) - table.row_count:
        table.caption = f"and {more} more"
    return table


def _draw_intervals(overall: Sequence[Rated], glyphs: Glyphs) -> list[str]:
    """Draw each interval as a line, the rating as a block in it, all on one scale."""
    ends = [end for rated in overall for end in rated.span]
    scale = (_CELLS - 1) / ((max(ends) - min(ends)) or 1.0)
    drawn: list[str] = []
    for rated in overall:
        values = (rated.span[0], rated.strength, rated.span[1])
        low, at, high = (round((value - min(ends)) * scale) for value in values)
        drawn.append(" " * low + glyphs.rule * (at - low) + glyphs.block + glyphs.rule * (high - at))
    return drawn


def list_notes(ladder: Ladder, *, most: int | None = None) -> Iterator[str]:
    """Yield what is to know of a ladder, a line each; of a kind of notes `most`, then how many more there are."""
    names, orders = [clip.name for clip in ladder.clips], ladder.orders
    pairs = [pair for pair in ladder.pairs if pair.preferences]
    if ladder.first is None:
        yield f"scored: {ladder.judgements} clips, each by itself; the other order of a pair is its mirror"
    else:
        yield f"judged: {len(pairs)} of {ladder.possible_pairs} pairs, {ladder.judgements} judgement(s)"
    if groups := _list_alike(ladder):
        yield from _list_first([f"cannot be told apart: {', '.join(group)}" for group in groups], most)
    elif len(ladder.standings) > 1 and ladder.first:
        yield "every clip can be told from the next"
    cycles = [" > ".join(names[clip] for clip in (*cycle, cycle[0])) for cycle in ladder.cycles]
    yield from _list_first([f"goes round: {cycle}" for cycle in cycles], most)
    if pairs and ladder.first:
        yield _describe_position(ladder.first)
    if differing := [pair for pair in pairs if pair.disagreements]:
        counts = (f"{key} in {count} of {orders.judged[key]}" for key, count in orders.differ.items())
        undecided = f"{orders.undecided[OVERALL]} undecided overall"
        yield f"orders disagree, of the pairs judged in both: {', '.join(counts)}; {undecided}"
        yield from _list_first([_describe_disagreement(pair, names) for pair in differing], most)
    if ladder.failures:
        why = next(error for pair in ladder.pairs for error in pair.errors)
        yield f"warning: {ladder.failures} judgement(s) gave no verdict, for example: {why}"
    yield from _list_first([f"not ranked: {of.name}: {of.reason}" for of in ladder.unranked], most)


def _list_alike(ladder: Ladder) -> list[list[str]]:
    """List the names in each group of more than one clip that cannot be told apart."""
    groups: dict[str, list[str]] = {}
    for standing in ladder.standings:
        for letter in standing.letters:
            groups.setdefault(letter, []).append(standing.name)
    return [group for group in groups.values() if len(group) > 1]


def _describe_position(first: Rated) -> str:
    """Say how much it helps to be shown first, as odds."""
    odds, low, high = (math.exp(max(min(value, 20.0), -20.0)) for value in (first.strength, *first.span))
    effect = "no effect found" if low <= 1 <= high else "helps" if odds > 1 else "harms"
    return f"being shown first: {effect} (odds x{odds:.2f}, 95 % {low:.2f} to {high:.2f})"


def _describe_disagreement(pair: LadderPair, names: Sequence[str]) -> str:
    """Say where the two orders of a pair choose differently, and the overall result."""
    one, two = (names[clip] for clip in pair.clips)
    overall = f"; overall {describe(pair.preferences[OVERALL], (one, two))}" if OVERALL in pair.disagreements else ""
    return f"orders disagree: {one} and {two} on {', '.join(pair.disagreements)}{overall}"


def _list_first(lines: Sequence[str], most: int | None) -> Iterator[str]:
    yield from lines[:most]
    if most is not None and len(lines) > most:
        yield f"and {len(lines) - most} more of these: -v lists them"
