"""The store of runs: judgements by their question, runs that link to them, and digests of files.

A judgement is kept once, by its question's key, whichever run needed it. A run links to its judgements in the order in
which they were added.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from vrt_lite.clip_files import find_files
from vrt_lite.disk import data_home
from vrt_lite.errors import MissingClipError, StoreError, UsageError, VideoError
from vrt_lite.records.pairs import DERIVED, escape_surrogates
from vrt_lite.runs.database import Database
from vrt_lite.runs.run import Run
from vrt_lite.shortage import shortage_of

__all__ = ["Identity", "Kind", "Run", "RunInfo", "Store", "users_store"]

Kind = Literal["rank", "eval", "compare"]
LATEST = "latest"
"""Stands for the run that was used last, wherever a run is named."""
LONGEST_NAME = 200
_COMMANDS = {"rank": "a ranking", "eval": "an evaluation", "compare": "a list of comparisons"}
_USED = "id IN (SELECT run FROM links)"
_BEGIN = """
    INSERT INTO runs (name, kind, identity, about, created, updated) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO
    UPDATE SET kind = excluded.kind, identity = excluded.identity, about = excluded.about, updated = excluded.updated
"""
_MOST_NAMED = 5
_LONGEST_VALUE = 60
_UNSAFE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run in a list of runs. `created` and `updated` are Unix seconds; `judgements` includes the `failures`."""

    name: str
    kind: str
    created: float
    updated: float
    judgements: int
    failures: int
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Identity:
    """What all judgements of a run have in common.

    `judge` is `Judge.key()`, and `described` is `Judge.describe()`: that judge in words, by name of option. `facts` are
    the prompt, or the labelled set and the choice of its pairs, by name.
    """

    judge: str = ""
    described: Mapping[str, str] = field(default_factory=dict[str, str])
    facts: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def model(self) -> str:
        """The name of the judge's model, "" if it is not known."""
        return self.described.get("--model", "")

    def resume(self, now: Identity, name: str) -> Identity:
        """Return what is given now, with all facts of the run `name`, such as the prompts of groups not given now.

        UsageError, which says what differs, if the run has another judge or another value of a fact. A judge with the
        same key is the same, wherever its files are.
        """
        differing = _list_differences(self.facts, now.facts)
        if self.judge and now.judge and self.judge != now.judge:
            files = ["other files or another profile of the same judge"]
            differing += _list_differences(self.described, now.described) or files
        if differing:
            raise UsageError(
                f"Run {name!r} was made with {' and '.join(differing)}. "
                "Give another --name, or none; what both need is judged once."
            )
        return replace(now, facts={**self.facts, **now.facts})


def users_store() -> Path:
    """Return the path of the user's store; the file may not exist."""
    return data_home() / "runs.sqlite"


class Store(Database):
    """One file of runs, by default the user's. It is made, with its folder, if it does not exist.

    Many threads may use it; it is a context manager. Raises UsageError for a file of another program or of a newer
    vrt-lite. Raises StoreError, here and in every method, if the file is damaged or cannot be read or written.
    """

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path or users_store())
        self._closed = False

    def close(self) -> None:
        """Release all claims, and close the file. It may be called again."""
        if self._closed:
            return
        self._closed = True
        try:
            self.release_claims()
        finally:
            super().close()

    def release_claims(self) -> None:
        """Release all claims that were made through this store."""
        if self.read("SELECT 1 FROM claims WHERE owner = ?", self.owner.token):
            with self.write(lasting=False) as connection:
                connection.execute("DELETE FROM claims WHERE owner = ?", (self.owner.token,))

    def begin(
        self, name: str, *, kind: Kind, about: Mapping[str, Any] | None = None, identity: Identity | None = None
    ) -> Run:
        """Return the run of that name, to be resumed, or a new one, which is listed once it has a judgement.

        `about` describes a new run: plain JSON. UsageError, which says what differs, if the run is of another kind or
        identity.
        """
        if not name or len(name) > LONGEST_NAME:
            raise UsageError(f"The run's name has {len(name)} characters; give --name with 1 to {LONGEST_NAME}.")
        if name == LATEST:
            raise UsageError(f"The name {LATEST!r} stands for the run that was used last. Give another --name.")
        name, identity, now = escape_surrogates(name), identity or Identity(), time.time()
        with self.write(lasting=False) as connection:
            query = f"SELECT kind, identity, about FROM runs WHERE name = ? AND {_USED}"
            if row := connection.execute(query, (name,)).fetchone():
                before, known, noted = row
                if before != kind:
                    made, asked = (_COMMANDS.get(of, of) for of in (before, kind))
                    raise UsageError(f"Run {name!r} is {made}, not {asked}. Give another --name.")
                identity = self.parse(known, Identity).resume(identity, name)
            else:
                noted = json.dumps(about or {})
                connection.execute("DELETE FROM items WHERE run = (SELECT id FROM runs WHERE name = ?)", (name,))
            connection.execute(_BEGIN, (name, kind, json.dumps(asdict(identity)), noted, now, now))
        return self._require(name)

    def run(self, name: str) -> Run:
        """Return the run that a name, the beginning of one, or "latest" (the run last used) stands for.

        UsageError for a beginning that several names have, which it lists, and for a name that no run has.
        """
        return self._require(self.find_name(name))

    def find_name(self, name: str) -> str:
        """Return the whole name of the run that `name` stands for, as `run` does."""
        names: list[str] = [
            row[0] for row in self.read(f"SELECT name FROM runs WHERE {_USED} ORDER BY updated DESC, id DESC")
        ]
        wanted = escape_surrogates(name)
        if wanted in names:
            return wanted
        if not names:
            raise UsageError(
                f"There is no run {name!r}: there are none yet. vrt-lite rank and vrt-lite eval make them."
            )
        if wanted == LATEST:
            return names[0]
        found = [known for known in names if wanted and known.startswith(wanted)]
        if len(found) > 1:
            listed = ", ".join(map(repr, found[:_MOST_NAMED]))
            raise UsageError(f"{name!r} is the beginning of several runs: {listed}. Give more of the name.")
        if not found:
            near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.4)
            nearest = f"; the nearest is {near[0]!r}" if near else ""
            raise UsageError(f"There is no run {name!r}{nearest}. See: vrt-lite runs")
        return found[0]

    def runs(self) -> list[RunInfo]:
        """Return all runs, the one last used first."""
        rows = self.read(
            "SELECT name, kind, created, updated, count(j.id), coalesce(sum(error <> ''), 0), about FROM runs AS r "
            "LEFT JOIN links AS l ON l.run = r.id AND listed "
            "LEFT JOIN judgements AS j ON j.id = l.judgement AND instr(j.key, ?) = 0 "
            f"WHERE r.{_USED} GROUP BY r.id ORDER BY updated DESC, r.id DESC",
            DERIVED,
        )
        return [RunInfo(*row[:-1], about=self.parse(row[-1], dict[str, Any])) for row in rows]

    def times(self, kind: Kind) -> dict[str, float]:
        """Return when each judgement of the runs of a kind was made, in Unix seconds, by its key."""
        listed = "judgements AS j JOIN links AS l ON j.id = l.judgement JOIN runs AS r ON r.id = l.run"
        return dict(self.read(f"SELECT DISTINCT key, made FROM {listed} WHERE kind = ?", kind))

    def remove_judgements(self, kind: Kind, keys: Sequence[str]) -> int:
        """Delete judgements from all runs of a kind, and those that no other run has; return how many of these."""
        unlink = "DELETE FROM links WHERE judgement = (SELECT id FROM judgements WHERE key = ?) AND run IN "
        with self.write() as connection:
            connection.executemany(f"{unlink} (SELECT id FROM runs WHERE kind = ?)", [(key, kind) for key in keys])
        return self._delete_unlinked()

    def remove(self, name: str) -> int:
        """Delete a run, named as for `run`, and the judgements that no other run has; return how many."""
        run = self.run(name)
        with self.write() as connection:
            connection.execute("DELETE FROM runs WHERE id = ?", (run.number,))
        return self._delete_unlinked()

    def _delete_unlinked(self) -> int:
        unlinked = "DELETE FROM judgements WHERE id NOT IN (SELECT judgement FROM links) AND instr(key, ?)"
        with self.write() as connection:
            connection.execute(unlinked, (DERIVED,))
            deleted = connection.execute(f"{unlinked} = 0", (DERIVED,)).rowcount
        self.shrink()
        return deleted

    def forget_failures(self, name: str) -> int:
        """Delete the failures of a run, named as for `run`, so that they are judged again; return how many.

        Other runs that have the same failures lose them too.
        """
        run = self.run(name)
        failed = "SELECT key FROM judgements AS j JOIN links ON j.id = judgement WHERE run = ? AND error <> ''"
        with self.write() as connection:
            keys = connection.execute(f"{failed} AND instr(key, ?) = 0", (run.number, DERIVED)).fetchall()
            connection.executemany("DELETE FROM judgements WHERE instr(key, ?)", keys)  # and what is derived from it
        return len(keys)

    def digest(self, path: Path) -> str:
        """Return a clip's sha256. It is remembered while the path, sizes, times and inodes stay the same.

        The digest of a clip that was changed within the last two seconds is not remembered: the file may change again
        within one tick of its file system's clock. VideoError if there is no file.
        """
        place = os.fsencode(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links, at a cost
        try:
            files = find_files(path)
            stamp, _ = files.stamp()
            with contextlib.suppress(StoreError):  # what the store cannot remember is computed
                query = "SELECT sha256 FROM digests WHERE path = ? AND stamp = ?"
                for (known,) in self.read(query, place, stamp):
                    return known
            found = files.digest()
            after, changed = find_files(path).stamp()
        except (OSError, ValueError) as error:
            if short := shortage_of(error):
                raise short from error
            kind = MissingClipError if isinstance(error, FileNotFoundError | NotADirectoryError) else VideoError
            raise kind(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
        if after == stamp and time.time() - changed >= _UNSAFE_SECONDS:
            with contextlib.suppress(StoreError), self.write(lasting=False) as connection:
                connection.execute("INSERT OR REPLACE INTO digests VALUES (?, ?, ?)", (place, stamp, found))
        return found

    def _require(self, name: str) -> Run:
        rows = self.read("SELECT id, name, kind, about FROM runs WHERE name = ?", name)
        if not rows:  # another process has deleted it meanwhile
            raise UsageError(f"There is no run {name!r}. See: vrt-lite runs")
        [(number, known, kind, about)] = rows
        return Run(self, number, known, kind, self.parse(about, dict[str, Any]))


def _list_differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Describe each fact that has another value now. A fact of one side is no difference."""
    pairs = [(fact, value, now[fact]) for fact, value in before.items() if fact in now]
    return [f"{fact} {_quote(old)} (not {_quote(new)})" for fact, old, new in pairs if old != new]


def _quote(value: str) -> str:
    """Return a value in one line, between quotation marks unless it is one word or number."""
    line = " ".join(value.split())
    if len(line) > _LONGEST_VALUE:
        line = f"{line[:_LONGEST_VALUE]}…"
    return line if re.fullmatch(r"[\w./:-]*\w", line) else repr(line)
