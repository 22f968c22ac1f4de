"""A ranking as the viewer draws it: each group's ladder, what is said of it in words, and the matrix of wins."""

from __future__ import annotations

from vrt_lite.measures.flags import describe_flags
from vrt_lite.ranking.ladder import rate_group
from vrt_lite.ranking.rank_run import read_groups, read_rank_about
from vrt_lite.records.judgement import PlainData, to_plain
from vrt_lite.records.ladders import Ladder
from vrt_lite.show.leaderboard import describe_conclusion, list_columns, list_notes
from vrt_lite.show.words import DIMENSION_NAMES, list_warnings, name_judge
from vrt_lite.viewer.run_view import RunView

_NOTES = 20
"""Notes of a kind."""
_GROUPS = 40
_MATRIX_CLIPS = 30


def prepare_ranking(view: RunView) -> PlainData:
    """Prepare everything that the viewer shows of a ranking."""
    ladders = [rate_group(group) for group in read_groups(view.run)]
    title, leader, about = f"{len(ladders)} groups ranked", "", read_rank_about(view.run)
    if len(ladders) == 1:
        [ladder] = ladders
        firsts = [standing.name for standing in ladder.standings if standing.rank == 1]
        leader = firsts[0] if len(firsts) == 1 else ""
        title = f"{len(firsts)} clips share the first place" if firsts else "Nothing ranked yet"
        title = f"{leader} {'is best' if len(ladder.best) == 1 else 'leads'}" if leader else title
    judge = name_judge(about.model, about.scope)
    places = [
        [ladder.group, *cells[:3]] for ladder in ladders for cells in zip(*list_columns(ladder).values(), strict=True)
    ]
    return {
        "title": title,
        "leader": leader,
        "lines": [_describe_counts(ladders), *([f"Judged by {judge}."] if judge else [])],
        "groups": [describe_ladder(of) | {"matrix": _make_matrix(view, of)} for of in ladders[:_GROUPS]],
        "group_count": len(ladders),
        "left_out": [{"path": str(out.path), "reason": out.reason} for out in about.left_out],
        "names": DIMENSION_NAMES,
        "table": (title, ("Group", "Place", "Clip", "Rating"), places),
    }


def describe_ladder(ladder: Ladder, *, most: int | None = None) -> PlainData:
    """Describe a ladder, without its pairs, and what is said of it in words. `most` limits it to the best clips."""
    record = ladder.to_json(pairs=False)
    if most is not None:
        record["standings"] = record["standings"][:most]
        record["clips"] = {of["clip"]: record["clips"][of["clip"]] for of in record["standings"]}
    flags = {number: describe_flags(ladder.clips[number].flags) for number in ladder.flagged}
    words = {
        "conclusion": describe_conclusion(ladder),
        "warnings": list_warnings(ladder.conditions),
        "flags": flags,
        "notes": list(list_notes(ladder, most=_NOTES)),
    }
    return {"ladder": record, "words": words}


def _describe_counts(ladders: list[Ladder]) -> str:
    """Say how many clips, pairs and judgements there are."""
    clips = sum(len(ladder.clips) for ladder in ladders)
    pairs, possible = sum(len(ladder.pairs) for ladder in ladders), sum(ladder.possible_pairs for ladder in ladders)
    failed = sum(ladder.failures for ladder in ladders)
    words = f"{clips} clips · {pairs} of {possible} pairs · {sum(ladder.judgements for ladder in ladders)} judgements"
    return f"{words}, {failed} without a verdict" if failed else words


def _make_matrix(view: RunView, ladder: Ladder) -> PlainData:
    """Make the matrix of the best clips: the judged pairs of them, with their numbers."""
    best = [standing.clip for standing in ladder.standings][:_MATRIX_CLIPS]
    pairs = [pair for pair in ladder.pairs if set(pair.clips) <= set(best)]
    numbers = [view.numbers.get((frozenset(ladder.clips[n].sha256 for n in of.clips), ladder.prompt)) for of in pairs]
    return {"clips": best, "pairs": to_plain(pairs), "numbers": numbers}
