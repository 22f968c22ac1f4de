"""The page of a ranking: the leading clip, the ladder with intervals, and the win matrix, overall and per dimension.

Prepares what `templates/ranking.html` shows beside the ladders themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrt_lite.measures.flags import describe_flags
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.protocol.verdict import NOT_JUDGED, describe, odds_of
from vrt_lite.ranking.clip_groups import ClipGroup, RankedClip
from vrt_lite.ranking.ladder import Ladder, Standing, rate_group
from vrt_lite.ranking.rank_run import read_groups, read_rank_about
from vrt_lite.records.pairs import JudgedPair
from vrt_lite.show.leaderboard import describe_conclusion
from vrt_lite.show.pages.frame_album import EmbeddedFrame
from vrt_lite.show.pages.run_material import RunMaterial
from vrt_lite.show.words import DIMENSION_NAMES

_CYCLES = 20
_GROUPS = 40
_MATRIX_CLIPS = 30


@dataclass(frozen=True, slots=True)
class _LadderRow:
    """A clip's row in a ladder. `fresh` means that it can be told from the clip above; `flags` are those in words."""

    standing: Standing
    clip: RankedClip
    poster: EmbeddedFrame | None
    fresh: bool
    flags: str


@dataclass(frozen=True, slots=True)
class _Cell:
    """The row's clip against the column's; without `words` they were not judged. `page` is the number of the pair."""

    words: str = ""
    side: str = ""
    label: str = ""
    page: int | None = None
    same: bool = False


@dataclass(frozen=True, slots=True)
class _Board:
    """A group rated by one key: the ladder, its scale in log odds, and the matrix of the best clips."""

    key: str
    title: str
    rows: tuple[_LadderRow, ...]
    scale: tuple[float, float]
    matrix: tuple[tuple[RankedClip, tuple[_Cell, ...]], ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """One group. `leading` are the names of the clips that cannot be told from the best one, that one first."""

    ladder: Ladder
    leading: tuple[str, ...]
    boards: tuple[_Board, ...]
    cycles: tuple[tuple[RankedClip, ...], ...]
    conclusion: str

    @property
    def share_letters(self) -> bool:
        """Whether there are clips that cannot be told apart."""
        return len({standing.letters for standing in self.ladder.standings}) < len(self.ladder.standings)


def prepare_ranking(material: RunMaterial) -> dict[str, Any]:
    """Prepare everything that the template shows of a ranking."""
    rated = read_groups(material.run) or _group_by_prompt(material)
    ladders = [rate_group(group) for group in rated]
    groups = [_prepare_group(material, group, ladder) for group, ladder in zip(rated[:_GROUPS], ladders, strict=False)]
    title, leader, about = f"{len(ladders)} groups ranked", "", read_rank_about(material.run)
    if len(ladders) == 1:
        leading = groups[0].leading
        leader = leading[0] if leading else ""
        title = f"{leader} {'is best' if len(leading) == 1 else 'leads'}" if leading else "Nothing ranked yet"
    return {
        "title": title,
        "leader": leader,
        "counts": _describe_counts(ladders),
        "groups": groups,
        "group_count": len(ladders),
        "left_out": about.left_out,
        "judge": ", ".join(part for part in (about.model, about.scope) if part),
    }


def _group_by_prompt(material: RunMaterial) -> tuple[ClipGroup, ...]:
    """Make a group of the judged clips for each prompt, for a run that names no groups."""
    by: dict[str, dict[str, None]] = {}
    for pair in material.pairs:
        by.setdefault(pair.prompt, {}).update(dict.fromkeys((pair.first, pair.second)))
    results = list(material.run.results())
    groups: list[ClipGroup] = []
    for prompt, clips in by.items():
        names = [(material.names.get(sha256, sha256[:12]), sha256) for sha256 in clips]
        groups.append(ClipGroup("", prompt, tuple(RankedClip(name, Path(name), sha256) for name, sha256 in names)))
        groups[-1].add_stored(results)
    return tuple(groups)


def _describe_counts(ladders: list[Ladder]) -> str:
    """Say how many clips, pairs and judgements there are."""
    clips = sum(len(ladder.clips) for ladder in ladders)
    pairs, possible = sum(len(ladder.pairs) for ladder in ladders), sum(ladder.possible for ladder in ladders)
    failed = sum(ladder.failures for ladder in ladders)
    words = f"{clips} clips · {pairs} of {possible} pairs · {sum(ladder.judgements for ladder in ladders)} judgements"
    return f"{words}, {failed} without a verdict" if failed else words


def _prepare_group(material: RunMaterial, group: ClipGroup, ladder: Ladder) -> _Group:
    clips = ladder.clips
    return _Group(
        ladder,
        tuple(clips[clip].name for clip in ladder.best),
        tuple(_prepare_board(material, group, ladder, key) for key in (OVERALL, *ladder.judged)),
        tuple(tuple(clips[clip] for clip in (*cycle, cycle[0])) for cycle in ladder.cycles[:_CYCLES]),
        describe_conclusion(ladder),
    )


def _prepare_board(material: RunMaterial, group: ClipGroup, ladder: Ladder, key: str) -> _Board:
    standings = list(ladder.standings)
    if key != OVERALL:
        standings.sort(key=lambda s: (-s.ratings[key].strength, s.rank))
    rows: list[_LadderRow] = []
    above: set[str] = set()
    for standing in standings:
        clip, letters = ladder.clips[standing.clip], set(standing.letters)
        fresh = key != OVERALL or not above & letters
        rows.append(_LadderRow(standing, clip, _find_poster(material, clip), fresh, describe_flags(clip.flags)))
        above = letters
    rated = [standing.ratings[key] for standing in standings]
    best = [standing.clip for standing in ladder.standings][:_MATRIX_CLIPS]
    pairs = ladder.pairs
    return _Board(
        key,
        DIMENSION_NAMES[key],
        tuple(rows),
        (min((r.span[0] for r in rated), default=-1.0), max((r.span[1] for r in rated), default=1.0)),
        tuple((ladder.clips[i], tuple(_prepare_cell(material, group, pairs, (i, j), key) for j in best)) for i in best),
    )


def _find_poster(material: RunMaterial, clip: RankedClip) -> EmbeddedFrame | None:
    shown = material.shown.get(clip.sha256)
    source = min(shown.first, default=None) if shown else None
    return material.album.show(shown.clip, source) if shown and source is not None else None


def _prepare_cell(
    material: RunMaterial,
    group: ClipGroup,
    pairs: Mapping[tuple[int, int], JudgedPair],
    clips: tuple[int, int],
    key: str,
) -> _Cell:
    """Prepare a cell: the probability that the row's clip is better, half of a tie's counted for it."""
    i, j = clips
    if i == j:
        return _Cell(same=True)
    pair = pairs.get((min(i, j), max(i, j)))
    if pair is None:
        return _Cell()
    a, b = group.clips[i], group.clips[j]
    words, side, result = ("–", "none", NOT_JUDGED) if pair.joined else ("?", "none", "no verdict")
    if preference := pair.preferences.get(key):
        own = preference if i < j else preference.mirrored()
        tie, share, _ = odds_of(own.winner, own.odds)
        words, side = f"{100 * (share + tie / 2):.0f}", ("w1", "w2", "w0")[own.winner]
        result = describe(own, (a.name, b.name)) if own.undecided else ("tied", "won", "lost")[own.winner]
    mark = "*" if key in pair.disagreements else ""
    label = f"{a.name} against {b.name}: {words} per cent, {result}{', the orders disagree' if mark else ''}"
    return _Cell(words + mark, side, label, material.numbers.get((a.sha256, b.sha256, group.prompt)))
