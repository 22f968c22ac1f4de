"""Writes an evaluation's reports as Markdown tables. It computes nothing but rounding.

A share is "62.4 (60.2-64.5)": per cent and its 95 % interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vrt_lite.protocol.messages import KEYS

Report = Mapping[str, Any]
VIEW_NAMES = {"asked": "frames asked for", "random": "random frames", "none": "no tool"}
NAMES = {"TA": "alignment", "VQ": "visual quality", "MQ": "motion quality", "OA": "overall"}
_HEAD = ("pairs", "all four right", *KEYS, "well-formed", "tool", "rounds", "ECE")


def stages(reports: Mapping[str, Report]) -> str:
    """Write a row for each stage (or judge) and view, with tau by dimension: % right, with ties as a class."""
    rows = [
        (name if first else "", VIEW_NAMES[view], *_row(figures))
        for name, report in reports.items()
        for first, (view, figures) in zip((True, False, False), report["views"].items(), strict=False)
    ]
    return table(("stage", "what a call brings", *_HEAD), rows)


def dimensions(figures: Mapping[str, Any]) -> str:
    """Write both protocols and the calibration by dimension, of one view's figures."""
    rows = [
        (
            f"{NAMES[key]} ({key})",
            format_share(of["tau"]),
            format_share(of["diff"]),
            _ece(figures, key),
        )
        for key, of in figures["accuracy"].items()
    ]
    return table(("", "tau: ties count", "diff: tied pairs out", "ECE"), rows)


def groups(figures: Mapping[str, Any]) -> str:
    """Write one view's figures by hidden or open evidence, and by defect."""
    named = {f"{name} evidence": of for name, of in figures["evidence"].items()} | figures["defects"]
    rows = [
        (name, str(of["pairs"]), format_share(of["all_right"]), *(format_share(of[key]) for key in KEYS))
        for name, of in named.items()
        if of["pairs"]
    ]
    return table(("", "pairs", "all four right", *KEYS), rows)


def differences(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Write paired differences by name, in points with their intervals."""
    columns = ("all_right", *KEYS)
    rows = [
        (name, str(of["all_right"]["pairs"]), *(_points(of[column]) for column in columns))
        for name, of in found.items()
    ]
    return table(("points", "pairs", "all four right", *KEYS), rows)


def reliability(figures: Mapping[str, Any], key: str = "all") -> str:
    """Write how often the judge is right at each confidence, of one view's figures."""
    rows = [
        (
            f"{row['low']:.1f} to {row['high']:.1f}",
            str(row["pairs"]),
            f"{100 * row['confidence']:.1f}",
            format_share({"value": row["accuracy"], "low": row["interval"][0], "high": row["interval"][1]}),
        )
        for row in figures["calibration"].get(key, {"rows": []})["rows"]
    ]
    return table(("probability", "judgements", "mean, %", "right, %"), rows)


def agreements(figures: Mapping[str, Any]) -> str:
    """Write on how many pairs two judges agree, and a line for each other pair."""
    same = figures["same"]
    lines = [f"Same four winners on {same['right']} of {same['of']} pairs: {format_share(same)} %."]
    for pair in figures["differ"]:
        lines.append(f"* {pair['key']}: {_winners(pair['one'])} and {_winners(pair['other'])}")
    return "\n".join(lines) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def format_share(share: Mapping[str, Any]) -> str:
    """Format a share in per cent with its interval; a dash for none."""
    if share["value"] is None:
        return "-"
    return f"{100 * share['value']:.1f} ({100 * share['low']:.1f}-{100 * share['high']:.1f})"


def _row(figures: Mapping[str, Any]) -> tuple[str, ...]:
    accuracy = [format_share(figures["accuracy"][key]["tau"]) if key in figures["accuracy"] else "-" for key in KEYS]
    rounds = "-" if figures["rounds"] is None else f"{figures['rounds']:.2f}"
    shares = (_percent(figures["well_formed"]), _percent(figures["tool_rate"]))
    return (
        str(figures["pairs"]["judged"]),
        format_share(figures["all_right"]),
        *accuracy,
        *shares,
        rounds,
        _ece(figures, "all"),
    )


def _percent(share: Mapping[str, Any]) -> str:
    return "-" if share["value"] is None else f"{100 * share['value']:.1f}"


def _ece(figures: Mapping[str, Any], key: str) -> str:
    of = figures["calibration"].get(key)
    return f"{of['ece']:.3f}" if of else "-"


def _points(of: Mapping[str, Any]) -> str:
    if of["mean"] is None:
        return "-"
    return f"{100 * of['mean']:+.1f} ({100 * of['low']:+.1f} to {100 * of['high']:+.1f})"


def _winners(by: Mapping[str, int]) -> str:
    return ", ".join(f"{key}={by[key]}" for key in KEYS if key in by) or "no verdict"
