"""What the viewer shows of a run before its pairs: a ranking, an evaluation, or what is to know of comparisons."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from vrt_lite.evaluation.evaluate import figures_of
from vrt_lite.records.conditions import conditions_of
from vrt_lite.records.judgement import PlainData
from vrt_lite.records.labelled import EvalAbout
from vrt_lite.show.evaluation_sections import (
    FigureSection,
    Table,
    describe_pairs,
    list_charts,
    list_sections,
    name_main,
    name_set,
)
from vrt_lite.show.words import count_of, list_warnings, name_judge, percent
from vrt_lite.viewer.ranking_view import prepare_ranking
from vrt_lite.viewer.run_view import RunView, describe_better

if TYPE_CHECKING:
    from vrt_lite.records.figures import Figures

_MOST_LISTED = 500
"""How many pairs a browser without scripts lists."""


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
