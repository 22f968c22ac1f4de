"""Both orders of a pair: which judgement counts for each, and how often the orders disagree. Pure functions.

The leaderboard, figures, reports and exports all count by these two functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vrt_lite.protocol.messages import KEYS
from vrt_lite.protocol.verdict import Verdict, average, disagreements
from vrt_lite.runs.question import Result

ShownOrder = tuple[str, str, str]
"""One order of a pair: the sha256 of the clips shown as video 1 and video 2, and the prompt."""


def select_counted(results: Iterable[Result]) -> dict[ShownOrder, Result]:
    """Return the judgement that counts for each order, in the order in which these were first judged.

    There are several judgements of one order if memory was short for some and frames were made smaller. Then the last
    one with a verdict counts, or, without any verdict, the last one.
    """
    counted: dict[ShownOrder, Result] = {}
    for result in results:
        order = (result.first, result.second, result.prompt)
        if result.verdict or order not in counted or not counted[order].verdict:
            counted[order] = result
    return counted


@dataclass(frozen=True, slots=True)
class OrderCounts:
    """How often the two orders of a pair disagree, of the `pairs` that have a verdict in both.

    `differ` counts, by key (TA, VQ, MQ, OA), the pairs whose orders choose differently. `undecided` counts those of
    them whose orders name opposite winners.
    """

    pairs: int
    differ: Mapping[str, int]
    undecided: Mapping[str, int]


def count_orders(verdicts: Iterable[tuple[Verdict, Verdict]]) -> OrderCounts:
    """Count how often both verdicts of a pair, about its clips in the same order, disagree."""
    both = list(verdicts)
    differing = [disagreements(one, other) for one, other in both]
    joined = [average(one, other) for one, other in both]
    return OrderCounts(
        len(both),
        {key: sum(key in keys for keys in differing) for key in KEYS},
        {key: sum(verdict.preferences[key].undecided for verdict in joined) for key in KEYS},
    )
