"""The file of runs: whose it is, how whole, who may read it; what is kept, found, named, claimed and deleted."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
from run_worker import JUDGED, process_context, question, sha

from vrt_lite.embeddings import cache_folder
from vrt_lite.errors import NoVerdictError, StoreError, UsageError, VideoError, VrtError
from vrt_lite.runs import database
from vrt_lite.runs.database import VERSION, Database
from vrt_lite.runs.store import Identity, Run, Store, users_store

BY_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
INSERT = "INSERT INTO digests VALUES ('a', 'b', 'c')"
FOXES = Identity("key 1", {"--model": "vr-thinker", "--seed": "0"}, {"prompt": "A fox runs."})
NONE = NoVerdictError("none")


def fill(path: Path) -> None:
    with Store(path) as store:
        store.begin("r", kind="rank").add(question(), JUDGED)


def change(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def told(path: Path, kind: type[VrtError]) -> str:
    """What opening says; it is one line that names the file."""
    with pytest.raises(kind) as caught, Store(path) as store:
        list(store.begin("r", kind="rank").results())
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_a_power_loss_takes_nothing_back(tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite") as store:
        read = store.read
        settings = [*read("PRAGMA journal_mode"), *read("PRAGMA synchronous"), *read("PRAGMA fullfsync")]
        assert settings == [("wal",), (2,), (1,)]  # 2 is FULL
        run = store.begin("r", kind="rank")
        for lasting in (False, True):
            run.put("vote", "k", {"winner": 1}, lasting=lasting)
            assert read("PRAGMA synchronous") == [(2 if lasting else 1,)]
        run.put("vote", "k", {}, lasting=False)
        run.add(question(), JUDGED)
        assert read("PRAGMA synchronous") == [(2,)]


@pytest.mark.parametrize("name", ["a?b#c%20d.sqlite", "file:x?mode=memory", ":memory:", "é 😀.db", "-x", "a'b\"c;--"])
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")
def test_any_file_name_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path(name), tmp_path / "new" / "folder" / name):
        fill(path)
        assert path.is_file()
        with Store(path) as store:
            assert [info.name for info in store.runs()] == ["r"]


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("", "is no store of runs"),
        ("PRAGMA application_id = 0", "is a file of another program"),
        (f"PRAGMA user_version = {VERSION + 1}", f"by a newer vrt-lite (schema {VERSION + 1};"),
        (f"PRAGMA user_version = {VERSION - 1}", f"by an unreleased vrt-lite (schema {VERSION - 1};"),
    ],
)
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, statement: str, says: str) -> None:
    path = tmp_path / "a.sqlite"
    fill(path)
    change(path, statement, "PRAGMA wal_checkpoint(TRUNCATE)")
    if not statement:
        path.write_text("not a store\n" * 1000)
    path.chmod(0o666)
    before = path.read_bytes(), path.stat().st_mode
    message = told(path, UsageError)
    assert says in message
    assert "--store" in message
    assert (path.read_bytes(), path.stat().st_mode) == before


@pytest.mark.parametrize("nth", range(6))
def test_another_may_make_the_file_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    """The other opens the file before the n-th statement of this one, as far as this one's locks let it."""
    path, statements, others = tmp_path / "a.sqlite", count(), list[Thread]()

    class Interrupted(sqlite3.Connection):
        def execute(self, *given: Any) -> sqlite3.Cursor:
            if next(statements) == nth:
                monkeypatch.setattr(database.sqlite3, "connect", sqlite3_connect)
                others.append(Thread(target=lambda: Database(path).close()))
                others[0].start()
                others[0].join(0.2)
            return super().execute(*given)

    sqlite3_connect = sqlite3.connect
    monkeypatch.setattr(database.sqlite3, "connect", partial(sqlite3_connect, factory=Interrupted))
    with Database(path) as opened:
        others[0].join()
        assert opened.read("PRAGMA user_version") == [(VERSION,)]


def test_what_is_damaged_or_no_file_ends_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path) as store:
        run = store.begin("r", kind="rank")
        for number in range(100):
            run.add(question(number), JUDGED)
    for identity in ("", "[]", '{"judge": 3}', '{"described": {"a": []}}', "{" * 9):
        change(path, f"UPDATE runs SET identity = '{identity}'")
        assert "is damaged: a row" in told(path, StoreError)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    assert "is damaged" in told(path, StoreError)
    path.write_bytes(whole[: len(whole) // 2])
    for no_store in (path, tmp_path, path / "a.sqlite"):
        told(no_store, StoreError)
    with pytest.raises(UsageError, match="is no file name"):
        Store(Path("a\0b"))


@pytest.mark.skipif(BY_ROOT or sys.platform == "win32", reason="nothing is forbidden to this user")
def test_a_file_that_cannot_be_written_ends_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.sqlite"
    fill(path)
    path.chmod(0o400)
    path.parent.chmod(0o500)
    assert "written" in told(path, StoreError)
    path.chmod(0o000)
    told(path, StoreError)
    path.parent.chmod(0o700)


def test_whoever_does_not_let_go_is_named_as_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    with Store(tmp_path / "a.sqlite") as store:
        with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="in use by another program"):
                store.begin("r", kind="rank")
        store.begin("r", kind="rank").add(question(), JUDGED)


def test_half_a_write_is_none(tmp_path: Path) -> None:
    with Database(tmp_path / "a.sqlite") as opened:
        with pytest.raises(KeyboardInterrupt), opened.write() as connection:
            connection.execute(INSERT)
            raise KeyboardInterrupt
        assert not opened.read("SELECT * FROM digests")
        with opened.write() as connection:
            connection.execute(INSERT)
        assert opened.read("SELECT * FROM digests")


@pytest.mark.skipif(os.name != "posix", reason="Windows keeps other users out of a user's folder")
@pytest.mark.parametrize(("mode", "expected"), [(None, 0o600), (0o644, 0o600), (0o660, 0o660)])
def test_a_store_is_the_users_own_unless_a_group_shares_it(
    tmp_path: Path, request: pytest.FixtureRequest, mode: int | None, expected: int
) -> None:
    """A folder that was there keeps its rights, too."""
    request.addfinalizer(partial(os.umask, os.umask(0)))
    path = tmp_path / "folder" / "runs.sqlite"
    if mode is not None:
        path.parent.mkdir()
        fill(path)
        path.chmod(mode)
    with Store(path) as store:
        store.begin("foxes", kind="rank").add(question(), JUDGED)
        files = [path, *path.parent.glob(f"{path.name}-*")]
        assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [expected] * 3
    assert stat.S_IMODE(path.parent.stat().st_mode) == (0o700 if mode is None else 0o777)


def test_results_and_items_come_in_the_order_made_over_many_pages_and_from_many_threads(run: Run, store: Store) -> None:
    numbers = [(7 * number) % 300 for number in range(300)]
    with ThreadPoolExecutor(4) as pool:
        judging = [pool.submit(run.add, question(1000 + number), NONE) for number in range(20)]
        for number in numbers:
            run.put("pair", f"{number}", {"label": number}, lasting=False)
        assert all(work.result() for work in judging)
    for number in numbers:
        run.add(question(number), NONE)
    run.put("pair", "7", {"label": "new"})
    run.put("other", "7", {})
    assert [result.first for result in run.results()][20:] == [sha(f"first {number}") for number in numbers]
    assert [key for key, _ in run.items("pair")] == [f"{number}" for number in numbers]
    assert dict(store.run("r").items("pair"))["7"] == {"label": "new"}


def test_runs_share_judgements_until_they_are_removed_and_room_is_given_back(run: Run, store: Store) -> None:
    noise = replace(JUDGED, prompt=" ".join(sha(f"{n}") for n in range(2000)))
    for number in range(25):
        run.add(question(number), noise)
    run.put("pair", "1", {})
    other = store.begin("other", kind="eval", about={})
    assert not list(other.results())
    for number in (2, 0, 2):
        assert other.result(question(number))
    assert other.add(question(1), NONE).error == "", "the first writer wins"
    assert [result.key for result in other.results()] == [question(number).key for number in (2, 0, 1)]
    store.read("PRAGMA wal_checkpoint(TRUNCATE)")
    full = store.path.stat().st_size
    assert store.remove("r") == 22
    assert [(info.name, info.judgements) for info in store.runs()] == [("other", 3)]
    assert other.result(question(3)) is other.judgement(question(3).key) is None
    assert other.judgement(question(2).key) == noise
    with pytest.raises(StoreError, match="deleted while it was in use"):
        run.add(question(3), JUDGED)
    assert not list(store.begin("r", kind="rank").items("pair"))
    store.close()
    store.close()
    assert store.path.stat().st_size < full / 4


def test_any_name_of_some_length_will_do(store: Store) -> None:
    for name, why in (("", "1 to 200"), ("x" * 201, "1 to 200"), ("latest", "stands for the run that was used last")):
        with pytest.raises(UsageError, match=why):
            store.begin(name, kind="rank", about={})
    for name in ("'; DROP TABLE runs; --", "\udcff", "😀\n\x1b[31m", "--rm"):
        store.begin(name, kind="rank", about={"of": name}).add(question(), JUDGED)
        assert store.run(name).about == {"of": name}
    assert len(store.runs()) == 4


@pytest.mark.parametrize(
    ("now", "differs"),
    [
        (replace(FOXES, facts={"prompt": "A dog runs."}), "prompt 'A fox runs.' (not 'A dog runs.')"),
        (Identity("key 2", {"--model": "vrt-tiny-2", "--seed": "0"}), "--model vr-thinker (not vrt-tiny-2)"),
        (Identity("key 2", {"--model": "vr-thinker", "--seed": "7"}), "--seed 0 (not 7)"),
        (replace(FOXES, judge="key 2"), "other files or another profile of the same judge"),
        (replace(FOXES, facts={"prompt of group 'b'": "A cat."}), "prompt of group 'b' 'A dog.' (not 'A cat.')"),
    ],
)
def test_a_name_is_refused_for_another_prompt_or_judge(store: Store, now: Identity, differs: str) -> None:
    store.begin("foxes", kind="rank", identity=FOXES).add(question(), JUDGED)
    # A moved model and another group are no difference.
    moved = Identity("key 1", {"--model": "./moved/vr-thinker"}, {"prompt of group 'b'": "A dog."})
    store.begin("foxes", kind="rank", identity=moved)
    store.begin("foxes", kind="rank", identity=FOXES)
    with pytest.raises(UsageError) as caught:
        store.begin("foxes", kind="rank", identity=now)
    what_to_do = "Give another --name, or none; what both need is judged once."
    assert str(caught.value) == f"Run 'foxes' was made with {differs}. {what_to_do}"


def test_a_run_is_listed_once_it_has_a_judgement_and_goes_on_under_its_name(store: Store) -> None:
    run = store.begin("foxes", kind="rank", about={"n": 1}, identity=FOXES)
    run.put("opened", "a", {"x": 1})
    run.note({"n": 2})
    assert (store.runs(), list(run.results())) == ([], [])
    with pytest.raises(UsageError, match="There is no run 'foxes'"):
        store.run("foxes")
    other = store.begin("foxes", kind="eval", identity=Identity("key 2"))
    assert (other.kind, other.about, list(other.items("opened"))) == ("eval", {}, []), "the name was free"
    other.add(question(), JUDGED)
    other.note({"n": 3})
    again = store.begin("foxes", kind="eval", about={"n": 4})
    assert (again.about, again.number, len(list(again.results()))) == ({"n": 3}, other.number, 1)
    with pytest.raises(UsageError, match="Run 'foxes' is an evaluation, not a ranking"):
        store.begin("foxes", kind="rank")


@pytest.mark.skipif(sys.platform == "win32", reason="a process that has ended is gone there")
def test_a_dead_process_loses_its_claim_even_if_it_is_not_reaped(run: Run, store: Store) -> None:
    with subprocess.Popen(["sleep", "20"]) as process:
        found = psutil.Process(process.pid)
        born = found.create_time()
        unused = next(pid for pid in range(max(psutil.pids()) + 1, 2**31) if not psutil.pid_exists(pid))
        with store.write() as connection:
            for number, owner in enumerate([(process.pid, born), (process.pid, born - 60), (unused, 0.0)]):
                connection.execute("INSERT INTO claims VALUES (?, 'other', ?, ?)", (question(number).key, *owner))
        assert [run.claim(question(number)) for number in range(3)] == [False, True, True]
        process.kill()
        until = time.monotonic() + 10
        while found.status() != psutil.STATUS_ZOMBIE:  # nothing here waits for it
            assert time.monotonic() < until
            time.sleep(0.01)
        assert run.claim(question(0))


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no other file system")
def test_a_full_disk_leaves_a_cache_alone_that_is_on_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the number of free bytes is set here; the two file systems are real."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        monkeypatch.setattr(database, "_LEAST_FREE_BYTES", 2**62)
        for place, is_kept in ((Path(other), Path(other).stat().st_dev != tmp_path.stat().st_dev), (tmp_path, False)):
            monkeypatch.setenv("VRT_LITE_HOME", str(place))
            cache_folder().mkdir()
            kept = cache_folder() / f"{'0' * 40}.embedding"
            kept.write_bytes(b"x")
            with Store(tmp_path / "runs.sqlite"):
                assert kept.exists() == is_kept


def remembered(store: Store) -> int:
    return len(store.read("SELECT * FROM digests"))


def test_a_digest_is_remembered_until_the_file_changes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vrt_lite.runs.store._UNSAFE_SECONDS", 0.0)
    file = tmp_path / "clip \udcff.bin" if os.name == "posix" else tmp_path / "clip.bin"
    for data, changed in (("one", 1_500_000_000), ("two", 1_400_000_000)):
        file.write_text(data)
        os.utime(file, (changed, changed))
        with Store(store.path) as again:
            assert {store.digest(file), store.digest(Path(file.name)), again.digest(file)} == {sha(data)}
        assert remembered(store) == 1


def test_a_file_changed_just_now_is_not_remembered_and_what_is_no_file_has_no_digest(
    store: Store, tmp_path: Path
) -> None:
    file, now = tmp_path / "clip.bin", time.time()
    for data in ("one", "two"):
        file.write_text(data)
        os.utime(file, (now, now))  # within one tick of the clock
        assert store.digest(file) == sha(data)
    assert remembered(store) == 0
    for path, why in (
        (tmp_path / "gone.mp4", "gone.mp4' cannot be opened"),
        (tmp_path, "is a folder without numbered pictures"),
        (Path("a\0b"), "cannot be opened"),
    ):
        with pytest.raises(VideoError, match=why):
            store.digest(path)


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
    context, chance, path, reported = process_context(), random.Random(3), tmp_path / "a.sqlite", 0
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
            assert store.read("PRAGMA integrity_check") == [("ok",)]
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
