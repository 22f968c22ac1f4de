"""The accuracy in each dimension as a chart: the report draws it as SVG, `eval --plots` as a file in its colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final, Literal

from vrt_lite.advice import install_extra
from vrt_lite.errors import UsageError
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.show.evaluation_sections import MEASURES, format_share, list_lengths, name_set
from vrt_lite.show.words import DIMENSION_NAMES, FAINT, INK, LINE, PAPER, SIDE_COLOURS

if TYPE_CHECKING:
    from vrt_lite.records.figures import Accuracy, Coverage, Figures, Share

Mark = Literal["tau", "diff", "other"]
"""What a row shows: a measure that counts ties, one that leaves them out, or something else than the judge."""
_MARKS: Final[tuple[Mark, ...]] = ("tau", "diff") * 2
_COLOURS: Final = dict(zip(("other", "tau", "diff"), SIDE_COLOURS, strict=True))
_ABOUT: Final = "% right with 95 % intervals; tau and calibrated count ties, diff and sign leave them out; grey: other"
_WIDTH, _DPI = 8.8, 200
_LINE = 96
"""Characters of a subtitle that fit a line."""


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


def list_charts(figures: Figures) -> list[Chart]:
    """Make a chart of each dimension that was judged; what would have one row is left out."""
    charts = (
        Chart(key, f"accuracy, {_name_covered(DIMENSION_NAMES[key], of)}", _ABOUT, list(_list_rows(figures, key, of)))
        for key, of in figures.accuracy.items()
        if of
    )
    return [chart for chart in charts if len(chart.rows) > 1]


def _list_rows(figures: Figures, key: str, of: Accuracy) -> Iterator[ChartRow]:
    """Yield each measure of a dimension beside published figures and baselines; then its parts by length."""
    published = figures.published.figures if figures.published and key == OVERALL else ()
    for measure, mark in zip(MEASURES, _MARKS, strict=True):
        yield from _list_share(measure, getattr(of, measure), mark)
        for known in published:
            if known.measure == measure:
                label, words = f"{known.model}, {measure}", f"{100 * known.value:.1f}"
                yield ChartRow(label, known.value, None, None, words, "other")
    # "Always tie" has no diff to draw: it is 0.
    yield from _list_share("always tie, tau", of.baselines.tie.tau, "other")
    yield from _list_share("commonest answer, tau", of.baselines.commonest.tau, "other")
    yield from _list_share("commonest answer, diff", of.baselines.commonest.diff, "other")
    if key == figures.main:
        for name, part in list_lengths(figures):
            yield from _list_share(f"{_name_covered(name, part)}, tau", part.tau, "tau")


def _name_covered(name: str, of: Coverage) -> str:
    """Add to a name how many of its pairs were judged, unless all were."""
    return name if of.pairs == of.labelled else f"{name} ({of.pairs} of {of.labelled})"


def _list_share(label: str, share: Share, mark: Mark) -> Iterator[ChartRow]:
    """Yield a row for a share, if it is of any pairs; its words end with their number."""
    if share.value is not None:
        yield ChartRow(label, share.value, share.low, share.high, f"{format_share(share)} of {share.of}", mark)


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
    plot.suptitle(title, size=12, weight="bold", color=INK)
    plot.supxlabel(fill(chart.subtitle, _LINE), size=9, color=FAINT)
    axes = plot.add_subplot(facecolor=PAPER)
    axes.spines[["top", "right"]].set_visible(False)
    for i, row in enumerate(chart.rows):
        axes.plot(row.value, i, "o", color=_COLOURS[row.mark])
        if row.low is not None:
            axes.plot([row.low, row.high], [i, i], "|-", color=_COLOURS[row.mark])
    axes.set_yticks(range(len(chart.rows)), [f"{row.label}: {row.words}" for row in chart.rows], color=INK)
    axes.set_xlim(-0.02, 1.02)
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.grid(axis="x", color=LINE)
    axes.invert_yaxis()
    return plot
