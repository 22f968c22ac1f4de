"""Both orders of a pair at once: judged as by themselves, told one after the other, and ended together."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import clips
import jsonschema
import pytest
from chat_server import ChatRequest, says, serving
from judgements import FINAL

from vrt_lite.api import Judge
from vrt_lite.backends.llamacpp import abort_check, engine
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
from vrt_lite.schema import make_schema
from vrt_lite.settings import Remote, Settings
from vrt_lite.show.judge_view import OrderSorter

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
BOTH = Settings(both_orders=True, cache=False)
MOST_APART = 0.01
"""Of probabilities, judged at once and alone, where the engine runs a model as a large one. Measured on 66 orders with
both bundled judges: 0.002."""
WAIT_SECONDS = 20.0


# As by themselves


def judge_pairs(name: str, pairs: list[tuple[Path, Path, str]]) -> Iterator[tuple[Verdict, Verdict]]:
    """The verdict of each order, judged at once with the other one, and alone."""
    with (
        Judge(name, settings=BOTH, measures=False) as two,
        Judge(name, settings=Settings(cache=False), measures=False) as one,
    ):
        for a, b, prompt in pairs:
            for order in two.compare(a, b, prompt=prompt).orders:
                first, second = (a, b) if order.first == 1 else (b, a)
                alone = one.compare(first, second, prompt=prompt).verdict
                yield order.verdict, alone if order.first == 1 else alone.mirrored()
        plan = two.mode.plan()
        assert plan
        assert plan.settings.sequences == 2


PAIRS = {
    "vrt-tiny-2": (EXAMPLES / "star.mp4", EXAMPLES / "circle.mp4", "A blue star moves up."),
    "vrt-tiny-0": (EXAMPLES / "a.mp4", EXAMPLES / "b.mp4", "A red circle moving right."),
}


@pytest.mark.parametrize("name", PAIRS)
def test_both_orders_at_once_are_judged_as_alone_bit_for_bit(name: str) -> None:
    for at_once, alone in judge_pairs(name, [PAIRS[name]]):
        assert at_once == alone


@pytest.mark.parametrize("name", PAIRS)
def test_a_large_model_judges_both_orders_at_once_nearly_as_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundled judge, run as a large model is, with the kernel for single tokens."""
    monkeypatch.setattr(engine, "SMALL_MODEL_BYTES", 0)
    for at_once, alone in judge_pairs(name, [PAIRS[name]]):
        for key, preference in alone.preferences.items():
            assert at_once.preferences[key].winner == preference.winner
            assert at_once.preferences[key].odds == pytest.approx(preference.odds, abs=MOST_APART)


@pytest.mark.nightly
@pytest.mark.parametrize("name", PAIRS)
def test_many_pairs_are_judged_as_alone_bit_for_bit(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.ladder import PROMPT, write_ladder

    pairs = [(a, b, PROMPT) for a, b in itertools.combinations(write_ladder(tmp_path), 2)]
    for at_once, alone in judge_pairs(name, pairs):
        assert at_once == alone


def test_frames_of_both_orders_are_encoded_once_and_the_rounds_are_told_and_traced_in_order(tmp_path: Path) -> None:
    told: list[Event] = []
    trace = tmp_path / "trace.jsonl"
    with Judge(settings=BOTH, measures=False) as judge:
        judgement = judge.compare(
            EXAMPLES / "star.mp4",
            EXAMPLES / "circle.mp4",
            prompt="A blue star moves up.",
            trace=trace,
            observe=OrderSorter(told.append),
        )
    rounds = [(order.first - 1, r.number) for order in judgement.orders for r in order.rounds]
    assert [(e.order, e.number) for e in told if isinstance(e, RoundBegan)] == rounds
    assert [(e.order, e.number) for e in told if isinstance(e, RoundEnded)] == rounds
    assert [json.loads(line)["first"] - 1 for line in trace.read_text().splitlines()] == [order for order, _ in rounds]
    written = ["".join(e.text for e in part) for part in _split_rounds(told)]
    assert written == [r.text for order in judgement.orders for r in order.rounds]
    assert {e.order for e in told if isinstance(e, Prefill)} == {0, 1}
    seen = {(f.video, f.index) for order in judgement.orders for r in order.rounds for f in r.frames}
    assert judgement.counters.frames_encoded <= len(seen)


def _split_rounds(told: list[Event]) -> list[list[Wrote]]:
    parts: list[list[Wrote]] = []
    for event in told:
        if isinstance(event, RoundBegan):
            parts.append([])
        elif isinstance(event, Wrote) and parts:
            parts[-1].append(event)
    return parts


def test_seconds_of_orders_at_once_and_in_turn() -> None:
    watch = Stopwatch()
    watch.seconds["wait"] = 1.0
    one = Usage(vision_seconds=1.0, prefill_seconds=2.0, generate_seconds=3.0)
    in_turn = watch.divide(14.0, [[one], [one]])
    assert in_turn == {"vision": 2.0, "prefill": 4.0, "generate": 6.0, "other": 1.0}
    waiting = replace(one, waited_seconds=6.0)
    at_once = watch.divide(14.0, [[waiting], [waiting]])
    assert at_once == in_turn
    assert watch.divide(2.0, []) == {"vision": 0, "prefill": 0, "generate": 0, "other": 1.0}


# Where there is no second place


class OneAtATime(ScriptedBackend):
    """Counts the replies in progress."""

    now = most = 0

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        self.now += 1
        self.most = max(self.most, self.now)
        time.sleep(0.05)
        self.now -= 1
        return super().reply(conversation, frames, sampling=sampling, observe=observe)


def test_a_given_back_end_gets_one_order_after_the_other() -> None:
    backend = OneAtATime([FINAL, FINAL])
    with Judge(settings=BOTH, backend=backend, measures=False) as judge:
        assert len(judge.compare(EXAMPLES / "star.mp4", EXAMPLES / "circle.mp4").orders) == 2
    assert backend.most == 1


@pytest.mark.parametrize("failing", [0, 1])
def test_an_order_without_a_verdict_leaves_the_other(failing: int) -> None:
    replies = ["", "", FINAL] if failing == 0 else [FINAL, "", ""]
    with Judge(settings=BOTH, backend=ScriptedBackend(replies), measures=False) as judge:
        judgement = judge.compare(EXAMPLES / "star.mp4", EXAMPLES / "circle.mp4")
    [order] = judgement.orders
    assert (order.first, judgement.winner) == (2 - failing, 1 + failing)
    assert any(f"With video {1 + failing} shown first there was no verdict" in w for w in judgement.warnings)
    jsonschema.validate(judgement.to_json(), make_schema())
    with (
        Judge(settings=BOTH, backend=ScriptedBackend([""] * 4), measures=False) as judge,
        pytest.raises(NoVerdictError),
    ):
        judge.compare(EXAMPLES / "star.mp4", EXAMPLES / "circle.mp4")


@pytest.mark.parametrize(("owner", "most"), [("vllm", 2), ("llamacpp", 1)])
def test_a_server_gets_both_orders_at_once_if_it_writes_several_replies(owner: str, most: int, tmp_path: Path) -> None:
    gate = threading.Barrier(most, timeout=WAIT_SECONDS)
    pair = [tmp_path / f"{number}.mp4" for number in range(2)]
    for number, path in enumerate(pair):
        clips.write_clip(path, frames=12 + number, size=(84, 56), gop=4)

    def act(request: ChatRequest) -> None:
        gate.wait()
        says(FINAL)(request)

    with serving(act, owner=owner) as server:
        remote = Remote(server.url, silence_seconds=WAIT_SECONDS, total_seconds=WAIT_SECONDS)
        with Judge(backend=remote, settings=BOTH) as judge:
            judgement = judge.compare(*pair)
    assert len(judgement.orders) == 2
    assert server.most_at_once == most


# Ended together


class StopsWriting(Stop):
    """Is set at one of the checks of the engine after the judge began to write."""

    def __init__(self, check: int) -> None:
        super().__init__()
        self.left = check
        self.writes = False

    def observe(self, event: Event) -> None:
        self.writes |= isinstance(event, Wrote)

    @property
    def error(self) -> BaseException | None:
        self.left -= self.writes
        if self.left == 0:
            self.set(KeyboardInterrupt())
        return super().error


@pytest.mark.parametrize("check", [1, 9])
def test_an_interrupt_within_an_evaluation_ends_both(check: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundled judge, run as a large model is: the engine asks at every check whether to stop."""
    monkeypatch.setattr(engine, "SMALL_MODEL_BYTES", 0)
    monkeypatch.setattr(abort_check, "_EVERY_SECONDS", 0.0)
    pair = (EXAMPLES / "star.mp4", EXAMPLES / "circle.mp4")
    stop = StopsWriting(check)
    with Judge(settings=BOTH, measures=False) as judge:
        with pytest.raises(KeyboardInterrupt):
            judge.compare(*pair, prompt="A blue star moves up.", observe=stop.observe, stop=stop)
        assert stop.left <= 0
        assert len(judge.compare(*pair, prompt="A blue star moves up.").orders) == 2
