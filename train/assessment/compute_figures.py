"""Computes the figures of an evaluation, as plain JSON, from outcomes alone.

A SHARE is {right, of, value, low, high}: Wilson's 95 % interval, `value` null of no cases. A case without a verdict is
wrong wherever it is counted. KEY is TA, VQ, MQ or OA. `figures` gives

    version      1
    pairs        {judged, verdicts, hidden}: cases; those with a verdict; those whose evidence is hidden
    accuracy     {KEY: {tau: SHARE, diff: SHARE}}: tau counts ties, diff leaves out pairs whose label is one
    all_right    SHARE: every label named
    well_formed  SHARE: every reply could be used as it was, and the judge ended by itself
    tool_rate    SHARE: at least one call
    recommended  SHARE of the verdicts that no final answer gave
    rounds, calls, corrections   means a case, null of none
    rounds_histogram             {"1": n, …}
    seconds      mean of the cases that were judged alone, null where none was
    calibration  {KEY | "all": {pairs, ece, rows: [{low, high, pairs, confidence, accuracy, interval}]}}: the judge's
                 probability of the winner that it named, ten bins of equal width, those that hold any
    evidence     {"open" | "hidden": GROUP}, by whether a label can be known without asking for frames
    defects      {name: GROUP}, the most frequent first; a pair is in each of its own, "none" without any
    GROUP        {pairs, all_right: SHARE, KEY: SHARE (tau)}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

import msgspec

from train.assessment.outcomes import CaseOutcome
from vrt_lite.evaluation.metrics import Share, diff, mean_interval, share, tau
from vrt_lite.protocol.messages import KEYS

VERSION: Final = 1
BINS: Final = 10
ALL_RIGHT: Final = "all_right"
_NO_VERDICT: Final = -1
"""The winner in a missing verdict. It equals no label, so it is always wrong."""


def figures(outcomes: Iterable[CaseOutcome]) -> dict[str, Any]:
    """Compute all figures of these outcomes, in the form that the module's docstring describes."""
    every = list(outcomes)
    with_verdict = [case for case in every if case.winners]
    alone = [case.seconds for case in every if case.seconds]
    return {
        "version": VERSION,
        "pairs": {"judged": len(every), "verdicts": len(with_verdict), "hidden": sum(case.hidden for case in every)},
        "accuracy": {key: _accuracy(every, key) for key in KEYS if any(key in case.labels for case in every)},
        ALL_RIGHT: _share_of(case.all_right for case in every),
        "well_formed": _share_of(case.well_formed for case in every),
        "tool_rate": _share_of(case.calls > 0 for case in every),
        "recommended": _share_of(case.source == "recommended" for case in with_verdict),
        "rounds": _mean([case.rounds for case in every]),
        "calls": _mean([case.calls for case in every]),
        "corrections": _mean([case.corrections for case in every]),
        "rounds_histogram": {str(n): count for n, count in sorted(Counter(c.rounds for c in every).items())},
        "seconds": _mean(alone),
        "calibration": _calibrations(with_verdict),
        "evidence": {
            name: _group([case for case in every if case.hidden == hidden])
            for name, hidden in (("open", False), ("hidden", True))
        },
        "defects": _defects(every),
    }


def plain(of: Share) -> dict[str, Any]:
    """Convert a share to JSON."""
    return msgspec.to_builtins(of)


def _share_of(hits: Iterable[bool]) -> dict[str, Any]:
    found = list(hits)
    return plain(share(sum(found), len(found)))


def _mean(values: Sequence[float]) -> float | None:
    return round(fmean(values), 6) if values else None


def _columns(cases: Sequence[CaseOutcome], key: str) -> tuple[list[int], list[int]]:
    """Return labels and winners of the cases that have a label."""
    kept = [case for case in cases if key in case.labels]
    return [case.labels[key] for case in kept], [case.winners.get(key, _NO_VERDICT) for case in kept]


def _accuracy(cases: Sequence[CaseOutcome], key: str) -> dict[str, Any]:
    labels, verdicts = _columns(cases, key)
    return {"tau": plain(tau(labels, verdicts)), "diff": plain(diff(labels, verdicts))}


def _group(cases: Sequence[CaseOutcome]) -> dict[str, Any]:
    shares = {key: plain(tau(*_columns(cases, key))) for key in KEYS}
    return {"pairs": len(cases), ALL_RIGHT: _share_of(case.all_right for case in cases), **shares}


def _defects(cases: Sequence[CaseOutcome]) -> dict[str, Any]:
    by: dict[str, list[CaseOutcome]] = {}
    for case in cases:
        for name in dict.fromkeys(case.defects or ("none",)):
            by.setdefault(name, []).append(case)
    return {name: _group(of) for name, of in sorted(by.items(), key=lambda item: (-len(item[1]), item[0]))}


def _calibrations(with_verdict: Sequence[CaseOutcome]) -> dict[str, Any]:
    by = {
        key: [
            (case.odds[key][case.winners[key]], case.winners[key] == case.labels[key])
            for case in with_verdict
            if key in case.odds and key in case.labels
        ]
        for key in KEYS
    }
    named = {"all": [pair for pairs in by.values() for pair in pairs], **by}
    return {name: calibration(pairs) for name, pairs in named.items() if pairs}


def calibration(pairs: Sequence[tuple[float, bool]]) -> dict[str, Any]:
    """Compute the expected calibration error (Guo et al. 2017, arXiv 1706.04599, eq. 3).

    `pairs` are the probability of a judgement, and whether the judgement is right.

    Bins are [0, 0.1), … [0.9, 1]; the error is the mean over pairs of |accuracy - mean probability| of their bin.
    """
    bins: dict[int, list[tuple[float, bool]]] = {}
    for probability, held in pairs:
        bins.setdefault(min(int(probability * BINS), BINS - 1), []).append((probability, held))
    rows: list[dict[str, Any]] = []
    error = 0.0
    for number, held in sorted(bins.items()):
        confidence, right = fmean(p for p, _ in held), share(sum(hit for _, hit in held), len(held))
        error += abs(right.right / right.of - confidence) * len(held)
        rows.append(
            {
                "low": number / BINS,
                "high": (number + 1) / BINS,
                "pairs": len(held),
                "confidence": confidence,
                "accuracy": right.value,
                "interval": [right.low, right.high],
            }
        )
    return {"pairs": len(pairs), "ece": error / len(pairs) if pairs else None, "rows": rows}


def difference(
    one: Mapping[str, CaseOutcome], other: Mapping[str, CaseOutcome], *, hidden: bool | None = None
) -> dict[str, dict[str, Any]]:
    """Compute how much more often `one` is right than `other` on the cases that both judged, by KEY and all four.

    {KEY | "all_right": {pairs, mean, low, high}}: mean of the paired differences, -1 to 1, null of no pairs, and its
    95 % interval, a percentile bootstrap over cases. `hidden` keeps only cases with, or without, hidden evidence.
    """
    pairs = [(one[key], other[key]) for key in one if key in other and hidden in (None, one[key].hidden)]
    measures: dict[str, Callable[[CaseOutcome], bool]] = {ALL_RIGHT: _all_right}
    measures |= {key: _names_winner(key) for key in KEYS}
    found: dict[str, dict[str, Any]] = {}
    for name, right in measures.items():
        kept = [(a, b) for a, b in pairs if name == ALL_RIGHT or name in a.labels]
        changes = [int(right(a)) - int(right(b)) for a, b in kept]
        low, high = mean_interval(changes, [a.key for a, _ in kept])
        found[name] = {"pairs": len(kept), "mean": fmean(changes) if changes else None, "low": low, "high": high}
    return found


def _all_right(case: CaseOutcome) -> bool:
    return case.all_right


def _names_winner(key: str) -> Callable[[CaseOutcome], bool]:
    return lambda case: case.winners.get(key) == case.labels[key]


def agreement(one: Mapping[str, CaseOutcome], other: Mapping[str, CaseOutcome]) -> dict[str, Any]:
    """Compute the share of cases on which both judges name the same winners, and list the other cases.

    {same: SHARE, differ: [{key, one: {KEY: winner}, other: {KEY: winner}}]}. Two missing verdicts are not the same.
    """
    both = [(one[key], other[key]) for key in one if key in other]
    alike = [bool(a.winners) and a.winners == b.winners for a, b in both]
    differ = [
        {"key": a.key, "one": dict(a.winners), "other": dict(b.winners)}
        for (a, b), same in zip(both, alike, strict=True)
        if not same
    ]
    return {"same": _share_of(alike), "differ": differ}
