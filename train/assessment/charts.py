"""Draws pictures of a training and of the evaluation of its stages, as PNG files.

Every picture has a legend, and a light background that suits light and dark pages. The data are reports
(`assess.report`) and logs.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from train.assessment.text_tables import NAMES, VIEW_NAMES
from train.stages import STAGES
from train.traces import LOG, read_rows
from vrt_lite.disk import write_file
from vrt_lite.errors import UsageError
from vrt_lite.protocol.messages import KEYS

DPI: Final = 160
GROUND, INK, FAINT, RULE = "#f6f8fa", "#1f2328", "#59636e", "#d0d7de"
COLOURS: Final = ("#1a7f64", "#8a5a00", "#0969da", "#8250df", "#bf3989", "#57606a")
MARKS: Final = ("o", "s", "D", "^", "v", "P")
_CURVES = {
    "loss": "loss",
    "reward": "reward",
    "reward/accuracy": "accuracy, as rewarded",
    "called": "share that calls",
    "kl": "KL to the start",
}
_SMOOTHED = 50
"""A curve with more points than this is drawn faintly, with its running mean over a fiftieth of the points on top."""


def curves(run: Path, out: Path) -> Path | None:
    """Draw the logs of the stages under `run`, with a panel for each stage and quantity. Returns None without a log.

    A log is JSON lines with `step` and numbers (`trainer_callbacks.Journal`). A panel shows the loss. For a stage with
    a reward, panels show the reward, its accuracy, the share of rollouts with a call, and the KL.
    """
    panels: list[tuple[str, str, list[tuple[float, float]]]] = []
    for log in sorted([*run.glob(LOG), *run.glob(f"*/{LOG}")], key=_stage):
        rows = read_rows(log)
        rewarded = any("reward" in row for row in rows)
        for name in _CURVES:
            if name == "loss" and rewarded:
                continue
            points = [(float(row["step"]), float(row[name])) for row in rows if "step" in row and name in row]
            finite = [point for point in points if math.isfinite(point[1])]
            if finite:
                panels.append((log.parent.name, name, finite))
    if not panels:
        return None
    columns = min(len(panels), 3)
    down = -(-len(panels) // columns)
    figure = _figure(4.2 * columns, 2.9 * down)
    for number, (stage, name, points) in enumerate(panels, start=1):
        axes = _axes(figure.add_subplot(down, columns, number), f"{stage}: {_CURVES[name]}")
        axes.set_xlabel("step", color=FAINT, fontsize=8)
        _line(axes, points)
        if name == "loss" and min(value for _, value in points) > 0:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
            axes.yaxis.set_minor_formatter(NullFormatter())
    return _save(figure, out)


def by_stage(reports: Mapping[str, Mapping[str, Any]], out: Path, *, title: str = "Right by stage") -> Path:
    """Draw all four right, and each dimension's tau, by stage, in the view "asked", with 95 % intervals."""
    lines = {"all four": [_value(figures, "all_right") for figures in reports.values()]}
    lines |= {NAMES[key]: [_value(figures, key) for figures in reports.values()] for key in KEYS}
    figure = _figure(max(5.6, 1.3 * len(reports) + 3.4), 4.2)
    axes = _axes(figure.add_subplot(), f"{title}: % of pairs, 95 % intervals")
    for number, (name, shares) in enumerate(lines.items()):
        shift = 0.1 * (number - (len(lines) - 1) / 2)
        kept = [(i + shift, share) for i, share in enumerate(shares) if share and share["value"] is not None]
        _whiskers(axes, kept, name, number)
    axes.set_xticks(range(len(reports)), list(reports), color=INK, fontsize=9)
    axes.set_xlim(-0.5, len(reports) - 0.5)
    _per_cent(axes)
    _legend(axes)
    return _save(figure, out)


def by_view(report: Mapping[str, Any], out: Path, *, title: str = "What the frames asked for are worth") -> Path:
    """Draw all four right by view, for hidden and open evidence."""
    views = report["views"]
    figure = _figure(6.4, 3.6)
    axes = _axes(figure.add_subplot(), f"{title}: % all four right, 95 % intervals")
    for number, name in enumerate(("hidden", "open")):
        shift = 0.16 * (number - 0.5)
        shares = [figures["evidence"][name]["all_right"] for figures in views.values()]
        kept = [(i + shift, share) for i, share in enumerate(shares) if share["value"] is not None]
        _whiskers(axes, kept, f"{name} evidence", number)
    axes.set_xticks(range(len(views)), [VIEW_NAMES[view] for view in views], color=INK, fontsize=9)
    axes.set_xlim(-0.5, max(len(views), 1) - 0.5)
    _per_cent(axes)
    _legend(axes)
    return _save(figure, out)


def by_defect(figures: Mapping[str, Any], out: Path, *, title: str = "Right by defect") -> Path:
    """Draw VQ and MQ right by the defect of a pair, of one view's figures, with 95 % intervals."""
    groups = {f"{name} ({of['pairs']})": of for name, of in figures["defects"].items()}
    figure = _figure(6.8, 1.5 + 0.34 * max(len(groups), 1))
    axes = _axes(figure.add_subplot(), f"{title}: % of pairs, 95 % intervals")
    for number, key in enumerate(("VQ", "MQ")):
        shift = 0.2 * (number - 0.5)
        kept = [(i + shift, of[key]) for i, of in enumerate(groups.values()) if of[key]["value"] is not None]
        _whiskers(axes, kept, NAMES[key], number, across=True)
    axes.set_yticks(range(len(groups)), list(groups), color=INK, fontsize=9)
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.set_xlim(-2, 102)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", color=RULE, linewidth=0.7)
    _legend(axes)
    return _save(figure, out)


def reliability(figures: Mapping[str, Any], out: Path, *, title: str = "How sure, and how often right") -> Path:
    """Draw a reliability diagram of one view's figures: the probability of the winners, and how many are right."""
    figure = _figure(5.0, 4.6)
    found = figures["calibration"]
    error = f", error {100 * found['all']['ece']:.1f} points" if "all" in found else ""
    axes = _axes(figure.add_subplot(), f"{title}{error}")
    axes.plot([0, 100], [0, 100], color=FAINT, linewidth=1, linestyle=(0, (4, 3)), label="as sure as right")
    for number, key in enumerate(("all", *KEYS)):
        rows = found.get(key, {"rows": []})["rows"]
        if not rows:
            continue
        points = [(100 * row["confidence"], 100 * row["accuracy"]) for row in rows]
        name = "all judgements" if key == "all" else NAMES[key]
        if key == "all":
            spread = _spread([row["accuracy"] for row in rows], [row["interval"] for row in rows])
            bars: dict[str, Any] = {"capsize": 3, "linewidth": 1.6, "markersize": 6}
            axes.errorbar(*zip(*points, strict=True), yerr=spread, color=COLOURS[0], marker="o", label=name, **bars)
        else:
            style: dict[str, Any] = {"linewidth": 0.9, "markersize": 4, "alpha": 0.75}
            axes.plot(*zip(*points, strict=True), color=COLOURS[number], marker=MARKS[number], label=name, **style)
    axes.set_xlim(28, 102)
    axes.set_ylim(-2, 102)
    axes.set_xlabel("the judge's probability of the winner that it names, %", color=FAINT, fontsize=8)
    axes.set_ylabel("right, %", color=FAINT, fontsize=8)
    _legend(axes)
    return _save(figure, out)


def draw(reports: Mapping[str, Mapping[str, Any]], folder: Path, *, run: Path | None = None) -> list[Path]:
    """Draw all pictures for which there are data. Only `by_stage` shows all stages; the others show the last one."""
    figures = [by_stage(reports, folder / "stages.png")] if reports else []
    for report in list(reports.values())[-1:]:
        figures.append(by_view(report, folder / "views.png"))
        if asked := report["views"].get("asked"):
            figures.append(by_defect(asked, folder / "defects.png"))
            figures.append(reliability(asked, folder / "reliability.png"))
    drawn = curves(run, folder / "curves.png") if run else None
    return [*figures, *([drawn] if drawn else [])]


def _stage(log: Path) -> tuple[int, str]:
    """Return a sort key: first the stages in order, then all other names."""
    name, order = log.parent.name, STAGES
    return (order.index(name) if name in order else len(order), name)


def _value(report: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return a share in the view "asked"; None if there is none."""
    figures = report["views"].get("asked")
    if figures is None:
        return None
    return figures["all_right"] if name == "all_right" else figures["accuracy"].get(name, {"tau": None})["tau"]


def _figure(width: float, height: float) -> Figure:
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor=GROUND, layout=layout)
    figure.patch.set_edgecolor(RULE)
    figure.patch.set_linewidth(1.5)
    return figure


def _axes(axes: Axes, title: str) -> Axes:
    axes.set_facecolor(GROUND)
    axes.set_title(title, color=INK, fontsize=10, loc="left")
    axes.tick_params(colors=FAINT, labelsize=8, length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.grid(axis="y", color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    return axes


def _line(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    many = len(points) > _SMOOTHED
    faint: dict[str, Any] = {"color": COLOURS[0], "linewidth": 0.8 if many else 1.6, "alpha": 0.3 if many else 1}
    axes.plot(*zip(*points, strict=True), marker="" if len(points) > 1 else "o", **faint)
    if many:
        width = max(len(points) // _SMOOTHED, 2)
        means = [sum(value for _, value in points[max(i - width, 0) : i + width + 1]) for i in range(len(points))]
        counts = [len(points[max(i - width, 0) : i + width + 1]) for i in range(len(points))]
        smooth = [total / count for total, count in zip(means, counts, strict=True)]
        axes.plot([step for step, _ in points], smooth, color=COLOURS[0], linewidth=1.8)


def _whiskers(
    axes: Axes, shares: Sequence[tuple[float, Mapping[str, Any]]], name: str, number: int, *, across: bool = False
) -> None:
    """Draw a mark and an interval for each share, at places along the horizontal axis (`across`: the vertical one)."""
    if not shares:
        return
    places = [place for place, _ in shares]
    values = [100 * share["value"] for _, share in shares]
    spread = _spread([share["value"] for _, share in shares], [(share["low"], share["high"]) for _, share in shares])
    style: dict[str, Any] = {"color": COLOURS[number], "marker": MARKS[number], "label": name}
    style |= {"linestyle": "none", "capsize": 3, "markersize": 6, "elinewidth": 1.4}
    if across:
        axes.errorbar(values, places, xerr=spread, **style)
    else:
        axes.errorbar(places, values, yerr=spread, **style)


def _spread(values: Sequence[float], intervals: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return how far intervals reach below and above their values, in points; never negative, despite rounding."""
    below = [max(100 * (value - low), 0.0) for value, (low, _) in zip(values, intervals, strict=True)]
    return [below, [max(100 * (high - value), 0.0) for value, (_, high) in zip(values, intervals, strict=True)]]


def _per_cent(axes: Axes) -> None:
    axes.set_ylim(-2, 102)
    axes.set_yticks(range(0, 101, 20))


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        legend = axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        for text in legend.get_texts():
            text.set_color(INK)


def _save(figure: Figure, out: Path) -> Path:
    """Write a picture, complete or not at all. Raises UsageError if it cannot be written."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", facecolor=figure.get_facecolor(), edgecolor=figure.get_edgecolor())
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_file(out, drawn.getvalue())
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}.") from error
    return out
