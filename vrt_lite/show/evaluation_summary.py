"""Prints an evaluation's figures for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TextIO

from vrt_lite.show.evaluation_words import (
    BASELINES,
    COVERAGE,
    INTERVALS,
    MEASURES,
    describe_cost,
    describe_counts,
    describe_gaps,
    describe_left_out,
    describe_orders,
    describe_other_splits,
    describe_position,
    describe_published,
    describe_shared_prompts,
    format_accuracy,
    format_share,
    list_cuts,
    list_orders,
    list_published,
    name_main,
    name_set,
)
from vrt_lite.show.table import show_table
from vrt_lite.show.words import DIMENSION_NAMES, describe_frame_sizes, describe_warnings
from vrt_lite.show.wrapping import write_lines

if TYPE_CHECKING:
    from vrt_lite.evaluation.figures import Cost, Failures, Figures

_ORDERS: Final = {
    "given": "A shown first",
    "swapped": "B shown first",
    "random": "by chance of each pair",
    "both": "both; the figures are of A shown first unless they say otherwise",
}
_PART: Final = ("JUDGED", "TAU", "DIFF", "ALWAYS TIE", "COMMONEST")
_ROWS = 10


def show_figures(figures: Figures, *, stream: TextIO, judge: str = "", run: str = "") -> None:
    """Print all of the figures for a person, and the names of the judge, with its scope, and of the run if given."""
    write_lines(_head(figures), stream)
    rows = [[DIMENSION_NAMES[key], *format_accuracy(figures, key)] for key in figures.accuracy]
    _table(stream, ["ACCURACY %", *_PART], rows)
    scores = [
        [DIMENSION_NAMES[key], *(format_share(share, digits=0) for share in (of.calibrated, of.sign))]
        for key, of in figures.accuracy.items()
        if of and of.probabilities
    ]
    if scores:
        _table(stream, ["BY PROBABILITIES %", "CALIBRATED", "SIGN"], scores)
    main = name_main(figures).upper()
    write_lines(_notes(figures), stream)
    if cuts := list_cuts(figures, groups=_ROWS):
        if (more := len(figures.groups) - _ROWS) > 0:
            cuts.append([f"and {more} groups more (--json)", *[""] * len(_PART)])
        _table(stream, [f"SUBSET{main}", *_PART], cuts)
    write_lines(_cost(figures.cost), stream)
    if position := describe_position(figures):
        write_lines([position, ""], stream)
    if figures.orders:
        _table(stream, [f"ORDER{main}", *_PART], list_orders(figures.orders))
        write_lines([*describe_orders(figures.orders), ""], stream)
    for measures, rows in list_published(figures):
        _table(stream, ["PUBLISHED, OVERALL", *(name.upper() for name in measures)], rows)
    write_lines(describe_published(figures), stream)
    if others := describe_other_splits(figures):
        write_lines([others], stream)
    write_lines(_failures(figures.failures), stream)
    judge = f"{judge}, {figures.scope}" if judge and figures.scope else judge
    write_lines((f"{what}: {name}" for what, name in (("judge", judge), ("run", run)) if name), stream)


def _head(figures: Figures) -> Iterator[str]:
    yield f"{name_set(figures)}: {describe_counts(figures)}"
    if left_out := describe_left_out(figures):
        yield left_out
    yield f"order: {_ORDERS[figures.order]}"
    yield from (f"warning: {line}" for line in describe_warnings(figures.conditions))
    if sizes := describe_frame_sizes(figures.conditions):
        yield f"warning: {sizes}"
    yield ""


def _notes(figures: Figures) -> Iterator[str]:
    said = [line.split(": ", 1) for line in describe_gaps(figures)]
    for key, of in figures.accuracy.items():
        if not of:
            continue
        name = DIMENSION_NAMES[key]
        if of.failed:
            tau, diff = format_share(of.tau_all), format_share(of.diff_all)
            said.append([name, f"{of.failed} failed counted as wrong: tau {tau}, diff {diff}"])
        if shared := describe_shared_prompts(figures, key):
            said.append(shared.split(": ", 1))
        if of.calibrated.threshold is not None:
            said.append([name, f"calibrated: a tie is |P(A) - P(B)| <= {of.calibrated.threshold:.3g}"])
        if of.probabilities < of.pairs:
            lost = of.pairs - of.probabilities
            said.append([name, f"{lost} verdict(s) came without probabilities and are in tau and diff alone"])
    # What holds for several dimensions is said once.
    names: dict[str, list[str]] = {}
    for name, text in said:
        names.setdefault(text, []).append(name)
    yield from (f"{', '.join(of)}: {text}" for text, of in names.items())
    yield f"judged: {COVERAGE}."
    yield from (f"{name}: {words}." for name, words in MEASURES.items())
    yield f"always tie, commonest answer: {BASELINES}."
    yield INTERVALS
    yield ""


def _cost(cost: Cost) -> Iterator[str]:
    yield from describe_cost(cost)
    if cost.rounds:
        shown = ", ".join(f"{n}: {count}" for n, count in cost.rounds_histogram.items())
        yield f"rounds: {cost.rounds.mean:.2f} on average ({shown})"
    for name, of in (("seconds", cost.seconds), ("tokens", cost.tokens)):
        if of:
            mean, median, p95 = (_amount(value) for value in (of.mean, of.median, of.p95))
            yield f"{name} a judgement: {mean} on average, median {median}, 95 % below {p95}"
    if cost.judgements:
        yield ""


def _failures(failures: Failures) -> Iterator[str]:
    if not failures.counts:
        return
    yield "failed: " + ", ".join(f"{count} {kind}" for kind, count in failures.counts.items())
    for of in failures.first[:_ROWS]:
        yield f"  {of.name}: {of.kind}: {of.why}"
    if (more := sum(failures.counts.values()) - _ROWS) > 0:
        yield f"  and {more} more (--json names 200)"


def _amount(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def _table(stream: TextIO, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    show_table(headings, rows, stream=stream)
    stream.write("\n")
