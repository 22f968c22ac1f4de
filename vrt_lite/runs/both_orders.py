"""Both orders of a pair: which judgement counts for each, and how often the orders disagree. Pure functions.

The leaderboard, figures, reports and exports all count by these two functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vrt_lite.protocol.messages import KEYS, OVERALL
from vrt_lite.protocol.verdict import Verdict, join_orders
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

    By OA and those of TA, VQ and MQ that any pair was judged in: `judged` counts the pairs that both orders judged in
    it, `differ` those of them whose orders choose differently, and `undecided` those that are undecided.
    """

    pairs: int
    judged: Mapping[str, int]
    differ: Mapping[str, int]
    undecided: Mapping[str, int]


def count_orders(verdicts: Iterable[tuple[Verdict, Verdict]]) -> OrderCounts:
    """Count how often both verdicts of a pair, about its clips in the same order, disagree."""
    joined = [both for one, other in verdicts if (both := join_orders(one, other))]
    preferences = [both.verdict.preferences for both in joined]
    judged = {key: sum(key in of for of in preferences) for key in KEYS}
    judged = {key: count for key, count in judged.items() if count or key == OVERALL}
    return OrderCounts(
        len(joined),
        judged,
        {key: sum(key in both.disagreements for both in joined) for key in judged},
        {key: sum(key in of and of[key].undecided for of in preferences) for key in judged},
    )
