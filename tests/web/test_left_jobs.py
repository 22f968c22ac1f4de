"""Jobs that a server has left: those of one that was killed are found, and damaged files do no harm."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from web.conftest import CIRCLE, EXAMPLES, PROMPT, STAR, Served

from vrt_lite.web.job_queue import JobFiles
from vrt_lite.web.request_bodies import CompareBody
from vrt_lite.web.served_job import ServedJob

DEAD = {"token": "t", "pid": 2**22 - 1, "born": 1.0}


@pytest.mark.skipif(sys.platform == "win32", reason="a process that has ended is gone there")
def test_jobs_of_a_server_that_was_killed_and_not_reaped_are_found(servers: Callable[..., Served]) -> None:
    first, second = servers("--allow", EXAMPLES), servers("--allow", EXAMPLES)
    job = first.post("/v1/rank", clips=[str(EXAMPLES)], prompt=PROMPT).json()["id"]
    assert second.client.get(f"/v1/jobs/{job}").status_code == 404
    os.kill(first.process.pid, 9)  # nobody waits for it until the test ends
    later = servers("--allow", EXAMPLES, "--store", second.home / "other.sqlite")
    end = time.monotonic() + 20
    while not (found := [s for s in (second, later) if s.client.get(f"/v1/jobs/{job}").status_code == 200]):
        assert time.monotonic() < end, psutil.Process(first.process.pid).status()
        time.sleep(0.1)
    assert psutil.Process(first.process.pid).status() == psutil.STATUS_ZOMBIE
    time.sleep(3)
    assert [s for s in (second, later) if s.client.get(f"/v1/jobs/{job}").status_code == 200] == found, "one has it"
    assert found[0].client.get(f"/v1/jobs/{job}").json()["state"] == "paused"
    found[0].client.delete(f"/v1/jobs/{job}")


def test_damaged_files_of_jobs_do_no_harm(servers: Callable[..., Served], tmp_path: Path) -> None:
    def kept(request: object, kind: object = "compare", owner: object = DEAD) -> str:
        return json.dumps({"id": "x", "kind": kind, "request": request, "owner": owner})

    good = {"a": STAR, "b": CIRCLE}
    damaged = [
        "",
        "[" * 200_000,
        '{"a":' * 100_000,
        kept(good)[:-5],
        kept([1]),
        kept("text"),
        kept(None),
        kept({"a": STAR}),
        kept(good | {"prompt": 3}),
        kept(good | {"options": {"temperature": float("nan")}}),
        kept(good | {"options": [[]]}),
        kept({"clips": "text"}, "rank"),
        kept(good, "pull"),
        kept(good, ["rank"]),
        kept(good, owner=None),
        kept(good, owner=DEAD | {"born": float("inf")}),
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ]
    folder = tmp_path / "home" / "jobs"
    folder.mkdir(parents=True)
    for number, text in enumerate(damaged):
        (folder / f"{number:016x}.json").write_text(text, encoding="latin-1")
    good_ids = ["a" * 16, "b" * 16, "c" * 16]
    for name, pid in zip(good_ids, (DEAD["pid"], -1, 10**30), strict=True):
        (folder / f"{name}.json").write_text(kept(good, owner=DEAD | {"pid": pid}))
    (folder / "<b>.json").write_text(kept(good))
    (folder / f"{'d' * 16}.json").mkdir()
    served = servers("--allow", EXAMPLES)
    listed = served.client.get("/v1/jobs")
    assert listed.status_code == 200, listed.text
    assert sorted(job["id"] for job in listed.json()["jobs"]) == good_ids
    for path in ("/", "/rank", "/runs", f"/jobs/{'a' * 16}", f"/v1/jobs/{'a' * 16}"):
        assert served.client.get(path).status_code == 200, path
    served.client.post(f"/v1/jobs/{'a' * 16}/resume")
    assert served.until("a" * 16, "done", "failed")["state"] == "done"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_a_pipe_among_the_jobs_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{'a' * 16}.json")
    files = JobFiles(tmp_path)
    files.keep(ServedJob(CompareBody(a=STAR, b=CIRCLE)))
    assert files.take_over() == []
