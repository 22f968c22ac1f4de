"""The file itself: whose it is, how old, how whole, and what is said if it is not."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from functools import partial
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from made import JUDGED, question

from vrt_lite.errors import StoreError, UsageError, VrtError
from vrt_lite.runs import database
from vrt_lite.runs.database import VERSION, Database
from vrt_lite.runs.store import Store

BY_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def pragma(store: Database, name: str) -> object:
    return store.read(f"PRAGMA {name}")[0][0]


def told(path: Path) -> VrtError:
    """What opening says; it is one line that names the file."""
    with pytest.raises(VrtError) as caught, Store(path) as store:
        list(store.begin("r", kind="rank", about={}).results())
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return caught.value


def test_a_power_loss_takes_nothing_back(tmp_path: Path) -> None:
    with Database(tmp_path / "a.sqlite") as store:
        assert pragma(store, "journal_mode") == "wal"
        assert pragma(store, "synchronous") == 2  # FULL
        assert pragma(store, "fullfsync") == 1
        with store.write(lasting=False) as connection:
            connection.execute("INSERT INTO digests VALUES ('a', 'b', 'c')")
        with store.write():
            assert pragma(store, "synchronous") == 2
        assert pragma(store, "user_version") == VERSION
        assert pragma(store, "application_id") == database.APPLICATION_ID


def test_an_item_is_on_the_disk_at_once_only_if_it_must(tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite") as store:
        run = store.begin("r", kind="rank")
        run.add(question(), JUDGED)
        for lasting in (False, True):
            run.put("vote", "k", {"winner": 1}, lasting=lasting)
            assert pragma(store._database, "synchronous") == (2 if lasting else 1)


@pytest.mark.parametrize("name", ["a?b#c%20d.sqlite", "file:x?mode=memory", ":memory:", "é 😀.db", "-x", "a'b\"c;--"])
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")
def test_any_file_name_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path(name), tmp_path / "new" / "folder" / name):
        with Store(path) as store:
            store.begin("r", kind="rank").add(question(), JUDGED)
        assert path.is_file()
        with Store(path) as store:
            assert [info.name for info in store.runs()] == ["r"]


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a store\n" * 1000)
    assert isinstance(told(text), UsageError)
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE runs (a)")
    connection.commit()
    connection.close()
    before = other.read_bytes()
    error = told(other)
    assert isinstance(error, UsageError)
    assert "of another program" in str(error)
    assert "--store" in str(error)
    assert other.read_bytes() == before
    assert text.read_text() == "not a store\n" * 1000


@pytest.mark.parametrize(("version", "by"), [(VERSION + 1, "a newer"), (VERSION - 1, "an unreleased")])
def test_a_file_of_another_version_is_left_alone(tmp_path: Path, version: int, by: str) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path) as store:
        store.begin("r", kind="rank").add(question(), JUDGED)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    error = told(path)
    assert isinstance(error, UsageError)
    assert f"by {by} vrt-lite (schema {version}; this one knows {VERSION})" in str(error)
    assert "--store" in str(error)
    assert path.read_bytes() == before


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
                others[0].join(0.5)
            return super().execute(*given)

    sqlite3_connect = sqlite3.connect
    monkeypatch.setattr(database.sqlite3, "connect", partial(sqlite3_connect, factory=Interrupted))
    with Database(path) as opened:
        others[0].join()
        assert pragma(opened, "user_version") == VERSION


def test_processes_that_open_at_once_make_one_file(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from vrt_lite.runs.store import Store\n"
        "from vrt_lite.records.pairs import Question; from vrt_lite.errors import NoVerdictError\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "with Store(Path(sys.argv[1])) as store:\n"
        "    run = store.begin(sys.argv[2], kind='rank')\n"
        "    run.add_failure(Question('a', 'b', '', 'j'), NoVerdictError('No verdict.'))\n"
    )
    path = tmp_path / "a.sqlite"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with contextlib.ExitStack() as ended:
        starting = [
            ended.enter_context(subprocess.Popen([sys.executable, "-c", code, str(path), f"{n}"], **pipes))
            for n in range(4)
        ]
        for process in starting:
            assert process.stdout
            assert process.stdout.readline().strip() == b"ready"
        for process in starting:
            assert process.stdin
            process.stdin.write(b"\n")
            process.stdin.flush()
    assert [process.returncode for process in starting] == [0] * 4
    with Store(path) as store:
        assert {info.name for info in store.runs()} == {"0", "1", "2", "3"}


def test_a_damaged_file_ends_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path) as store:
        run = store.begin("r", kind="rank", about={})
        for number in range(200):
            run.add(question(number), JUDGED)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    error = told(path)
    assert isinstance(error, StoreError)
    assert "is damaged" in str(error)
    path.write_bytes(whole[: len(whole) // 2])
    assert isinstance(told(path), StoreError)


def test_a_damaged_judgement_ends_in_one_line(tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite") as store:
        run = store.begin("r", kind="rank", about={})
        run.add(question(), JUDGED)
        connection = sqlite3.connect(store.path)
        connection.execute("UPDATE judgements SET body = x'00'")
        connection.commit()
        connection.close()
        with pytest.raises(StoreError, match="is damaged: judgement"):
            run.judgement(question().key)


def test_what_is_no_file_ends_in_one_line(tmp_path: Path) -> None:
    assert isinstance(told(tmp_path), StoreError)
    (tmp_path / "file").write_text("")
    assert isinstance(told(tmp_path / "file" / "a.sqlite"), StoreError)
    with pytest.raises(UsageError, match="is no file name"):
        Store(Path("a\0b"))


@pytest.mark.skipif(BY_ROOT or sys.platform == "win32", reason="nothing is forbidden to this user")
def test_a_file_that_cannot_be_written_ends_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with Store(folder / "a.sqlite") as store:
        store.begin("r", kind="rank").add(question(), JUDGED)
    (folder / "a.sqlite").chmod(0o400)
    folder.chmod(0o500)
    assert "written" in str(told(folder / "a.sqlite"))
    (folder / "a.sqlite").chmod(0o000)
    assert isinstance(told(folder / "a.sqlite"), StoreError)
    folder.chmod(0o700)


def test_whoever_does_not_let_go_is_named_as_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    with Store(tmp_path / "a.sqlite") as store:
        holder = sqlite3.connect(store.path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="in use by another program"):
            store.begin("r", kind="rank").add(question(), JUDGED)
        holder.execute("ROLLBACK")
        holder.close()
        store.begin("r", kind="rank").add(question(), JUDGED)


def test_half_a_write_is_none(tmp_path: Path) -> None:
    with Database(tmp_path / "a.sqlite") as opened:
        with pytest.raises(KeyboardInterrupt), opened.write() as connection:
            connection.execute("INSERT INTO digests VALUES ('a', 'b', 'c')")
            raise KeyboardInterrupt
        assert not opened.read("SELECT * FROM digests")
        with opened.write() as connection:
            connection.execute("INSERT INTO digests VALUES ('a', 'b', 'c')")
        assert len(opened.read("SELECT * FROM digests")) == 1
