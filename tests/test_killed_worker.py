"""The judge's process is killed, aborted, starved or interrupted at any moment: nothing else ends, nothing is lost."""

from __future__ import annotations

import contextlib
import csv
import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from vrt_lite.api import Judge, compare
from vrt_lite.errors import VrtError
from vrt_lite.records.judgement import Judgement
from vrt_lite.runs.store import Store
from vrt_lite.worker import Worker

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")
ROOT = Path(__file__).parent.parent
CLIPS = [str(ROOT / "examples" / name) for name in ("star.mp4", "circle.mp4", "a.mp4", "b.mp4")]
PROMPT = "A blue star moves up."
LARGE = ROOT / "vrt_lite" / "bundled" / "vrt-tiny-0"
"""Given by its folder it is judged with as a large model is: in a process of its own."""
ENDS = ("SIGKILL", "SIGABRT", "SIGSEGV")
STATUSES = {signal.SIGKILL: 5, signal.SIGABRT: 4, signal.SIGSEGV: 4}


@dataclass(frozen=True)
class Ended:
    """How a command ended, and how many judgements its store had when its worker was killed."""

    status: int
    out: str
    err: str
    seconds: float
    kept: int = 0


def count_kept(store: Path) -> int:
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db,
    ):
        return db.execute("SELECT count(*) FROM judgements").fetchone()[0]
    return 0


def list_workers(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return [child for child in process.children() if "vrt_lite.worker" in " ".join(child.cmdline())]
    return []


def run(command: Sequence[str], *, kills: Sequence[tuple[float, int]] = (), store: Path | None = None) -> Ended:
    """Run a command; its worker gets each signal so many seconds after it, or the one before, was first seen."""
    began, kept = time.monotonic(), 0
    with subprocess.Popen(
        [sys.executable, "-m", "vrt_lite", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
    ) as process:
        killed = set[int]()
        for pause_seconds, number in kills:
            while process.poll() is None:
                if new := [child for child in list_workers(psutil.Process(process.pid)) if child.pid not in killed]:
                    time.sleep(pause_seconds)
                    kept = count_kept(store) if store else 0
                    killed.add(new[0].pid)
                    with contextlib.suppress(psutil.Error):
                        new[0].send_signal(number)
                    break
                time.sleep(0.005)
        out, err = process.communicate(timeout=300)
    return Ended(process.returncode, out, err, time.monotonic() - began, kept)


def check_one_line(ended: Ended, number: int) -> None:
    """It went on, or ended with the status of its worker's end and a line that says so."""
    assert ended.status in (0, STATUSES[signal.Signals(number)]), ended.err
    assert "Traceback" not in ended.err
    if ended.status:
        assert ended.err.count("vrt-lite: ") == 1
        assert ended.err.splitlines()[-1].startswith("vrt-lite: ")


def plain(judgement: dict[str, Any]) -> dict[str, Any]:
    """What is the same each time."""
    return {key: value for key, value in judgement.items() if key not in ("timings", "counters")}


def compare_command() -> list[str]:
    return ["compare", *CLIPS[2:], "-p", "A red square moving right.", "-m", str(LARGE), "--json", "--no-cache"]


def rank_command(store: Path, jobs: int = 1) -> list[str]:
    command = ["rank", *CLIPS, "-p", PROMPT, "--orders", "one", "--store", str(store), "--json"]
    return [*command, "--no-cache", "--jobs", str(jobs)]


def eval_command(store: Path) -> list[str]:
    table = store.with_suffix(".csv")
    with table.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("a", "b", "prompt", "overall"))
        rows.writerows((a, b, PROMPT, "A") for a in CLIPS for b in CLIPS if a < b)
    return ["eval", str(table), "--store", str(store), "--json", "--no-cache", "--jobs", "4"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Each command, when nothing happens to it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    commands = {
        "compare": compare_command(),
        "rank": rank_command(folder / "rank.sqlite"),
        "eval": eval_command(folder / "eval.sqlite"),
    }
    with pytest.MonkeyPatch.context() as patched:  # else what the user's own store has would be found
        patched.setenv("VRT_LITE_HOME", str(folder / "home"))
        found = {name: run(command) for name, command in commands.items()}
    assert [ended.status for ended in found.values()] == [0, 0, 0], [ended.err for ended in found.values()]
    return found


def moments(short: int) -> pytest.MarkDecorator:
    """One moment, and with those of the nightly tests 14 for each command: 30 kills and 12 aborts in all."""
    marked = [pytest.param(n, marks=[pytest.mark.nightly] if n != short else []) for n in range(14)]
    return pytest.mark.parametrize("number", marked)


def choose_kills(number: int, ended: Ended) -> list[tuple[float, int]]:
    """A moment of the command, and a signal; at every third one a second moment, after the first."""
    random_ = random.Random(number)
    name = ENDS[number % 2] if number % 7 else "SIGSEGV"
    kills = [(random_.uniform(0, ended.seconds), getattr(signal, name))]
    return kills * (2 if number % 3 == 2 else 1)


@moments(0)
def test_compare_goes_on_or_says_in_a_line_that_it_cannot(undisturbed: dict[str, Ended], number: int) -> None:
    kills = choose_kills(number, undisturbed["compare"])
    ended = run(compare_command(), kills=kills)
    check_one_line(ended, kills[0][1])
    if ended.status == 0:
        assert plain(json.loads(ended.out)) == plain(json.loads(undisturbed["compare"].out))


@moments(1)
def test_rank_keeps_what_it_judged(undisturbed: dict[str, Ended], number: int, tmp_path: Path) -> None:
    store = tmp_path / "rank.sqlite"
    kills = choose_kills(number, undisturbed["rank"])
    ended = run(rank_command(store), kills=kills, store=store)
    check_one_line(ended, kills[0][1])
    check_the_rest(ended, rank_command(store), undisturbed["rank"], store)


@moments(2)
def test_eval_with_four_jobs_keeps_what_it_judged(undisturbed: dict[str, Ended], number: int, tmp_path: Path) -> None:
    store = tmp_path / "eval.sqlite"
    kills = choose_kills(number, undisturbed["eval"])
    ended = run(eval_command(store), kills=kills, store=store)
    check_one_line(ended, kills[0][1])
    check_the_rest(ended, eval_command(store), undisturbed["eval"], store)


def check_the_rest(ended: Ended, command: Sequence[str], expected: Ended, store: Path) -> None:
    """What was kept at the kill is still there, and the same command does the rest with the same outcome."""
    assert count_kept(store) >= ended.kept
    if ended.status == 4:  # the pair at which it died twice is kept as a failure: it must be asked for again
        with Store(store) as opened:
            [name] = [info.name for info in opened.runs()]
        subprocess.run(
            [sys.executable, "-m", "vrt_lite", "runs", "--retry", name, "--store", str(store)], check=True, cwd=ROOT
        )
    again = run(command)
    assert again.status == 0, again.err
    told, meant = json.loads(again.out), json.loads(expected.out)
    for key in ("ladders", "figures", "pairs"):
        assert told.get(key) == meant.get(key)


def compare_within(more_bytes: int) -> Judgement:
    """In a worker: compare, with so much more memory than the process has once the judge is open."""
    import resource

    with Judge() as judge:
        judge.key_here()
        status = Path("/proc/self/status").read_text(encoding="ascii")
        used = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData"))
        resource.setrlimit(resource.RLIMIT_DATA, (used + more_bytes, used + more_bytes))
        return judge.compare(*CLIPS[:2], prompt=PROMPT)


def verdict_of(judgement: Judgement) -> object:
    return judgement.verdict, [order.verdict for order in judgement.orders]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of memory, and to know what is used")
@pytest.mark.parametrize(
    "sizes", [pytest.param((2, 20, 400), id="few"), pytest.param(range(0, 402, 6), marks=pytest.mark.nightly)]
)
def test_memory_that_ends_anywhere_gives_an_error_or_the_same_verdict(sizes: Sequence[int]) -> None:
    expected = verdict_of(compare(*CLIPS[:2], prompt=PROMPT))
    ends = list[str]()
    with Worker() as worker:
        for megabytes in sizes:
            try:
                found = worker.call(compare_within, megabytes * 10**6, seconds=60)
                assert verdict_of(found) == expected
                ends.append("")
            except (VrtError, MemoryError) as error:
                assert "\n" not in str(error), megabytes
                ends.append(str(error))
            worker.close()
    assert any(ends), "none of the sizes was too little"
    assert not all(ends), ends


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(50))
def test_an_interrupt_at_any_moment_is_status_130(undisturbed: dict[str, Ended], number: int, tmp_path: Path) -> None:
    name = ("compare", "rank", "eval")[number % 3]
    store = tmp_path / "runs.sqlite"
    command = {"compare": compare_command, "rank": lambda: rank_command(store), "eval": lambda: eval_command(store)}[
        name
    ]()
    with subprocess.Popen(
        [sys.executable, "-m", "vrt_lite", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        time.sleep(random.Random(number).uniform(0.5, undisturbed[name].seconds))  # after the start of Python itself
        workers = list_workers(psutil.Process(process.pid)) if process.poll() is None else []
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert process.returncode in (0, 130), err
    psutil.wait_procs(workers, timeout=10)
    assert not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers)
