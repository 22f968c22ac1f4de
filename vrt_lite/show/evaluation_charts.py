"""The plots of an evaluation, as values: the report draws them as SVG, `eval --plots` as files in the same colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final, Literal

from vrt_lite.advice import install_extra
from vrt_lite.errors import UsageError
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.show.evaluation_sections import MEASURES, name_band, name_main, name_set
from vrt_lite.show.words import DIMENSION_NAMES, FAINT, INK, LINE, PAPER, SIDE_COLOURS

if TYPE_CHECKING:
    from vrt_lite.records.figures import Accuracy, Baselines, Coverage, Figures, Share

Mark = Literal["tau", "diff", "other"]
"""What a row shows: a measure that counts ties, one that leaves them out, or something else than the judge."""
_MARKS: Final[tuple[Mark, ...]] = ("tau", "diff") * 2
_COLOURS: Final = dict(zip(("other", "tau", "diff"), SIDE_COLOURS, strict=True))
_WIDTH, _DPI = 8.8, 200
_LINE = 96
"""Characters of a subtitle that fit a line."""
_ANSWERS: Final = ("A better", "B better", "tie")


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
    """Some shares on one scale from 0 to 1."""

    name: str
    title: str
    subtitle: str
    rows: Sequence[ChartRow]


def list_charts(figures: Figures) -> list[Chart]:
    """Choose the charts of more than one row: accuracy by dimension, published figures, lengths, rounds."""
    subtitle = "% right with 95 % intervals"
    counting = f"{subtitle}; tau and calibrated count ties, diff and sign leave them out; grey: no judge"
    charts = [
        Chart(f"accuracy-{key}", _name_covered(f"accuracy, {DIMENSION_NAMES[key]}", of), counting, _list_accuracy(of))
        for key, of in figures.accuracy.items()
        if of
    ]
    judged = f"% right, overall judgment; {figures.pairs.judged} pairs here, with 95 % intervals"
    charts += (
        Chart("published", "beside what is published", judged, list(_list_published(figures))),
        Chart("lengths", f"tau by length{name_main(figures)}", subtitle, list(_list_lengths(figures))),
        Chart(
            "rounds", "rounds a judgement", f"% of {figures.cost.judgements} judgements", list(_list_rounds(figures))
        ),
    )
    return [chart for chart in charts if len(chart.rows) > 1]


def list_confusion(figures: Figures) -> Sequence[Sequence[int]]:
    """List labels A, B and tie as rows, verdicts as columns, of the main dimension; empty if it was not judged."""
    counts = figures.confusion.get(figures.main) or ()
    return counts if any(map(sum, counts)) else ()


def _list_accuracy(of: Accuracy) -> list[ChartRow]:
    shares = [_list_share(name, getattr(of, name), mark) for name, mark in zip(MEASURES, _MARKS, strict=True)]
    return list(chain(*shares, *(_list_baselines(of.baselines, measure) for measure in ("tau", "diff"))))


def _list_published(figures: Figures) -> Iterator[ChartRow]:
    own, known = figures.accuracy.get(OVERALL), figures.published
    if not known or not known.figures or not own or own.tau.value is None:
        return
    for measure, mark in zip(MEASURES, _MARKS, strict=True):
        for of in known.figures:
            if of.measure == measure:
                yield ChartRow(f"{of.model}, {measure}", of.value, None, None, f"{100 * of.value:.1f}", "other")
        yield from _list_share(f"this run, {measure}", getattr(own, measure), mark)
        if (whole := figures.baselines.get(OVERALL)) and measure in ("tau", "diff"):
            yield from _list_baselines(whole, measure)


def _list_lengths(figures: Figures) -> Iterator[ChartRow]:
    for kind, bands in figures.bands.items():
        for band in bands if len(bands) > 1 else ():
            yield from _list_share(_name_covered(name_band(kind, band), band), band.tau, "tau")
    for of in figures.subsets:
        yield from _list_share(_name_covered(f"{of.name} (top 10 %)", of), of.tau, "diff")


def _list_rounds(figures: Figures) -> Iterator[ChartRow]:
    histogram = figures.cost.rounds_histogram
    total = sum(histogram.values())
    for number, count in histogram.items():
        label = f"{number} round{'s' if number != '1' else ''}"
        yield ChartRow(label, count / total, 0.0, count / total, f"{100 * count / total:.1f} ({count})", "tau")


def _list_baselines(of: Baselines, measure: str) -> Iterator[ChartRow]:
    """Yield the rows of the baselines. "Always tie" has no diff to draw: it is 0."""
    if measure == "tau":
        yield from _list_share("always tie, tau", of.tie.tau, "other")
    yield from _list_share(f"commonest answer, {measure}", getattr(of.commonest, measure), "other")


def _name_covered(name: str, of: Coverage) -> str:
    """Add to a name how many of its pairs were judged, unless all were."""
    return name if of.pairs == of.labelled else f"{name} ({of.pairs} of {of.labelled})"


def _list_share(label: str, share: Share, mark: Mark) -> Iterator[ChartRow]:
    """Yield a row for a share, if it is of any pairs; its words end with their number."""
    if share.value is not None:
        words = f"{100 * share.value:.1f} ({100 * share.low:.0f}-{100 * share.high:.0f}) of {share.of}"
        yield ChartRow(label, share.value, share.low, share.high, words, mark)


def draw_plots(figures: Figures, folder: Path) -> list[Path]:
    """Draw what there are figures for as PNG files in a folder, which is made; return their paths.

    Raises UsageError without matplotlib, and for a folder that cannot be written.
    """
    check_plots()
    name, counts = name_set(figures), list_confusion(figures)
    plots = {chart.name: _draw_chart(f"{name}: {chart.title}", chart) for chart in list_charts(figures)}
    if counts:
        about = f"{sum(map(sum, counts))} pairs, {DIMENSION_NAMES[figures.main]}"
        plots["confusion"] = _draw_confusion(f"{name}: labels and verdicts", about, counts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stem, plot in plots.items():
            plot.savefig(folder / f"{stem}.png")
    except OSError as error:
        raise UsageError(f"The plots cannot be written to {folder}: {error.strerror or error}.") from error
    return [folder / f"{stem}.png" for stem in plots]


def check_plots() -> None:
    """Raise UsageError if matplotlib, which draws the plots, is missing."""
    if not find_spec("matplotlib"):
        raise UsageError(f"Plots are drawn by matplotlib, which is missing. Install it: {install_extra('eval')}")


def _draw_chart(title: str, chart: Chart) -> Any:
    """Draw a row for each share on a scale from 0 to 100 %: a dot with its interval as a line."""
    plot, axes = _make_plot(title, chart.subtitle, len(chart.rows))
    for i, row in enumerate(chart.rows):
        colour = _COLOURS[row.mark]
        axes.plot([row.value], [i], "o", color=colour)
        if row.low is not None:
            axes.plot([row.low, row.high], [i, i], "|-", color=colour)
        axes.annotate(row.words, (1.02, i), xycoords=("axes fraction", "data"), va="center", color=INK)
    axes.set_yticks(range(len(chart.rows)), [row.label for row in chart.rows], color=INK)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"], color=FAINT)
    axes.grid(axis="x", color=LINE)
    axes.set_ylim(len(chart.rows) - 0.5, -0.5)
    return plot


def _draw_confusion(title: str, about: str, counts: Sequence[Sequence[int]]) -> Any:
    """Draw the table of labels and verdicts: what agrees in the one colour, what does not in the other."""
    from matplotlib.colors import to_rgba

    plot, axes = _make_plot(title, about, 12)
    most = max(map(max, counts))
    axes.imshow(
        [
            [to_rgba(SIDE_COLOURS[1 if i == j else 2], 0.85 * count / most) for j, count in enumerate(row)]
            for i, row in enumerate(counts)
        ],
        aspect="auto",
    )
    axes.set_xticks(range(3), [f"verdict: {name}" for name in _ANSWERS], color=INK)
    axes.set_yticks(range(3), [f"label: {name}" for name in _ANSWERS], color=INK)
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            axes.text(j, i, str(count), ha="center", va="center", size=14, color=PAPER if count > most / 2 else INK)
    return plot


def _make_plot(title: str, about: str, rows: int) -> tuple[Any, Any]:
    """Make an empty plot and its axes; as Any, because matplotlib's own types are incomplete."""
    from matplotlib.figure import Figure

    size = (_WIDTH, 1.2 + 0.26 * rows)
    plot: Any = Figure(figsize=size, dpi=_DPI, layout="constrained", facecolor=PAPER)
    axes = plot.add_subplot(facecolor=PAPER)
    axes.spines[:].set_color(LINE)
    axes.spines[["top", "right"]].set_visible(False)
    plot.suptitle(title, size=12, weight="bold", color=INK)
    axes.set_title(fill(about, _LINE), size=9, color=FAINT)
    return plot, axes
