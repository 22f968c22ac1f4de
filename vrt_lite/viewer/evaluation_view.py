"""An evaluation as the viewer draws it: its figures as they are, and the tables and sentences that show them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from vrt_lite.evaluation.cases import read_eval_about
from vrt_lite.evaluation.evaluate import figures_of
from vrt_lite.show import evaluation_words as words
from vrt_lite.show.evaluation_charts import list_charts, list_confusion
from vrt_lite.show.words import (
    DIMENSION_NAMES,
    capitalize_first,
    count_of,
    describe_frame_sizes,
    describe_warnings,
    percent,
)
from vrt_lite.viewer.run_view import RunView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vrt_lite.evaluation.figures import Figures

_PART = ("Judged", "tau", "diff", "Always tie", "Commonest answer")


def prepare_evaluation(view: RunView) -> dict[str, Any]:
    """Prepare everything that the viewer shows of an evaluation."""
    figures, about = figures_of(view.run), read_eval_about(view.run)
    heading, left_out = _write_heading(figures), words.describe_left_out(figures)
    judge = f"{about.model}, {figures.scope}" if figures.scope else about.model
    counts = f"{words.describe_counts(figures)}{f'; {left_out}' if left_out else ''}"
    sizes = describe_frame_sizes(figures.conditions)
    accuracy = _list_accuracy(figures)
    return {
        "title": f"{heading}: {words.name_set(figures) or view.run.name}",
        "heading": heading,
        "lines": [words.name_set(figures), judge, view.run.name],
        "lead": f"{counts}. Order: {figures.order}. {words.INTERVALS}",
        "warnings": [*describe_warnings(figures.conditions), *([f"Warning: {sizes}."] if sizes else [])],
        "sections": [section for section in _list_sections(figures, about.left_out_rows) if len(section) > 1],
        "figures": figures.to_json(),
        "table": (heading, accuracy["head"], accuracy["rows"]),
    }


def _list_sections(figures: Figures, left_out: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the sections of the page. What a section has nothing of is left out of it."""
    notes = [
        *(("", line) for line in _sentences(words.describe_gaps(figures))),
        ("judged", f"{words.COVERAGE}."),
        *((name, f"{meaning}.") for name, meaning in words.MEASURES.items()),
        ("always tie, commonest answer", f"{words.BASELINES}."),
        *(("", line) for line in _sentences(words.describe_shared_prompts(figures, key) for key in figures.accuracy)),
    ]
    yield {"title": "Beside people's labels", "tables": [_list_accuracy(figures)], "notes": notes}
    published = [
        _table(f"Published, {' and '.join(measures)}", ("Model", *measures), rows)
        for measures, rows in words.list_published(figures)
    ]
    other = words.describe_other_splits(figures)
    found = [*map(capitalize_first, words.describe_published(figures)), *([other] if other else [])]
    yield _section("Beside the published table", tables=published, lines=found)
    main = words.name_main(figures)
    cuts = words.list_cuts(figures)
    yield _section(f"By part{main}", tables=[_table("By part", ("Part", *_PART), cuts)] if cuts else [])
    charts = [asdict(chart) for chart in list_charts(figures) if len(chart.rows) > 1]
    counts = list_confusion(figures)
    pairs = f"{count_of(sum(map(sum, counts)), 'pair')}{main}"
    confusion = {"title": "Labels and verdicts", "subtitle": pairs, "counts": counts} if counts else None
    yield _section("Plots", charts=charts, confusion=confusion)
    costs = words.list_costs(figures.cost)
    table = [_table("Cost", ("A judgement", "mean", "median", "95th percentile"), costs)] if costs else []
    yield _section("What a judgement takes", tables=table, lines=_sentences(words.describe_cost(figures.cost)))
    lines, orders = [words.describe_position(figures)], list[dict[str, Any]]()
    if figures.orders:
        orders = [_table(f"By order{main}", ("Order", *_PART), words.list_orders(figures.orders))]
        lines += words.describe_orders(figures.orders)
    yield _section("Who is shown first", tables=orders, lines=_sentences(lines))
    yield _list_failures(figures, left_out)


def _list_failures(figures: Figures, left_out: Sequence[str]) -> dict[str, Any]:
    """List what could not be judged, and why."""
    counts, failures = figures.failures.counts, figures.failures.first
    lines = [", ".join(f"{kind}: {count}" for kind, count in counts.items())] if counts else []
    rows = [[f"{failure.name} ({failure.order})", failure.kind, failure.why] for failure in failures]
    if (more := sum(counts.values()) - len(failures)) > 0:
        lines.append(f"And {more} more.")
    title = f"Rows of the table that are no pair to judge ({sum(figures.left_out.values())})"
    table = [_table("Failures", ("Pair", "Kind", "Why"), rows) | {"stacks": True}] if rows else []
    return _section(
        "What could not be judged", tables=table, lines=lines, folds=[(title, left_out)] if left_out else []
    )


def _section(title: str, **parts: Any) -> dict[str, Any]:
    return {"title": title} | {name: part for name, part in parts.items() if part}


def _table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, Any]:
    return {"caption": caption, "head": head, "rows": rows}


def _sentences(lines: Iterable[str]) -> list[str]:
    return [f"{capitalize_first(line)}." for line in lines if line]


def _write_heading(figures: Figures) -> str:
    """Say how often the judge agrees with people, in which dimension, and on how many of the pairs if not on all."""
    of = figures.accuracy.get(figures.main)
    if not of or of.tau.value is None:
        return "An evaluation"
    of_pairs = f" ({of.pairs} of {count_of(of.labelled, 'pair')})" if of.pairs < of.labelled else ""
    share = percent(of.tau.value).replace("%", "\u00a0%")
    return f"{share} judged as people did{words.name_main(figures)}{of_pairs}"


def _list_accuracy(figures: Figures) -> dict[str, Any]:
    rows: list[list[str]] = []
    for key in figures.accuracy:
        own = DIMENSION_NAMES[key]
        for name, *cells in words.list_accuracy(figures, key):
            rows.append([f"{own}, {name}" if name else own, *cells])
    return _table("Accuracy", ("Dimension", "Judged", *words.MEASURES), rows)
