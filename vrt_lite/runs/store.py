"""The store of runs: judgements by their question, runs that link to them and what they are about, digests of files.

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
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Literal, TypeVar

import msgspec

from vrt_lite.clip_files import find_files
from vrt_lite.disk import data_home
from vrt_lite.errors import MissingClipError, StoreError, UsageError, VideoError, VrtError
from vrt_lite.reading import read_plain
from vrt_lite.records.judgement import Judgement, PlainData, exchange_clips, join_clips, join_judgements
from vrt_lite.records.labelled import EvalCase
from vrt_lite.records.pairs import (
    DERIVED,
    JudgedPair,
    Question,
    Result,
    derive_result,
    escape_surrogates,
    join_results,
    result_of,
)
from vrt_lite.runs.database import Database, Owner, is_alive
from vrt_lite.shortage import shortage_of

_PAGE = 256
CASE = "pair"
"""The kind of an item that is a labelled pair of an evaluation."""
_KEEP = """
    INSERT INTO judgements (key, error, light, made, body) VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE
    SET error = excluded.error, light = excluded.light, made = excluded.made, body = excluded.body WHERE ?
"""
_LINK = """
    INSERT INTO links (run, judgement) SELECT ?, id FROM judgements WHERE key = ?
    ON CONFLICT (run, judgement) DO UPDATE SET listed = 1
"""
_LISTED = "FROM links AS l JOIN judgements AS j ON j.id = l.judgement WHERE l.run = ?"
_T = TypeVar("_T")
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


@dataclass(eq=False, slots=True)
class Run:
    """One run in a store: what it is about, and what was judged for it. Made by `Store.begin` and `Store.run`.

    A run without a judgement is in no list, so that a call that judges nothing leaves none.
    """

    _store: Database
    number: int
    name: str
    kind: str
    about: Mapping[str, Any]

    def result(self, question: Question) -> Result | None:
        """Return what is known from any run in the file, and link it to this run. None if it was never judged.

        The result of a pair is derived from its clips, if both were judged by themselves.
        """
        found = self._find(question)
        if found or not question.second:
            return found
        one, two = map(self._find, question.of_clips)
        if not (one and two):
            return None
        derived = derive_result(one, two)
        self.list_derived([derived])
        return derived

    def _find(self, question: Question) -> Result | None:
        rows = self._store.read(
            "SELECT light, EXISTS (SELECT 1 FROM links WHERE run = ? AND judgement = j.id AND listed) "
            "FROM judgements AS j WHERE key = ?",
            self.number,
            question.key,
        )
        if not rows:
            return None
        [(light, is_linked)] = rows
        if not is_linked:
            # Not lasting: if it is lost, it is found and linked again.
            with self._write(lasting=False) as connection:
                connection.execute(_LINK, (self.number, question.key))
        return self._store.parse(light, Result)

    def list_derived(self, pairs: Iterable[Result]) -> None:
        """Let `results` list these pairs, which follow from clips that were judged by themselves."""
        with self._write(lasting=False) as connection:
            for pair in pairs:
                self._insert(connection, pair)

    def add(self, question: Question, answer: Judgement | VrtError, *, anew: bool = False) -> Result:
        """Keep the judgement of a question, or the error why there is none; it is on the disk on return.

        If another process was first, its result stays, or with `anew` gives way. Returns what is kept.
        """
        body = None
        if isinstance(answer, Judgement):
            body = zlib.compress(json.dumps(answer.to_json(), separators=(",", ":")).encode())
        result = result_of(question, answer)
        with self._write() as connection:
            self._insert(connection, result, body, anew=anew)
        return self.result(question) or result

    def _insert(self, connection: Connection, result: Result, body: bytes | None = None, *, anew: bool = False) -> None:
        """Insert a judgement, unless it is there, and link it."""
        light = json.dumps(msgspec.to_builtins(result))  # msgspec's own JSON has no lone surrogates
        connection.execute(_KEEP, (result.key, result.error, light, time.time(), body, anew))
        connection.execute(_LINK, (self.number, result.key))

    def claim(self, question: Question, *, take_over: bool = True) -> bool:
        """Claim a question; False while anyone has it, or if it is judged.

        A dead process's claim is taken over, unless `take_over` is off.
        """
        with self._store.write(lasting=False) as connection:
            if connection.execute("SELECT 1 FROM judgements WHERE key = ?", (question.key,)).fetchone():
                return False
            held = connection.execute("SELECT owner, pid, born FROM claims WHERE key = ?", (question.key,)).fetchone()
            if held and (not take_over or is_alive(Owner(*held))):
                return False
            values = (question.key, *astuple(self._store.owner))
            connection.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)", values)
        return True

    def release(self, question: Question) -> None:
        """Release our claim of a question."""
        with self._store.write(lasting=False) as connection:
            values = (question.key, self._store.owner.token)
            connection.execute("DELETE FROM claims WHERE key = ? AND owner = ?", values)

    def results(self) -> Iterator[Result]:
        """Yield the pairs that were judged for this run, or derived, in the order in which they were added."""
        return (result for result in self.all_results() if result.second)

    def all_results(self) -> Iterator[Result]:
        """Yield what was judged for this run, pairs and clips, in the order added; it is read a page at a time."""
        rows = self._read_pages(f"SELECT l.id, light {_LISTED} AND listed AND l.id > ? ORDER BY l.id LIMIT ?")
        return (self._store.parse(light, Result) for _, light in rows)

    def list_only(self, belongs: Callable[[Result], bool]) -> None:
        """List the judgements that belong to the run as it is now.

        The others stay linked and are listed again when they belong to it again; `results` leaves them out.
        """
        rows = self._store.read(f"SELECT l.id, listed, light {_LISTED}", self.number)
        found = ((link, listed, self._store.parse(light, Result)) for link, listed, light in rows)
        changed = [(not listed, link) for link, listed, of in found if belongs(of) != bool(listed)]
        if changed:
            with self._write() as connection:
                connection.executemany("UPDATE links SET listed = ? WHERE id = ?", changed)

    def judgement(self, key: str) -> Judgement | None:
        """Return one judgement as a whole; None for a failure, and for a key that is not there."""
        one, derived, two = key.partition(DERIVED)
        if derived:
            clips = [self.judgement(one), self.judgement(two)]
            return join_clips(clips[0], clips[1]) if clips[0] and clips[1] else None
        rows = self._store.read("SELECT body FROM judgements WHERE key = ? AND body IS NOT NULL", key)
        return self._store.parse(rows[0][0], Judgement) if rows else None

    def pairs(self) -> list[JudgedPair]:
        """Return the pairs of the run, in the order first judged; only light columns are read."""
        return join_results(self.results())

    def read_pair(self, pair: JudgedPair) -> Judgement | None:
        """Read the judgements of a pair and join them, its clips in the pair's order; None if there is no verdict."""
        given, swapped = (of and self.judgement(of.key) for of in (pair.given, pair.swapped))
        turned = exchange_clips(swapped) if swapped else None
        if pair.of_both:
            return given if pair.of_both is pair.given else turned
        return join_judgements(given, turned) if given and turned else given or turned

    def cases(self) -> Iterator[EvalCase]:
        """Yield the labelled pairs of an evaluation, in the order in which they were kept; other runs have none."""
        return (case for _, case in self.items(CASE, EvalCase))

    def read_about(self, kind: type[_T], what: str) -> _T:
        """Read what the run is about; StoreError if it is not the run of `what`."""
        try:
            return read_plain(self.about, kind, dec_hook=lambda of, value: of(value))
        except (msgspec.ValidationError, UnicodeError) as error:
            raise StoreError(f"Run {self.name!r} is not the run of {what}: {error}.") from error

    def note(self, about: Mapping[str, Any]) -> None:
        """Replace what the run is about: plain JSON."""
        if about != self.about:
            with self._write() as connection:
                connection.execute("UPDATE runs SET about = ? WHERE id = ?", (json.dumps(about), self.number))
        self.about = about

    def put(self, kind: str, key: str, value: object, *, lasting: bool = False) -> None:
        """Keep an item of this run, a record or plain JSON. It replaces an earlier one of that kind and key.

        With `lasting` it is on the disk on return. Else it is there after the next judgement, or when the store is
        closed.
        """
        values = (self.number, kind, escape_surrogates(key), json.dumps(msgspec.to_builtins(value)))
        replacing = "ON CONFLICT (run, kind, key) DO UPDATE SET value = excluded.value"
        with self._write(lasting=lasting) as connection:
            connection.execute(f"INSERT INTO items (run, kind, key, value) VALUES (?, ?, ?, ?) {replacing}", values)

    def items(self, kind: str, of: type[_T] = PlainData) -> Iterator[tuple[str, _T]]:
        """Yield the items of a kind, in the order in which they were first put; they are read a page at a time."""
        query = "SELECT id, key, value FROM items WHERE run = ? AND kind = ? AND id > ? ORDER BY id LIMIT ?"
        return ((key, self._store.parse(text, of)) for _, key, text in self._read_pages(query, kind))

    def _read_pages(self, sql: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query. Its first column is the id; its last two values are the last id and the limit."""
        last = 0
        while rows := self._store.read(sql, self.number, *values, last, _PAGE):
            last = rows[-1][0]
            yield from rows

    @contextlib.contextmanager
    def _write(self, *, lasting: bool = True) -> Generator[Connection]:
        """Write to the run, and note its use. StoreError if another process has deleted it."""
        with self._store.write(lasting=lasting) as connection:
            now = (time.time(), self.number)
            if not connection.execute("UPDATE runs SET updated = ? WHERE id = ?", now).rowcount:
                raise StoreError(f"Run {self.name!r} was deleted while it was in use. Begin it again.")
            yield connection


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
        return [RunInfo(*row[:-1], about=self.parse(row[-1], PlainData)) for row in rows]

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
        return Run(self, number, known, kind, self.parse(about, PlainData))


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
