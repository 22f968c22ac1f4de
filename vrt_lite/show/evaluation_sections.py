"""What an evaluation's figures say, in tables, lines and charts: a terminal prints them, the report draws them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from vrt_lite.advice import install_extra
from vrt_lite.errors import UsageError
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.protocol.verdict import NOT_JUDGED
from vrt_lite.records.figures import Measure, Part
from vrt_lite.show.words import (
    DIMENSION_NAMES,
    LINE,
    PAPER,
    SIDE_COLOURS,
    count_of,
    list_warnings,
    name_judge,
    print_lines,
    show_table,
)

if TYPE_CHECKING:
    from vrt_lite.records.figures import Accuracy, Coverage, Figures, Share

Mark = Literal["tau", "diff", "other"]
"""What a row of a chart shows: a measure that counts ties, one that leaves them out, or something else than the judge.
"""
_MEASURES: Final[tuple[str, ...]] = get_args(Measure)
_MARKS: Final[tuple[Mark, ...]] = ("tau", "diff")
_COLOURS: Final = dict(zip(("other", "tau", "diff"), SIDE_COLOURS, strict=True))
_ABOUT: Final = "% right with 95 % intervals; tau and calibrated count ties, diff and sign do not; grey: other"
_WIDTH, _DPI = 8.8, 200
_NOTES: Final = (
    "judged: the pairs judged in a dimension, of those labelled in it; its figures are of these alone",
    "tau: three classes, ties count; from the verdicts",
    "diff: pairs labelled a tie are left out; from the verdicts",
    "calibrated: as tau, from P(A) - P(B), its tie threshold fitted on these same pairs (Deutsch et al. 2023): an "
    "upper estimate",
    "sign: as diff, from the sign of P(A) - P(B)",
    "always tie, commonest: the accuracy of a tie for every pair, and of the label that most of them have (for diff "
    "A or B), as tau / diff",
    "in brackets: 95 % intervals, by Wilson's method; for a difference, by a bootstrap over prompts",
)
_ORDERS: Final = {
    "given": "A shown first",
    "swapped": "B shown first",
    "random": "by chance of each pair",
    "both": "both; the figures are of A shown first unless they say otherwise",
}
_PART: Final = ("judged", "tau", "diff", "always tie", "commonest")
_UNITS: Final = {"clip": "s", "prompt": "characters"}
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


@dataclass(frozen=True, slots=True)
class ChartRow:
    """A share from 0 to 1 and its interval, if it has one. `words` say both."""

    label: str
    value: float
    low: float | None
    high: float | None
    words: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class Chart:
    """Some shares on one scale from 0 to 1; its name is a dimension's key."""

    name: str
    title: str
    subtitle: str
    rows: Sequence[ChartRow]


def show_figures(figures: Figures, *, judge: str, run: str) -> None:
    """Print all of the figures for a person, and the names of the judge, with its scope, and of the run."""
    counts, *lines = describe_pairs(figures)
    warnings = (f"warning: {line}" for line in list_warnings(figures.conditions))
    print_lines([f"{name_set(figures)}: {counts}", *lines, *warnings, ""])
    for section in list_sections(figures, most=_ROWS):
        for table in section.tables:
            show_table([name.upper() for name in table.head], table.rows)
            print()
        if lines := [*section.lines, *section.notes]:
            print_lines([*lines, ""])
    print_lines([f"judge: {name_judge(judge, figures.scope)}", f"run: {run}"])


def list_sections(figures: Figures, *, most: int | None = None) -> list[FigureSection]:
    """List what the figures say; of groups and failures `most` are listed. What there is nothing of is left out."""
    main, found = name_main(figures), list[FigureSection]()
    failed = [[f"{of.name} ({of.order})", of.kind, of.why] for of in figures.failures.first[:most]]

    def add(title: str, *tables: Table, lines: Iterable[str] = (), notes: Sequence[str] = ()) -> None:
        section = FigureSection(title, [table for table in tables if table.rows], list(lines), notes)
        if section.tables or section.lines:
            found.append(section)

    gaps = ((DIMENSION_NAMES[key], text) for key in figures.accuracy for text in _list_gaps(figures, key))
    add("Beside people's labels", *_list_accuracy(figures), notes=[*_say_once(gaps), *_NOTES])
    published = Table(("Published, overall", *_MEASURES), [*_list_published(figures)])
    add("Beside the published table", published, lines=_describe_published(figures))
    add("By part", Table((f"Subset{main}", *_PART), [*_list_parts(figures, most)]))
    spreads = ((name, getattr(figures.cost, name)) for name in ("rounds", "calls", "seconds", "tokens"))
    costs = [[name, f"{of.mean:.4g}", f"{of.median:.4g}", f"{of.p95:.4g}"] for name, of in spreads if of]
    heads = ("A judgement takes", "mean", "median", "95th percentile")
    add("What a judgement takes", Table(heads, costs), lines=_describe_costs(figures))
    of = figures.orders
    parts = {"A first": of.given, "B first": of.swapped, "averaged": of.averaged} if of else {}
    orders = Table((f"Order{main}", *_PART), [_list_part(name, part) for name, part in parts.items() if part])
    add("Who is shown first", orders, lines=_describe_orders(figures))
    failures = Table(("Failed", "kind", "why"), failed, stacks=True)
    add("What could not be judged", failures, lines=_describe_failures(figures, len(failed)))
    return found


def name_set(figures: Figures) -> str:
    """Name the set and its split."""
    return f"{figures.title}, split {figures.split}" if figures.split else figures.title


def name_main(figures: Figures) -> str:
    """Name the dimension that the tables by part and by order are about, after a comma; empty if it is the overall."""
    return "" if figures.main == OVERALL else f", {DIMENSION_NAMES[figures.main]}"


def describe_pairs(figures: Figures) -> Iterator[str]:
    """Say how many pairs were judged, which rows of the table are no pair to judge, and which clip was shown first."""
    pairs = figures.pairs
    left = f", {pairs.left} left to judge" if pairs.left else ""
    yield f"{pairs.judged} of {count_of(pairs.chosen, 'pair')} judged, {pairs.failed} failed{left}"
    if kinds := ", ".join(f"{count} {kind}" for kind, count in figures.left_out.items() if count):
        yield f"rows of the table left out: {kinds}"
    yield f"order: {_ORDERS[figures.order]}"


def _format_share(share: Share) -> str:
    """Format a share in per cent with its interval: "66.7 (39-86)"; "-" if it is of nothing."""
    if share.value is None:
        return "-"
    return f"{_format_value(share)} ({100 * share.low:.0f}-{100 * share.high:.0f})"


def _format_value(share: Share) -> str:
    return "-" if share.value is None else f"{100 * share.value:.1f}"


def _list_accuracy(figures: Figures) -> list[Table]:
    """List coverage, tau, diff and baselines of each dimension, and what is computed from probabilities."""
    judged = figures.accuracy.items()
    rows = [_list_part(DIMENSION_NAMES[key], of or figures.coverage[key]) for key, of in judged]
    scores = [
        [DIMENSION_NAMES[key], _format_share(of.calibrated), _format_share(of.sign)]
        for key, of in judged
        if of and of.probabilities
    ]
    return [Table(("Accuracy %", *_PART), rows), Table(("By probabilities %", "calibrated", "sign"), scores)]


def _list_part(name: str, of: Coverage) -> list[str]:
    """List a name, coverage, tau, diff, and both baselines as "tau / diff"."""
    judged = f"{of.pairs} of {of.labelled}"
    if not isinstance(of, Part) or not of.pairs:
        return [name, judged, NOT_JUDGED, "", "", ""]
    answers = (of.baselines.tie, of.baselines.commonest)
    baselines = (f"{_format_value(answer.tau)} / {_format_value(answer.diff)}" for answer in answers)
    return [name, judged, _format_share(of.tau), _format_share(of.diff), *baselines]


def _say_once(told: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield each text once, after all the names that it is told of."""
    names: dict[str, dict[str, None]] = {}
    for name, text in told:
        names.setdefault(text, {})[name] = None
    return (f"{', '.join(of)}: {text}" for text, of in names.items())


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
        yield f"{of.failed} failed counted as wrong: tau {_format_share(of.tau_all)}, diff {_format_share(of.diff_all)}"
    if of.prompts != of.pairs:
        yield (
            f"{of.pairs} pairs have {count_of(of.prompts, 'prompt')}; pairs of one prompt are not independent, as the "
            "intervals take them to be, so those are too narrow"
        )
    if of.calibrated.threshold is not None:
        yield f"calibrated: a tie is |P(A) - P(B)| <= {of.calibrated.threshold:.3g}"
    if of.probabilities < of.pairs:
        yield f"{of.pairs - of.probabilities} verdict(s) came without probabilities and are in tau and diff alone"


def _list_published(figures: Figures) -> Iterator[list[str]]:
    """Yield the published figures, beside them this run's, and the baselines of the whole table."""
    known, own = figures.published, figures.accuracy.get(OVERALL)
    if not known or not known.figures:
        return
    for model in known.models:
        values = (known.find_value(model, measure) for measure in _MEASURES)
        yield [model, *("-" if value is None else f"{100 * value:.1f}" for value in values)]
    if own:
        run = f"this run, {count_of(own.pairs, 'pair')}"
        yield [run, *(_format_share(getattr(own, measure)) for measure in _MEASURES)]
    if whole := figures.baselines.get(OVERALL):
        for answer, of in {"always tie": whole.tie, "commonest answer": whole.commonest}.items():
            pairs = f"{answer}, all {count_of(whole.pairs, 'pair')}"
            yield [pairs, _format_share(of.tau), _format_share(of.diff), "", ""]


def _describe_published(figures: Figures) -> Iterator[str]:
    """Say where the published figures are from, and what was found; or that there are some of other splits alone."""
    known = figures.published
    if not known:
        return
    yield from (f"source: {source}" for source in dict.fromkeys(figure.source for figure in known.figures))
    yield from _say_once((figure.model, figure.note) for figure in known.figures if figure.note)
    yield from known.left_out
    if known.other_splits and not known.figures:
        splits = ", ".join(known.other_splits)
        this = f"not of {figures.split}" if figures.split else "and this table's name does not tell which it is of"
        yield f"Published figures of this set are of split {splits}, {this}: they are not comparable with these."


def _list_parts(figures: Figures, most: int | None) -> Iterator[list[str]]:
    """Yield the rows of subsets, bands and groups."""
    for of in figures.subsets:
        yield _list_part(f"{of.name} (hard): from {of.least:g} {_UNITS[of.of]}", of)
    for kind, bands in figures.bands.items():
        for of in bands if len(bands) > 1 else ():
            yield _list_part(f"{kind} {of.low:g} to {of.high:g} {_UNITS[kind]}", of)
    yield from (_list_part(f"group {of.name}", of) for of in figures.groups[:most])
    if most and len(figures.groups) > most:
        yield [f"and {len(figures.groups) - most} groups more (--json)", *[""] * len(_PART)]


def _describe_costs(figures: Figures) -> Iterator[str]:
    """Say how often the judge asked for frames, and ended on a recommendation."""
    cost = figures.cost
    if not cost.judgements:
        return
    yield f"tool rate: {_format_share(cost.tool_rate)} % of {count_of(cost.judgements, 'judgement')} asked for frames"
    if cost.recommended.right:
        yield f"only recommended, without a final answer: {_format_share(cost.recommended)} %"


def _describe_orders(figures: Figures) -> Iterator[str]:
    position, orders = figures.position, figures.orders
    if position.verdicts.of:
        labels = f"; {_format_share(position.labels)} % by the labels" if position.labels.of else ""
        yield f"the video shown first wins {_format_share(position.verdicts)} % of the verdicts that are no tie{labels}"
    if orders is None:
        return
    if (effect := orders.effect) and effect.tau is not None:
        change = f"{100 * effect.tau:+.1f} ({100 * effect.low:+.1f} to {100 * effect.high:+.1f})"
        pairs = count_of(effect.pairs, "pair")
        yield f"effect of B first on tau: {change} points, over {pairs} judged in both orders"
    if orders.averaged and (count := orders.averaged.undecided):
        yield f"averaged, undecided in {count_of(count, 'pair')}, as the orders name opposite winners: never right"
    if orders.disagree:
        shares = (
            f"{key} {f'{_format_share(of)} of {of.of}' if of else NOT_JUDGED}" for key, of in orders.disagree.items()
        )
        yield f"orders disagree, % of pairs judged in both: {', '.join(shares)}"


def _describe_failures(figures: Figures, named: int) -> Iterator[str]:
    """Say how many failures there are of each kind, and how many beside the `named` ones."""
    if counts := figures.failures.counts:
        yield "failed: " + ", ".join(f"{count} {kind}" for kind, count in counts.items())
        if (more := sum(counts.values()) - named) > 0:
            yield f"and {more} more (--json names 200)"


# Charts


def list_charts(figures: Figures) -> list[Chart]:
    """Make a chart of each dimension that was judged; what would have one row is left out."""
    charts = (
        Chart(key, f"accuracy, {_name_covered(DIMENSION_NAMES[key], of)}", _ABOUT, list(_list_rows(figures, key, of)))
        for key, of in figures.accuracy.items()
        if of
    )
    return [chart for chart in charts if len(chart.rows) > 1]


def _list_rows(figures: Figures, key: str, of: Accuracy) -> Iterator[ChartRow]:
    """Yield each measure of a dimension beside published figures and baselines."""
    published = figures.published.figures if figures.published and key == OVERALL else ()
    for measure, mark in zip(_MEASURES, _MARKS * 2, strict=True):
        yield from _list_share(measure, getattr(of, measure), mark)
        for known in published:
            if known.measure == measure:
                label, words = f"{known.model}, {measure}", f"{100 * known.value:.1f}"
                yield ChartRow(label, known.value, None, None, words, "other")
    # "Always tie" has no diff to draw: it is 0.
    yield from _list_share("always tie, tau", of.baselines.tie.tau, "other")
    yield from _list_share("commonest answer, tau", of.baselines.commonest.tau, "other")
    yield from _list_share("commonest answer, diff", of.baselines.commonest.diff, "other")


def _name_covered(name: str, of: Coverage) -> str:
    """Add to a name how many of its pairs were judged, unless all were."""
    return name if of.pairs == of.labelled else f"{name} ({of.pairs} of {of.labelled})"


def _list_share(label: str, share: Share, mark: Mark) -> Iterator[ChartRow]:
    """Yield a row for a share, if it is of any pairs; its words end with their number."""
    if share.value is not None:
        yield ChartRow(label, share.value, share.low, share.high, f"{_format_share(share)} of {share.of}", mark)


def draw_plots(figures: Figures, folder: Path) -> list[Path]:
    """Draw the charts as PNG files in a folder, which is made; return their paths.

    Raises UsageError without matplotlib, and for a folder that cannot be written.
    """
    check_plots()
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for chart in list_charts(figures):
            written.append(folder / f"accuracy-{chart.name}.png")
            _draw_chart(f"{name_set(figures)}: {chart.title}", chart).savefig(written[-1])
    except OSError as error:
        raise UsageError(f"The plots cannot be written to {folder}: {error.strerror or error}.") from error
    return written


def check_plots() -> None:
    """Raise UsageError if matplotlib, which draws the plots, is missing."""
    if not find_spec("matplotlib"):
        raise UsageError(f"Plots are drawn by matplotlib, which is missing. Install it: {install_extra('eval')}")


def _draw_chart(title: str, chart: Chart) -> Any:
    """Draw a row for each share on a scale from 0 to 100 %: a dot with its interval as a line.

    The plot is Any, because matplotlib's own types are incomplete.
    """
    from matplotlib.figure import Figure

    height = 1.2 + 0.26 * len(chart.rows)
    plot: Any = Figure(figsize=(_WIDTH, height), dpi=_DPI, layout="constrained", facecolor=PAPER)
    plot.suptitle(title, size=12, weight="bold")
    plot.supxlabel(chart.subtitle, size=9)
    axes = plot.add_subplot(facecolor=PAPER)
    for i, row in enumerate(chart.rows):
        axes.plot(row.value, i, "o", color=_COLOURS[row.mark])
        if row.low is not None:
            axes.plot([row.low, row.high], [i, i], "|-", color=_COLOURS[row.mark])
    axes.set_yticks(range(len(chart.rows)), [f"{row.label}: {row.words}" for row in chart.rows])
    axes.set_xlim(-0.02, 1.02)
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.grid(axis="x", color=LINE)
    axes.invert_yaxis()
    return plot
