"""The judge's process of a server dies: the server goes on, and the job that it did ends or is done."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
import pytest
from web.conftest import CIRCLE, EXAMPLES, PROMPT, STAR, Served

from vrt_lite.runs.store import Store

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")


def kill_workers(served: Served, number: int) -> int:
    """Send a signal to the server's workers; returns how many there were."""
    found = 0
    for child in psutil.Process(served.process.pid).children():
        with contextlib.suppress(psutil.Error):
            if "vrt_lite.worker" in " ".join(child.cmdline()):
                child.send_signal(number)
                found += 1
    return found


def count_judged(served: Served) -> int:
    with Store(next(served.home.glob("*.sqlite"), None)) as store:
        return sum(info.judgements for info in store.runs())


@pytest.mark.parametrize("kills", [3, pytest.param(15, marks=pytest.mark.nightly)])
def test_a_server_goes_on_when_its_judge_is_killed(servers: Callable[..., Served], kills: int) -> None:
    served = servers("--allow", EXAMPLES, "--jobs", "2")
    random_, ended, judged, found = random.Random(kills), list[dict[str, Any]](), 0, 0
    for attempt in range(kills):
        path = "/v1/rank" if attempt % 3 == 2 else "/v1/compare"
        body = {"clips": [STAR, CIRCLE]} if path == "/v1/rank" else {"a": STAR, "b": CIRCLE}
        # Another prompt each time, so that nothing is found in the store.
        job = served.post(path, **body, prompt=f"{PROMPT[:-1]} {attempt}.", wait=False).json()["id"]
        time.sleep(random_.uniform(0, 2.0))
        found += kill_workers(served, (signal.SIGKILL, signal.SIGABRT)[attempt % 2])
        ended.append(served.until(job, "done", "failed"))
        now = count_judged(served)
        assert now >= judged, "a judgement was lost"
        judged = now
    assert found
    for told in ended:
        assert told["state"] == "done" or "\n" not in told["error"]["message"], told
    job = served.post("/v1/compare", a=STAR, b=CIRCLE, prompt=PROMPT, wait=False).json()["id"]
    assert served.until(job, "done", "failed")["state"] == "done"


@pytest.mark.parametrize(("asked", "kills"), [(60, 3), pytest.param(500, 10, marks=pytest.mark.nightly)])
def test_eight_clients_are_all_answered_while_the_judge_is_killed(
    servers: Callable[..., Served], asked: int, kills: int
) -> None:
    served = servers("--allow", EXAMPLES, "--jobs", "2")
    process, answered, found = psutil.Process(served.process.pid), itertools.count(1), 0
    options = {"first_frames": 2, "rounds": 1, "max_pixels": 10_000}

    def ask(number: int) -> httpx.Response:
        nonlocal found
        body = {"a": STAR, "b": CIRCLE, "prompt": f"A blue star moves up {number} times.", "options": options}
        answer = served.client.post("/v1/compare", json=body)
        if number >= 0 and next(answered) % (asked // (kills + 1)) == 0:
            found += kill_workers(served, signal.SIGKILL)
        return answer

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(-min(asked // 2, 70), 0)))  # until as many jobs are remembered as ever are
        before = process.memory_info().rss
        answers = list(pool.map(ask, range(asked)))
    grown = (process.memory_info().rss - before) / 2**20
    failed = [answer for answer in answers if answer.status_code != 200]
    print(f"{asked} answered, {len(failed)} of them by an error; {found} processes killed; {grown:+.1f} MB")
    assert found >= kills
    assert len(failed) <= 2 * found, "only what the judge was at work on when it was killed"
    assert all(answer.json()["error"]["message"].count("\n") == 0 for answer in failed)
    assert {answer.json()["error"]["kind"] for answer in failed} <= {"engine_died"}
    assert grown < 20
