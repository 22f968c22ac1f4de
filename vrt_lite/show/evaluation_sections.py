"""What an evaluation's figures say, in sections of tables and lines: a terminal prints them, the report draws them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from vrt_lite.protocol.messages import OVERALL
from vrt_lite.protocol.verdict import NOT_JUDGED
from vrt_lite.show.table import show_table
from vrt_lite.show.words import DIMENSION_NAMES, count_of, list_warnings, name_judge, percent
from vrt_lite.show.wrapping import write_lines

if TYPE_CHECKING:
    from vrt_lite.records.figures import Band, Baselines, Cost, Coverage, Figures, OrderFigures, Part, Share

MEASURES: Final = {
    "tau": "three classes, ties count; from the verdicts",
    "diff": "pairs labelled a tie are left out; from the verdicts",
    "calibrated": "as tau, from P(A) - P(B), its tie threshold fitted on these same pairs (Deutsch et al. 2023): an "
    "upper estimate",
    "sign": "as diff, from the sign of P(A) - P(B)",
}
"""The measures of accuracy, and how each counts."""
_NOTES: Final = {
    "judged": "the pairs judged in a dimension, of those labelled in it; its figures are of these alone",
    **MEASURES,
    "always tie, commonest": "the accuracy of a tie for every pair, and of the label that most of them have (for diff "
    "A or B), as tau / diff",
    "in brackets": "95 % intervals, by Wilson's method; for a difference, by a bootstrap over prompts",
}
_ORDERS: Final = {
    "given": "A shown first",
    "swapped": "B shown first",
    "random": "by chance of each pair",
    "both": "both; the figures are of A shown first unless they say otherwise",
}
_PART: Final = ("judged", "tau", "diff", "always tie", "commonest")
_UNITS: Final = {"clip": "s", "prompt": "characters"}
_ANSWERS: Final = {1: " A", 2: " B", 0: " tie", None: ""}
_ROWS: Final = 10


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below headings; the first heading names the table. On a narrow page the cells of one that `stacks` do so."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    stacks: bool = False


@dataclass(frozen=True, slots=True)
class FigureSection:
    """A part of the page of an evaluation: tables, then lines, then notes."""

    title: str
    tables: Sequence[Table]
    lines: Sequence[str] = ()
    notes: Sequence[str] = ()


def show_figures(figures: Figures, *, stream: TextIO, judge: str = "", run: str = "") -> None:
    """Print all of the figures for a person, and the names of the judge, with its scope, and of the run if given."""
    warnings = [f"warning: {line}" for line in list_warnings(figures.conditions)]
    write_lines([f"{name_set(figures)}: {describe_counts(figures)}", *describe_rows(figures), *warnings, ""], stream)
    for section in list_sections(figures, most=_ROWS):
        for table in section.tables:
            show_table([name.upper() for name in table.head], table.rows, stream=stream)
            stream.write("\n")
        if lines := [*section.lines, *section.notes]:
            write_lines([*lines, ""], stream)
    named = {"judge": name_judge(judge, figures.scope), "run": run}
    write_lines((f"{what}: {name}" for what, name in named.items() if name), stream)


def list_sections(figures: Figures, *, most: int | None = None) -> list[FigureSection]:
    """List what the figures say; of groups and failures `most` are listed. What there is nothing of is left out."""
    main, orders, failures = name_main(figures), figures.orders, figures.failures
    failed = [[f"{of.name} ({of.order})", of.kind, of.why] for of in failures.first[:most]]
    unnamed = sum(failures.counts.values()) - len(failed)
    sections = (
        FigureSection("Beside people's labels", _list_accuracy(figures), (), _list_notes(figures)),
        FigureSection("Beside the published table", *_list_published(figures)),
        FigureSection("By part", [Table((f"Subset{main}", *_PART), list(_list_parts(figures, most)))]),
        FigureSection(
            "What a judgement takes",
            [Table(("A judgement takes", "mean", "median", "95th percentile"), list(_list_costs(figures.cost)))],
            list(_describe_cost(figures.cost)),
        ),
        FigureSection(
            "Who is shown first",
            [Table((f"Order{main}", *_PART), _list_orders(orders))] if orders else [],
            [*_describe_position(figures), *(_describe_orders(orders) if orders else ())],
        ),
        FigureSection(
            "What could not be judged",
            [Table(("Failed", "kind", "why"), failed, stacks=True)],
            list(_describe_failures(figures, unnamed)),
        ),
    )
    told = (
        FigureSection(of.title, [table for table in of.tables if table.rows], of.lines, of.notes) for of in sections
    )
    return [of for of in told if of.tables or of.lines]


def name_set(figures: Figures) -> str:
    """Name the set and its split."""
    return f"{figures.title}, split {figures.split}" if figures.split else figures.title


def name_main(figures: Figures) -> str:
    """Name the dimension that the tables by part and by order are about, after a comma; empty if it is the overall."""
    return "" if figures.main == OVERALL else f", {DIMENSION_NAMES[figures.main]}"


def name_band(kind: str, band: Band) -> str:
    """Name a quarter of the pairs by the length of "clip" or "prompt"."""
    return f"{kind} {band.low:g} to {band.high:g} {_UNITS[kind]}"


def describe_counts(figures: Figures) -> str:
    """Say how many pairs were judged, failed, or are left to judge."""
    pairs = figures.pairs
    left = f", {pairs.left} left to judge" if pairs.left else ""
    return f"{pairs.judged} of {count_of(pairs.chosen, 'pair')} judged, {pairs.failed} failed{left}"


def describe_rows(figures: Figures) -> list[str]:
    """Say how many rows of the table are no pair to judge, if any, and which clip was shown first."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in figures.left_out.items() if count)
    return [*([f"rows of the table left out: {kinds}"] if kinds else []), f"order: {_ORDERS[figures.order]}"]


def _format_share(share: Share, *, digits: int = 1) -> str:
    """Format a share in per cent with its interval, that with so many digits after the point."""
    if share.value is None:
        return "-"
    return f"{_format_value(share)} ({100 * share.low:.{digits}f}-{100 * share.high:.{digits}f})"


def _format_value(share: Share) -> str:
    return "-" if share.value is None else f"{100 * share.value:.1f}"


def _format_baselines(of: Baselines) -> list[str]:
    return [f"{_format_value(answer.tau)} / {_format_value(answer.diff)}" for answer in (of.tie, of.commonest)]


def _list_accuracy(figures: Figures) -> list[Table]:
    """List coverage, tau, diff and baselines of each dimension, and what is computed from probabilities.

    The baselines are of the judged pairs; of the table before any is judged. None stands beside a dimension that the
    judge left out of every verdict: there is nothing to compare.
    """
    rows: list[list[str]] = []
    scores: list[list[str]] = []
    for key, of in figures.accuracy.items():
        name, coverage = DIMENSION_NAMES[key], figures.coverage[key]
        known = of.baselines if of else None if coverage.not_judged else figures.baselines.get(key)
        shares = [_format_share(share, digits=0) for share in (of.tau, of.diff)] if of else [NOT_JUDGED, ""]
        baselines = _format_baselines(known) if known else ["", ""]
        rows.append([name, f"{coverage.pairs} of {coverage.labelled}", *shares, *baselines])
        if of and of.probabilities:
            scores.append([name, *(_format_share(share, digits=0) for share in (of.calibrated, of.sign))])
    return [Table(("Accuracy %", *_PART), rows), Table(("By probabilities %", "calibrated", "sign"), scores)]


def _list_notes(figures: Figures) -> list[str]:
    """List what is to know of dimensions, what holds for several once, and what each column is."""
    names: dict[str, list[str]] = {}
    for key in figures.accuracy:
        for text in _list_gaps(figures, key):
            names.setdefault(text, []).append(DIMENSION_NAMES[key])
    return [f"{', '.join(of)}: {text}" for text, of in names.items()] + [f"{of}: {text}" for of, text in _NOTES.items()]


def _list_gaps(figures: Figures, key: str) -> Iterator[str]:
    coverage, of = figures.coverage[key], figures.accuracy[key]
    if coverage.not_judged:
        pairs = f"{coverage.not_judged} of {count_of(coverage.labelled, 'pair')}"
        yield f"{pairs} not judged; they are left out of its figures"
    if not of:
        return
    if of.undecided:
        yield f"{of.undecided} of {count_of(of.pairs, 'pair')} undecided, which never counts as right"
    if of.failed:
        tau, diff = _format_share(of.tau_all), _format_share(of.diff_all)
        yield f"{of.failed} failed counted as wrong: tau {tau}, diff {diff}"
    if of.prompts != of.pairs:
        independent = (
            "pairs of one prompt are not independent, as the intervals take them to be, so those are too narrow"
        )
        yield f"{of.pairs} pairs have {count_of(of.prompts, 'prompt')}; {independent}"
    if of.calibrated.threshold is not None:
        yield f"calibrated: a tie is |P(A) - P(B)| <= {of.calibrated.threshold:.3g}"
    if of.probabilities < of.pairs:
        yield f"{of.pairs - of.probabilities} verdict(s) came without probabilities and are in tau and diff alone"


def _list_published(figures: Figures) -> tuple[list[Table], list[str]]:
    """List the published figures beside this run's, for the measures from verdicts and for those from scores.

    The baselines of the whole table stand beside the first. The lines say where they are from, and what was found.
    """
    known, own, pairs = figures.published, figures.accuracy.get(OVERALL), figures.pairs
    if not known:
        return [], []
    run = "this run" if pairs.judged == pairs.chosen else f"this run, {count_of(pairs.judged, 'pair')}"
    tables: list[Table] = []
    for measures in (("tau", "diff"), ("calibrated", "sign")):
        rows: list[list[str]] = []
        for model in known.models:
            values = [known.find_value(model, measure) for measure in measures]
            if any(values):
                rows.append([model, *("-" if value is None else f"{100 * value:.1f}" for value in values)])
        if rows and own:
            rows.append([run, *(_format_share(getattr(own, measure)) for measure in measures)])
        if rows and not tables and (whole := figures.baselines.get(OVERALL)):
            of, answers = f", all {count_of(whole.pairs, 'pair')}", (whole.commonest.tau, whole.commonest.diff)
            rows.append([f"always tie{of}", _format_share(whole.tie.tau), _format_share(whole.tie.diff)])
            named = [f"{_format_share(share)}{_ANSWERS[share.answer] if share.of else ''}" for share in answers]
            rows.append([f"commonest answer{of}", *named])
        tables.append(Table(("Published, overall", *measures), rows))
    noted: dict[str, dict[str, None]] = {}
    for figure in known.figures:
        if figure.note:
            noted.setdefault(figure.note, {})[figure.model] = None
    lines = [f"source: {source}" for source in dict.fromkeys(figure.source for figure in known.figures)]
    lines += [*(f"{', '.join(models)}: {note}" for note, models in noted.items()), *known.left_out]
    if known.other_splits and not known.figures:
        splits = ", ".join(known.other_splits)
        this = f"not of {figures.split}" if figures.split else "and this table's name does not tell which it is of"
        lines.append(
            f"Published figures of this set are of split {splits}, {this}: they are not comparable with these."
        )
    return tables, lines


def _list_parts(figures: Figures, most: int | None) -> Iterator[list[str]]:
    """Yield the rows of subsets, bands and groups."""
    for of in figures.subsets:
        yield _list_part(f"{of.name} (hard): from {of.least:g} {_UNITS[of.of]}", of)
    for kind, bands in figures.bands.items():
        yield from (_list_part(name_band(kind, band), band) for band in (bands if len(bands) > 1 else ()))
    yield from (_list_part(f"group {of.name}", of) for of in figures.groups[:most])
    if most and len(figures.groups) > most:
        yield [f"and {len(figures.groups) - most} groups more (--json)", *[""] * len(_PART)]


def _list_part(name: str, of: Part) -> list[str]:
    """List a name, coverage, tau, diff, and both baselines as "tau / diff"."""
    if of.labelled and not of.pairs:
        return [name, _format_coverage(of), NOT_JUDGED, "", "", ""]
    return [name, _format_coverage(of), _format_share(of.tau), _format_share(of.diff), *_format_baselines(of.baselines)]


def _format_coverage(of: Coverage) -> str:
    return f"{of.pairs} of {of.labelled} ({percent(of.pairs / of.labelled)})" if of.labelled else "0 of 0"


def _list_costs(cost: Cost) -> Iterator[list[str]]:
    spreads = {"rounds": cost.rounds, "calls": cost.calls, "seconds": cost.seconds, "tokens": cost.tokens}
    for name, of in spreads.items():
        if of:
            yield [name, *(f"{value:.4g}" for value in (of.mean, of.median, of.p95))]


def _describe_cost(cost: Cost) -> Iterator[str]:
    """Say how often the judge asked for frames, ended on a recommendation, and how many rounds it took."""
    if not cost.judgements:
        return
    yield f"tool rate: {_format_share(cost.tool_rate)} % of {count_of(cost.judgements, 'judgement')} asked for frames"
    if cost.recommended.right:
        yield f"only recommended, without a final answer: {_format_share(cost.recommended)} %"
    if cost.rounds_histogram:
        yield f"judgements by rounds: {', '.join(f'{n}: {count}' for n, count in cost.rounds_histogram.items())}"


def _describe_position(figures: Figures) -> Iterator[str]:
    position = figures.position
    if position.verdicts.of:
        labels = f"; {_format_share(position.labels)} % by the labels" if position.labels.of else ""
        yield f"the video shown first wins {_format_share(position.verdicts)} % of the verdicts that are no tie{labels}"


def _list_orders(orders: OrderFigures) -> list[list[str]]:
    parts = {"A first": orders.given, "B first": orders.swapped, "averaged": orders.averaged}
    return [_list_part(name, part) for name, part in parts.items() if part]


def _describe_orders(orders: OrderFigures) -> Iterator[str]:
    if (effect := orders.effect) and effect.tau is not None:
        change = f"{100 * effect.tau:+.1f} ({100 * effect.low:+.1f} to {100 * effect.high:+.1f})"
        pairs = count_of(effect.pairs, "pair")
        yield f"effect of B first on tau: {change} points, over {pairs} judged in both orders"
    if orders.averaged and (count := orders.averaged.undecided):
        are = f"{count_of(count, 'pair')} {'is' if count == 1 else 'are'}"
        yield f"averaged, {are} undecided, as the orders name opposite winners: never counted as right"
    if orders.disagree:
        shares = (
            f"{key} {f'{_format_share(of)} of {of.of}' if of else NOT_JUDGED}" for key, of in orders.disagree.items()
        )
        yield f"orders disagree, % of pairs judged in both: {', '.join(shares)}"


def _describe_failures(figures: Figures, unnamed: int) -> Iterator[str]:
    if counts := figures.failures.counts:
        yield "failed: " + ", ".join(f"{count} {kind}" for kind, count in counts.items())
    if unnamed > 0:
        yield f"and {unnamed} more (--json names 200)"
