"""What the viewer shows of a run before its pairs: a ranking, an evaluation, or what is to know of comparisons."""

from __future__ import annotations

from typing import Any

from vrt_lite.records.conditions import conditions_of
from vrt_lite.show.words import count_of, list_warnings
from vrt_lite.viewer.evaluation_view import prepare_evaluation
from vrt_lite.viewer.ranking_view import prepare_ranking
from vrt_lite.viewer.run_view import RunView, describe_better

_MOST_LISTED = 500
"""How many pairs a browser without scripts lists."""


def prepare_overview(view: RunView) -> dict[str, Any]:
    """Prepare the overview of a run. Its `table` is for a browser without scripts: a caption, headings and rows."""
    prepare = {"rank": prepare_ranking, "eval": prepare_evaluation}.get(view.run.kind, _prepare_comparisons)
    first = next((judgement for pair in view.pairs if (judgement := view.run.read_pair(pair))), None)
    overview = {"kind": view.run.kind, "run": view.run.name, **prepare(view)}
    if first:
        record = first.to_json()
        model = {name: record[name] for name in ("model", "profile")}
        overview["details"] = {"Settings": record["settings"], "Model": model}
    return overview


def _prepare_comparisons(view: RunView) -> dict[str, Any]:
    failed = sum(pair.overall is None for pair in view.pairs)
    model = view.run.about.get("model", "")
    lines = (f"Judged by {model}" if model else "", f"{failed} without a verdict" if failed else "", view.run.name)
    named = ((view.name_pair(pair), pair) for pair in view.pairs[:_MOST_LISTED])
    table = [[*names, describe_better(pair, names)] for names, pair in named]
    title = count_of(len(view.pairs), "comparison")
    return {
        "title": title,
        "heading": title,
        "lead": "",
        "lines": [line for line in lines if line],
        "warnings": list_warnings(conditions_of(view.run.results())),
        "table": ("Comparisons", ("Video 1", "Video 2", "Better"), table),
    }
