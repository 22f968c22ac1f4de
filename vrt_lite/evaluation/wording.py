"""What the terminal and the report say alike of an evaluation: the set, its baselines, what compares with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Figures = Mapping[str, Any]
_ANSWERS: Final = {1: "A", 2: "B", 0: "tie"}


def call_set(figures: Figures) -> str:
    """The set and its split."""
    return f"{figures['title']}, split {figures['split']}" if figures["split"] else str(figures["title"])


def tell_other_splits(figures: Figures) -> str:
    """Which published figures of this set are of another split; empty if none is."""
    known: Figures | None = figures["published"]
    if not known or not known["other_splits"]:
        return ""
    own = f"not of {figures['split']}" if figures["split"] else "and this table's name does not tell which it is of"
    return (
        f"Published figures of this set are of split {', '.join(known['other_splits'])}, {own}: "
        "they are not comparable with these."
    )


def tell_shared_prompts(name: str, of: Figures) -> str:
    """Why the intervals of a dimension called `name` are too narrow; empty if they are not."""
    if of["prompts"] == of["pairs"]:
        return ""
    return (
        f"{name}: {of['pairs']} pairs have {of['prompts']} prompts; pairs of one prompt are not independent, as the "
        "intervals take them to be, so those are too narrow"
    )


def tell_baselines(figures: Figures, key: str, share: Callable[[Figures], str]) -> list[tuple[str, str, str]]:
    """A dimension's baselines as name, tau and diff: of the judged pairs, and of the whole table if those are others.

    `share` words a share.
    """
    own = figures["accuracy"][key]["baselines"]
    whole = tell_table_baselines(figures, key, share)
    found = _tell(own, share) if own["pairs"] else []
    return found if whole and figures["baselines"][key]["pairs"] == own["pairs"] else [*found, *whole]


def tell_table_baselines(figures: Figures, key: str, share: Callable[[Figures], str]) -> list[tuple[str, str, str]]:
    """A dimension's baselines on all labelled pairs of the table, judged or not; none if its labels are not known."""
    of: Figures | None = figures["baselines"].get(key)
    return [(f"{name}, all {of['pairs']} pairs", tau, diff) for name, tau, diff in _tell(of, share)] if of else []


def _tell(of: Figures, share: Callable[[Figures], str]) -> list[tuple[str, str, str]]:
    """Both baselines; the commonest answers are named."""
    tie, commonest = of["tie"], of["commonest"]
    told = {name: share(found) for name, found in commonest.items()}
    named = {n: f"{told[n]} {_ANSWERS[found['answer']]}" if found["of"] else told[n] for n, found in commonest.items()}
    return [
        ("always tie", share(tie["tau"]), share(tie["diff"])),
        ("commonest answer", named["tau"], named["diff"]),
    ]


def tell_part_baselines(of: Figures, value: Callable[[Figures], str]) -> list[str]:
    """The baselines of a part, always tie and commonest answer, each as "tau / diff"; `value` words a share."""
    return [f"{value(of[kind]['tau'])} / {value(of[kind]['diff'])}" for kind in ("tie", "commonest")]
