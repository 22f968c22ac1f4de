"""One SQLite file: opened, checked, brought up to date, and written so that a power loss takes nothing back.

Knows files, versions and what SQLite says when something is wrong, which becomes one line. Refuses to know what the
tables mean; `store` does.

On a local disk the file has a write-ahead log (WAL). Its readers and writers share memory, which two machines do not:
on a network drive the file has a rollback journal instead.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, Final

from vrt_lite.errors import StoreError, UsageError

APPLICATION_ID: Final = 0x56525452  # "VRTR"
BUSY_SECONDS: Final = 30
STEPS: Final = (
    """
    CREATE TABLE judgements (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        first TEXT NOT NULL, second TEXT NOT NULL, prompt TEXT NOT NULL, judge TEXT NOT NULL,
        winners TEXT NOT NULL, odds TEXT NOT NULL, source TEXT NOT NULL,
        rounds INTEGER NOT NULL, calls INTEGER NOT NULL, tokens INTEGER NOT NULL, seconds REAL NOT NULL,
        error TEXT NOT NULL, made REAL NOT NULL
    );
    CREATE TABLE bodies (judgement INTEGER PRIMARY KEY, json BLOB NOT NULL);
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, about TEXT NOT NULL,
        created REAL NOT NULL, updated REAL NOT NULL
    );
    CREATE TABLE links (
        id INTEGER PRIMARY KEY, run INTEGER NOT NULL, judgement INTEGER NOT NULL, UNIQUE (run, judgement)
    );
    CREATE INDEX links_judgement ON links (judgement);
    CREATE TABLE items (
        id INTEGER PRIMARY KEY, run INTEGER NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        UNIQUE (run, kind, key)
    );
    CREATE TABLE claims (
        key TEXT PRIMARY KEY, owner TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, born REAL NOT NULL,
        beat REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE digests (path BLOB PRIMARY KEY, stamp TEXT NOT NULL, sha256 TEXT NOT NULL) WITHOUT ROWID;
    """,
)
"""What brings a file from version i to i + 1. Only ever added to: a file of any earlier version can be opened."""

# In one statement: between two of them another process may bring the file up to date.
_STATE = """
    SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)
    FROM pragma_application_id, pragma_user_version
"""
_NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "afp",
    "9p",
    "webdav",
    "davfs",
    "fuse.sshfs",
    "lustre",
    "gpfs",
    "fuse.gluster",
    "ceph",
)


class Database:
    """The file, made with its folder if it is not there. For many threads; a context manager.

    UsageError for a file that another program, or a newer vrt-lite, has made; StoreError for one that is damaged, or
    cannot be read or written.
    """

    def __init__(self, path: Path, *, steps: Sequence[str] = STEPS) -> None:
        if "\0" in str(path):
            raise UsageError(f"The store {str(path)!r} is no file name.")
        # Absolute, or SQLite could take a name like "file:a" for an address.
        self.path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
        self._lock = RLock()
        with self._told():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            with self._told():
                self._open(steps)
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; nothing is left to be written. Once is enough, and again does no harm."""
        with self._lock, self._told():
            self._connection.close()

    def read(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self._lock, self._told():
            return self._connection.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def write(self, *, lasting: bool = True) -> Generator[sqlite3.Connection]:
        """All of what is done in the block, or nothing.

        It is on the disk when the block ends, or, if it need not be `lasting`, with the next write that must.
        """
        with self._lock, self._told():
            connection = self._connection
            if self.journal == "wal":
                connection.execute(f"PRAGMA synchronous = {'FULL' if lasting else 'NORMAL'}")
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def give_back(self) -> None:
        """Give the room of what was deleted back to the disk."""
        with self._lock, self._told():
            # Not `execute`: it would stop after the first page.
            self._connection.executescript("PRAGMA incremental_vacuum")

    def _open(self, steps: Sequence[str]) -> None:
        version = self._checked(len(steps))
        self.journal = self._set_journal()
        # EXTRA flushes the folder as well: a rollback journal that came back after a power loss would undo the last
        # write. `fullfsync` is for macOS, where a flush does not reach the disk by itself.
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if self.journal == 'wal' else 'EXTRA'}")
        self._connection.execute("PRAGMA fullfsync = ON")
        if version < len(steps):
            self._bring_up_to_date(steps)

    def _checked(self, newest: int) -> int:
        """The file's version, 0 for an empty file; UsageError for a file that is not ours, or newer than `newest`."""
        try:
            application, version, tables = self._connection.execute(_STATE).fetchone()
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
                raise UsageError(f"{self.path} is no store of runs. Give another file with --store.") from error
            raise
        if application != APPLICATION_ID and (application or version or tables):
            raise UsageError(f"{self.path} is a file of another program. Give another file with --store.")
        if version > newest:
            raise UsageError(
                f"{self.path} was written by a newer vrt-lite (schema {version}; this one knows up to {newest}). "
                "Upgrade vrt-lite, or give another file with --store."
            )
        return version

    def _set_journal(self) -> str:
        """The kind of journal in force: "wal", or "delete" on a network drive."""
        wanted = "delete" if on_network(self.path) else "wal"
        [was] = self._connection.execute("PRAGMA journal_mode").fetchone()
        for _ in range(100):
            if was == wanted:
                break
            try:
                if was == "delete":
                    # An empty file only: pages that are free again can then be given back.
                    self._connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                [was] = self._connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()
                break
            except sqlite3.OperationalError as error:
                # Another process is opening the file as well. SQLite itself does not wait here.
                if getattr(error, "sqlite_errorcode", 0) & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise
                time.sleep(0.05)
        return was

    def _bring_up_to_date(self, steps: Sequence[str]) -> None:
        """All missing steps in one transaction; another process may have been quicker."""
        with self.write() as connection:
            version = self._checked(len(steps))
            for step in steps[version:]:
                for statement in step.split(";"):
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(steps)}")

    @contextlib.contextmanager
    def _told(self) -> Generator[None]:
        """What the file system and SQLite say becomes one line."""
        try:
            yield
        except OSError as error:
            raise StoreError(f"The store {self.path} cannot be opened: {error.strerror or error}.") from error
        except sqlite3.ProgrammingError:
            raise  # ours, not the file's
        except sqlite3.DatabaseError as error:
            raise StoreError(f"The store {self.path} {_reason(error)}") from error


def on_network(path: Path) -> bool:
    """Whether a file lies, or would lie, on a drive that other machines may share, as far as the system says."""
    import psutil  # noqa: PLC0415

    if str(path).startswith("\\\\"):
        return True
    best, kind = -1, ""
    with contextlib.suppress(OSError):
        real = path.parent.resolve()
        for drive in psutil.disk_partitions(all=True):
            place = Path(drive.mountpoint)
            if real.is_relative_to(place) and len(place.parts) >= best:
                best, kind = len(place.parts), f"{drive.fstype} {drive.opts if os.name == 'nt' else ''}".lower()
    return kind.startswith(_NETWORK) or "remote" in kind


def _reason(error: sqlite3.DatabaseError) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    known = {
        sqlite3.SQLITE_CORRUPT: "is damaged. Move it aside; what can be saved: sqlite3 FILE .recover",
        sqlite3.SQLITE_NOTADB: "is damaged. Move it aside; what can be saved: sqlite3 FILE .recover",
        sqlite3.SQLITE_READONLY: "cannot be written. Make the file and its folder writable, or give another (--store).",
        sqlite3.SQLITE_PERM: "cannot be written. Make the file and its folder writable, or give another (--store).",
        sqlite3.SQLITE_CANTOPEN: "cannot be opened. Is it a file, and may it and its folder be read and written?",
        sqlite3.SQLITE_BUSY: f"was in use by another program for {BUSY_SECONDS} seconds. End that program.",
        sqlite3.SQLITE_FULL: "cannot be written: the disk is full. Make room; all that was judged before is kept.",
        sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports an error.",
    }
    return known.get(code, f"cannot be used: {error}.")
