"""Many judgements at once with one judge, of which some are ended at random: every other verdict is the one alone."""

from __future__ import annotations

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vrt_lite.api import Judge
from vrt_lite.interfaces import Event, Stop
from vrt_lite.records.judgement import Judgement
from vrt_lite.settings import Settings

EXAMPLES = Path(__file__).parents[1] / "examples"
PAIRS = tuple(
    (EXAMPLES / f"{a}.mp4", EXAMPLES / f"{b}.mp4", prompt)
    for (a, b), prompt in itertools.product(
        (("star", "circle"), ("circle", "a"), ("b", "star")), ("A blue star moves up.", "A red circle moves down.")
    )
)
MOST_EVENTS = 30


class EndedError(Exception):
    """A judgement was ended on purpose."""


def verdicts(judgement: Judgement) -> list[object]:
    return [(order.first, order.verdict, [r.text for r in order.rounds]) for order in judgement.orders]


def judge_many(*, both: bool, count: int, ended: int, seed: int) -> tuple[int, int]:
    """Judge at four at once; how many verdicts came, and how many judgements were ended in half."""
    draw, settings = random.Random(seed), Settings(cache=False, both_orders=both)
    places = [*(draw.randrange(1, MOST_EVENTS) for _ in range(ended)), *[0] * (count - ended)]
    draw.shuffle(places)
    with Judge("vrt-tiny-2", settings=settings, measures=False) as alone:
        wanted = {pair: verdicts(alone.compare(pair[0], pair[1], prompt=pair[2])) for pair in PAIRS}

    def judge_one(number: int) -> bool:
        pair, left, stop = PAIRS[number % len(PAIRS)], places[number], Stop()

        def observe(event: Event) -> None:
            nonlocal left
            left -= 1
            if left == 0 and number % 2:
                raise EndedError
            if left == 0:  # as another thread does
                stop.set(EndedError())

        try:
            judgement = judge.compare(pair[0], pair[1], prompt=pair[2], observe=observe, stop=stop)
        except EndedError:
            return False
        assert verdicts(judgement) == wanted[pair]
        return True

    before = threading.active_count()
    with Judge("vrt-tiny-2", settings=settings, measures=False, jobs=4) as judge, ThreadPoolExecutor(5) as pool:
        done = list(pool.map(judge_one, range(count)))
    assert threading.active_count() == before
    return sum(done), len(done) - sum(done)


@pytest.mark.parametrize(
    ("seed", "count", "ended"),
    [(0, 12, 5), (1, 12, 5), *(pytest.param(seed, 88, 50, marks=pytest.mark.nightly) for seed in range(4))],
)
def test_no_verdict_is_wrong_whatever_is_ended_beside_it(seed: int, count: int, ended: int) -> None:
    judged, broken_off = judge_many(both=seed % 2 == 1, count=count, ended=ended, seed=seed)
    assert judged >= count - ended
    assert broken_off > ended // 2
