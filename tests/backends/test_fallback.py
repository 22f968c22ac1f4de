"""What happens when memory cannot be allocated in spite of the plan: less is tried, with a warning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from test_llamacpp import Drawn

from vrt_lite.backends import SharedEngine, open_backend
from vrt_lite.backends.llamacpp import LlamaCppBackend
from vrt_lite.backends.llamacpp.context import Context
from vrt_lite.embeddings import EmbeddingCache
from vrt_lite.errors import OutOfMemoryError
from vrt_lite.fitting import EnginePlan, add_sequences, choose_plan
from vrt_lite.fitting.memory_estimate import read_shape
from vrt_lite.interfaces import Sampling, ignore
from vrt_lite.judge import Answer, Ask, Pair, opening
from vrt_lite.machine import EngineSettings, Gpu, MachineMemory
from vrt_lite.models import find
from vrt_lite.protocol.messages import Reply
from vrt_lite.scheduler import Scheduler, Work, run_alone

FILES = find("vrt-tiny-0")
SHAPE = read_shape(FILES)
SMALL = EngineSettings(gpu_layers=0, threads=1)
LARGE = replace(SMALL, context=2**31 - 256, exact=True)
"""A context that no machine has the memory for."""
GB = 10**9


CONVERSATION = opening(Pair("A red circle moving down.", (3.0, 3.0)), FILES.profile)


def open_engine(choices: Sequence[EngineSettings]) -> SharedEngine:
    cache = EmbeddingCache()

    def load(settings: EngineSettings) -> LlamaCppBackend:
        return open_backend(FILES, profile=FILES.profile, settings=settings, cache=cache)

    def submit(work: Callable[[], LlamaCppBackend]) -> Future[LlamaCppBackend]:
        done: Future[LlamaCppBackend] = Future()
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)
        return done

    return SharedEngine(load, choices, submit=submit, advice="Use --max-pixels 1.")


def ask(answer: Answer) -> Work[Reply]:
    return (yield from answer(Ask(1, (), CONVERSATION, Sampling(8)), ignore))


def reply_with(*choices: EngineSettings) -> tuple[Reply, EngineSettings]:
    with closing(open_engine(choices)) as engine:
        return run_alone(engine.run(ask, Drawn())), engine.settings


def test_a_reply_starts_again_with_the_next_settings() -> None:
    reply, used = reply_with(LARGE, SMALL)
    expected, _ = reply_with(SMALL)
    assert used == SMALL
    assert (reply.tokens, reply.odds) == (expected.tokens, expected.odds)
    assert reply.usage.frames_encoded == expected.usage.frames_encoded


def test_the_last_failure_is_the_callers() -> None:
    with pytest.raises(OutOfMemoryError, match="A context of 2147483392 tokens needs"):
        reply_with(LARGE, replace(LARGE, prefixes=0))


def plan_with(free_bytes: int, settings: EngineSettings | None = None) -> EnginePlan:
    memory = MachineMemory(16 * GB, 16 * GB, (Gpu("GPU", free_bytes),))
    return choose_plan(SHAPE, FILES.profile, settings or EngineSettings(), memory)


def test_a_plan_with_layers_on_a_gpu_falls_back_to_the_processor() -> None:
    plan = plan_with(8 * GB)
    assert [(s.gpu_layers, s.projector_on_gpu) for s in plan.choices] == [(None, True), (0, False)]
    assert plan.fallbacks[0].gpu_bytes == (0,)


def test_what_the_user_set_has_no_fallback() -> None:
    assert plan_with(8 * GB, EngineSettings(gpu_layers=4)).fallbacks == ()
    assert plan_with(0).fallbacks == ()
    assert choose_plan(SHAPE, FILES.profile, SMALL, MachineMemory(16 * GB, 16 * GB)).fallbacks == ()


def test_the_plan_in_force_tells_what_ran() -> None:
    plan = plan_with(428_000_000)
    kinds = ["kv_cache_quantized", "projector_on_processor", "layers_on_processor"]
    assert [warning.kind for warning in plan.warnings] == kinds
    assert plan.as_run_with(plan.settings) is plan
    none = plan.as_run_with(plan.choices[1])
    assert [warning.kind for warning in none.warnings] == ["kv_cache_quantized", "gpu_allocation_failed"]
    assert none.warnings[-1].text == (
        "The GPU had less memory than it reported, so nothing is on it (--gpu-layers N sets how many layers)."
    )
    assert none.engine_used().gpu_layers == 0
    assert none.engine_used().gpu_memory_bytes == (0,)


@pytest.mark.parametrize("sequences", [1, 2])
def test_replies_that_fail_together_go_on_together(sequences: int) -> None:
    """Also with fewer sequences than there are replies: one waits for the other."""
    choices = [replace(LARGE, sequences=2), replace(SMALL, sequences=sequences)]
    with closing(open_engine(choices)) as engine, closing(Scheduler(2)) as scheduler:
        begun = [scheduler.submit(engine.run(ask, Drawn())) for _ in range(2)]
        replies = [each.result() for each in begun]
        assert engine.settings == choices[1]
    expected, _ = reply_with(SMALL)
    assert [reply.tokens for reply in replies] == [expected.tokens] * 2


class FailingEvaluation:
    """Runs out of memory at the evaluations with these numbers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
        self.numbers, self.count, self._evaluate = numbers, 0, Context._decode
        failing = self

        def decode(context: Context, batch: Any) -> None:
            failing.count += 1
            if failing.count in failing.numbers:
                raise OutOfMemoryError("The engine failed to evaluate a batch.")
            failing._evaluate(context, batch)

        monkeypatch.setattr(Context, "_decode", decode)


def judge_three(engine: SharedEngine) -> list[Reply | OutOfMemoryError]:
    with closing(Scheduler(3)) as scheduler:
        begun = [scheduler.submit(engine.run(ask, Drawn(seed=seed))) for seed in range(3)]
        return [error if isinstance(error := e.exception(), OutOfMemoryError) else e.result() for e in begun]


def tokens_of(replies: Sequence[Reply | OutOfMemoryError]) -> list[object]:
    return [(r.tokens, r.odds) if isinstance(r, Reply) else None for r in replies]


CHOICES = (replace(SMALL, sequences=3), SMALL)


@pytest.mark.parametrize("step", [37, pytest.param(1, marks=pytest.mark.nightly)])
def test_an_allocation_that_fails_at_any_evaluation_changes_no_reply(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that are in progress go on with the next settings."""
    with monkeypatch.context() as patch, closing(open_engine(CHOICES)) as engine:
        counting = FailingEvaluation(patch)
        expected = tokens_of(judge_three(engine))
    assert counting.count > 10
    for number in range(1, counting.count + 1, step):
        with monkeypatch.context() as patch, closing(open_engine(CHOICES)) as engine:
            FailingEvaluation(patch, number)
            assert tokens_of(judge_three(engine)) == expected, number
            assert engine.settings == SMALL


def test_with_nothing_smaller_left_one_reply_fails_and_the_engine_is_whole_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(open_engine([replace(SMALL, sequences=3)])) as engine:
        expected = tokens_of(judge_three(engine))
        with monkeypatch.context() as patch:
            FailingEvaluation(patch, 2)
            found = judge_three(engine)
        failed = [reply for reply in found if isinstance(reply, OutOfMemoryError)]
        assert [str(error) for error in failed] == ["The engine failed to evaluate a batch. Use --max-pixels 1."]
        kept = [(mine, theirs) for mine, theirs in zip(tokens_of(found), expected, strict=True) if mine]
        assert len(kept) == 2
        assert all(mine == theirs for mine, theirs in kept)
        assert tokens_of(judge_three(engine)) == expected


def test_as_many_sequences_as_memory_allows() -> None:
    def plan(free: int) -> EnginePlan:
        memory = MachineMemory(free, free)
        alone = choose_plan(SHAPE, FILES.profile, EngineSettings(), memory)
        return add_sequences(alone, SHAPE, memory, 4, pairs=4)

    roomy = plan(16 * GB)
    assert roomy.settings.sequences == 4
    one, four = (
        {term.name: term.cpu for term in estimate.terms}
        for estimate in (
            choose_plan(SHAPE, FILES.profile, EngineSettings(), MachineMemory(GB, GB)).estimate,
            roomy.estimate,
        )
    )
    for name in ("keys and values", "frames and embeddings", "decoding of clips"):
        assert four[name] == pytest.approx(4 * one[name])
    needed = roomy.estimate.cpu_bytes
    assert plan(needed).settings.sequences == 4
    assert plan(needed - 1).settings.sequences == 3
    assert plan(roomy.estimate.cpu_bytes // 2).profile == FILES.profile


def test_a_second_sequence_costs_nothing_else_and_is_given_up_first() -> None:
    def both(free: int, *gpus: int) -> tuple[EnginePlan, EnginePlan]:
        memory = MachineMemory(free, free, tuple(Gpu("GPU", size) for size in gpus))
        alone = choose_plan(SHAPE, FILES.profile, EngineSettings(), memory)
        return alone, add_sequences(alone, SHAPE, memory, 2, pairs=1)

    counts: set[int] = set()
    for free in (300_000_000, 400_000_000, GB):
        for gpus in ((), (430_000_000,), (8 * GB,)):
            alone, two = both(free, *gpus)
            counts.add(two.settings.sequences)
            assert (two.profile, two.warnings) == (alone.profile, alone.warnings)
            assert replace(two.settings, sequences=1) == alone.settings
            if two.settings.sequences == 2:
                assert two.choices == (two.settings, *alone.choices)
                ran = two.as_run_with(alone.settings)
                assert (ran.estimate, ran.warnings) == (alone.estimate, alone.warnings)
    assert counts == {1, 2}


def test_both_orders_of_a_pair_share_its_clips_and_frames() -> None:
    memory = MachineMemory(GB, GB)
    alone = choose_plan(SHAPE, FILES.profile, EngineSettings(), memory)
    one, two = (
        {term.name: term.cpu for term in plan.estimate.terms}
        for plan in (alone, add_sequences(alone, SHAPE, memory, 2, pairs=1))
    )
    assert two == {**one, "keys and values": 2 * one["keys and values"]}
