"""All figures of an evaluation, from its cases, as plain JSON. Pure; knows no run, no set's layout and no terminal.

`about["figures"]` of an eval run has this shape. A SHARE is {right, of, value, low, high}: `value` is right / of, or
null of no pairs; low and high are its 95 % interval, Wilson's. Shares are 0 to 1. KEY is OA, TA, VQ or MQ, only those
labelled.

    version    2
    set, title the set's name, and in words
    split      which split of the set, as its table's name tells it; "" if it does not
    order      "given", "swapped", "random" or "both"; the figures below are of that order, of "given" for "both"
    main       the KEY that the figures by subset, band, group and order are of: OA where it is labelled
    pairs      {chosen, judged, failed, left}: left are not judged yet; chosen is their sum
    left_out   {broken, discarded, unlabelled}: rows of the table that are no pair to judge; 0 is not there
    accuracy   {KEY: {pairs, failed, tau, diff, tau_all, diff_all, calibrated, sign, probabilities, prompts,
               baselines}}
               tau, diff: SHARE, discrete; tau_all, diff_all: the same with failures counted as wrong;
               calibrated: SHARE with `threshold`, soft, fitted on these pairs; sign: SHARE, soft;
               probabilities: of how many judged pairs there are any; prompts: how many different ones they have;
               baselines: BASELINES of the same pairs
    baselines  {KEY: BASELINES} of all labelled pairs of the table, judged or not
    confusion  {KEY: 3 x 3 counts}: rows are labels 1, 2, 0, columns verdicts 1, 2, 0
    subsets    [{name, of, from, failed, PART}]: the longest 10 %, `of` "clip" (s) or "prompt" (characters)
    bands      {clip|prompt: [{low, high, PART}]}: quarters, by length, of at least 40 pairs
    groups     [{name, failed, PART}], the largest first, at most 200
    cost       {judgements, tool_rate: SHARE, recommended: SHARE, rounds, calls, seconds, tokens:
               {mean, median, p95}, rounds_histogram: {"1": n, …}}: a judgement is one pair in one order
    position   {verdicts: SHARE, labels: SHARE}: of those that are no tie, those for the video shown first
    orders     null, or {given, swapped: {PART}, and for "both": averaged: {PART, undecided},
               effect: {pairs, tau, low, high} (swapped - given), disagree: {KEY: SHARE}}. `undecided` counts pairs
               whose orders name opposite winners: no verdict there is right
    failures   {counts: {kind: n}, first: [{row, name, order, kind, why}]}: at most 200 are named
    published  {source, models: {name: [tau, diff]}, other_splits}: figures on this very split, and of which other
               splits of the set there are some; null for other sets

PART is pairs, tau, diff and baselines. BASELINES are what needs no judge: {pairs, tie: {tau, diff}, commonest: {tau,
diff}}, each a SHARE with `answer`: of saying a tie of every pair, and the commonest label (for diff that of 1 and 2).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from statistics import fmean
from typing import Any, Final

from vrt_lite.evaluation.cases import UNDECIDED, Case, Orders, averaged
from vrt_lite.evaluation.layouts import KEYS
from vrt_lite.evaluation.metrics import Share, calibrated, commonest, diff, mean_interval, share, sign, tau
from vrt_lite.evaluation.published import published

VERSION: Final = 2
HARD: Final = 0.1
_NAMED = 200
_LEAST_BANDED = 40  # a quarter of fewer says nothing


def figures(
    cases: Iterable[Case],
    *,
    name: str,
    title: str,
    split: str,
    labels: Mapping[str, Sequence[int]],
    order: Orders = "given",
    chosen: int,
    left_out: Mapping[str, int],
) -> dict[str, Any]:
    """Every figure there is of these cases. `labels` are how many of the table's pairs are labelled 1, 2 and 0."""
    every = list(cases)
    main_cases = [case for case in every if order != "both" or case.order == "given"]
    judged, failed = _parted(main_cases)
    labelled = [key for key in KEYS if any(key in case.labels for case in main_cases)]
    main = labelled[0] if labelled else "OA"
    return {
        "version": VERSION,
        "set": name,
        "title": title,
        "split": split,
        "order": order,
        "main": main,
        "pairs": {
            "chosen": chosen,
            "judged": len(judged),
            "failed": len(failed),
            "left": max(chosen - len(judged) - len(failed), 0),
        },
        "left_out": dict(left_out),
        "accuracy": {key: _accuracy(main_cases, key) for key in labelled},
        "baselines": {key: _baselines([1] * a + [2] * b + [0] * tied) for key, (a, b, tied) in labels.items()},
        "confusion": {key: _confusion(judged, key) for key in labelled},
        "subsets": _subsets(main_cases, main),
        "bands": {kind: _bands(judged, main, length) for kind, length in _LENGTHS.items()},
        "groups": _groups(main_cases, main),
        "cost": _cost([case for case in every if not case.failure]),
        "position": _position(every),
        "orders": _orders(every, main) if order in ("random", "both") else None,
        "failures": _failures(every),
        "published": published(name, split),
    }


def _parted(cases: Sequence[Case]) -> tuple[list[Case], list[Case]]:
    return [case for case in cases if not case.failure], [case for case in cases if case.failure]


def _share(of: Share) -> dict[str, Any]:
    plain = {"value": of.value, **asdict(of)}
    if of.threshold is None:
        del plain["threshold"]
    return plain


def _accuracy(cases: Sequence[Case], key: str) -> dict[str, Any]:
    """All measures of one dimension. Pairs without a label for it are not in it."""
    judged, failed = _parted([case for case in cases if key in case.labels])
    labels, verdicts = [c.labels[key] for c in judged], [c.winners[key] for c in judged]
    three, two = tau(labels, verdicts), diff(labels, verdicts)
    lost = sum(case.labels[key] != 0 for case in failed)
    soft = [(c.labels[key], margin) for c in judged if (margin := c.margin(key)) is not None]
    known, margins = [label for label, _ in soft], [margin for _, margin in soft]
    return {
        "pairs": len(judged),
        "failed": len(failed),
        "tau": _share(three),
        "diff": _share(two),
        "tau_all": _share(share(three.right, three.of + len(failed))),
        "diff_all": _share(share(two.right, two.of + lost)),
        "calibrated": _share(calibrated(known, margins)),
        "sign": _share(sign(known, margins)),
        "probabilities": len(soft),
        "prompts": len({case.prompt for case in judged}),
        "baselines": _baselines(labels),
    }


def _baselines(labels: Sequence[int]) -> dict[str, Any]:
    """What these labels give without any judge: a tie of every pair, and the commonest answer of each measure."""

    def always(answer: int | None, measure: Callable[[Sequence[int], Sequence[int]], Share]) -> dict[str, Any]:
        said = [answer or 0] * len(labels)
        return {"answer": answer, **_share(measure(labels, said))}

    decided = [label for label in labels if label]
    return {
        "pairs": len(labels),
        "tie": {"tau": always(0, tau), "diff": always(0, diff)},
        "commonest": {"tau": always(commonest(labels), tau), "diff": always(commonest(decided), diff)},
    }


def _both(cases: Sequence[Case], key: str) -> dict[str, Any]:
    """Only tau, diff and their baselines, of the judged ones that have this label."""
    kept = [case for case in cases if key in case.labels and not case.failure]
    labels, verdicts = [case.labels[key] for case in kept], [case.winners[key] for case in kept]
    return {
        "pairs": len(kept),
        "tau": _share(tau(labels, verdicts)),
        "diff": _share(diff(labels, verdicts)),
        "baselines": _baselines(labels),
    }


def _confusion(judged: Sequence[Case], key: str) -> list[list[int]]:
    counted = Counter((case.labels[key], case.winners[key]) for case in judged if key in case.labels)
    return [[counted[label, verdict] for verdict in (1, 2, 0)] for label in (1, 2, 0)]


def _clip_length(case: Case) -> float | None:
    return case.clip_seconds


def _prompt_length(case: Case) -> float | None:
    return float(case.prompt_characters)


_LENGTHS: Mapping[str, Callable[[Case], float | None]] = {"clip": _clip_length, "prompt": _prompt_length}


def _subsets(cases: Sequence[Case], key: str) -> list[dict[str, Any]]:
    """The paper's hard subsets: the longest tenth by the longer clip, and by the prompt.

    Pairs as long as the last one that belongs to the tenth belong to it too: none is cut off by chance. Where that
    would be all of them, there is no such subset.
    """
    found: list[dict[str, Any]] = []
    for kind, length in _LENGTHS.items():
        known = [(size, case) for case in cases if key in case.labels and (size := length(case)) is not None]
        if not known:
            continue
        sizes = sorted((size for size, _ in known), reverse=True)
        least = sizes[math.ceil(HARD * len(sizes)) - 1]
        if least == sizes[-1]:
            continue
        hard = [case for size, case in known if size >= least]
        failed = sum(bool(case.failure) for case in hard)
        found.append({"name": f"longest {kind}s", "of": kind, "from": least, "failed": failed, **_both(hard, key)})
    return found


def _bands(judged: Sequence[Case], key: str, length: Callable[[Case], float | None]) -> list[dict[str, Any]]:
    """Quarters by length; equal lengths stay together, so that there may be fewer."""
    known = sorted(
        ((size, case) for case in judged if key in case.labels and (size := length(case)) is not None),
        key=lambda pair: pair[0],
    )
    if len(known) < _LEAST_BANDED:
        return []
    sizes = [size for size, _ in known]
    edges = [*sorted({sizes[len(sizes) * i // 4] for i in range(4)}), math.inf]
    found: list[dict[str, Any]] = []
    for low, high in pairwise(edges):
        band = [(size, case) for size, case in known if low <= size < high]
        found.append({"low": band[0][0], "high": band[-1][0], **_both([case for _, case in band], key)})
    return found


def _groups(cases: Sequence[Case], key: str) -> list[dict[str, Any]]:
    by: dict[str, list[Case]] = {}
    for case in cases:
        if case.group:
            by.setdefault(case.group, []).append(case)
    largest = sorted(by.items(), key=lambda pair: (-len(pair[1]), pair[0]))[:_NAMED]
    return [{"name": name, "failed": sum(bool(c.failure) for c in of), **_both(of, key)} for name, of in largest]


def _cost(judged: Sequence[Case]) -> dict[str, Any]:
    """What a judgement takes: a pair in one order. A file beside itself ran no model and is not counted."""
    ran = [case for case in judged if case.rounds]
    return {
        "judgements": len(ran),
        "tool_rate": _share(share(sum(case.calls > 0 for case in ran), len(ran))),
        "recommended": _share(share(sum(case.source == "recommended" for case in ran), len(ran))),
        "rounds": _spread([case.rounds for case in ran]),
        "calls": _spread([case.calls for case in ran]),
        "seconds": _spread([case.seconds for case in ran]),
        "tokens": _spread([case.tokens for case in ran]),
        "rounds_histogram": {str(n): count for n, count in sorted(Counter(c.rounds for c in ran).items())},
    }


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    ordered = sorted(values)
    last = len(ordered) - 1
    median = (ordered[last // 2] + ordered[(last + 1) // 2]) / 2
    return {"mean": round(fmean(ordered), 6), "median": median, "p95": ordered[math.ceil(0.95 * last)]}


def _position(cases: Sequence[Case]) -> dict[str, Any]:
    """How often the video shown first wins, where one wins; and how often it would, by the labels of the same pairs."""
    judged = [case for case in cases if not case.failure]
    found: dict[str, Any] = {}
    for name, of in (
        ("verdicts", [(c, c.winners.get("OA")) for c in judged]),
        ("labels", [(c, c.labels.get("OA")) for c in judged]),
    ):
        won = [(winner == 1) == (case.order == "given") for case, winner in of if winner]
        found[name] = _share(share(sum(won), len(won)))
    return found


def _orders(cases: Sequence[Case], key: str) -> dict[str, Any]:
    """The effect of the order: of pairs judged in both, or of those that chance showed either way."""
    by = {order: {c.row: c for c in cases if c.order == order} for order in ("given", "swapped")}
    found: dict[str, Any] = {order: _both(list(found.values()), key) for order, found in by.items()}
    pairs = [(one, by["swapped"][row]) for row, one in by["given"].items() if row in by["swapped"]]
    both = [(one, other) for one, other in pairs if not one.failure and not other.failure]
    if not pairs:
        return found
    means = [averaged(one, other) for one, other in pairs]
    undecided = sum(key in case.labels and case.winners.get(key) == UNDECIDED for case in means)
    found["averaged"] = {**_both(means, key), "undecided": undecided}
    kept = [(one, other) for one, other in both if key in one.labels]
    change = [_right(other, key) - _right(one, key) for one, other in kept]
    low, high = mean_interval(change, [one.prompt for one, _ in kept])
    effect = fmean(change) if change else None
    found["effect"] = {"pairs": len(change), "tau": effect, "low": low, "high": high}
    found["disagree"] = {
        k: _share(share(sum(one.winners[k] != other.winners[k] for one, other in both), len(both))) for k in KEYS
    }
    return found


def _right(case: Case, key: str) -> int:
    return int(case.labels[key] == case.winners[key])


def _failures(cases: Sequence[Case]) -> dict[str, Any]:
    """What failed alike in both orders is one failure, of order "both"."""
    found: dict[tuple[int, str, str], dict[str, Any]] = {}
    for c in cases:
        if c.failure:
            plain = {"row": c.row, "name": c.name, "order": c.order, "kind": c.failure, "why": c.why}
            if found.setdefault((c.row, c.failure, c.why), plain) is not plain:
                found[c.row, c.failure, c.why]["order"] = "both"
    return {"counts": dict(Counter(kind for _, kind, _ in found)), "first": list(found.values())[:_NAMED]}
