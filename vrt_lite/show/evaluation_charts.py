"""The plots of an evaluation, as values: the report draws them as SVG, `eval --plots` as files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final, Literal

from vrt_lite.advice import install_extra
from vrt_lite.errors import UsageError
from vrt_lite.show.evaluation_words import MEASURES, name_band, name_main, name_set
from vrt_lite.show.words import DIMENSION_NAMES

if TYPE_CHECKING:
    from vrt_lite.evaluation.figures import Baselines, Coverage, Figures
    from vrt_lite.evaluation.metrics import Share

Mark = Literal["tau", "diff", "other"]
"""What a row shows: a measure that counts ties, one that leaves them out, or something else than the judge."""
_MARKS: Final[tuple[Mark, Mark]] = ("tau", "diff")
_WIDTH, _DPI = 8.8, 200
_LINE = 96
"""Characters of a subtitle that fit a line."""
_COLOURS: Final = {"tau": "#1a7f64", "diff": "#8a5a00", "other": "#8c959f"}


@dataclass(frozen=True, slots=True)
class ChartRow:
    """A share from 0 to 1 and its interval, if it has one; a count of rounds is a bar from 0. `words` say both."""

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
    rows: tuple[ChartRow, ...]


def list_charts(figures: Figures) -> tuple[Chart, ...]:
    """Choose the charts that there are figures for: accuracy, published, lengths, rounds."""
    judged = f"% right, overall judgment; {figures.pairs.judged} pairs here, with 95 % intervals"
    subtitle = (
        "% right with 95 % intervals; tau and calibrated count ties, diff and sign leave them out; grey: no judge"
    )
    if absent := [DIMENSION_NAMES[key] for key, of in figures.accuracy.items() if not of]:
        subtitle += f"; not judged: {', '.join(absent)}"
    charts = (
        Chart("accuracy", "accuracy", subtitle, tuple(_accuracy(figures))),
        Chart("published", "beside what is published", judged, tuple(_published(figures))),
        Chart("lengths", f"tau by length{name_main(figures)}", "% right with 95 % intervals", tuple(_lengths(figures))),
        Chart("rounds", "rounds a judgement", f"% of {figures.cost.judgements} judgements", tuple(_rounds(figures))),
    )
    return tuple(chart for chart in charts if chart.rows)


def list_confusion(figures: Figures) -> Sequence[Sequence[int]]:
    """List labels A, B and tie as rows, verdicts as columns, of the main dimension; empty if it was not judged."""
    counts = figures.confusion.get(figures.main) or ()
    return counts if any(map(sum, counts)) else ()


def _accuracy(figures: Figures) -> Iterator[ChartRow]:
    for key, of in figures.accuracy.items():
        if not of:
            continue
        name = _name_covered(DIMENSION_NAMES[key], of)
        shares: tuple[Share, ...] = (of.tau, of.diff, of.calibrated, of.sign)
        for measure, share, mark in zip(MEASURES, shares, _MARKS * 2, strict=True):
            yield from _row(f"{name}, {measure}", share, mark)
        for measure in ("tau", "diff"):
            yield from _baselines(of.baselines, measure, f"{name}, ")


def _published(figures: Figures) -> Iterator[ChartRow]:
    own = figures.accuracy.get("OA")
    if not figures.published or not figures.published.figures or not own or own.tau.value is None:
        return
    shares: tuple[Share, ...] = (own.tau, own.diff, own.calibrated, own.sign)
    for measure, share, mark in zip(MEASURES, shares, _MARKS * 2, strict=True):
        for figure in figures.published.figures:
            if figure.measure == measure:
                yield ChartRow(
                    f"{figure.model}, {measure}", figure.value, None, None, f"{100 * figure.value:.1f}", "other"
                )
        yield from _row(f"this run, {measure}", share, mark)
        if (whole := figures.baselines.get("OA")) and measure in ("tau", "diff"):
            yield from _baselines(whole, measure, "")


def _lengths(figures: Figures) -> Iterator[ChartRow]:
    for kind, bands in figures.bands.items():
        for band in bands if len(bands) > 1 else ():
            yield from _row(_name_covered(name_band(kind, band), band), band.tau, "tau")
    for of in figures.subsets:
        yield from _row(_name_covered(f"{of.name} (top 10 %)", of), of.tau, "diff")


def _rounds(figures: Figures) -> Iterator[ChartRow]:
    histogram = figures.cost.rounds_histogram
    total = sum(histogram.values())
    for number, count in histogram.items():
        label = f"{number} round{'s' if number != '1' else ''}"
        yield ChartRow(label, count / total, 0.0, count / total, f"{100 * count / total:.1f} ({count})", "tau")


def _baselines(of: Baselines, measure: str, prefix: str) -> Iterator[ChartRow]:
    """Yield the rows of the baselines. "Always tie" has no diff to draw: it is 0."""
    if measure == "tau":
        yield from _row(f"{prefix}always tie, tau", of.tie.tau, "other")
    commonest = of.commonest.tau if measure == "tau" else of.commonest.diff
    yield from _row(f"{prefix}commonest answer, {measure}", commonest, "other")


def _name_covered(name: str, of: Coverage) -> str:
    """Add to a name how many of its pairs were judged, unless all were."""
    return name if of.pairs == of.labelled else f"{name} ({of.pairs} of {of.labelled})"


def _row(label: str, share: Share, mark: Mark) -> Iterator[ChartRow]:
    """Yield a row for a share, if it is of any pairs; its words end with their number."""
    if share.value is not None:
        words = f"{100 * share.value:.1f} ({100 * share.low:.0f}-{100 * share.high:.0f}) of {share.of}"
        yield ChartRow(label, share.value, share.low, share.high, words, mark)


def draw_plots(figures: Figures, folder: Path) -> list[Path]:
    """Draw what there are figures for as PNG files in a folder, which is made; return their paths.

    Raises UsageError without matplotlib, and for a folder that cannot be written.
    """
    check_plots()
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, plot in _plots(figures):
            written.append(folder / f"{name}.png")
            plot.savefig(written[-1])
    except OSError as error:
        raise UsageError(f"The plots cannot be written to {folder}: {error.strerror or error}.") from error
    return written


def check_plots() -> None:
    """Raise UsageError if matplotlib, which draws the plots, is missing."""
    if not find_spec("matplotlib"):
        raise UsageError(f"Plots are drawn by matplotlib, which is missing. Install it: {install_extra('eval')}")


def _plots(figures: Figures) -> Iterator[tuple[str, Any]]:
    name = name_set(figures)
    for chart in list_charts(figures):
        yield chart.name, _draw_chart(f"{name}: {chart.title}", chart)
    if counts := list_confusion(figures):
        about = f"{sum(map(sum, counts))} pairs, {DIMENSION_NAMES[figures.main]}"
        yield "confusion", _confusion(f"{name}: labels and verdicts", about, counts)


def _draw_chart(title: str, chart: Chart) -> Any:
    """Draw a row for each share on a scale from 0 to 100 %: a dot with its interval as a line; rounds are bars."""
    plot, axes = _plot(title, chart.subtitle, len(chart.rows))
    for i, row in enumerate(chart.rows):
        colour = _COLOURS[row.mark]
        if chart.name == "rounds":
            axes.barh(i, row.value, 0.6, color=colour)
        else:
            axes.plot([row.value], [i], "o", color=colour)
            if row.low is not None:
                axes.plot([row.low, row.high], [i, i], "|-", color=colour)
        axes.annotate(row.words, (1.02, i), xycoords=("axes fraction", "data"), va="center")
    axes.set_yticks(range(len(chart.rows)), [row.label for row in chart.rows])
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    axes.grid(axis="x", alpha=0.4)
    axes.set_ylim(len(chart.rows) - 0.5, -0.5)
    return plot


def _confusion(title: str, about: str, counts: Sequence[Sequence[int]]) -> Any:
    """Draw the table of labels and verdicts."""
    plot, axes = _plot(title, about, 12)
    names = ("A better", "B better", "tie")
    axes.imshow(counts, cmap="Greens", aspect="auto", vmin=0)
    axes.set_xticks(range(3), [f"verdict: {name}" for name in names])
    axes.set_yticks(range(3), [f"label: {name}" for name in names])
    most = max(map(max, counts))
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            colour = "white" if count > most / 2 else "black"
            axes.text(j, i, str(count), ha="center", va="center", size=14, color=colour)
    return plot


def _plot(title: str, about: str, rows: int) -> tuple[Any, Any]:
    """Make an empty plot and its axes; as Any, because matplotlib's own types are incomplete."""
    from matplotlib.figure import Figure

    plot: Any = Figure(figsize=(_WIDTH, 1.2 + 0.26 * rows), dpi=_DPI, layout="constrained")
    axes = plot.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    plot.suptitle(title, size=12, weight="bold")
    axes.set_title(fill(about, _LINE), size=9, color="#59636e")
    return plot, axes
