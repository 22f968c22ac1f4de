"""The judge's process of a server dies: the server goes on, and the job that it did ends or is done."""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

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
