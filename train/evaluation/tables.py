"""An evaluation's reports as Markdown tables. Text in, text out; knows no judge and computes nothing but rounding.

A share is "62.4 (60.2-64.5)": per cent and its 95 % interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vrt_lite.protocol.tags import KEYS

Report = Mapping[str, Any]
VIEWS = {"asked": "frames asked for", "random": "random frames", "none": "no tool"}
NAMES = {"TA": "alignment", "VQ": "visual quality", "MQ": "motion quality", "OA": "overall"}
_HEAD = ("pairs", "all four right", *KEYS, "well-formed", "tool", "rounds", "ECE")


def stages(reports: Mapping[str, Report]) -> str:
    """A row for each stage (or judge) and view, with tau by dimension: % right, a tie being a class of its own."""
    rows = [
        (name if first else "", VIEWS[view], *_row(made))
        for name, report in reports.items()
        for first, (view, made) in zip((True, False, False), report["views"].items(), strict=False)
    ]
    return table(("stage", "what a call brings", *_HEAD), rows)


def dimensions(made: Mapping[str, Any]) -> str:
    """Both protocols by dimension, of one view's figures, with calibration."""
    rows = [
        (
            f"{NAMES[key]} ({key})",
            told(of["tau"]),
            told(of["diff"]),
            _ece(made, key),
        )
        for key, of in made["accuracy"].items()
    ]
    return table(("", "tau: ties count", "diff: tied pairs out", "ECE"), rows)


def groups(made: Mapping[str, Any]) -> str:
    """By whether the evidence is hidden, and by defect, of one view's figures."""
    named = {f"{name} evidence": of for name, of in made["evidence"].items()} | made["defects"]
    rows = [
        (name, str(of["pairs"]), told(of["all_right"]), *(told(of[key]) for key in KEYS))
        for name, of in named.items()
        if of["pairs"]
    ]
    return table(("", "pairs", "all four right", *KEYS), rows)


def differences(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Paired differences by name, in points with their intervals."""
    columns = ("all_right", *KEYS)
    rows = [
        (name, str(of["all_right"]["pairs"]), *(_points(of[column]) for column in columns))
        for name, of in found.items()
    ]
    return table(("points", "pairs", "all four right", *KEYS), rows)


def reliability(made: Mapping[str, Any], key: str = "all") -> str:
    """How often the judge is right where it says how sure it is, of one view's figures."""
    rows = [
        (
            f"{row['low']:.1f} to {row['high']:.1f}",
            str(row["pairs"]),
            f"{100 * row['confidence']:.1f}",
            told({"value": row["accuracy"], "low": row["interval"][0], "high": row["interval"][1]}),
        )
        for row in made["calibration"].get(key, {"rows": []})["rows"]
    ]
    return table(("probability", "judgements", "mean, %", "right, %"), rows)


def agreements(made: Mapping[str, Any]) -> str:
    """On how many pairs two judges agree, and a line for each on which they do not."""
    same = made["same"]
    lines = [f"Same four winners on {same['right']} of {same['of']} pairs: {told(same)} %."]
    for pair in made["differ"]:
        lines.append(f"* {pair['key']}: {_winners(pair['one'])} and {_winners(pair['other'])}")
    return "\n".join(lines) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def told(share: Mapping[str, Any]) -> str:
    """A share in per cent with its interval; a dash for none."""
    if share["value"] is None:
        return "-"
    return f"{100 * share['value']:.1f} ({100 * share['low']:.1f}-{100 * share['high']:.1f})"


def _row(made: Mapping[str, Any]) -> tuple[str, ...]:
    accuracy = [told(made["accuracy"][key]["tau"]) if key in made["accuracy"] else "-" for key in KEYS]
    rounds = "-" if made["rounds"] is None else f"{made['rounds']:.2f}"
    shares = (_percent(made["well_formed"]), _percent(made["tool_rate"]))
    return str(made["pairs"]["judged"]), told(made["all_right"]), *accuracy, *shares, rounds, _ece(made, "all")


def _percent(share: Mapping[str, Any]) -> str:
    return "-" if share["value"] is None else f"{100 * share['value']:.1f}"


def _ece(made: Mapping[str, Any], key: str) -> str:
    of = made["calibration"].get(key)
    return f"{of['ece']:.3f}" if of else "-"


def _points(of: Mapping[str, Any]) -> str:
    if of["mean"] is None:
        return "-"
    return f"{100 * of['mean']:+.1f} ({100 * of['low']:+.1f} to {100 * of['high']:+.1f})"


def _winners(by: Mapping[str, int]) -> str:
    return ", ".join(f"{key}={by[key]}" for key in KEYS if key in by) or "no verdict"
