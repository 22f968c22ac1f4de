"""Rankings whose process, or whose judge's process, ends: nothing is judged twice, no other judgement is lost."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from brightness import group, names, unwatched, write_greys
from rank_worker import FATAL, Dying, main

from examples.ladder import PROMPT, STEPS, write_ladder
from vrt_lite import Judge, ModelError, Ranking, Result, ShortageError, Store, judge_worker, rank
from vrt_lite.errors import WorkerEndedError
from vrt_lite.ranking.rank import rank_clips
from vrt_lite.ranking.rank_run import Effort

WORKER = Path(__file__).with_name("rank_worker.py")
EXAMPLES = Path(__file__).parents[2] / "examples"
SAID = "ggml.c:1: GGML_ASSERT(a) failed\n"
GREYS = [FATAL, 40, 80]
BEST_FIRST = [f"{name}.mp4" for name in STEPS]


def worker_arguments(judge: str, folder: Path, clips: Path, lines: str = "lines") -> list[str]:
    return [judge, str(folder / "runs.sqlite"), str(clips), str(folder / lines)]


def start(*arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(str(WORKER.parents[level]) for level in range(3))
    command = [sys.executable, str(WORKER), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})


def stored(folder: Path) -> dict[str, Result]:
    """What the store holds, by the names of the clips, that of one clip twice."""
    found: dict[str, Result] = {}
    if (folder / "runs.sqlite").exists():
        with Store(folder / "runs.sqlite") as store:
            for run in store.runs():
                about: Any = run.about
                name = {clip["sha256"]: clip["name"] for group in about["groups"] for clip in group["clips"]}
                results = list(store.run(run.name).results())
                found |= {f"{name[of.first]} {name[of.second or of.first]}": of for of in results}
                assert len(found) == len(results), "no pair is there twice"
    return found


def said(results: dict[str, Result]) -> dict[str, Any]:
    return {pair: (of.preferences, of.scores, of.source) for pair, of in results.items()}


def begun(lines: Path) -> list[str]:
    return lines.read_text().splitlines() if lines.exists() else []


def run_and_kill(*arguments: str, after: float) -> list[str] | None:
    """A process, killed once it has begun so many judgements: None; or, if it ended before, the names it printed."""
    process, lines = start(*arguments), Path(arguments[-1])
    while process.poll() is None and len(begun(lines)) < after:
        time.sleep(0.01)
    ended = process.poll() is not None
    process.kill()
    out, _ = process.communicate()
    assert not ended or process.returncode == 0
    return out.split() if ended else None


@pytest.mark.parametrize(
    ("judge", "count", "kills"),
    [("bundled", 3, 2), ("scores", 4, 1), pytest.param("bundled", 5, 30, marks=pytest.mark.nightly)],
)
def test_killed_again_and_again_it_comes_to_the_same_judgements(
    tmp_path: Path, judge: str, count: int, kills: int
) -> None:
    ladder, whole = tmp_path / "ladder", tmp_path / "whole"
    for clip in write_ladder(ladder)[1 : 6 - count]:
        clip.unlink()
    whole.mkdir()
    ranked = main(*worker_arguments(judge, whole, ladder))
    if judge == "bundled":
        assert (ranked[0], ranked[-1]) == (BEST_FIRST[0], BEST_FIRST[-1]), "the clean clip is first"
    once, lines = stored(whole), begun(whole / "lines")
    assert len(set(lines)) == len(lines) == (count if judge == "scores" else count * (count - 1) // 2)

    chance, killed, runs = random.Random(0), 0, 0
    while killed < kills:  # a run may end before it was killed so often; then another is
        folder = tmp_path / f"run{runs}"
        folder.mkdir()
        ended = None
        while ended is None:
            before, arguments = stored(folder), worker_arguments(judge, folder, ladder, f"lines{runs}")
            after = 1 + chance.randrange(count) if killed < kills else math.inf
            ended = run_and_kill(*arguments, after=after)
            # Nothing that was stored when this process began was judged by it.
            assert not before.keys() & set(begun(Path(arguments[-1])))
            killed += ended is None
            runs += 1
        assert ended == ranked
        assert said(stored(folder)) == said(once)


def test_the_default_judge_ranks_the_ladder_whatever_is_judged_at_once(tmp_path: Path) -> None:
    clips = write_ladder(tmp_path / "ladder")
    odds: list[dict[str, Any]] = []
    for jobs, count in ((1, len(STEPS)), (3, 3)):
        folder = tmp_path / f"{jobs}"
        folder.mkdir()
        options: Any = {"both_orders": False, "jobs": jobs, "store": folder / "runs.sqlite"}
        [ladder] = rank(clips[:count], prompt=PROMPT, **options).ladders
        assert (ladder.judgements, ladder.failures) == (count * (count - 1) // 2, 0)
        assert [clip.path.name for clip in ladder.ranked] == BEST_FIRST[:count]
        assert [standing.won for standing in ladder.standings] == list(range(count))[::-1]
        odds.append({pair: list(of.preferences["OA"].odds or ()) for pair, of in stored(folder).items()})
    for pair, probabilities in odds[1].items():
        assert probabilities == pytest.approx(odds[0][pair], abs=0.005)


def test_all_other_pairs_are_judged_by_giving_the_same_command_again(tmp_path: Path) -> None:
    """The judge is in the ranking's own process, which ends with it."""
    write_greys(tmp_path / "clips", GREYS)
    # A run dies once for each pair that ends it, and then judges the others first.
    for _ in range(3):
        with start(*worker_arguments("dying", tmp_path, tmp_path / "clips")) as process:
            assert process.wait() == 134
        results = stored(tmp_path)
        assert not any(result.failure for result in results.values())
    assert results.keys() <= {"take 2.mp4 take 3.mp4", "take 3.mp4 take 2.mp4"}
    assert len(results) == 1


def rank_greys(folder: Path, *, jobs: int = 1) -> Ranking:
    """A ranking, one order a pair, whose judge has a process of its own that ends at one of the clips."""
    clips = write_greys(folder / "clips", GREYS)
    with Store(folder / "runs.sqlite") as store, Judge(backend=Dying(SAID), process=True, jobs=jobs) as judge:
        effort = Effort(both_orders=False)
        return rank_clips([group(clips)], store=store, judge=judge, watcher=unwatched(), effort=effort)


@pytest.mark.skipif(sys.platform == "win32", reason="an aborted process ends with a status there")
def test_a_clip_at_which_the_engine_dies_costs_no_other_judgement(tmp_path: Path) -> None:
    ranking = rank_greys(tmp_path, jobs=4)
    [ladder] = ranking.ladders
    assert (ranking.died, names(ladder)) == (2, ("take 3.mp4", "take 2.mp4"))
    [left] = ladder.unranked
    assert "The judge's process ended by signal SIGABRT: ggml.c:1: GGML_ASSERT(a) failed" in left.reason
    again = rank_greys(tmp_path)
    assert (again.found, again.died) == (3, 2), "what killed the engine is not tried again by itself"


def test_an_engine_that_always_dies_ends_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_worker, "MOST_DEATHS", 2)
    with pytest.raises(ModelError, match="ended at 2 pairs in a row"):
        rank_greys(tmp_path)
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
            rank_greys(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert stored(tmp_path) == {}


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
    command = [sys.executable, "-m", "vrt_lite", "rank", *clips, "-p", PROMPT]
    command += ["--orders", "one", "--store", str(file), "--json", "--no-cache"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        watched, killed = psutil.Process(process.pid), set[int]()
        until = time.monotonic() + 60
        while len(killed) < deaths and process.poll() is None and time.monotonic() < until:
            child = judging_child(watched, file)
            if child and child.pid not in killed:
                killed.add(child.pid)
                child.send_signal(6)
            time.sleep(0.01)
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
