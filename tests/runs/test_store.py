"""What is kept, found, linked and deleted; nothing here judges."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from made import JUDGED, question, sha

from vrt_lite.errors import NoVerdictError, StoreError, UsageError, VideoError
from vrt_lite.records.pairs import result_of
from vrt_lite.runs import database
from vrt_lite.runs.store import Run, Store, users_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "runs.sqlite") as opened:
        yield opened


@pytest.fixture
def run(store: Store) -> Run:
    return store.begin("r", kind="rank", about={"prompt": "A fox runs."})


def test_what_is_added_is_found_whole(run: Run, store: Store) -> None:
    assert run.result(question()) is None
    kept = run.add(question(), JUDGED)
    assert kept == run.result(question()) == result_of(question(), JUDGED)
    assert run.judgement(question().key) == JUDGED
    again = Store(store.path)
    with again:
        assert again.run("r").result(question()) == kept
        assert again.run("r").judgement(question().key) == JUDGED


def test_the_first_writer_wins(run: Run, store: Store) -> None:
    run.add(question(), JUDGED)
    other = store.begin("other", kind="eval", about={})
    assert other.add_failure(question(), NoVerdictError("late")).error == ""
    assert [r.error for r in run.results()] == [r.error for r in other.results()] == [""]


def test_a_run_finds_what_another_has_judged_and_links_it(run: Run, store: Store) -> None:
    for number in range(3):
        run.add(question(number), JUDGED)
    other = store.begin("other", kind="eval", about={})
    assert not list(other.results())
    for number in (2, 0):
        assert other.result(question(number))
        assert other.result(question(number))
    assert [r.key for r in other.results()] == [question(2).key, question(0).key]
    assert [info.judgements for info in store.runs()] == [2, 3]


def test_results_come_in_the_order_made_over_many_pages(run: Run) -> None:
    numbers = [(7 * n) % 600 for n in range(600)]
    for number in numbers:
        run.add_failure(question(number), NoVerdictError("none"))
    assert [r.first for r in run.results()] == [sha(f"first {n}") for n in numbers]


def test_runs_are_listed_the_last_used_first(store: Store, run: Run) -> None:
    other = store.begin("other", kind="eval", about={"n": 1})
    assert other.add(question(3), JUDGED)
    run.add(question(1), JUDGED)
    run.add_failure(question(2), NoVerdictError("none"))
    first, second = store.runs()
    assert (first.name, first.kind, first.judgements, first.failures) == ("r", "rank", 2, 1)
    assert (second.name, second.judgements, second.failures, second.about) == ("other", 1, 0, {"n": 1})
    assert first.created <= first.updated
    assert other.about == {"n": 1}


def test_a_run_begun_again_is_the_same_one(store: Store, run: Run) -> None:
    run.note({"prompt": "A fox runs.", "ratings": [1.5]})
    run.add(question(), JUDGED)
    again = store.begin("r", kind="rank", about={"other": True})
    assert again.about == run.about == {"prompt": "A fox runs.", "ratings": [1.5]}
    assert again.number == run.number
    with pytest.raises(UsageError, match="Run 'r' is a ranking, not an evaluation"):
        store.begin("r", kind="eval", about={})


@pytest.mark.parametrize("name", ["", "x" * 201])
def test_a_name_has_a_length(store: Store, name: str) -> None:
    with pytest.raises(UsageError, match="1 to 200"):
        store.begin(name, kind="rank", about={})


def test_any_other_name_will_do(store: Store) -> None:
    for name in ("'; DROP TABLE runs; --", "\udcff", "😀\n\x1b[31m", "--rm"):
        store.begin(name, kind="rank", about={"of": name}).add(question(), JUDGED)
        assert store.run(name).about == {"of": name}
    assert len(store.runs()) == 4


def test_an_unknown_run_names_the_nearest(store: Store) -> None:
    with pytest.raises(UsageError, match="There is no run 'fix': there are none yet"):
        store.run("fix")
    store.begin("foxes", kind="rank").add(question(), JUDGED)
    with pytest.raises(UsageError, match=r"There is no run 'fix'; the nearest is 'foxes'\. See: vrt-lite runs"):
        store.run("fix")
    with pytest.raises(UsageError, match=r"There is no run 'zzzzzz'\. See: vrt-lite runs"):
        store.run("zzzzzz")


def test_facts_are_kept_by_kind_and_key(run: Run, store: Store) -> None:
    for number in range(300):
        run.put("pair", f"{number}", {"label": number})
    run.put("pair", "7", {"label": "new"})
    run.put("other", "7", {})
    assert [key for key, _ in run.items("pair")] == [f"{n}" for n in range(300)]
    run.add(question(), JUDGED)
    found = list(store.run("r").items("pair"))
    assert [key for key, _ in found] == [f"{n}" for n in range(300)]
    assert found[7] == ("7", {"label": "new"})


def test_removing_a_run_leaves_what_others_have(run: Run, store: Store) -> None:
    other = store.begin("other", kind="eval", about={})
    run.add(question(1), JUDGED)
    run.add(question(2), JUDGED)
    run.put("pair", "1", {})
    assert other.result(question(2))
    assert store.remove("r") == 1
    assert [info.name for info in store.runs()] == ["other"]
    assert other.result(question(1)) is None
    assert other.judgement(question(1).key) is None
    assert other.result(question(2))
    assert other.judgement(question(2).key) == JUDGED
    with pytest.raises(UsageError, match="no run 'r'"):
        store.remove("r")
    with pytest.raises(StoreError, match="deleted while it was in use"):
        run.add(question(3), JUDGED)
    assert not list(store.begin("r", kind="rank", about={}).items("pair"))


def test_room_is_given_back(run: Run, store: Store) -> None:
    noise = replace(JUDGED, prompt=" ".join(sha(f"{n}") for n in range(2000)))
    for number in range(50):
        run.add(question(number), noise)
    store.close()
    store.close()
    full = store.path.stat().st_size
    with Store(store.path) as again:
        again.remove("r")
    assert store.path.stat().st_size < full / 10


def test_a_claim_keeps_others_away_until_it_ends(run: Run, store: Store) -> None:
    with Store(store.path) as another:
        others = another.begin("other", kind="eval")
        assert run.claim(question())
        assert not run.claim(question())
        assert not others.claim(question())
        run.release(question())
        assert others.claim(question())
        assert not run.claim(question())
        run.add(question(), JUDGED)
        assert not others.claim(question())  # it is judged: there is nothing to claim
        assert others.claim(question(1))
    assert run.claim(question(1))  # closing gives up


def dead_process() -> database.Owner:
    """What a process that is no more would have been."""
    pid = max(psutil.pids()) + 1
    while psutil.pid_exists(pid):
        pid += 1
    return database.Owner("t", pid, 0.0)


@pytest.mark.skipif(sys.platform == "win32", reason="a process that has ended is gone there")
def test_a_process_that_was_killed_and_not_reaped_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = psutil.Process(process.pid)
        owner = database.Owner("t", process.pid, found.create_time())
        assert database.is_alive(owner)
        process.kill()
        until = time.monotonic() + 10
        while found.status() != psutil.STATUS_ZOMBIE:  # nothing here waits for it
            assert time.monotonic() < until
            time.sleep(0.01)
        assert not database.is_alive(owner)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no other file system")
def test_a_full_disk_leaves_a_cache_alone_that_is_on_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the number of free bytes is set here; the two file systems are real."""
    from vrt_lite.embeddings import cache_folder

    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        monkeypatch.setattr(database, "_LEAST_FREE_BYTES", 2**62)
        for place, is_kept in ((Path(other), Path(other).stat().st_dev != tmp_path.stat().st_dev), (tmp_path, False)):
            monkeypatch.setenv("VRT_LITE_HOME", str(place))
            cache_folder().mkdir()
            kept = cache_folder() / f"{'0' * 40}.embedding"
            kept.write_bytes(b"x")
            with Store(tmp_path / "runs.sqlite"):
                assert kept.exists() == is_kept


def test_a_dead_process_loses_its_claim(run: Run, store: Store) -> None:
    living = replace(database.new_owner(), token="other")
    for number, owner in ((1, dead_process()), (2, living)):
        with sqlite3.connect(store.path) as connection:
            values = (question(number).key, owner.token, owner.pid, owner.born)
            connection.execute("INSERT INTO claims VALUES (?, ?, ?, ?)", values)
        connection.close()
    assert [run.claim(question(number)) for number in (1, 2)] == [True, False]


def old(path: Path, *, seconds: float = 60) -> Path:
    """A file whose last change, as far as its own times say, is long ago."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - int(seconds * 1e9)))
    return path


def remembered(store: Store) -> int:
    connection = sqlite3.connect(store.path)
    [count] = connection.execute("SELECT count(*) FROM digests").fetchone()
    connection.close()
    return count


def test_a_digest_is_remembered_until_the_file_changes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "clip \udcff.bin" if os.name == "posix" else tmp_path / "clip.bin"
    file.write_bytes(b"one")
    monkeypatch.setattr("vrt_lite.runs.store._UNSAFE_SECONDS", 0.0)
    assert store.digest(file) == sha("one")
    assert remembered(store) == 1
    monkeypatch.chdir(tmp_path)
    assert store.digest(Path(file.name)) == sha("one")
    with Store(store.path) as again:
        assert again.digest(file) == sha("one")
    assert remembered(store) == 1
    file.write_bytes(b"two")
    old(file)
    assert store.digest(file) == sha("two")
    with Store(store.path) as again:
        assert again.digest(file) == sha("two")


def test_a_file_changed_just_now_is_not_remembered(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "clip.bin"
    file.write_bytes(b"one")
    assert store.digest(file) == sha("one")
    assert remembered(store) == 0
    status = file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # within one tick of the clock
    assert store.digest(file) == sha("two")


def test_what_is_no_file_has_no_digest(store: Store, tmp_path: Path) -> None:
    with pytest.raises(VideoError, match=r"gone.mp4' cannot be read"):
        store.digest(tmp_path / "gone.mp4")
    with pytest.raises(VideoError, match="is a folder without numbered pictures"):
        store.digest(tmp_path)
    with pytest.raises(VideoError, match="cannot be read"):
        store.digest(Path("a\0b"))


def write_on(path: Path, report: Any) -> None:
    """Add as fast as can be, and report each judgement once it is kept."""
    with Store(path) as store:
        run = store.begin("r", kind="rank", about={})
        number = sum(1 for _ in run.results())
        while True:
            run.add(question(number), JUDGED)
            run.put("pair", f"{number}", {})
            report.send(number)
            number += 1


@pytest.mark.parametrize("kills", [5, pytest.param(30, marks=pytest.mark.nightly)])
def test_killed_while_it_writes_all_that_was_reported_is_there(tmp_path: Path, kills: int) -> None:
    context = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    if sys.platform != "win32":
        context.set_forkserver_preload(["run_worker", "made", "av", "vrt_lite.pair_frames", "vrt_lite.video"])
    chance, path, reported = random.Random(3), tmp_path / "a.sqlite", 0
    for _ in range(kills):
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=write_on, args=(path, there))
        process.start()
        there.close()
        assert here.recv() >= reported
        for _ in range(chance.randrange(20)):
            here.recv()
        process.kill()
        process.join()
        with contextlib.suppress(EOFError):
            while True:
                reported = here.recv() + 1
        with Store(path) as store:
            assert store._database.read("PRAGMA integrity_check") == [("ok",)]
            run = store.begin("r", kind="rank")
            kept = [result.key for result in run.results()]
            assert len(kept) >= reported
            assert kept == [question(number).key for number in range(len(kept))]
            assert all(run.judgement(key) == JUDGED for key in kept[-3:])
        reported = len(kept)


@pytest.mark.skipif(sys.platform == "win32", reason="one folder there for both")
def test_runs_do_not_lie_among_what_a_cleaner_may_delete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VRT_LITE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert users_store() == tmp_path / "data" / "vrt-lite" / "runs.sqlite"
