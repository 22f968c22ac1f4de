"""The store of runs: judgements by what was asked, runs that link to them, and digests of files.

A judgement is kept once, by its question's key, whichever run asked; a run links to keys in the order made. What was
added is on the disk when `add` returns. Knows the tables; refuses to know how a judgement is made or shown.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import stat
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from vrt_lite.errors import UsageError, VideoError
from vrt_lite.models.files import sha256
from vrt_lite.models.store import data_home
from vrt_lite.runs.claims import new_owner
from vrt_lite.runs.database import Database
from vrt_lite.runs.run import Run, plain

__all__ = ["Kind", "Run", "RunInfo", "Store", "users_store"]

Kind = Literal["rank", "eval", "compare"]
LONGEST_NAME = 200
_SETTLED_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run at a glance. `created` and `updated` are unix seconds; `failures` are among the `judgements`."""

    name: str
    kind: str
    created: float
    updated: float
    judgements: int
    failures: int
    about: Mapping[str, Any]


def users_store() -> Path:
    """Where the user's store is; it need not be there."""
    return data_home() / "runs.sqlite"


class Store:
    """One file of runs, the user's own by default; made, with its folder, if it is not there. For many threads.

    A context manager. UsageError for a file of another program or of a newer vrt-lite; StoreError, here and wherever
    the file is used, if it is damaged or cannot be read or written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._database = Database(path or users_store())
        self.path = self._database.path
        self._owner = new_owner()
        self._closed = False
        self._digests: dict[str, tuple[str, str]] = {}

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give up what is claimed, and close the file."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._database.read("SELECT 1 FROM claims WHERE owner = ?", self._owner.token):
                with self._database.write(lasting=False) as connection:
                    connection.execute("DELETE FROM claims WHERE owner = ?", (self._owner.token,))
        finally:
            self._database.close()

    def begin(self, name: str, *, kind: Kind, about: Mapping[str, Any]) -> Run:
        """A new run; or the run of that name, as it is, with its own `about`. UsageError if it is of another kind."""
        if not name or len(name) > LONGEST_NAME:
            raise UsageError(f"The run's name has {len(name)} characters; give --name with 1 to {LONGEST_NAME}.")
        now = time.time()
        with self._database.write() as connection:
            values = (plain(name), kind, json.dumps(about), now, now)
            connection.execute(
                "INSERT OR IGNORE INTO runs (name, kind, about, created, updated) VALUES (?, ?, ?, ?, ?)", values
            )
        run = self.run(name)
        if run.kind != kind:
            raise UsageError(f"Run {name!r} is of kind {run.kind}, not {kind}. Give another --name.")
        return run

    def run(self, name: str) -> Run:
        """The run of that name; UsageError, naming the nearest, if there is none."""
        rows = self._database.read("SELECT id, name, kind, about FROM runs WHERE name = ?", plain(name))
        if not rows:
            raise UsageError(f"There is no run {name!r}{self._instead_of(name)}. See: vrt-lite runs")
        [(number, known, kind, about)] = rows
        return Run(self._database, self._owner, number, known, kind, json.loads(about))

    def runs(self) -> list[RunInfo]:
        """All runs, the one last used first."""
        rows = self._database.read(
            "SELECT name, kind, created, updated, count(j.id), coalesce(sum(error <> ''), 0), about FROM runs AS r "
            "LEFT JOIN links AS l ON l.run = r.id LEFT JOIN judgements AS j ON j.id = l.judgement "
            "GROUP BY r.id ORDER BY updated DESC, r.id DESC"
        )
        return [RunInfo(*row[:-1], about=json.loads(row[-1])) for row in rows]

    def remove(self, name: str) -> int:
        """Delete a run and the judgements that no other run has; how many. UsageError if there is none."""
        run = self.run(name)
        with self._database.write() as connection:
            for table in ("links", "items"):
                connection.execute(f"DELETE FROM {table} WHERE run = ?", (run.id,))
            connection.execute("DELETE FROM runs WHERE id = ?", (run.id,))
            alone = "NOT IN (SELECT judgement FROM links)"
            connection.execute(f"DELETE FROM bodies WHERE judgement {alone}")
            deleted = connection.execute(f"DELETE FROM judgements WHERE id {alone}").rowcount
        self._database.give_back()
        return deleted

    def forget_failures(self, name: str) -> int:
        """Forget what a run got no verdict for, for every run, so that it is judged again; how many."""
        run = self.run(name)
        failed = "SELECT j.id FROM judgements AS j JOIN links ON j.id = judgement WHERE run = ? AND error <> ''"
        with self._database.write() as connection:
            numbers = connection.execute(failed, (run.id,)).fetchall()
            connection.executemany("DELETE FROM links WHERE judgement = ?", numbers)
            connection.executemany("DELETE FROM judgements WHERE id = ?", numbers)
        return len(numbers)

    def digest(self, path: Path) -> str:
        """A file's sha256, remembered as long as its path, size, times and inode stay. VideoError if it is no file.

        A file that was changed within the last two seconds may change again within one tick of its file system's
        clock: its digest is not remembered.
        """
        absolute = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow links, at a cost
        stamp, _ = _stamp(path)
        if (known := self._digests.get(absolute)) and known[0] == stamp:
            return known[1]
        place = os.fsencode(absolute)
        if rows := self._database.read("SELECT sha256 FROM digests WHERE path = ? AND stamp = ?", place, stamp):
            found = rows[0][0]
        else:
            with _readable(path):
                found = sha256(path)
            after, changed = _stamp(path)
            if after != stamp or time.time() - changed < _SETTLED_SECONDS:
                return found
            with self._database.write(lasting=False) as connection:
                connection.execute("INSERT OR REPLACE INTO digests VALUES (?, ?, ?)", (place, stamp, found))
        self._digests[absolute] = (stamp, found)
        return found

    def beat(self) -> None:
        """Give a sign of life for what is claimed here: another machine knows of no other."""
        with self._database.write(lasting=False) as connection:
            connection.execute("UPDATE claims SET beat = ? WHERE owner = ?", (time.time(), self._owner.token))

    def _instead_of(self, name: str) -> str:
        names = [row[0] for row in self._database.read("SELECT name FROM runs ORDER BY updated DESC")]
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
        return f"; the nearest is {near[0]!r}" if near else ""


def _stamp(path: Path) -> tuple[str, float]:
    """What tells a file from a changed one, and when it was last changed, in unix seconds."""
    with _readable(path):
        told = path.stat()
    if not stat.S_ISREG(told.st_mode):
        raise VideoError(f"{str(path)!r} is no regular file")
    changed = max(told.st_mtime_ns, told.st_ctime_ns)
    return f"{told.st_size} {told.st_mtime_ns} {told.st_ctime_ns} {told.st_ino}", changed / 1e9


@contextlib.contextmanager
def _readable(path: Path) -> Generator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise VideoError(f"{str(path)!r} cannot be read: {reason}") from error
