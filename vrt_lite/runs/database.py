"""One SQLite file: makes it, opens it, checks it, and writes it so that a power loss loses nothing.

SQLite's errors become a StoreError of one line. What the tables mean is in `store` and `run`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sqlite3
import stat
import time
import uuid
import zlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any, Final, Self, TypeVar

import msgspec
import psutil

from vrt_lite.errors import StoreError, UsageError
from vrt_lite.reading import read_plain

APPLICATION_ID: Final = 0x56525452  # "VRTR"
BUSY_SECONDS: Final = 30
_PRIVATE: Final = 0o600
_LEAST_FREE_BYTES: Final = 16 * 2**20
VERSION: Final = 8
"""Of the tables. Files of versions before 8 were made before the first release."""
_TABLES: Final = """
    CREATE TABLE judgements (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, error TEXT NOT NULL, light TEXT NOT NULL, made REAL NOT NULL,
        body BLOB
    );
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, identity TEXT NOT NULL, about TEXT NOT NULL,
        created REAL NOT NULL, updated REAL NOT NULL
    );
    CREATE TABLE links (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        judgement INTEGER NOT NULL REFERENCES judgements ON DELETE CASCADE,
        listed INTEGER NOT NULL DEFAULT 1,
        UNIQUE (run, judgement)
    );
    CREATE INDEX links_judgement ON links (judgement);
    CREATE TABLE items (
        id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        UNIQUE (run, kind, key)
    );
    CREATE TABLE claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL, pid INTEGER NOT NULL, born REAL NOT NULL)
        WITHOUT ROWID;
    CREATE TABLE digests (path BLOB PRIMARY KEY, stamp TEXT NOT NULL, sha256 TEXT NOT NULL) WITHOUT ROWID
"""
# In one statement: between two of them another process may make the tables.
_STATE = """
    SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)
    FROM pragma_application_id, pragma_user_version
"""
_SAVE: Final = "Move it aside; what can be saved: sqlite3 FILE .recover"
_DAMAGED: Final = f"is damaged. {_SAVE}"
_READ_ONLY: Final = "cannot be written. Make the file and its folder writable, or give another (--store)."
_FULL: Final = (
    "cannot be written: the disk is full. All that was judged before is kept. Make room, for example with: "
    "vrt-lite cache --clear"
)
_REASONS: Final = {
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: "cannot be opened. Is it a file, and may it and its folder be read and written?",
    sqlite3.SQLITE_BUSY: f"was in use by another program for {BUSY_SECONDS} seconds. End that program.",
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports an error.",
}
_T = TypeVar("_T")
_SAME_BIRTH_SECONDS = 5.0  # the system's clock may be set between two looks


class Database:
    """The file. It is made, with its folder, if it does not exist. Many threads may use it; it is a context manager.

    Raises UsageError for a file that another program, or a newer vrt-lite, has made. Raises StoreError for a file that
    is damaged, or cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        if "\0" in str(path):
            raise UsageError(f"The store {str(path)!r} is no file name.")
        # Absolute, or SQLite could take a name like "file:a" for an address.
        self.path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
        self.owner = new_owner()
        self._lock = RLock()
        with self._store_errors():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room()
            with contextlib.suppress(FileExistsError):
                self.path.touch(mode=_PRIVATE, exist_ok=False)
            self._connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            with self._store_errors():
                self._open()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; everything is written by now. It may be called again."""
        with self._lock, self._store_errors():
            self._connection.close()

    def read(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with self._lock, self._store_errors():
            return self._connection.execute(sql, values).fetchall()

    def parse(self, text: Any, kind: type[_T]) -> _T:
        """Return what the JSON of a column, perhaps compressed, describes. StoreError if it is not what was written."""
        try:
            return read_plain(json.loads(zlib.decompress(text) if isinstance(text, bytes) else text), kind)
        except (msgspec.ValidationError, ValueError, TypeError, OverflowError, RecursionError, zlib.error) as error:
            raise StoreError(f"The store {self.path} is damaged: a row cannot be read. {_SAVE}") from error

    @contextlib.contextmanager
    def write(self, *, lasting: bool = True) -> Generator[sqlite3.Connection]:
        """Write all that the block writes, or nothing.

        It is on the disk when the block ends. Without `lasting`, it is on the disk after the next lasting write.
        """
        with self._lock, self._store_errors():
            self._make_room()
            connection = self._connection
            connection.execute(f"PRAGMA synchronous = {'FULL' if lasting else 'NORMAL'}")
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _make_room(self) -> None:
        """Delete the cache of embeddings if it fills this disk: judgements take more time to make again."""
        if shutil.disk_usage(self.path.parent).free < _LEAST_FREE_BYTES:
            from vrt_lite.embeddings import cache_folder, clear  # noqa: PLC0415 - numpy

            folder = cache_folder()
            if folder.is_dir() and folder.stat().st_dev == self.path.parent.stat().st_dev:
                clear(folder)

    def shrink(self) -> None:
        """Free the disk space of deleted rows."""
        with self._lock, self._store_errors():
            # Not `execute`: it would stop after the first page.
            self._connection.executescript("PRAGMA incremental_vacuum")

    def _open(self) -> None:
        version = self._check_version()
        self._hide()
        self._set_journal()
        # For macOS, where a flush does not reach the disk by itself.
        self._connection.execute("PRAGMA fullfsync = ON")
        self._connection.execute("PRAGMA foreign_keys = ON")
        if not version:
            self._make_tables()

    def _hide(self) -> None:
        """Take the rights of other users from a store that everyone can read: it has prompts and names of files."""
        for path in (self.path, *(self.path.with_name(self.path.name + end) for end in ("-wal", "-shm"))):
            with contextlib.suppress(OSError):  # it is not there, or another user's
                if os.name == "posix" and path.stat().st_mode & stat.S_IROTH:
                    path.chmod(_PRIVATE)

    def _check_version(self) -> int:
        """Return the file's version, 0 for an empty file. UsageError for a file of another program or version."""
        try:
            application, version, tables = self._connection.execute(_STATE).fetchone()
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
                raise UsageError(f"{self.path} is no store of runs. Give another file with --store.") from error
            raise
        if application != APPLICATION_ID and (application or version or tables):
            raise UsageError(f"{self.path} is a file of another program. Give another file with --store.")
        if version not in (0, VERSION):
            by, then = ("a newer", "Upgrade vrt-lite") if version > VERSION else ("an unreleased", "Move it aside")
            raise UsageError(
                f"{self.path} was written by {by} vrt-lite (schema {version}; this one knows {VERSION}). "
                f"{then}, or give another file with --store."
            )
        return version

    def _set_journal(self) -> None:
        """Turn the write-ahead log on."""
        for _ in range(100):
            try:
                [journal] = self._connection.execute("PRAGMA journal_mode").fetchone()
                if journal != "wal":
                    # For an empty file only: deleted pages can then be returned to the disk.
                    self._connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                    self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                # Another process is opening the file as well. SQLite itself does not wait here.
                if getattr(error, "sqlite_errorcode", 0) & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise
            time.sleep(0.05)

    def _make_tables(self) -> None:
        """Make all tables in one transaction; another process may have been quicker."""
        with self.write() as connection:
            if not self._check_version():
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")

    @contextlib.contextmanager
    def _store_errors(self) -> Generator[None]:
        """Make a StoreError of one line from what the file system and SQLite raise."""
        try:
            yield
        except OSError as error:
            why = _FULL if error.errno == errno.ENOSPC else f"cannot be opened: {error.strerror or error}."
            raise StoreError(f"The store {self.path} {why}") from error
        except sqlite3.ProgrammingError:
            raise  # a fault of this program, not of the file
        except sqlite3.DatabaseError as error:
            raise StoreError(f"The store {self.path} {self._describe(error)}") from error
        except UnicodeDecodeError as error:
            raise StoreError(f"The store {self.path} {_DAMAGED}") from error

    def _describe(self, error: sqlite3.DatabaseError) -> str:
        """Complete a sentence that begins with the store."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_IOERR:  # also where SQLite has no room for a file beside the store
            with contextlib.suppress(OSError):
                code = sqlite3.SQLITE_FULL if shutil.disk_usage(self.path.parent).free < _LEAST_FREE_BYTES else code
        return _REASONS.get(code, f"cannot be used: {error}.")


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a claim: one open store (`token`) of one process on this machine."""

    token: str
    pid: int
    born: float


def new_owner() -> Owner:
    """Make the owner of what one open store of this process claims."""
    process = psutil.Process()
    return Owner(uuid.uuid4().hex, process.pid, process.create_time())


def is_alive(owner: Owner) -> bool:
    """Return whether the process that claimed a question still runs. One that was killed may not be reaped for long."""
    try:
        process = psutil.Process(owner.pid)
        is_same = abs(process.create_time() - owner.born) < _SAME_BIRTH_SECONDS
        return is_same and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except (psutil.NoSuchProcess, ValueError, OverflowError):  # or no process can have that number
        return False
    except psutil.Error:  # it is there, but it is another user's
        return True
