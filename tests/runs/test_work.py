"""Judging what is not judged yet: found, claimed, shared with another process, interrupted, killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import permutations
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import clips
import pytest
from judgements import judgement, sure
from run_worker import PROMPT, ByPixels, pairs, work

from vrt_lite.api import Judge
from vrt_lite.errors import ModelError, NoVerdictError, VideoError
from vrt_lite.interfaces import Event, Observe, Stop, Wrote, ignore
from vrt_lite.records.judgement import Judgement
from vrt_lite.records.pairs import Question
from vrt_lite.runs.judging import Task, judge_all
from vrt_lite.runs.store import Run, Store

WORKER = Path(__file__).with_name("run_worker.py")
CLIPS = 7
PAIRS = CLIPS * (CLIPS - 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("clips")
    for number in range(CLIPS):
        clips.write_clip(made / f"{number}.mp4", frames=16 + number, size=(84, 56), gop=4)
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "runs.sqlite") as opened:
        yield opened


@pytest.fixture
def run(store: Store) -> Run:
    return store.begin("r", kind="rank", about={})


class Scripted:
    """Stands where a judge does, and says what a function says. Knows no clips."""

    pointwise = False

    def __init__(self, says: Callable[[str, Observe], Judgement] | None = None) -> None:
        self.asked: list[str] = []
        self._says = says

    def key_here(self) -> str:
        return "scripted"

    def compare(self, a: Path, b: Path, *, prompt: str, observe: Observe = ignore, stop: Stop) -> Judgement:
        name = f"{a.name} {b.name}"
        self.asked.append(name)

        def tell(event: Event) -> None:
            stop.check()
            observe(event)

        return self._says(name, tell) if self._says else judgement([sure()], prompt=prompt)


def told_by(
    tasks: Iterator[Task], run: Run, store: Store, judge: Any, *, jobs: int = 1, **options: Any
) -> list[tuple[str, bool, str]]:
    """What `done` was told: label, judged now, error."""
    told: list[tuple[str, bool, str]] = []
    judge_all(
        tasks,
        run,
        store=store,
        judge=judge,
        jobs=jobs,
        done=lambda task, result, now: told.append((task.label, now, result.error)),
        **options,
    )
    return told


def results(path: Path, name: str = "run") -> list[tuple[Any, ...]]:
    """Everything that was judged, but how long it took, in the order of keys; the file is checked on the way."""
    with Store(path) as store:
        assert store._database.read("PRAGMA integrity_check") == [("ok",)]
        assert not store._database.read("SELECT * FROM links GROUP BY run, judgement HAVING count(*) > 1")
        run = store.run(name)
        found = list(run.results())
        for result in found:
            whole = run.judgement(result.key)
            assert whole
            assert [clip.sha256 for clip in whole.inputs] == [result.first, result.second]
    return sorted((r.key, r.first, r.second, dict(r.winners), dict(r.odds), r.tokens) for r in found)


def test_all_are_judged_once_in_order_and_found_again(folder: Path, tmp_path: Path) -> None:
    path, log = tmp_path / "a.sqlite", tmp_path / "log"
    names = [task.label for task in pairs(folder)]
    assert work(path, folder, log) == dict.fromkeys(names, True)
    assert log.read_text().splitlines() == names
    assert work(path, folder, log) == dict.fromkeys(names, False)
    assert work(path, folder, log, name="other") == dict.fromkeys(names, False)
    assert log.read_text().splitlines() == names
    assert len(results(path)) == PAIRS
    assert results(path) == results(path, "other")
    with Store(path) as store:
        by_content = {store.digest(clip): clip.name for clip in folder.glob("*.mp4")}
        assert [f"{by_content[r.first]} {by_content[r.second]}" for r in store.run("run").results()] == names


def test_if_all_is_found_the_judge_is_asked_nothing(folder: Path, run: Run, store: Store) -> None:
    told_by(pairs(folder), run, store, Scripted())
    judge = Scripted()
    found = told_by(pairs(folder), run, store, judge)
    assert [now for _, now, _ in found] == [False] * PAIRS
    assert judge.asked == []


def test_a_pair_asked_for_twice_at_once_is_judged_once(folder: Path, run: Run, store: Store) -> None:
    judge = Scripted()
    twice = [task for task in list(pairs(folder))[:6] for _ in range(3)]
    told = told_by(iter(twice), run, store, judge, jobs=4)
    assert len(judge.asked) == len(set(judge.asked)) == 6
    assert sorted(now for _, now, _ in told) == [False] * 12 + [True] * 6


def test_jobs_run_side_by_side(folder: Path, run: Run, store: Store) -> None:
    together = threading.Barrier(3, timeout=20)

    def says(_name: str, _observe: Observe) -> Judgement:
        together.wait()
        return judgement([sure()])

    judge = Scripted(says)
    assert len(told_by(iter(list(pairs(folder))[:9]), run, store, judge, jobs=3)) == len(judge.asked) == 9


@pytest.mark.parametrize("error", [NoVerdictError("this will not do"), VideoError("clip.mp4", "will not do")])
def test_a_failure_is_kept_and_not_tried_again(folder: Path, run: Run, store: Store, error: Exception) -> None:
    def says(name: str, _observe: Observe) -> Judgement:
        if name.startswith("0"):
            raise error
        return judgement([sure()])

    expected = [(task.label, str(error) if task.label.startswith("0") else "") for task in pairs(folder)]
    judge = Scripted(says)
    assert told_by(pairs(folder), run, store, judge) == [(label, True, error) for label, error in expected]
    assert told_by(pairs(folder), run, store, judge) == [(label, False, error) for label, error in expected]
    assert len(judge.asked) == PAIRS
    assert store.runs()[0].failures == CLIPS - 1


def test_a_missing_clip_is_told_and_not_kept(folder: Path, run: Run, store: Store) -> None:
    tasks = [Task(folder / "gone.mp4", folder / "1.mp4", "", "a"), Task(folder / "0.mp4", folder / "1.mp4", "", "b")]
    (_, _, error), second = told_by(iter(tasks), run, store, Scripted())
    assert "gone.mp4" in error
    assert second == ("b", True, "")
    assert store.runs()[0].judgements == 1


def test_a_clip_replaced_while_it_is_judged_is_kept_as_what_was_judged(
    folder: Path, run: Run, store: Store, tmp_path: Path
) -> None:
    clip = Path(shutil.copy(folder / "0.mp4", tmp_path / "clip.mp4"))
    was, will_be, other = (store.digest(path) for path in (clip, folder / "2.mp4", folder / "1.mp4"))

    def says(_name: str, _observe: Observe) -> Judgement:
        shutil.copy(folder / "2.mp4", clip)
        with Judge(backend=ByPixels()) as judge:
            return judge.compare(clip, folder / "1.mp4")

    assert told_by(iter([Task(clip, folder / "1.mp4", "", "a")]), run, store, Scripted(says)) == [("a", True, "")]
    [kept] = run.results()
    assert (kept.first, kept.second) == (will_be, other)
    with Store(store.path) as another:
        assert another.run("r").claim(Question(was, other, "", "scripted"))


def test_a_clip_that_vanishes_while_it_is_judged_is_no_failure_of_its_content(
    folder: Path, run: Run, store: Store, tmp_path: Path
) -> None:
    clip = Path(shutil.copy(folder / "0.mp4", tmp_path / "clip.mp4"))

    gone = VideoError(clip, "is gone")

    def says(_name: str, _observe: Observe) -> Judgement:
        clip.unlink()
        raise gone

    assert told_by(iter([Task(clip, folder / "1.mp4", "", "a")]), run, store, Scripted(says)) == [
        ("a", True, f"{str(clip)!r} is gone")
    ]
    assert not list(run.results())


@pytest.mark.parametrize("jobs", [1, 3])
def test_any_other_error_ends_the_work_and_keeps_what_is_done(folder: Path, run: Run, store: Store, jobs: int) -> None:
    def says(name: str, _observe: Observe) -> Judgement:
        if name == "1.mp4 0.mp4":
            raise ModelError("the server is gone")
        return judgement([sure()])

    judge = Scripted(says)
    with pytest.raises(ModelError, match="the server is gone"):
        told_by(pairs(folder), run, store, judge, jobs=jobs)
    kept = len(list(run.results()))
    assert kept == len(judge.asked) - 1 >= CLIPS - 1
    assert not store._database.read("SELECT * FROM claims")
    good = Scripted()
    told_by(pairs(folder), run, store, good)
    assert len(good.asked) == PAIRS - kept


def test_an_interrupt_keeps_what_is_done(folder: Path, run: Run, store: Store) -> None:
    """As it arrives: in the main thread, while another judges."""

    def says(name: str, observe: Observe) -> Judgement:
        if name == "1.mp4 0.mp4":
            signal.raise_signal(signal.SIGINT)
            for _ in range(2000):
                observe(Wrote("."))
                time.sleep(0.01)
        return judgement([sure()])

    judge = Scripted(says)
    with pytest.raises(KeyboardInterrupt):
        told_by(pairs(folder), run, store, judge)
    assert len(list(run.results())) == CLIPS - 1
    assert not store._database.read("SELECT * FROM claims")


def test_what_ends_while_an_interrupt_arrives_is_kept(folder: Path, run: Run, store: Store) -> None:
    def says(_name: str, observe: Observe) -> Judgement:
        signal.raise_signal(signal.SIGINT)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                observe(Wrote("."))
        return judgement([sure()])

    with pytest.raises(KeyboardInterrupt):
        told_by(pairs(folder), run, store, Scripted(says))
    assert len(list(run.results())) == 1


def test_the_watcher_sees_the_work_of_one_judge(folder: Path, run: Run, store: Store) -> None:
    def says(_name: str, observe: Observe) -> Judgement:
        observe(Wrote("hm"))
        return judgement([sure()])

    seen: list[Event] = []
    told_by(iter(list(pairs(folder))[:2]), run, store, Scripted(says), observe=seen.append)
    assert seen == [Wrote("hm")] * 2
    told_by(iter(list(pairs(folder))[2:6]), run, store, Scripted(says), observe=seen.append, jobs=2)
    assert len(seen) == 2


def test_what_another_judges_is_come_back_to(folder: Path, run: Run, store: Store) -> None:
    tasks = list(pairs(folder))[:5]
    with Store(store.path) as another:
        others = another.begin("r", kind="rank")
        asked = [Question(store.digest(t.first), store.digest(t.second), PROMPT, "scripted") for t in tasks]
        assert others.claim(asked[0])
        assert others.claim(asked[2])

        def says(name: str, _observe: Observe) -> Judgement:
            if name == tasks[4].label:  # the last: by then all that was free is judged
                others.add(asked[0], judgement([sure()]))
                another.close()  # it gives up the other one
            return judgement([sure()])

        judge = Scripted(says)
        told = told_by(iter(tasks), run, store, judge)
    assert judge.asked == [tasks[n].label for n in (1, 3, 4, 2)]
    assert sorted(told) == sorted((task.label, task is not tasks[0], "") for task in tasks)


def start(path: Path, folder: Path, log: Path, seconds: float) -> BaseProcess:
    """A worker; on POSIX forked from a process that has the imports done, to save the time."""
    context = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    if sys.platform != "win32":
        context.set_forkserver_preload(["run_worker", "av", "vrt_lite.pair_frames", "vrt_lite.video"])
    process = context.Process(target=work, args=(path, folder, log, seconds))
    process.start()
    return process


def begun(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def stored(path: Path) -> set[str]:
    """What a killed process leaves, as the next one finds it: by the clips' content."""
    return (
        {f"{first} {second}" for _, first, second, *_ in results(path)} if path.exists() and _has_run(path) else set()
    )


def _has_run(path: Path) -> bool:
    with Store(path) as store:
        return bool(store.runs())


@pytest.mark.parametrize(("kills", "jitter"), [(5, 0.0), pytest.param(30, 0.1, marks=pytest.mark.nightly)])
def test_killed_again_and_again_nothing_is_lost_or_judged_twice(
    folder: Path, tmp_path: Path, kills: int, jitter: float
) -> None:
    whole, path, log = tmp_path / "whole.sqlite", tmp_path / "a.sqlite", tmp_path / "log"
    work(whole, folder, tmp_path / "whole log")
    with Store(whole) as store:
        content = {clip.name: store.digest(clip) for clip in folder.glob("*.mp4")}
    content_of_all = {f"{content[a]} {content[b]}" for a, b in permutations(content, 2)}
    chance, cut, went_on, before = random.Random(5), 0, 0, set[str]()
    for number in range(kills):
        had = len(begun(log))
        process = start(path, folder, log, 0.02)
        more = chance.randrange(1, 5) if number % 3 else 0  # every third is killed while it starts
        while process.is_alive() and len(begun(log)) < had + more:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, jitter))
        process.kill()
        process.join()
        cut += process.exitcode != 0
        now = stored(path)
        assert before <= now
        again = {" ".join(content[name] for name in line.split()) for line in begun(log)[had:]}
        assert not again & before
        went_on += before < now < content_of_all
        before = now
    assert cut > kills // 3
    assert went_on > kills // 6
    assert all(work(path, folder, log).keys() == {task.label for task in pairs(folder)} for _ in range(2))
    assert len(begun(log)) <= PAIRS + cut
    assert results(path) == results(whole)


def test_two_processes_share_a_run(folder: Path, tmp_path: Path) -> None:
    whole, path, log = tmp_path / "whole.sqlite", tmp_path / "a.sqlite", tmp_path / "log"
    work(whole, folder, tmp_path / "whole log")
    both = [start(path, folder, log, 0.05) for _ in range(2)]
    for process in both:
        process.join()
        assert process.exitcode == 0
    assert sorted(begun(log)) == sorted(task.label for task in pairs(folder))
    assert results(path) == results(whole)


def test_if_one_of_two_is_killed_the_other_does_it_all(folder: Path, tmp_path: Path) -> None:
    path, log = tmp_path / "a.sqlite", tmp_path / "log"
    both = [start(path, folder, log, 0.05) for _ in range(2)]
    while len(begun(log)) < 8:
        time.sleep(0.002)
    both[0].kill()
    for process in both:
        process.join()
    assert both[1].exitcode == 0
    assert len(results(path)) == PAIRS
    assert PAIRS <= len(begun(log)) <= PAIRS + 1


@pytest.mark.skipif(sys.platform == "win32", reason="there Ctrl-C goes to the whole console")
def test_ctrl_c_leaves_at_once_and_clean(folder: Path, tmp_path: Path) -> None:
    path, log = tmp_path / "a.sqlite", tmp_path / "log"
    command = [sys.executable, str(WORKER), str(path), str(folder), str(log), "0.05"]
    seen = os.pathsep.join([str(WORKER.parents[1]), str(WORKER.parents[2])])
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": seen}, stderr=subprocess.PIPE, text=True)
    while len(begun(log)) < 5:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert errors.strip().splitlines()[-1] == "KeyboardInterrupt"
    kept, asked = len(results(path)), len(begun(log))
    assert 4 <= kept <= asked < PAIRS
    with Store(path) as store:
        assert not store._database.read("SELECT * FROM claims")
    work(path, folder, log)
    assert len(begun(log)) == PAIRS + asked - kept
    assert len(results(path)) == PAIRS
