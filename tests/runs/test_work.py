"""Judging what is not judged yet: found, claimed, shared with another process, interrupted, killed."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import clips
import pytest
from run_worker import JUDGED, PROMPT, ByPixels, pairs, process_context, work

from vrt_lite.api import Judge
from vrt_lite.errors import ModelError, NoVerdictError, VideoError
from vrt_lite.interfaces import Event, Observe, Stop, Wrote, ignore
from vrt_lite.records.judgement import Judgement
from vrt_lite.records.pairs import Question
from vrt_lite.runs.judging import Task, judge_all
from vrt_lite.runs.store import Run, Store

CLIPS = 5
PAIRS = CLIPS * (CLIPS - 1)
FAILING = "1.mp4 0.mp4"
"""The first pair after those that begin with the first clip."""
Results = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("clips")
    for number in range(CLIPS):
        clips.write_clip(made / f"{number}.mp4", frames=16 + number, size=(84, 56), gop=4)
    return made


class Scripted:
    """Stands where a judge does: does what a function does for a pair, and answers. Knows no clips."""

    pointwise = False

    def __init__(self, does: Callable[[str, Observe], Judgement | None] = lambda *_: None) -> None:
        self.asked: list[str] = []
        self._does = does

    def key_here(self) -> str:
        return "scripted"

    def compare(self, a: Path, b: Path, *, prompt: str, observe: Observe = ignore, stop: Stop) -> Judgement:
        self.asked.append(f"{a.name} {b.name}")

        def tell(event: Event) -> None:
            stop.check()
            observe(event)

        return self._does(self.asked[-1], tell) or JUDGED


def told_by(tasks: Iterable[Task], run: Run, store: Store, judge: Any, **options: Any) -> list[tuple[str, bool, str]]:
    """What `done` was told: label, judged now, error."""
    told: list[tuple[str, bool, str]] = []

    def done(task: Task, result: Any, now: bool) -> None:
        told.append((task.label, now, result.error))

    judge_all(iter(tasks), run, store=store, judge=judge, done=done, **options)
    return told


def results(path: Path, name: str = "run") -> list[tuple[Any, ...]]:
    """Everything that was judged, but how long it took, in the order of keys; the file is checked on the way."""
    with Store(path) as store:
        assert store.read("PRAGMA integrity_check") == [("ok",)]
        assert not store.read("SELECT * FROM links GROUP BY run, judgement HAVING count(*) > 1")
        run = store.run(name)
        found = list(run.results())
        for result in found:
            kept = run.judgement(result.key)
            assert kept
            assert [clip.sha256 for clip in kept.inputs] == [result.first, result.second]
    return sorted(
        (r.key, r.first, r.second, {key: (of.winner, of.odds) for key, of in r.preferences.items()}, r.tokens)
        for r in found
    )


def claims(store: Store) -> Results:
    return store.read("SELECT * FROM claims")


def begun(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


@pytest.fixture(scope="module")
def whole(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What undisturbed work comes to: all are judged once, in order, and found again, by other runs too."""
    made = tmp_path_factory.mktemp("whole")
    path, log = made / "a.sqlite", made / "log"
    names = [task.label for task in pairs(folder)]
    for name, now in (("run", True), ("run", False), ("other", False)):
        assert work(path, folder, log, name=name) == dict.fromkeys(names, now)
        assert begun(log) == names
    with Store(path) as store:
        by_content = {store.digest(clip): clip.name for clip in folder.glob("*.mp4")}
        assert [f"{by_content[r.first]} {by_content[r.second]}" for r in store.run("run").results()] == names
    assert len(results(path)) == PAIRS
    assert results(path) == results(path, "other")
    return results(path)


def test_jobs_run_side_by_side_and_judge_once_what_is_asked_for_twice(folder: Path, run: Run, store: Store) -> None:
    together = threading.Barrier(3, timeout=60)
    judge = Scripted(lambda *_: together.wait() and None)
    twice = [task for task in islice(pairs(folder), 6) for _ in range(3)]
    told = told_by(twice, run, store, judge, jobs=3)
    assert len(judge.asked) == len(set(judge.asked)) == 6
    assert sorted(now for _, now, _ in told) == [False] * 12 + [True] * 6


def test_waiting_for_what_another_process_judges_ends_when_it_is_told_to(folder: Path, run: Run, store: Store) -> None:
    stop, judge, [task, *_] = Stop(), Scripted(), list(pairs(folder))
    with Store(store.path) as other:
        claimed = Question(*map(store.digest, (task.first, task.second or task.first)), task.prompt, judge.key_here())
        assert other.begin(run.name, kind="rank").claim(claimed)
        threading.Timer(0.5, stop.set, [NoVerdictError("told to end")]).start()
        with pytest.raises(NoVerdictError, match="told to end"):
            told_by([task], run, store, judge, stop=stop)
    assert not judge.asked


@pytest.mark.parametrize("error", [NoVerdictError("this will not do"), VideoError("clip.mp4", "will not do")])
def test_a_failure_is_kept_and_not_tried_again(folder: Path, run: Run, store: Store, error: Exception) -> None:
    def fail(name: str, _observe: Observe) -> None:
        if name.startswith("0"):
            raise error

    judge = Scripted(fail)
    errors = {task.label: str(error) if task.label.startswith("0") else "" for task in pairs(folder)}
    for now in (True, False):
        assert told_by(pairs(folder), run, store, judge) == [(name, now, said) for name, said in errors.items()]
    assert len(judge.asked) == PAIRS
    assert store.runs()[0].failures == CLIPS - 1


def test_a_clip_that_is_missing_or_vanishes_is_told_and_not_kept(
    folder: Path, run: Run, store: Store, tmp_path: Path
) -> None:
    clip, other = Path(shutil.copy(folder / "0.mp4", tmp_path / "clip.mp4")), folder / "1.mp4"
    gone = VideoError(clip, "is gone")

    def vanish(name: str, _observe: Observe) -> None:
        if name.startswith("clip"):
            clip.unlink()
            raise gone

    tasks = [
        Task(folder / "no.mp4", other, "", "a"),
        Task(clip, other, "", "b"),
        Task(folder / "0.mp4", other, "", "c"),
    ]
    missing, *told = told_by(tasks, run, store, Scripted(vanish))
    assert "no.mp4" in missing[2]
    assert told == [("b", True, str(gone)), ("c", True, "")]
    assert [info.judgements for info in store.runs()] == [1]


def test_a_clip_replaced_while_it_is_judged_is_kept_as_what_was_judged(
    folder: Path, run: Run, store: Store, tmp_path: Path
) -> None:
    clip = Path(shutil.copy(folder / "0.mp4", tmp_path / "clip.mp4"))
    was, will_be, other = (store.digest(path) for path in (clip, folder / "2.mp4", folder / "1.mp4"))

    def replace(_name: str, _observe: Observe) -> Judgement:
        shutil.copy(folder / "2.mp4", clip)
        with Judge(backend=ByPixels()) as judge:
            return judge.compare(clip, folder / "1.mp4")

    assert told_by([Task(clip, folder / "1.mp4", "", "a")], run, store, Scripted(replace)) == [("a", True, "")]
    assert [(kept.first, kept.second) for kept in run.results()] == [(will_be, other)]
    with Store(store.path) as another:
        assert another.run("r").claim(Question(was, other, "", "scripted"))


@pytest.mark.parametrize(("jobs", "kind"), [(1, ModelError), (3, ModelError), (1, KeyboardInterrupt)])
def test_what_ends_the_work_keeps_what_is_done(
    folder: Path, run: Run, store: Store, jobs: int, kind: type[BaseException]
) -> None:
    """An interrupt arrives in the main thread, while another judges."""

    def end(name: str, observe: Observe) -> None:
        if name == FAILING and kind is ModelError:
            raise kind("the server is gone")
        if name == FAILING:
            signal.raise_signal(signal.SIGINT)
            while True:
                observe(Wrote("."))
                time.sleep(0.001)

    judge, good = Scripted(end), Scripted()
    with pytest.raises(kind):
        told_by(pairs(folder), run, store, judge, jobs=jobs)
    kept = len(list(run.results()))
    assert kept == len(judge.asked) - 1 >= CLIPS - 1
    assert not claims(store)
    told_by(pairs(folder), run, store, good)
    assert len(good.asked) == PAIRS - kept


def test_what_ends_while_an_interrupt_arrives_is_kept(folder: Path, run: Run, store: Store) -> None:
    def end_well(_name: str, observe: Observe) -> None:
        signal.raise_signal(signal.SIGINT)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                observe(Wrote("."))

    with pytest.raises(KeyboardInterrupt):
        told_by(pairs(folder), run, store, Scripted(end_well))
    assert len(list(run.results())) == 1


def test_the_watcher_sees_the_work_of_one_judge(folder: Path, run: Run, store: Store) -> None:
    judge = Scripted(lambda _name, observe: observe(Wrote("hm")))
    seen: list[Event] = []
    told_by(islice(pairs(folder), 2), run, store, judge, observe=seen.append)
    told_by(islice(pairs(folder), 2, 6), run, store, judge, observe=seen.append, jobs=2)
    assert seen == [Wrote("hm")] * 2


def test_what_another_judges_is_come_back_to(folder: Path, run: Run, store: Store) -> None:
    tasks = list(islice(pairs(folder), 5))
    asked = [Question(store.digest(t.first), store.digest(t.second), PROMPT, "scripted") for t in tasks]
    with Store(store.path) as another:
        others = another.begin("r", kind="rank")
        assert others.claim(asked[0])
        assert others.claim(asked[2])

        def let_go(name: str, _observe: Observe) -> None:
            if name == tasks[4].label:  # the last: by then all that was free is judged
                others.add(asked[0], JUDGED)
                another.close()  # it gives up the other one

        judge = Scripted(let_go)
        told = told_by(tasks, run, store, judge)
    assert judge.asked == [tasks[n].label for n in (1, 3, 4, 2)]
    assert sorted(told) == sorted((task.label, task is not tasks[0], "") for task in tasks)


def start(*arguments: Any) -> Any:
    process = process_context().Process(target=work, args=arguments)
    process.start()
    return process


def wait_until_begun(log: Path, count: int, process: Any) -> None:
    while process.is_alive() and len(begun(log)) < count:
        time.sleep(0.002)


def stored(path: Path) -> set[tuple[str, str]]:
    """What a killed process leaves, as the next one finds it: by the clips' content."""
    with Store(path) as store:
        is_there = bool(store.runs())
    return {(first, second) for _, first, second, *_ in results(path)} if is_there else set()


@pytest.mark.parametrize(("kills", "jitter"), [(5, 0.0), pytest.param(12, 0.1, marks=pytest.mark.nightly)])
def test_killed_again_and_again_nothing_is_lost_or_judged_twice(
    folder: Path, tmp_path: Path, whole: Results, kills: int, jitter: float
) -> None:
    path, log = tmp_path / "a.sqlite", tmp_path / "log"
    with Store() as store:
        content = {clip.name: store.digest(clip) for clip in folder.glob("*.mp4")}
    chance, cut, went_on, before = random.Random(5), 0, 0, set[tuple[str, str]]()
    for number in range(kills):
        had = len(begun(log))
        process = start(path, folder, log, 0.02)
        more = chance.randrange(1, 5) if number % 3 else 0  # every third is killed while it starts
        wait_until_begun(log, had + more, process)
        time.sleep(chance.uniform(0, jitter))
        process.kill()
        process.join()
        cut += process.exitcode != 0
        now = stored(path)
        assert before <= now
        begun_now = (line.split() for line in begun(log)[had:])
        assert not {(content[first], content[second]) for first, second in begun_now} & before
        went_on += before < now and len(now) < PAIRS
        before = now
    assert cut > kills // 3
    assert went_on > kills // 6
    work(path, folder, log)
    assert len(begun(log)) <= PAIRS + cut
    assert results(path) == whole


@pytest.mark.parametrize("killed", [False, True])
def test_two_processes_share_a_run_and_if_one_is_killed_the_other_does_it_all(
    folder: Path, tmp_path: Path, whole: Results, killed: bool
) -> None:
    path, log = tmp_path / "a.sqlite", tmp_path / "log"
    both = [start(path, folder, log, 0.05) for _ in range(2)]
    if killed:
        wait_until_begun(log, 8, both[0])
        both[0].kill()
    for process in both:
        process.join()
    assert both[1].exitcode == 0
    assert results(path) == whole
    assert PAIRS <= len(begun(log)) <= PAIRS + killed
