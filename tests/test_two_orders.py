"""Both orders of a pair, and many pairs, judged at once: each as by itself, whatever is ended beside it."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from chat_server import ChatRequest, says, serving
from judgements import FINAL, check_record

from vrt_lite.api import Judge
from vrt_lite.backends.llamacpp import engine
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.errors import NoVerdictError
from vrt_lite.interfaces import (
    Event,
    FrameStore,
    Observe,
    Prefill,
    RoundBegan,
    RoundEnded,
    Sampling,
    Stop,
    Stopwatch,
    Wrote,
)
from vrt_lite.protocol.messages import Conversation, Reply, Usage
from vrt_lite.protocol.verdict import Verdict
from vrt_lite.records.judgement import Judgement
from vrt_lite.settings import Remote, Settings
from vrt_lite.show.judge_view import OrderSorter

EXAMPLES = Path(__file__).parents[1] / "examples"
STAR, CIRCLE, A, B = (EXAMPLES / f"{name}.mp4" for name in ("star", "circle", "a", "b"))
ONE = Settings(cache=False, max_pixels=12544)
BOTH = replace(ONE, both_orders=True)
MOST_APART = 0.01
"""Of probabilities, judged at once and alone, where the engine runs a model as a large one. Measured on 66 orders with
both bundled judges: 0.002."""
WAIT_SECONDS = 20.0
Asked = tuple[Path, Path, str]


def judge_pairs(name: str, *pairs: Asked) -> Iterator[tuple[Verdict, Verdict]]:
    """The verdict of each order, judged at once with the other one, and alone.

    In one thread each: several would mostly wait for each other.
    """
    both, single = (replace(settings, threads=1) for settings in (BOTH, ONE))
    with Judge(name, settings=both, measures=False) as two, Judge(name, settings=single, measures=False) as one:
        for a, b, prompt in pairs:
            for order in two.compare(a, b, prompt=prompt).orders:
                first, second = (a, b) if order.first == 1 else (b, a)
                alone = one.compare(first, second, prompt=prompt).verdict
                yield order.verdict, alone if order.first == 1 else alone.mirrored()
        plan = two.mode.plan()
        assert plan
        assert plan.settings.sequences == 2


def test_both_orders_at_once_are_judged_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit; nearly so if it is run as a large model is, with the kernel for single tokens."""
    pair = (STAR, CIRCLE, "A blue star moves up.")
    for at_once, alone in judge_pairs("vrt-tiny-2", pair):
        assert at_once == alone
    monkeypatch.setattr(engine, "SMALL_MODEL_BYTES", 0)
    for at_once, alone in judge_pairs("vrt-tiny-2", pair):
        for key, preference in alone.preferences.items():
            assert at_once.preferences[key].winner == preference.winner
            assert at_once.preferences[key].odds == pytest.approx(preference.odds, abs=MOST_APART)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["vrt-tiny-2", "vrt-tiny-0"])
def test_many_pairs_are_judged_as_alone_bit_for_bit(name: str, tmp_path: Path) -> None:
    from examples.ladder import PROMPT, write_ladder

    pairs = [(a, b, PROMPT) for a, b in itertools.combinations(write_ladder(tmp_path), 2)]
    for at_once, alone in judge_pairs(name, *pairs):
        assert at_once == alone


class EndedError(Exception):
    """A judgement was ended on purpose."""


def told(judgement: Judgement) -> list[object]:
    return [(order.first, order.verdict, [r.text for r in order.rounds]) for order in judgement.orders]


@pytest.fixture(scope="module")
def alone() -> dict[Asked, list[object]]:
    """What is told of pairs that are judged one after the other, in both orders."""
    pairs = ((STAR, CIRCLE, "A blue star moves up."), (CIRCLE, A, "A red circle moves down."), (B, STAR, ""))
    with Judge("vrt-tiny-2", settings=BOTH, measures=False) as judge:
        return {asked: told(judge.compare(asked[0], asked[1], prompt=asked[2])) for asked in pairs}


@pytest.mark.parametrize(
    ("seed", "count", "ended"),
    [(0, 8, 4), (1, 8, 4), *(pytest.param(seed, 88, 50, marks=pytest.mark.nightly) for seed in range(4))],
)
def test_no_verdict_is_wrong_whatever_is_ended_beside_it(
    alone: dict[Asked, list[object]], seed: int, count: int, ended: int
) -> None:
    """Four are judged at once; in some the observer raises after some events, or another thread sets the stop."""
    draw, settings, orders = random.Random(seed), (ONE, BOTH)[seed % 2], 1 + seed % 2
    places = [*(draw.randrange(1, 30) for _ in range(ended)), *[0] * (count - ended)]
    draw.shuffle(places)
    pairs = list(alone)

    def judge_one(number: int) -> bool:
        (a, b, prompt), left, stop = pairs[number % len(pairs)], places[number], Stop()

        def observe(event: Event) -> None:
            nonlocal left
            left -= 1
            if left == 0 and number % 2:
                raise EndedError
            if left == 0:
                stop.set(EndedError())

        try:
            judgement = judge.compare(a, b, prompt=prompt, observe=observe, stop=stop)
        except EndedError:
            return False
        assert told(judgement) == alone[a, b, prompt][:orders]
        return True

    before = threading.active_count()
    with Judge("vrt-tiny-2", settings=settings, measures=False, jobs=4) as judge, ThreadPoolExecutor(5) as pool:
        done = list(pool.map(judge_one, range(count)))
    assert threading.active_count() == before
    assert count - ended <= sum(done) < count - ended // 2


def test_frames_of_both_orders_are_encoded_once_and_the_rounds_are_told_and_traced_in_order(tmp_path: Path) -> None:
    events, trace, parts = list[Event](), tmp_path / "trace.jsonl", list[str]()
    with Judge(settings=BOTH, measures=False) as judge:
        observe = OrderSorter(events.append)
        judgement = judge.compare(STAR, CIRCLE, prompt="A blue star moves up.", trace=trace, observe=observe)
    rounds = [(order.first - 1, r.number) for order in judgement.orders for r in order.rounds]
    assert [(e.order, e.number) for e in events if isinstance(e, RoundBegan)] == rounds
    assert [(e.order, e.number) for e in events if isinstance(e, RoundEnded)] == rounds
    assert [json.loads(line)["first"] - 1 for line in trace.read_text().splitlines()] == [order for order, _ in rounds]
    for event in events:
        if isinstance(event, RoundBegan):
            parts.append("")
        elif isinstance(event, Wrote):
            parts[-1] += event.text
    assert parts == [r.text for order in judgement.orders for r in order.rounds]
    assert {e.order for e in events if isinstance(e, Prefill)} == {0, 1}
    seen = {(f.video, f.index) for order in judgement.orders for r in order.rounds for f in r.frames}
    assert judgement.counters.frames_encoded <= len(seen)


def test_seconds_of_orders_at_once_and_in_turn() -> None:
    watch = Stopwatch()
    watch.seconds["wait"] = 1.0
    one = Usage(vision_seconds=1.0, prefill_seconds=2.0, generate_seconds=3.0)
    in_turn = watch.divide(14.0, [[one], [one]])
    assert in_turn == {"vision": 2.0, "prefill": 4.0, "generate": 6.0, "other": 1.0}
    waiting = replace(one, waited_seconds=6.0)
    assert watch.divide(14.0, [[waiting], [waiting]]) == in_turn
    assert watch.divide(2.0, []) == {"vision": 0, "prefill": 0, "generate": 0, "other": 1.0}


class OneAtATime(ScriptedBackend):
    """Counts the replies in progress."""

    now = most = 0

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        self.now += 1
        self.most = max(self.most, self.now)
        time.sleep(0.02)
        self.now -= 1
        return super().reply(conversation, frames, sampling=sampling, observe=observe)


@pytest.mark.parametrize(
    ("replies", "left"), [([FINAL] * 2, [1, 2]), (["", "", FINAL], [2]), ([FINAL, "", ""], [1]), ([""] * 4, [])]
)
def test_a_given_back_end_gets_one_order_after_the_other_and_one_without_a_verdict_leaves_the_other(
    replies: list[str], left: list[int]
) -> None:
    backend = OneAtATime(replies)
    with Judge(settings=BOTH, backend=backend, measures=False) as judge:
        if not left:
            with pytest.raises(NoVerdictError):
                judge.compare(STAR, CIRCLE)
            return
        judgement = judge.compare(STAR, CIRCLE)
    assert [order.first for order in judgement.orders] == left
    assert backend.most == 1
    check_record(judgement.to_json())
    if len(left) == 1:
        failed = 3 - left[0]
        assert judgement.winner == failed
        assert any(f"With video {failed} shown first there was no verdict" in w for w in judgement.warnings)


@pytest.mark.parametrize(("owner", "most"), [("vllm", 2), ("llamacpp", 1)])
def test_a_server_gets_both_orders_at_once_if_it_writes_several_replies(owner: str, most: int) -> None:
    gate = threading.Barrier(most, timeout=WAIT_SECONDS)

    def act(request: ChatRequest) -> None:
        gate.wait()
        says(FINAL)(request)

    with serving(act, owner=owner) as server:
        remote = Remote(server.url, silence_seconds=WAIT_SECONDS, total_seconds=WAIT_SECONDS)
        with Judge(backend=remote, settings=BOTH, measures=False) as judge:
            assert len(judge.compare(STAR, CIRCLE).orders) == 2
    assert server.most_at_once == most
