"""What happens when memory cannot be allocated in spite of the plan: less is tried, with a warning."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest
from backends.test_llamacpp import FILES, OPENING, Drawn

from vrt_lite.backends import SharedEngine, open_backend
from vrt_lite.backends.llamacpp import LlamaCppBackend
from vrt_lite.backends.llamacpp.context import Context
from vrt_lite.embeddings import EmbeddingCache
from vrt_lite.errors import OutOfMemoryError
from vrt_lite.fitting import EnginePlan, choose_plan
from vrt_lite.fitting.memory_estimate import read_shape
from vrt_lite.interfaces import Sampling, ignore
from vrt_lite.judge import Answer, Ask
from vrt_lite.machine import EngineSettings, Gpu, MachineMemory
from vrt_lite.protocol.messages import Reply
from vrt_lite.scheduler import Scheduler, Work
from vrt_lite.settings import Settings

SHAPE = read_shape(FILES)
SMALL = EngineSettings(gpu_layers=0, threads=1)
LARGE = replace(SMALL, context=2**31 - 256, exact=True)
"""A context that no machine has the memory for."""
GB = 10**9


@contextmanager
def open_engine(*choices: EngineSettings) -> Iterator[SharedEngine]:
    cache = EmbeddingCache()

    def load(settings: EngineSettings) -> LlamaCppBackend:
        return open_backend(FILES, profile=FILES.profile, settings=settings, cache=cache)

    with (
        ThreadPoolExecutor(1) as pool,
        closing(SharedEngine(load, choices, submit=pool.submit, advice="Use --max-pixels 1.")) as engine,
    ):
        yield engine


def ask(answer: Answer) -> Work[Reply]:
    return (yield from answer(Ask(1, (), OPENING, Sampling(8)), ignore))


def judge_at_once(engine: SharedEngine, count: int = 3) -> list[object]:
    """What each reply has that decides a verdict, or its error."""
    with closing(Scheduler(count)) as scheduler:
        begun = [scheduler.submit(engine.run(ask, Drawn((84, 56), seed))) for seed in range(count)]
        failed = [each.exception() for each in begun]
        return [error or (e.result().tokens, e.result().odds) for error, e in zip(failed, begun, strict=True)]


@pytest.fixture(scope="module")
def expected() -> list[object]:
    """Of three replies at once, with enough memory."""
    with open_engine(replace(SMALL, sequences=3)) as engine:
        return judge_at_once(engine)


def fail_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the evaluation with this number run out of memory."""
    counting = itertools.count(1)
    evaluate = Context._decode

    def decode(context: Context, batch: Any) -> None:
        if next(counting) == number:
            raise OutOfMemoryError("The engine failed to evaluate a batch.")
        evaluate(context, batch)

    monkeypatch.setattr(Context, "_decode", decode)


@pytest.mark.parametrize(("replies", "before", "after"), [(1, 1, 1), (2, 2, 1), (3, 2, 2)])
def test_replies_that_fail_together_go_on_with_the_next_settings(
    replies: int, before: int, after: int, expected: list[object]
) -> None:
    """Also with fewer sequences than there are replies: one waits for the other."""
    choices = [replace(LARGE, sequences=before), replace(SMALL, sequences=after)]
    with open_engine(*choices) as engine:
        assert judge_at_once(engine, replies) == expected[:replies]
        assert engine.settings == choices[1]


def test_the_last_failure_is_the_callers() -> None:
    with open_engine(LARGE, replace(LARGE, prefixes=0)) as engine:
        [error] = judge_at_once(engine, 1)
    assert isinstance(error, OutOfMemoryError)
    assert str(error).startswith("A context of 2147483392 tokens needs")


@pytest.mark.parametrize("numbers", [(1, 20), pytest.param(range(1, 1000), marks=pytest.mark.nightly)])
def test_an_allocation_that_fails_at_any_evaluation_changes_no_reply(
    numbers: Sequence[int], expected: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that are in progress go on with the next settings."""
    for number in numbers:
        with monkeypatch.context() as patch, open_engine(replace(SMALL, sequences=3), SMALL) as engine:
            fail_at(number, patch)
            assert judge_at_once(engine) == expected, number
        if engine.settings != SMALL:  # there are fewer evaluations
            break
    assert number >= 20


def test_with_nothing_smaller_left_one_reply_fails_and_the_engine_is_whole_again(
    expected: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_engine(replace(SMALL, sequences=3)) as engine:
        with monkeypatch.context() as patch:
            fail_at(2, patch)
            found = judge_at_once(engine)
        [error] = [reply for reply in found if isinstance(reply, OutOfMemoryError)]
        assert str(error) == "The engine failed to evaluate a batch. Use --max-pixels 1."
        assert sum(mine == theirs for mine, theirs in zip(found, expected, strict=True)) == 2
        assert judge_at_once(engine) == expected


# The plan


def plan_with(free: int, *gpu: int, most: int = 1, pairs: int = 1, layers: int | None = None) -> EnginePlan:
    memory = MachineMemory(free, free, *(Gpu("GPU", size) for size in gpu))
    settings = Settings(gpu_layers=layers)
    return choose_plan(SHAPE, FILES.profile, settings, memory, sequences=most, pairs=pairs)


def terms(plan: EnginePlan) -> dict[str, int]:
    return {name: cpu for name, (cpu, _) in plan.estimate.terms.items()}


def test_a_plan_says_what_the_memory_of_a_gpu_required() -> None:
    plan = plan_with(16 * GB, 428_000_000)
    assert [warning.kind for warning in plan.warnings] == ["kv_cache_quantized", "gpu_memory_short"]
    assert len(plan.choices) == 1


def test_as_many_sequences_as_memory_allows() -> None:
    roomy = plan_with(16 * GB, most=4, pairs=4)
    assert roomy.settings.sequences == 4
    one, four = terms(plan_with(GB)), terms(roomy)
    for name in ("keys and values", "frames and embeddings", "decoding of clips"):
        assert four[name] == pytest.approx(4 * one[name])
    needed = roomy.estimate.cpu_bytes
    assert plan_with(needed, most=4, pairs=4).settings.sequences == 4
    assert plan_with(needed - 1, most=4, pairs=4).settings.sequences == 3
    assert plan_with(needed // 2, most=4, pairs=4).profile == FILES.profile


def test_a_second_sequence_of_a_pair_takes_keys_and_values_alone_and_is_given_up_first() -> None:
    one, two = terms(plan_with(GB)), terms(plan_with(GB, most=2, pairs=1))
    assert two == {**one, "keys and values": 2 * one["keys and values"]}
    counts: set[int] = set()
    for free in (300_000_000, 400_000_000, GB):
        for gpus in ((), (430_000_000,), (8 * GB,)):
            alone, plan = plan_with(free, *gpus), plan_with(free, *gpus, most=2, pairs=1)
            counts.add(plan.settings.sequences)
            assert (plan.profile, plan.warnings) == (alone.profile, alone.warnings)
            assert replace(plan.settings, sequences=1) == alone.settings
            if plan.settings.sequences == 2:
                assert plan.choices[1:] == alone.choices
    assert counts == {1, 2}
