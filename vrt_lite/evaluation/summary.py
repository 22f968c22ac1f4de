"""An evaluation's figures in words and tables. Knows how they read best; computes nothing.

Tables that are wider than the terminal become one line a figure. What comes from a table (names, reasons) is escaped.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TextIO

from vrt_lite.display import safe
from vrt_lite.display.table import show_table
from vrt_lite.evaluation.wording import (
    call_set,
    tell_baselines,
    tell_other_splits,
    tell_part_baselines,
    tell_shared_prompts,
    tell_table_baselines,
)

_NAMES: Final = {"OA": "overall", "TA": "alignment (TA)", "VQ": "visual quality (VQ)", "MQ": "motion quality (MQ)"}
_ORDERS: Final = {
    "given": "A shown first",
    "swapped": "B shown first",
    "random": "by chance of each pair",
    "both": "both; the figures are of A shown first unless they say otherwise",
}
_MEASURES: Final = (("tau", "TAU"), ("diff", "DIFF"), ("calibrated", "CALIBRATED"), ("sign", "SIGN"))
_LEGEND: Final = (
    "tau: three classes, ties count. diff: pairs labelled a tie are left out. Both from the verdicts.",
    "calibrated: as tau, from P(A) - P(B), its tie threshold fitted on these same pairs (Deutsch et al. 2023): an "
    "upper estimate. sign: as diff, from the sign of P(A) - P(B).",
    "always tie, commonest answer: what saying a tie of every pair gets, and the label that most of them have (for "
    "diff A or B); in the tables below as tau / diff.",
    "In brackets 95 % intervals: Wilson's; of a difference a bootstrap over prompts.",
)
_PART: Final = ("PAIRS", "TAU", "DIFF", "ALWAYS TIE", "COMMONEST")
_FAILURES = 10


def show_figures(figures: Mapping[str, Any], *, stream: TextIO) -> None:
    """Print all of the figures for a person."""
    _lines(stream, _head(figures))
    accuracy: Mapping[str, Any] = figures["accuracy"]
    rows: list[list[str]] = []
    for key, of in accuracy.items():
        rows.append([_NAMES[key], str(of["pairs"]), *(_share(of[name]) for name, _ in _MEASURES)])
        rows += [[f"  {name}", "", tau, diff, "", ""] for name, tau, diff in tell_baselines(figures, key, _share)]
    _table(stream, ["ACCURACY %", "PAIRS", *(title for _, title in _MEASURES)], rows)
    _lines(stream, _notes(figures))
    if cut := _cuts(figures):
        _table(stream, ["SUBSET", *_PART], cut)
    _lines(stream, _cost(figures["cost"]))
    _lines(stream, _position(figures))
    if figures["orders"]:
        _table(stream, ["ORDER", *_PART], _order_rows(figures["orders"]))
        _lines(stream, _effect(figures["orders"]))
    if known := figures["published"]:
        if known["models"]:
            _table(stream, ["PUBLISHED, OVERALL", "TAU", "DIFF"], _published(figures))
            _lines(stream, [f"source: {known['source']}"])
        if others := tell_other_splits(figures):
            _lines(stream, [others])
    _lines(stream, _failures(figures["failures"]))


def _head(figures: Mapping[str, Any]) -> Iterator[str]:
    pairs: Mapping[str, int] = figures["pairs"]
    left = f", {pairs['left']} not judged yet" if pairs["left"] else ""
    yield f"{call_set(figures)}: {pairs['judged']} of {pairs['chosen']} pairs judged, {pairs['failed']} failed{left}"
    if out := ", ".join(f"{count} {kind}" for kind, count in figures["left_out"].items() if count):
        yield f"rows of the table left out: {out}"
    yield f"order: {_ORDERS[figures['order']]}"
    yield ""


def _notes(figures: Mapping[str, Any]) -> Iterator[str]:
    accuracy: Mapping[str, Any] = figures["accuracy"]
    for key, of in accuracy.items():
        if of["failed"]:
            tau, diff = _share(of["tau_all"]), _share(of["diff_all"])
            yield f"{_NAMES[key]}, {of['failed']} failed counted as wrong: tau {tau}, diff {diff}"
        if shared := tell_shared_prompts(_NAMES[key], of):
            yield shared
        if of["pairs"] and of["calibrated"].get("threshold") is not None:
            yield f"{_NAMES[key]}, calibrated: a tie is |P(A) - P(B)| <= {of['calibrated']['threshold']:.3g}"
        if of["probabilities"] < of["pairs"]:
            lost = of["pairs"] - of["probabilities"]
            yield f"{_NAMES[key]}: {lost} verdict(s) came without probabilities and are in tau and diff alone"
    yield from _LEGEND
    yield ""


def _cuts(figures: Mapping[str, Any]) -> list[list[str]]:
    """Subsets, bands and groups in one table."""
    units = {"clip": "s", "prompt": "characters"}
    rows: list[list[str]] = []
    for of in figures["subsets"]:
        rows.append([f"{of['name']} (hard): from {of['from']:g} {units[of['of']]}", *_row(of)])
    for kind, bands in figures["bands"].items():
        if len(bands) > 1:
            rows += [[f"{kind} {b['low']:g} to {b['high']:g} {units[kind]}", *_row(b)] for b in bands]
    groups = figures["groups"]
    rows += [[f"group {of['name']}", *_row(of)] for of in groups[:_FAILURES]]
    if len(groups) > _FAILURES:
        rows.append([f"and {len(groups) - _FAILURES} groups more (--json)", "", "", "", "", ""])
    return rows


def _row(of: Mapping[str, Any]) -> list[str]:
    return [str(of["pairs"]), _share(of["tau"]), _share(of["diff"]), *tell_part_baselines(of["baselines"], _value)]


def _cost(cost: Mapping[str, Any]) -> Iterator[str]:
    if not cost["judgements"]:
        return
    yield f"tool rate: {_share(cost['tool_rate'])} % of {cost['judgements']} judgements asked for frames"
    if cost["recommended"]["right"]:
        yield f"only recommended, without a final answer: {_share(cost['recommended'])} %"
    shown = ", ".join(f"{n}: {count}" for n, count in cost["rounds_histogram"].items())
    yield f"rounds: {cost['rounds']['mean']:.2f} on average ({shown})"
    for name in ("seconds", "tokens"):
        of = cost[name]
        mean, median, p95 = (_amount(of[kind]) for kind in ("mean", "median", "p95"))
        yield f"{name} a judgement: {mean} on average, median {median}, 95 % below {p95}"
    yield ""


def _position(figures: Mapping[str, Any]) -> Iterator[str]:
    position: Mapping[str, Any] = figures["position"]
    if position["verdicts"]["of"]:
        by_labels = f"; {_share(position['labels'])} % by the labels" if position["labels"]["of"] else ""
        yield f"the video shown first wins {_share(position['verdicts'])} % of the verdicts that are no tie{by_labels}"
        yield ""


def _order_rows(orders: Mapping[str, Any]) -> list[list[str]]:
    names = {"given": "A first", "swapped": "B first", "averaged": "averaged"}
    return [[shown, *_row(orders[name])] for name, shown in names.items() if name in orders]


def _effect(orders: Mapping[str, Any]) -> Iterator[str]:
    if effect := orders.get("effect"):
        if effect["pairs"]:
            change = f"{100 * effect['tau']:+.1f} ({100 * effect['low']:+.1f} to {100 * effect['high']:+.1f})"
            yield f"effect of B first on tau: {change} points, over {effect['pairs']} pairs judged in both orders"
        disagree: Mapping[str, Any] = orders["disagree"]
        if undecided := orders["averaged"].get("undecided"):
            yield f"averaged, {undecided} pair(s) are undecided, as the orders name opposite winners: never right"
        yield "orders disagree, % of pairs: " + ", ".join(f"{key} {_share(of)}" for key, of in disagree.items())
    yield ""


def _published(figures: Mapping[str, Any]) -> list[list[str]]:
    rows = [
        [name, f"{100 * tau:.1f}", f"{100 * diff:.1f}"] for name, (tau, diff) in figures["published"]["models"].items()
    ]
    own = figures["accuracy"].get("OA")
    pairs: Mapping[str, int] = figures["pairs"]
    part = "" if pairs["judged"] == pairs["chosen"] else f", {pairs['judged']} pairs"
    if own:
        rows.append([f"this run{part}", _share(own["tau"]), _share(own["diff"])])
    rows += [list(row) for row in tell_table_baselines(figures, "OA", _share)]
    return rows


def _failures(failures: Mapping[str, Any]) -> Iterator[str]:
    counts: Mapping[str, int] = failures["counts"]
    if not counts:
        return
    yield "failed: " + ", ".join(f"{count} {kind}" for kind, count in counts.items())
    for of in failures["first"][:_FAILURES]:
        yield f"  {of['name']}: {of['kind']}: {of['why']}"
    if (more := sum(counts.values()) - _FAILURES) > 0:
        yield f"  and {more} more (--json names 200)"


def _share(share: Mapping[str, Any]) -> str:
    if share["value"] is None:
        return "-"
    return f"{_value(share)} ({_range(share['low'], share['high'])})"


def _value(share: Mapping[str, Any]) -> str:
    return "-" if share["value"] is None else f"{100 * share['value']:.1f}"


def _range(low: float, high: float) -> str:
    return f"{100 * low:.1f}-{100 * high:.1f}"


def _amount(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def _table(stream: TextIO, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table, or on a terminal that is too narrow for it a line a figure."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    if stream.isatty() and sum(widths) + 4 * len(widths) > shutil.get_terminal_size().columns:
        for row in rows:
            named = zip(headings[1:], row[1:], strict=True)
            inner = " " * (len(row[0]) - len(row[0].lstrip()) + 2)
            _lines(stream, [row[0], *(f"{inner}{heading.lower()} {cell}" for heading, cell in named if cell)])
    else:
        show_table(headings, rows, stream=stream)
    stream.write("\n")


def _lines(stream: TextIO, lines: Iterator[str] | Sequence[str]) -> None:
    width = shutil.get_terminal_size().columns if stream.isatty() else 0
    for line in lines:
        shown = safe(line, encoding=stream.encoding or "utf-8")
        own = shown[: len(shown) - len(shown.lstrip())]
        wrapped = textwrap.wrap(shown, width, subsequent_indent=f"{own}  ") if len(shown) > width > 20 else [shown]
        stream.writelines(f"{part}\n" for part in wrapped)
