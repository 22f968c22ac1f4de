"""Computes all figures of an evaluation from its cases. Pure functions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from statistics import fmean, median
from typing import Final

from msgspec.structs import astuple, replace

from vrt_lite.evaluation.metrics import calibrated, commonest, diff, mean_interval, share, sign, tau
from vrt_lite.evaluation.published import find_published
from vrt_lite.evaluation.sets import KEYS
from vrt_lite.protocol.verdict import join_orders
from vrt_lite.records import figures as f
from vrt_lite.records.labelled import UNDECIDED, EvalAbout, EvalCase, ScoredCase, score_case
from vrt_lite.records.pairs import Result, conditions_of, count_orders

HARD: Final = 0.1
_NAMED = 200
_LEAST_BANDED = 40  # a quarter of fewer pairs means nothing
_Sized = Sequence[tuple[float, ScoredCase]]
"""Cases by ascending length."""


def compute_figures(cases: Iterable[EvalCase], results: Mapping[str, Result], about: EvalAbout) -> f.Figures:
    """Compute every figure of these cases, with the results of their judgements by key.

    What was not judged enters no figure.
    """
    scored = [score_case(case, results.get(case.key)) for case in cases]
    every = [case for case in scored if case.verdict or case.failure]
    own = [case for case in every if about.order != "both" or case.order == "given"]
    failed = sum(bool(case.failure) for case in own)
    labelled = [key for key in KEYS if any(key in case.labels for case in own)]
    accuracy = {key: _accuracy(own, key) for key in labelled}
    main = next((key for key in labelled if accuracy[key]), (*labelled, "OA")[0])
    sized = _sort_by_length([case for case in own if main in case.labels])
    return f.Figures(
        version=f.VERSION,
        set=about.set,
        title=about.title,
        split=about.split,
        order=about.order,
        main=main,
        pairs=f.PairCounts(about.chosen, len(own) - failed, failed, max(about.chosen - len(own), 0)),
        left_out=about.left_out,
        coverage={key: _count_coverage(own, key) for key in labelled},
        accuracy=accuracy,
        baselines={key: _baselines([1] * a + [2] * b + [0] * tied) for key, (a, b, tied) in about.labels.items()},
        confusion={key: _confusion(own, key) if of else None for key, of in accuracy.items()},
        subsets=tuple(subset for kind, known in sized.items() for subset in _find_longest(kind, known, main)),
        bands={kind: _bands(known, main) for kind, known in sized.items()},
        groups=_groups(own, main),
        cost=_cost(every),
        position=_position(every),
        orders=_orders(every, main) if about.order in ("random", "both") else None,
        failures=_failures(every),
        published=find_published(about.set, about.split),
        conditions=conditions_of(case.result for case in every if case.result),
        scope=about.scope,
    )


def _list_judged(cases: Iterable[ScoredCase], key: str) -> list[ScoredCase]:
    """List the cases that figures of a dimension are computed from: they have a label for it, and were judged in it."""
    return [case for case in cases if key in case.labels and case.preference(key)]


def _count_coverage(cases: Iterable[ScoredCase], key: str) -> f.Coverage:
    """Count which of the cases that have a label for a dimension were judged in it."""
    labelled = [case for case in cases if key in case.labels]
    judged, failed = len(_list_judged(labelled, key)), sum(bool(case.failure) for case in labelled)
    return f.Coverage(judged, len(labelled), len(labelled) - judged - failed, failed)


def _part(cases: Sequence[ScoredCase], key: str) -> f.Part:
    """Count which cases were judged in a dimension, and compute tau, diff and their baselines of those."""
    judged = _list_judged(cases, key)
    labels, verdicts = [case.labels[key] for case in judged], [case.winner(key) for case in judged]
    return f.Part(
        *astuple(_count_coverage(cases, key)),
        undecided=verdicts.count(UNDECIDED),
        tau=tau(labels, verdicts),
        diff=diff(labels, verdicts),
        baselines=_baselines(labels),
    )


def _accuracy(cases: Sequence[ScoredCase], key: str) -> f.Accuracy | None:
    """Compute all measures of one dimension; None if no pair was judged in it."""
    judged = _list_judged(cases, key)
    if not judged:
        return None
    part = _part(cases, key)
    failed = [case.labels[key] for case in cases if key in case.labels and case.failure]
    soft = [(case.labels[key], margin) for case in judged if (margin := case.margin(key)) is not None]
    known, margins = [label for label, _ in soft], [margin for _, margin in soft]
    return f.Accuracy(
        *astuple(part),
        tau_all=share(part.tau.right, part.tau.of + len(failed)),
        diff_all=share(part.diff.right, part.diff.of + sum(map(bool, failed))),
        calibrated=calibrated(known, margins),
        sign=sign(known, margins),
        probabilities=len(soft),
        prompts=len({case.prompt for case in judged}),
    )


def _baselines(labels: Sequence[int]) -> f.Baselines:
    """Compute the accuracy of answers that need no judge."""

    def always(answer: int | None, measure: Callable[[Sequence[int], Sequence[int]], f.Share]) -> f.AnswerShare:
        return f.AnswerShare(*astuple(measure(labels, [answer or 0] * len(labels))), answer=answer)

    decided = [label for label in labels if label]
    common = f.AnswerShares(always(commonest(labels), tau), always(commonest(decided), diff))
    return f.Baselines(len(labels), f.AnswerShares(always(0, tau), always(0, diff)), common)


def _confusion(cases: Sequence[ScoredCase], key: str) -> tuple[tuple[int, ...], ...]:
    counted = Counter((case.labels[key], case.winner(key)) for case in _list_judged(cases, key))
    return tuple(tuple(counted[label, verdict] for verdict in (1, 2, 0)) for label in (1, 2, 0))


def _sort_by_length(cases: Sequence[ScoredCase]) -> dict[str, _Sized]:
    """Sort the cases by the length of their longer clip, where that is known, and by that of their prompt."""
    clips = [(case.clip_seconds, case) for case in cases if case.clip_seconds is not None]
    prompts = [(float(case.prompt_characters), case) for case in cases]
    return {"clip": sorted(clips, key=itemgetter(0)), "prompt": sorted(prompts, key=itemgetter(0))}


def _find_longest(kind: str, known: _Sized, key: str) -> list[f.Subset]:
    """Find the paper's hard subset: the longest tenth.

    All pairs as long as the shortest one of the tenth belong to it, so that chance does not decide. If these are all
    pairs, there is no such subset.
    """
    least = known[-math.ceil(HARD * len(known))][0] if known else 0.0
    hard = [case for size, case in known if size >= least]
    if len(hard) == len(known):
        return []
    return [f.Subset(*astuple(_part(hard, key)), name=f"longest {kind}s", of=kind, least=least)]


def _bands(known: _Sized, key: str) -> tuple[f.Band, ...]:
    """Divide the cases into quarters by length; equal lengths stay together, so there may be fewer."""
    if len(_list_judged((case for _, case in known), key)) < _LEAST_BANDED:
        return ()
    edges = [*sorted({known[len(known) * quarter // 4][0] for quarter in range(4)}), math.inf]
    bands = [[(size, case) for size, case in known if low <= size < high] for low, high in pairwise(edges)]
    return tuple(
        f.Band(*astuple(_part([case for _, case in band], key)), low=band[0][0], high=band[-1][0]) for band in bands
    )


def _groups(cases: Sequence[ScoredCase], key: str) -> tuple[f.GroupPart, ...]:
    by: defaultdict[str, list[ScoredCase]] = defaultdict(list)
    for case in cases:
        if case.group and key in case.labels:
            by[case.group].append(case)
    largest = sorted(by.items(), key=lambda pair: (-len(pair[1]), pair[0]))[:_NAMED]
    return tuple(f.GroupPart(*astuple(_part(of, key)), name=name) for name, of in largest)


def _cost(cases: Sequence[ScoredCase]) -> f.Cost:
    """Compute the cost of a judgement. Where a file was compared with itself, no model ran: that is not counted."""
    ran = [case.result for case in cases if case.result and case.result.rounds and not case.failure]
    spreads = {name: _spread([getattr(of, name) for of in ran]) for name in ("rounds", "calls", "seconds", "tokens")}
    return f.Cost(
        judgements=len(ran),
        tool_rate=share(sum(result.calls > 0 for result in ran), len(ran)),
        recommended=share(sum(result.source == "recommended" for result in ran), len(ran)),
        **spreads,
        rounds_histogram={str(n): count for n, count in sorted(Counter(result.rounds for result in ran).items())},
    )


def _spread(values: Sequence[float]) -> f.Spread | None:
    if not values:
        return None
    p95 = sorted(values)[math.ceil(0.95 * (len(values) - 1))]
    return f.Spread(round(fmean(values), 6), float(median(values)), p95)


def _position(cases: Sequence[ScoredCase]) -> f.Position:
    """Count how often the video shown first wins if one wins, by the verdicts and by the labels of these pairs."""
    judged = [case for case in cases if not case.failure]

    def count_first(find_winner: Callable[[ScoredCase], int | None]) -> f.Share:
        won = [(find_winner(of) == 1) == (of.order == "given") for of in judged if find_winner(of) in (1, 2)]
        return share(sum(won), len(won))

    return f.Position(count_first(lambda case: case.winner("OA")), count_first(lambda case: case.labels.get("OA")))


def _orders(cases: Sequence[ScoredCase], key: str) -> f.OrderFigures:
    """Compute the effect of the order, from pairs judged in both orders or in a random one."""
    given, swapped = ({case.row: case for case in cases if case.order == order} for order in ("given", "swapped"))
    by_order = f.OrderFigures(_part([*given.values()], key), _part([*swapped.values()], key))
    pairs = [(one, swapped[row]) for row, one in given.items() if row in swapped]
    if not pairs:
        return by_order
    orders = count_orders((one.verdict, other.verdict) for one, other in pairs)
    kept = [(one, other) for one, other in pairs if len(_list_judged((one, other), key)) == 2]
    change = [(other.labels[key] == other.winner(key)) - (one.labels[key] == one.winner(key)) for one, other in kept]
    low, high = mean_interval(change, [one.prompt for one, _ in kept])
    return replace(
        by_order,
        averaged=_part([_join_orders(*pair) for pair in pairs], key),
        effect=f.OrderEffect(len(change), fmean(change) if change else None, low, high),
        disagree={k: share(orders.differ[k], n) if (n := orders.judged.get(k)) else None for k in KEYS},
    )


def _join_orders(one: ScoredCase, other: ScoredCase) -> ScoredCase:
    """Join both orders of a pair by the rule of `compare --orders both`; if one order failed, the other's stands."""
    both = join_orders(one.verdict, other.verdict)
    return replace(one if one.verdict else other, verdict=both and both.verdict)


def _failures(cases: Sequence[ScoredCase]) -> f.Failures:
    """Count the failures. A pair that failed for one reason in both orders is one failure, of order "both"."""
    found: dict[tuple[int, str, str], f.NamedFailure] = {}
    for case in cases:
        if case.failure:
            alike = (case.row, case.failure, case.why)
            order = "both" if alike in found else case.order
            found[alike] = f.NamedFailure(case.row, case.name, order, case.failure, case.why)
    return f.Failures(dict(Counter(kind for _, kind, _ in found)), tuple(found.values())[:_NAMED])
