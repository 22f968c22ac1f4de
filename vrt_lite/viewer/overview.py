"""What the viewer shows of a run before its pairs: a ranking, an evaluation, or what is to know of comparisons."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from vrt_lite.evaluation.evaluate import figures_of
from vrt_lite.measures.flags import describe_flags
from vrt_lite.ranking.ladder import rate_group
from vrt_lite.ranking.rank_run import read_groups, read_rank_about
from vrt_lite.records.judgement import PlainData, to_plain
from vrt_lite.records.labelled import EvalAbout
from vrt_lite.records.ladders import Ladder
from vrt_lite.records.pairs import conditions_of
from vrt_lite.show.evaluation_sections import (
    FigureSection,
    Table,
    describe_pairs,
    list_charts,
    list_sections,
    name_main,
    name_set,
)
from vrt_lite.show.leaderboard import describe_conclusion, list_columns, list_notes
from vrt_lite.show.words import DIMENSION_NAMES, count_of, list_warnings, name_judge, percent
from vrt_lite.viewer.run_view import RunView, describe_better

if TYPE_CHECKING:
    from vrt_lite.records.figures import Figures

_MOST_LISTED = 500
"""How many pairs a browser without scripts lists."""
_NOTES = 20
"""Notes of a kind."""
_GROUPS = 40
_MATRIX_CLIPS = 30


def prepare_overview(view: RunView) -> PlainData:
    """Prepare the overview of a run. Its `table` is for a browser without scripts: a caption, headings and rows."""
    prepare = {"rank": prepare_ranking, "eval": _prepare_evaluation}.get(view.run.kind, _prepare_comparisons)
    first = next((judgement for pair in view.pairs if (judgement := view.run.read_pair(pair))), None)
    overview = {"kind": view.run.kind, "run": view.run.name, **prepare(view)}
    if first:
        record = first.to_json()
        model = {name: record[name] for name in ("model", "profile")}
        overview["details"] = {"Settings": record["settings"], "Model": model}
    return overview


def _prepare_comparisons(view: RunView) -> PlainData:
    failed = sum(pair.overall is None for pair in view.pairs)
    model = view.run.about.get("model", "")
    lines = (f"Judged by {model}" if model else "", f"{failed} without a verdict" if failed else "", view.run.name)
    named = ((view.name_pair(pair), pair) for pair in view.pairs[:_MOST_LISTED])
    table = [[*names, describe_better(pair, names)] for names, pair in named]
    return {
        "title": count_of(len(view.pairs), "comparison"),
        "lines": [line for line in lines if line],
        "warnings": list_warnings(conditions_of(view.run.results())),
        "table": ("Comparisons", ("Video 1", "Video 2", "Better"), table),
    }


def _prepare_evaluation(view: RunView) -> PlainData:
    """Prepare everything that the viewer shows of an evaluation."""
    figures, about = figures_of(view.run), view.run.read_about(EvalAbout, "an evaluation")
    heading, name, sections = _write_heading(figures), name_set(figures), list_sections(figures)
    first = next((table for section in sections for table in section.tables), Table((), ()))
    if about.left_out_rows:
        rows = [[row] for row in about.left_out_rows]
        sections.append(FigureSection("No pair to judge", [Table(("Row of the table, and why",), rows, stacks=True)]))
    return {
        "title": f"{heading}: {name or view.run.name}",
        "heading": heading,
        "lines": [name, name_judge(about.model, figures.scope), view.run.name],
        "lead": "; ".join(describe_pairs(figures)) + ".",
        "warnings": list_warnings(figures.conditions),
        "sections": list(map(asdict, sections)),
        "charts": list(map(asdict, list_charts(figures))),
        "figures": figures.to_json(),
        "table": (heading, first.head, first.rows),
    }


def _write_heading(figures: Figures) -> str:
    """Say how often the judge agrees with people, in which dimension, and on how many of the pairs if not on all."""
    of = figures.accuracy.get(figures.main)
    if not of or of.tau.value is None:
        return "An evaluation"
    of_pairs = f" ({of.pairs} of {count_of(of.labelled, 'pair')})" if of.pairs < of.labelled else ""
    share = percent(of.tau.value).replace("%", "\u00a0%")
    return f"{share} judged as people did{name_main(figures)}{of_pairs}"


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
