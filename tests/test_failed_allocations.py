"""Allocations in a worker fail, whichever they are: an error or the same verdict follows, and later ones are right."""

from __future__ import annotations

import platform
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from allocations_worker import compare_failing, compare_starving

from vrt_lite.errors import ShortageError, WorkerEndedError
from vrt_lite.records.judgement import Judgement
from vrt_lite.worker import Worker

TESTS = Path(__file__).parent
PAIR = tuple(TESTS.parent / "examples" / name for name in ("star.mp4", "circle.mp4"))
PROMPT = "A blue star moves up."
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.libc_ver()[0] != "glibc" or not shutil.which("cc"),
    reason="replaces glibc's allocator with a library that is built here",
)


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """One whose process has an allocator that can be told to fail. Python's own objects come from it too."""
    library = tmp_path / "failing.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, TESTS / "failing_allocations.c"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("PYTHONMALLOC", "malloc")
    return Worker()


def verdict_of(judgement: Judgement) -> object:
    return judgement.verdict, [order.verdict for order in judgement.orders]


@pytest.mark.parametrize("samples", [2, pytest.param(150, marks=pytest.mark.nightly)])
def test_an_allocation_that_fails_gives_an_error_or_the_same_verdict(worker: Worker, samples: int) -> None:
    """Some fail while everything is imported and loaded, the others in a judge that has judged before."""
    draw, failures = random.Random(samples), 0
    with worker:
        judgement, in_first = worker.call(compare_failing, PAIR, PROMPT, -1, -1)
        expected = verdict_of(judgement)
        _, in_later = worker.call(compare_failing, PAIR, PROMPT, -1, -1)
        for number in range(samples):
            first = number % 4 == 1
            if first:
                worker.close()
            at = draw.randrange(in_first if first else in_later)
            try:
                judgement, _ = worker.call(compare_failing, PAIR, PROMPT, at, at + draw.choice((0, 0, 20)), seconds=300)
            except Exception as error:  # any will do: it came from the child, or says how that ended
                print(at, type(error).__name__, error)
                failures += 1
            else:
                assert verdict_of(judgement) == expected, at
        judgement, _ = worker.call(compare_failing, PAIR, PROMPT, -1, -1)
    assert verdict_of(judgement) == expected
    assert failures or samples < 10


@pytest.mark.parametrize("samples", [1, pytest.param(40, marks=pytest.mark.nightly)])
def test_a_process_without_any_memory_left_is_given_up_in_seconds(worker: Worker, samples: int) -> None:
    """It may not even be able to raise an error: then it answers no ping."""
    draw = random.Random(samples)
    with worker:
        _, in_first = worker.call(compare_failing, PAIR, PROMPT, -1, -1)
        for _ in range(samples):
            worker.close()
            at, began = draw.randrange(in_first * 3 // 4), time.monotonic()
            with pytest.raises((WorkerEndedError, ShortageError, MemoryError)) as raised:
                worker.call(compare_starving, PAIR, PROMPT, at)
            assert time.monotonic() - began < 60, "twelve times what it takes where nothing else runs"
            assert "\n" not in str(raised.value)
