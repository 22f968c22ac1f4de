"""A judge in a process of its own: what ends that process is one failed pair, and all others are judged in one call."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from brightness import names, unwatched, write_greys
from dying_worker import Dying

from vrt_lite import judge_worker
from vrt_lite.api import Judge
from vrt_lite.errors import ModelError, ShortageError, WorkerEndedError
from vrt_lite.ranking.entries import read_entries
from vrt_lite.ranking.rank import rank_clips
from vrt_lite.records.ladders import Ranking
from vrt_lite.runs.store import Store

EXAMPLES = Path(__file__).parents[2] / "examples"
FATAL = 120
SAID = "ggml.c:1: GGML_ASSERT(a) failed\n"


def rank_greys(folder: Path, greys: list[int], *, fatal: int = FATAL, jobs: int = 1) -> Ranking:
    write_greys(folder / "clips", greys)
    with Store(folder / "runs.sqlite") as store, Judge(backend=Dying(fatal, SAID), process=True) as judge:
        groups = read_entries([str(folder / "clips")], prompt="Bright.")
        return rank_clips(groups, store=store, judge=judge, watcher=unwatched(), jobs=jobs)


@pytest.mark.skipif(sys.platform == "win32", reason="an aborted process ends with a status there")
@pytest.mark.parametrize("jobs", [1, 4])
def test_a_clip_at_which_the_engine_dies_costs_no_other_judgement(tmp_path: Path, jobs: int) -> None:
    ranking = rank_greys(tmp_path, [FATAL, 40, 80], jobs=jobs)
    assert ranking.died == 4
    [ladder] = ranking.ladders
    assert names(ladder) == ("take 3.mp4", "take 2.mp4")
    [left] = ladder.unranked
    assert "The judge's process ended by signal SIGABRT: ggml.c:1: GGML_ASSERT(a) failed" in left.reason
    again = rank_greys(tmp_path, [FATAL, 40, 80])
    assert (again.found, again.died) == (6, 4), "what killed the engine is not tried again by itself"


def test_an_engine_that_always_dies_ends_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_worker, "MOST_DEATHS", 2)
    with pytest.raises(ModelError, match="ended at 2 pairs in a row"):
        rank_greys(tmp_path, [FATAL, 40, 80])
    with Store(tmp_path / "runs.sqlite") as store:
        [info] = store.runs()
    assert (info.judgements, info.failures) == (1, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of the address space")
def test_a_death_under_a_limit_of_memory_says_nothing_about_a_pair(tmp_path: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**45, before[1]))
    try:
        with pytest.raises(ShortageError, match="memory"):
            rank_greys(tmp_path, [FATAL, 40])
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    with Store(tmp_path / "runs.sqlite") as store:
        assert not any(info.judgements for info in store.runs())


def judging_child(process: psutil.Process, store: Path) -> psutil.Process | None:
    """The child that has the judge's file open while a pair is being judged, if there is one."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db,
    ):
        if not db.execute("SELECT 1 FROM claims").fetchone():
            return None
    for child in process.children():
        with contextlib.suppress(psutil.Error):
            if any(place.path.endswith(".gguf") for place in child.memory_maps()):
                return child
    return None


@pytest.mark.skipif(sys.platform != "linux", reason="looks into another process's memory")
@pytest.mark.parametrize("deaths", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_a_killed_engine_in_the_command(tmp_path: Path, deaths: int) -> None:
    file = tmp_path / "runs.sqlite"
    clips = [str(EXAMPLES / f"{name}.mp4") for name in ("a", "b", "circle")]
    command = [sys.executable, "-m", "vrt_lite", "rank", *clips, "-p", "A red square moving right.", "-m", "vrt-tiny-0"]
    command += ["--orders", "one", "--store", str(file), "--json", "--no-cache"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        watched, killed = psutil.Process(process.pid), set[int]()
        until = time.monotonic() + 60
        while len(killed) < deaths and process.poll() is None and time.monotonic() < until:
            child = judging_child(watched, file)
            if child and child.pid not in killed:
                killed.add(child.pid)
                child.send_signal(6)
            time.sleep(0.002)
        out, err = process.communicate(timeout=120)
    assert len(killed) == deaths
    # Killed once, the pair is tried again; killed twice, it has failed, and all others are judged.
    ranking = json.loads(out)
    assert ranking["died"] == deaths - 1
    with Store(file) as store:
        failures = [result.failure for result in store.run(ranking["run"]).results()]
    assert (len(failures), failures.count(WorkerEndedError.kind)) == (3, deaths - 1)
    assert process.returncode == (4 if deaths == 2 else 0), err
    assert deaths == 1 or "1 judgement(s) are missing, as the engine died" in err
