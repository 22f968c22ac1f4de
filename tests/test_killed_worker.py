"""The judge's process is killed, aborted, starved or interrupted at any moment: nothing else ends, nothing is lost."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import os
import platform
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from allocations_worker import SETTINGS, compare_failing, compare_starving, compare_within
from judgements import FINAL
from reports import Report

from vrt_lite.api import Judge, compare
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.cli import run
from vrt_lite.errors import ShortageError, VrtError, WorkerEndedError
from vrt_lite.records.judgement import Judgement
from vrt_lite.runs.store import Store
from vrt_lite.worker import Worker

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")
TESTS, ROOT = Path(__file__).parent, Path(__file__).parents[1]
CLIPS = [ROOT / "examples" / f"{name}.mp4" for name in ("star", "circle", "a", "b")]
STAR, CIRCLE, *_ = CLIPS
PROMPT = "A blue star moves up."
LARGE = ROOT / "vrt_lite" / "bundled" / "vrt-tiny-0"
"""Given by its folder it is judged with as a large model is: in a process of its own."""
STATUSES = {signal.SIGKILL: {0, 5}, signal.SIGABRT: {0, 4}, signal.SIGSEGV: {0, 4}, signal.SIGINT: {0, 130}}
SMALL = ("--max-pixels", "12544")
COMMANDS = ("compare", "rank", "eval")


def make_command(name: str, store: Path) -> list[str]:
    """A command with this store, and without what was judged before."""
    if name == "compare":
        command = ["compare", *map(str, CLIPS[2:]), "-p", "A red square moving right.", "-m", str(LARGE), "--again"]
    elif name == "rank":
        command = ["rank", *map(str, CLIPS[:3]), "-p", PROMPT, "--orders", "one", "--store", str(store), *SMALL]
    else:
        table = store.with_suffix(".csv")
        rows = [f"{a},{b},{PROMPT},A" for a in CLIPS[:3] for b in CLIPS[:3] if a < b]
        table.write_text("\n".join(["a,b,prompt,overall", *rows]), encoding="utf-8")
        command = ["eval", str(table), "--store", str(store), "--jobs", "4", *SMALL]
    return [*command, "--json", "--no-cache"]


def answer_of(command: Sequence[str]) -> dict[str, Any]:
    """What a command prints in this process, without what differs each time."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run(command) == 0
    return stable_part(out.getvalue())


def stable_part(printed: str) -> dict[str, Any]:
    told = json.loads(printed)
    of_a_run = {name: told[name] for name in ("ladders", "figures", "pairs") if name in told}
    return of_a_run or {name: value for name, value in told.items() if name not in ("timings", "counters")}


def count_kept(store: Path) -> int:
    address = f"file:{store}?mode=ro"
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(address, uri=True)) as db:
        return db.execute("SELECT count(*) FROM judgements").fetchone()[0]
    return 0


def list_workers(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return [child for child in process.children() if "vrt_lite.worker" in " ".join(child.cmdline())]
    return []


def disturb(command: Sequence[str], pauses: Sequence[float], number: int, store: Path) -> tuple[int, str, str, int]:
    """Run a command; its worker gets a signal so many seconds after it is seen, and the next one again.

    An interrupt is sent to the command itself. Returns its status, stdout, stderr, and what was kept before the signal.
    """
    kept, killed, workers = 0, set[int](), list[psutil.Process]()
    with subprocess.Popen(
        [sys.executable, "-m", "vrt_lite", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        watched = psutil.Process(process.pid)
        for pause_seconds in pauses:
            while process.poll() is None:
                if new := [child for child in list_workers(watched) if child.pid not in killed]:
                    time.sleep(pause_seconds)
                    kept, workers = count_kept(store), list_workers(watched)
                    killed.add(new[0].pid)
                    with contextlib.suppress(psutil.Error):
                        (watched if number == signal.SIGINT else new[0]).send_signal(number)
                    break
                time.sleep(0.005)
        out, err = process.communicate(timeout=300)
    psutil.wait_procs(workers, timeout=60)
    assert not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers)
    return process.returncode, out, err, kept


@functools.cache
def undisturbed(name: str) -> tuple[dict[str, Any], float]:
    """What a command answers when nothing happens to it, and the seconds that it takes."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        return answer_of(make_command(name, Path(folder) / "runs.sqlite")), time.monotonic() - began


def list_moments() -> Iterator[object]:
    """List commands, signals, and numbers of moments. In the nightly run: 45 ends of a worker, and 51 interrupts."""
    yield from (("compare", signal.SIGKILL, 0), ("eval", signal.SIGSEGV, 0))
    for name, sent in itertools.product(COMMANDS, STATUSES):
        for number in range(1, 18 if sent == signal.SIGINT else 6):
            yield pytest.param(name, sent, number, marks=pytest.mark.nightly)


@pytest.mark.parametrize(("name", "sent", "number"), list(list_moments()))
def test_a_command_goes_on_or_says_in_a_line_that_it_cannot_and_keeps_what_it_judged(
    name: str, sent: int, number: int, tmp_path: Path
) -> None:
    expected, seconds = undisturbed(name)
    store = tmp_path / "runs.sqlite"
    draw, command = random.Random(f"{name} {sent:d} {number}"), make_command(name, store)
    pauses = [draw.uniform(0, seconds)] * (2 if name == "eval" else 1)
    status, out, err, kept = disturb(command, pauses, sent, store)
    assert status in STATUSES[sent], err
    assert "Traceback" not in err
    if status == 0:
        assert stable_part(out) == expected
    else:
        assert err.splitlines()[-1].startswith("vrt-lite: ")
        assert err.count("vrt-lite: ") == 1 or sent == signal.SIGINT
    if name == "compare":
        return
    assert count_kept(store) >= kept
    if status == 4:  # the pair at which it died twice is kept as a failure: it must be asked for again
        with Store(store) as opened:
            [info] = opened.runs()
        assert run(["runs", "--retry", info.name, "--store", str(store)]) == 0
    assert answer_of(command) == expected


def verdict_of(judgement: Judgement) -> object:
    return judgement.verdict, [order.verdict for order in judgement.orders]


@pytest.fixture(scope="module")
def expected() -> object:
    return verdict_of(compare(STAR, CIRCLE, prompt=PROMPT, settings=SETTINGS))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of memory, and to know what is used")
@pytest.mark.parametrize(
    "sizes", [pytest.param((2, 20, 1000), id="few"), pytest.param(range(0, 1008, 12), marks=pytest.mark.nightly)]
)
def test_memory_that_ends_anywhere_gives_an_error_or_the_same_verdict(sizes: Sequence[int], expected: object) -> None:
    failed = list[int]()
    for megabytes in sizes:
        with Worker() as worker:
            try:
                found = worker.call(compare_within, (STAR, CIRCLE), PROMPT, megabytes * 10**6, seconds=60)
                assert verdict_of(found) == expected
            except (VrtError, MemoryError) as error:
                assert "\n" not in str(error), megabytes
                failed.append(megabytes)
    assert 0 < len(failed) < len(sizes), failed


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Worker]]:
    """Begins workers that have an allocator that can be told to fail. Python's own objects come from it too."""
    library = tmp_path / "failing.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, TESTS / "failing_allocations.c"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("PYTHONMALLOC", "malloc")
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(Worker())


@pytest.mark.skipif(
    sys.platform != "linux" or platform.libc_ver()[0] != "glibc" or not shutil.which("cc"),
    reason="replaces glibc's allocator with a library that is built here",
)
@pytest.mark.parametrize("samples", [2, pytest.param(150, marks=pytest.mark.nightly)])
def test_allocations_that_fail_give_an_error_or_the_same_verdict(
    begin: Callable[[], Worker], samples: int, expected: object
) -> None:
    """Some fail while everything is imported and loaded, others in a judge that has judged before.

    Where all fail from one on, it may not even be able to raise an error: then it answers no ping, and is given up.
    """
    draw, failures, pair, starved = random.Random(samples), 0, (STAR, CIRCLE), begin()
    judgement, in_first = starved.call(compare_failing, pair, PROMPT, -1, -1)
    assert verdict_of(judgement) == expected
    _, in_later = starved.call(compare_failing, pair, PROMPT, -1, -1)
    for number in range(samples):
        first = number % 4 == 1
        if first:
            starved.close()
            starved = begin()
        at = draw.randrange(in_first if first else in_later)
        try:
            judgement, _ = starved.call(compare_failing, pair, PROMPT, at, at + draw.choice((0, 0, 20)), seconds=300)
        except Exception as error:  # any will do: it came from the child, or says how that ended
            print(at, type(error).__name__, error)
            failures += 1
        else:
            assert verdict_of(judgement) == expected, at
    judgement, _ = starved.call(compare_failing, pair, PROMPT, -1, -1)
    assert verdict_of(judgement) == expected
    assert failures or samples < 10
    for _ in range(samples // 2):
        starved.close()
        starved = begin()
        at, began = draw.randrange(in_first * 3 // 4), time.monotonic()
        with pytest.raises((WorkerEndedError, ShortageError, MemoryError)) as raised:
            starved.call(compare_starving, pair, PROMPT, at)
        assert time.monotonic() - began < 60, "twelve times what it takes where nothing else runs"
        assert "\n" not in str(raised.value)


HOOK = """
import os, sys

def end(event, args):
    # A file of this name kills a process that has the decoder. Any process may compute its digest.
    if event == "open" and str(args[0]).endswith("deadly.mp4") and "av" in sys.modules:
        os.abort()

sys.addaudithook(end)
"""


@pytest.fixture
def deadly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clip that aborts each Python process that is started now and decodes it."""
    clip = tmp_path / "deadly.mp4"
    clip.write_bytes(CIRCLE.read_bytes())
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path / "hook"), str(ROOT))))
    return clip


def test_a_report_is_written_without_the_frames_of_a_clip_that_became_deadly(deadly: Path, tmp_path: Path) -> None:
    path, page = tmp_path / "judgement.json", tmp_path / "report.html"
    with Judge(backend=ScriptedBackend([FINAL]), measures=False) as judge:
        path.write_text(json.dumps(judge.compare(STAR, deadly, prompt=PROMPT).to_json()), encoding="utf-8")
    for option in ((), ("--embed", "--overwrite")):
        assert run(["report", str(path), "--output", str(page), *option]) == 0
        report = Report(page)
        assert "cannot be decoded: The judge's process ended" in report.words
        assert report.pictures, "the other clip's frames are there"


def test_a_watched_folder_is_ranked_without_a_deadly_clip(deadly: Path, tmp_path: Path) -> None:
    renders = tmp_path / "renders"
    renders.mkdir()
    for name, clip in (("a.mp4", STAR), ("b.mp4", CIRCLE), (deadly.name, STAR)):
        (renders / name).write_bytes(clip.read_bytes())
    command = [sys.executable, "-m", "vrt_lite", "rank", str(renders), "--watch", "-p", PROMPT, *SMALL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        next(line for line in process.stderr if line.startswith("2 of 2"))
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=120)
    assert process.returncode == 0, rest
    assert {line.split()[1] for line in out.splitlines()[1:3]} == {"a.mp4", "b.mp4"}
    assert deadly.name in out
    assert "cannot be decoded: The judge's process ended" in " ".join(out.split())
