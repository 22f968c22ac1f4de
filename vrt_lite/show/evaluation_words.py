"""The words and rows for an evaluation's figures that the terminal and the report share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from vrt_lite.protocol.messages import OVERALL
from vrt_lite.protocol.verdict import NOT_JUDGED
from vrt_lite.show.words import DIMENSION_NAMES, count_of, percent

if TYPE_CHECKING:
    from vrt_lite.evaluation.figures import AnswerShare, Band, Baselines, Cost, Coverage, Figures, OrderFigures, Part
    from vrt_lite.evaluation.metrics import Share

MEASURES: Final = {
    "tau": "three classes, ties count. From the verdicts",
    "diff": "pairs labelled a tie are left out. From the verdicts",
    "calibrated": "as tau, from P(A) - P(B), its tie threshold fitted on these same pairs (Deutsch et al. 2023): an "
    "upper estimate",
    "sign": "as diff, from the sign of P(A) - P(B)",
}
"""The measures of accuracy, and how each counts."""
BASELINES: Final = (
    "the accuracy of a tie for every pair, and of the label that most of them have (for diff A or B), as tau / diff"
)
INTERVALS: Final = "In brackets: 95 % intervals, by Wilson's method; for a difference, by a bootstrap over prompts."
COVERAGE: Final = "the pairs judged in a dimension, of those labelled in it; its figures are of these alone"
UNITS: Final = {"clip": "s", "prompt": "characters"}
"""What lengths are measured in."""
_VERDICTS: Final = ("tau", "diff")
_SCORES: Final = ("calibrated", "sign")
_ANSWERS: Final = {1: "A", 2: "B", 0: "tie"}


def name_set(figures: Figures) -> str:
    """Name the set and its split."""
    return f"{figures.title}, split {figures.split}" if figures.split else figures.title


def name_main(figures: Figures) -> str:
    """Name the dimension that the tables by part and by order are about, after a comma; empty if it is the overall."""
    return "" if figures.main == OVERALL else f", {DIMENSION_NAMES[figures.main]}"


def format_share(share: Share, *, digits: int = 1) -> str:
    """Format a share in per cent with its interval, that with so many digits after the point."""
    if share.value is None:
        return "-"
    return f"{format_value(share)} ({100 * share.low:.{digits}f}-{100 * share.high:.{digits}f})"


def format_value(share: Share) -> str:
    """Format a share in per cent."""
    return "-" if share.value is None else f"{100 * share.value:.1f}"


def format_coverage(of: Coverage) -> str:
    """Format how many pairs were judged, of how many, and that in per cent."""
    return f"{of.pairs} of {of.labelled} ({percent(of.pairs / of.labelled)})" if of.labelled else "0 of 0"


def describe_gaps(figures: Figures) -> list[str]:
    """Say of each dimension how many pairs were not judged in it, and how many verdicts are undecided."""
    lines: list[str] = []
    for key, of in figures.coverage.items():
        if of.not_judged:
            pairs = f"{of.not_judged} of {count_of(of.labelled, 'pair')}"
            lines.append(f"{DIMENSION_NAMES[key]}: {pairs} not judged; they are left out of its figures")
        if (accuracy := figures.accuracy.get(key)) and accuracy.undecided:
            pairs = f"{accuracy.undecided} of {count_of(of.pairs, 'pair')}"
            lines.append(f"{DIMENSION_NAMES[key]}: {pairs} undecided, which never counts as right")
    return lines


def describe_counts(figures: Figures) -> str:
    """Say how many pairs were judged, failed, or are left to judge."""
    pairs = figures.pairs
    left = f", {pairs.left} left to judge" if pairs.left else ""
    return f"{pairs.judged} of {count_of(pairs.chosen, 'pair')} judged, {pairs.failed} failed{left}"


def describe_left_out(figures: Figures) -> str:
    """Say how many rows of the table are no pair to judge; empty if none is."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in figures.left_out.items() if count)
    return f"rows of the table left out: {kinds}" if kinds else ""


def describe_other_splits(figures: Figures) -> str:
    """Say which published figures of this set are of another split; empty if none is, or some are of this one."""
    known = figures.published
    if not known or known.figures or not known.other_splits:
        return ""
    own = f"not of {figures.split}" if figures.split else "and this table's name does not tell which it is of"
    return (
        f"Published figures of this set are of split {', '.join(known.other_splits)}, {own}: "
        "they are not comparable with these."
    )


def describe_shared_prompts(figures: Figures, key: str) -> str:
    """Say why the intervals of a dimension are too narrow; empty if they are not."""
    of = figures.accuracy.get(key)
    if not of or of.prompts == of.pairs:
        return ""
    return (
        f"{DIMENSION_NAMES[key]}: {of.pairs} pairs have {count_of(of.prompts, 'prompt')}; pairs of one prompt are not "
        "independent, as the intervals take them to be, so those are too narrow"
    )


def describe_position(figures: Figures) -> str:
    """Say how often the video shown first wins; empty without a verdict that is no tie."""
    position = figures.position
    if not position.verdicts.of:
        return ""
    labels = f"; {format_share(position.labels)} % by the labels" if position.labels.of else ""
    return f"the video shown first wins {format_share(position.verdicts)} % of the verdicts that are no tie{labels}"


def describe_orders(orders: OrderFigures) -> list[str]:
    """Say what the order changes, in sentences without a full stop."""
    lines: list[str] = []
    if (effect := orders.effect) and effect.tau is not None:
        change = f"{100 * effect.tau:+.1f} ({100 * effect.low:+.1f} to {100 * effect.high:+.1f})"
        pairs = count_of(effect.pairs, "pair")
        lines.append(f"effect of B first on tau: {change} points, over {pairs} judged in both orders")
    if orders.averaged and orders.averaged.undecided:
        count = orders.averaged.undecided
        are = f"{count_of(count, 'pair')} {'is' if count == 1 else 'are'}"
        lines.append(f"averaged, {are} undecided, as the orders name opposite winners: never counted as right")
    if orders.disagree:
        shares = (
            f"{key} {f'{format_share(of)} of {of.of}' if of else NOT_JUDGED}" for key, of in orders.disagree.items()
        )
        lines.append(f"orders disagree, % of pairs judged in both: {', '.join(shares)}")
    return lines


def describe_cost(cost: Cost) -> list[str]:
    """Say how often the judge asked for frames, or ended on a recommendation; empty without a judgement."""
    if not cost.judgements:
        return []
    judgements = count_of(cost.judgements, "judgement")
    lines = [f"tool rate: {format_share(cost.tool_rate)} % of {judgements} asked for frames"]
    if cost.recommended.right:
        lines.append(f"only recommended, without a final answer: {format_share(cost.recommended)} %")
    return lines


def list_costs(cost: Cost) -> list[list[str]]:
    """List what a judgement takes, as rows of a name, mean, median and 95th percentile."""
    spreads = {"rounds": cost.rounds, "calls": cost.calls, "seconds": cost.seconds, "tokens": cost.tokens}
    return [
        [name, *(f"{value:.4g}" for value in (spread.mean, spread.median, spread.p95))]
        for name, spread in spreads.items()
        if spread
    ]


def list_accuracy(figures: Figures, key: str) -> list[list[str]]:
    """List a dimension's rows: its own, of no name, with coverage and measures; n of each measure; the baselines."""
    of, coverage = figures.accuracy.get(key), format_coverage(figures.coverage[key])
    baselines = [[name, "", tau, diff, "", ""] for name, tau, diff in list_baselines(figures, key)]
    if not of:
        return [["", coverage, NOT_JUDGED, "", "", ""], *baselines]
    shares = (of.tau, of.diff, of.calibrated, of.sign)
    return [
        ["", coverage, *(format_share(share) for share in shares)],
        ["n", "", *(str(share.of) for share in shares)],
        *baselines,
    ]


def list_baselines(figures: Figures, key: str) -> list[list[str]]:
    """List a dimension's baselines as name, tau and diff: of the judged pairs, and of the table if that has more.

    None stands beside a dimension that the judge left out of every verdict: there is nothing to compare.
    """
    of, whole = figures.accuracy.get(key), figures.baselines.get(key)
    if not of and figures.coverage[key].not_judged:
        return []
    found = _name_baselines(of.baselines) if of else list[list[str]]()
    return found if of and whole and whole.pairs == of.pairs else [*found, *list_table_baselines(figures, key)]


def list_table_baselines(figures: Figures, key: str) -> list[list[str]]:
    """List a dimension's baselines on all labelled pairs of the table, judged or not; none without its labels."""
    of = figures.baselines.get(key)
    if not of:
        return []
    return [[f"{name}, all {count_of(of.pairs, 'pair')}", tau, diff] for name, tau, diff in _name_baselines(of)]


def list_published(figures: Figures) -> list[tuple[tuple[str, str], list[list[str]]]]:
    """List the published figures beside this run's, for the measures from verdicts and for those from scores.

    Returns two measures, and rows of a name and both values. The baselines of the whole table stand beside the first.
    """
    known, own = figures.published, figures.accuracy.get("OA")
    if not known:
        return []
    pairs = figures.pairs
    run = "this run" if pairs.judged == pairs.chosen else f"this run, {count_of(pairs.judged, 'pair')}"
    tables: list[tuple[tuple[str, str], list[list[str]]]] = []
    for measures in _VERDICTS, _SCORES:
        rows: list[list[str]] = []
        for model in known.models:
            values = [known.find_value(model, measure) for measure in measures]
            if any(values):
                rows.append([model, *("-" if value is None else f"{100 * value:.1f}" for value in values)])
        if rows and own:
            shares = (own.tau, own.diff) if measures == _VERDICTS else (own.calibrated, own.sign)
            rows.append([run, *map(format_share, shares)])
        if rows and measures == _VERDICTS:
            rows += list_table_baselines(figures, "OA")
        tables += [(measures, rows)] if rows else []
    return tables


def describe_published(figures: Figures) -> list[str]:
    """Say where the published figures are from, what was found about them, and which are not shown and why."""
    known = figures.published
    if not known:
        return []
    lines = [f"source: {source}" for source in dict.fromkeys(figure.source for figure in known.figures)]
    noted: dict[str, dict[str, None]] = {}
    for figure in known.figures:
        if figure.note:
            noted.setdefault(figure.note, {})[figure.model] = None
    lines += [f"{', '.join(models)}: {note}" for note, models in noted.items()]
    return [*lines, *known.left_out]


def list_cuts(figures: Figures, *, groups: int | None = None) -> list[list[str]]:
    """List subsets, bands and as many groups, as rows of a name and `format_part`."""
    rows = [[f"{of.name} (hard): from {of.least:g} {UNITS[of.of]}", *format_part(of)] for of in figures.subsets]
    for kind, bands in figures.bands.items():
        rows += [[name_band(kind, band), *format_part(band)] for band in (bands if len(bands) > 1 else ())]
    return [*rows, *([f"group {of.name}", *format_part(of)] for of in figures.groups[:groups])]


def name_band(kind: str, band: Band) -> str:
    """Name a quarter of the pairs by the length of "clip" or "prompt"."""
    return f"{kind} {band.low:g} to {band.high:g} {UNITS[kind]}"


def list_orders(orders: OrderFigures) -> list[list[str]]:
    """List the accuracy by order, as rows of a name and `format_part`."""
    parts: Mapping[str, Part | None] = {
        "A first": orders.given,
        "B first": orders.swapped,
        "averaged": orders.averaged,
    }
    return [[name, *format_part(part)] for name, part in parts.items() if part]


def format_part(of: Part) -> list[str]:
    """Format coverage, tau, diff, and the baselines always tie and commonest answer, each as "tau / diff"."""
    if of.labelled and not of.pairs:
        return [format_coverage(of), NOT_JUDGED, "", "", ""]
    return [format_coverage(of), format_share(of.tau), format_share(of.diff), *_format_baselines(of.baselines)]


def format_accuracy(figures: Figures, key: str) -> list[str]:
    """Format a dimension's coverage, tau, diff and baselines in one short row.

    The baselines are of the judged pairs; of the table before any is judged. None stands beside a dimension that the
    judge left out of every verdict: there is nothing to compare.
    """
    of, coverage = figures.accuracy.get(key), figures.coverage[key]
    known = of.baselines if of else None if coverage.not_judged else figures.baselines.get(key)
    shares = [format_share(share, digits=0) for share in (of.tau, of.diff)] if of else [NOT_JUDGED, ""]
    judged = f"{coverage.pairs} of {coverage.labelled}"
    return [judged, *shares, *(_format_baselines(known) if known else ("", ""))]


def _format_baselines(of: Baselines) -> list[str]:
    return [f"{format_value(answer.tau)} / {format_value(answer.diff)}" for answer in (of.tie, of.commonest)]


def _name_baselines(of: Baselines) -> list[list[str]]:
    """List both baselines as name, tau and diff; the commonest answers are named."""
    tie, commonest = of.tie, of.commonest
    return [
        ["always tie", format_share(tie.tau), format_share(tie.diff)],
        ["commonest answer", _name_answer(commonest.tau), _name_answer(commonest.diff)],
    ]


def _name_answer(share: AnswerShare) -> str:
    words = format_share(share)
    return f"{words} {_ANSWERS[share.answer]}" if share.of and share.answer is not None else words
