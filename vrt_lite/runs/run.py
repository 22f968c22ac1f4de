"""One run in a store: what it is about, and what was judged for it."""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import chain
from sqlite3 import Connection
from threading import RLock
from typing import Any, cast

import msgspec

from vrt_lite.errors import StoreError, UsageError, VrtError
from vrt_lite.records.joining import exchange_clips, join_clips, join_judgements
from vrt_lite.records.judgement import Judgement
from vrt_lite.records.labelled import EvalCase
from vrt_lite.records.pairs import (
    DERIVED,
    JudgedPair,
    Question,
    Result,
    derive_result,
    escape_surrogates,
    failure_of,
    join_results,
    result_of,
)
from vrt_lite.runs.database import Database, Owner, is_alive
from vrt_lite.runs.identity import Identity, check_identity

_PAGE = 256
_LINK = "INSERT INTO links (run, judgement) VALUES (?, ?) ON CONFLICT (run, judgement) DO UPDATE SET listed = 1"
_PUT = (
    "INSERT INTO items (run, kind, key, value) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (run, kind, key) DO UPDATE SET value = excluded.value"
)
_TOUCH = "UPDATE runs SET updated = ? WHERE id = ?"
_CASE = "pair"
_IDENTITY = "identity"
_DERIVED = "derived"
"""The kind of the items that list the pairs derived from clips, by their keys."""
_COMMANDS = {"rank": "a ranking", "eval": "an evaluation", "compare": "a list of comparisons"}


class Run:
    """One run in a store: what it is about, and what was judged for it. Made by `Store.begin` and `Store.run`.

    A new run is in the store from its first judgement on, so that a call that judges nothing leaves none. Until then
    what is noted and put is kept in memory.
    """

    def __init__(
        self, database: Database, owner: Owner, number: int | None, name: str, kind: str, about: Mapping[str, Any]
    ) -> None:
        """Describe the run with this number; None stands for a run that is not in the store yet."""
        self._database = database
        self._owner = owner
        self._number = number
        self._unsaved: dict[tuple[str, str], str] = {}
        self._lock = RLock()  # threads may add while another puts
        self.name = name
        self.kind = kind
        self.about = about

    @property
    def number(self) -> int | None:
        """The number of this run in the store; None before its first judgement."""
        return self._number

    def result(self, question: Question) -> Result | None:
        """Return what is known from any run in the file, and link it to this run. None if it was never judged.

        The result of a pair is derived from its clips, if both were judged by themselves.
        """
        if found := self._find(question):
            return found
        if not question.second:
            return None
        one, two = map(self._find, question.of_clips)
        if not (one and two):
            return None
        derived = derive_result(one, two)
        self.list_derived([derived])
        return derived

    def list_derived(self, pairs: Iterable[Result]) -> None:
        """Let `results` list these pairs, which follow from clips that were judged by themselves."""
        for pair in pairs:
            self.put(_DERIVED, pair.key, {})

    def _find(self, question: Question) -> Result | None:
        rows = self._database.read(
            "SELECT light, id, EXISTS (SELECT 1 FROM links WHERE run = ? AND judgement = j.id AND listed) "
            "FROM judgements AS j WHERE key = ?",
            self._number,
            question.key,
        )
        if not rows:
            return None
        light, judgement, linked = rows[0]
        if not linked:
            # Not lasting: if it is lost, it is found and linked again.
            with self._write(lasting=False) as (connection, number):
                connection.execute(_LINK, (number, judgement))
        return self._result(light)

    def add(self, question: Question, judgement: Judgement, *, anew: bool = False) -> Result:
        """Keep the judgement of a question; it is on the disk on return.

        If another process was first, its result stays, or with `anew` gives way. Returns what is kept. Our claim of
        the question ends.
        """
        body = zlib.compress(json.dumps(judgement.to_json(), separators=(",", ":")).encode())
        return self._add(question, result_of(question, judgement), body, anew=anew)

    def add_failure(self, question: Question, error: VrtError) -> Result:
        """Keep that a question got no verdict, and why; all else is as in `add`."""
        return self._add(question, failure_of(question, error), None)

    def _add(self, question: Question, result: Result, body: bytes | None, *, anew: bool = False) -> Result:
        light = json.dumps(msgspec.to_builtins(result))  # msgspec's own JSON has no lone surrogates
        with self._write() as (connection, number):
            if anew:
                values = (result.error, light, time.time(), result.key)
                connection.execute("UPDATE judgements SET error = ?, light = ?, made = ? WHERE key = ?", values)
                of_key = "judgement IN (SELECT id FROM judgements WHERE key = ?)"
                connection.execute(f"DELETE FROM bodies WHERE {of_key}", (result.key,))
            inserted = connection.execute(
                "INSERT OR IGNORE INTO judgements (key, error, light, made) VALUES (?, ?, ?, ?)",
                (result.key, result.error, light, time.time()),
            )
            [kept] = connection.execute("SELECT id FROM judgements WHERE key = ?", (result.key,)).fetchone()
            if (inserted.rowcount or anew) and body is not None:
                connection.execute("INSERT INTO bodies VALUES (?, ?)", (kept, body))
            connection.execute(_LINK, (number, kept))
            connection.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (result.key, self._owner.token))
        return result if inserted.rowcount or anew else self.result(question) or result

    def claim(self, question: Question, *, take_over: bool = True) -> bool:
        """Claim a question for this open store; False while another living process has it, or if it is judged.

        A dead process's claim is taken over, unless `take_over` is off.
        """
        me = self._owner
        with self._database.write(lasting=False) as connection:
            if connection.execute("SELECT 1 FROM judgements WHERE key = ?", (question.key,)).fetchone():
                return False
            columns = "owner, pid, born"
            held = connection.execute(f"SELECT {columns} FROM claims WHERE key = ?", (question.key,)).fetchone()
            if held and held[0] != me.token and (not take_over or is_alive(Owner(*held))):
                return False
            values = (question.key, me.token, me.pid, me.born)
            connection.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)", values)
        return True

    def release(self, question: Question) -> None:
        """Release our claim of a question without a judgement."""
        with self._database.write(lasting=False) as connection:
            values = (question.key, self._owner.token)
            connection.execute("DELETE FROM claims WHERE key = ? AND owner = ?", values)

    def results(self) -> Iterator[Result]:
        """Yield what was judged for this run, in the order in which it was added; it is read a page at a time.

        Clips that were judged by themselves come as the pairs that were derived from them, at the end.
        """
        clips: dict[str, Result] = {}
        for result in self.all_results():
            if result.second:
                yield result
            else:
                clips[result.key] = result
        for key, _ in self.items(_DERIVED):
            if {*(keys := key.split(DERIVED))} <= clips.keys():
                yield derive_result(*(clips[of] for of in keys))

    def all_results(self) -> Iterator[Result]:
        """Yield what was judged for this run, pairs and clips, in the order in which it was added."""
        rows = self._read_pages(
            "SELECT l.id, light FROM links AS l JOIN judgements AS j ON j.id = l.judgement "
            "WHERE l.run = ? AND listed AND l.id > ? ORDER BY l.id LIMIT ?",
            self._number,
        )
        return (self._result(light) for _, light in rows)

    def list_only(self, belongs: Callable[[Result], bool]) -> None:
        """List the judgements that belong to the run as it is now.

        The others stay linked and are listed again when they belong to it again; `results` leaves them out.
        """
        rows = self._database.read(
            "SELECT l.id, listed, light FROM links AS l JOIN judgements AS j ON j.id = l.judgement WHERE l.run = ?",
            self._number,
        )
        found = ((link, listed, self._result(light)) for link, listed, light in rows)
        changed = [(not listed, link) for link, listed, of in found if belongs(of) != bool(listed)]
        if changed:
            with self._write() as (connection, _):
                connection.executemany("UPDATE links SET listed = ? WHERE id = ?", changed)

    def judgement(self, key: str) -> Judgement | None:
        """Return one judgement as a whole; None for a failure, and for a key that is not there."""
        one, derived, two = key.partition(DERIVED)
        if derived:
            clips = [self.judgement(one), self.judgement(two)]
            return join_clips(clips[0], clips[1]) if clips[0] and clips[1] else None
        rows = self._database.read("SELECT json FROM bodies JOIN judgements ON id = judgement WHERE key = ?", key)
        try:
            return Judgement.from_json(json.loads(zlib.decompress(rows[0][0]))) if rows else None
        except (zlib.error, ValueError, TypeError, RecursionError, UsageError) as error:
            raise _damaged(self._database, f"judgement {key[:12]} cannot be read") from error

    def pairs(self) -> list[JudgedPair]:
        """Return the pairs of the run, in the order first judged; only light columns are read."""
        return join_results(self.results())

    def read_pair(self, pair: JudgedPair) -> Judgement | None:
        """Read the judgements of a pair and join them, its clips in the pair's order; None if there is no verdict."""
        if pair.of_both:
            given = self.judgement(pair.of_both.key)
            return exchange_clips(given) if given and pair.of_both is pair.swapped else given
        given = self.judgement(pair.given.key) if pair.given else None
        swapped = self.judgement(pair.swapped.key) if pair.swapped else None
        exchanged = exchange_clips(swapped) if swapped else None
        return join_judgements(given, exchanged) if given and exchanged else given or exchanged

    def keep_case(self, case: EvalCase) -> None:
        """Keep a labelled pair of an evaluation; `cases` reads it."""
        self.put(_CASE, case.item, msgspec.to_builtins(case))

    def cases(self) -> Iterator[EvalCase]:
        """Yield the labelled pairs of an evaluation, in the order in which they were kept; other runs have none."""
        for _, value in self.items(_CASE):
            try:
                yield msgspec.convert(value, EvalCase)
            except (msgspec.ValidationError, UnicodeError) as error:
                why = f"Run {self.name!r} has a labelled pair that cannot be read: {error}."
                raise StoreError(why) from error

    def note(self, about: Mapping[str, Any]) -> None:
        """Replace what the run is about: plain JSON."""
        text = json.dumps(about)
        if self._number is not None:
            with self._write() as (connection, number):
                connection.execute("UPDATE runs SET about = ? WHERE id = ?", (text, number))
        self.about = json.loads(text)

    def put(self, kind: str, key: str, value: Mapping[str, Any], *, lasting: bool = False) -> None:
        """Keep an item of this run, plain JSON. It replaces an earlier one of that kind and key.

        With `lasting`, an item of a run that is in the store is on the disk on return. Else it is there after the next
        judgement, or when the store is closed.
        """
        key, text = escape_surrogates(key), json.dumps(value)
        with self._lock:
            if self._number is None:
                self._unsaved[kind, key] = text
                return
        with self._database.write(lasting=lasting) as connection:
            connection.execute(_PUT, (self._number, kind, key, text))

    def items(self, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the items of a kind, in the order in which they were first put; they are read a page at a time."""
        unsaved = [("", key, text) for (of, key), text in self._unsaved.items() if of == kind]
        rows = self._read_pages(
            "SELECT id, key, value FROM items WHERE run = ? AND kind = ? AND id > ? ORDER BY id LIMIT ?",
            self._number,
            kind,
        )
        return ((key, parse_object(self._database, text)) for _, key, text in chain(unsaved, rows))

    def resume(self, kind: str, identity: Identity) -> None:
        """Note that the run is used now, and what all of its judgements have in common.

        UsageError if it is of another kind or identity.
        """
        check_kind(self.name, self.kind, kind)
        before = self._identity(self._number)
        check_identity(self.name, before, identity)
        self.put(_IDENTITY, "", identity.with_facts_of(before).to_json())
        if self._number is not None:
            with self._write(lasting=False):
                pass  # it has set the time of the last use

    def _identity(self, number: int | None) -> Identity:
        rows = self._database.read("SELECT value FROM items WHERE run = ? AND kind = ?", number, _IDENTITY)
        return self._read_identity(rows[0][0]) if rows else Identity()

    def _read_identity(self, text: str) -> Identity:
        try:
            return msgspec.convert(parse_object(self._database, text), Identity)
        except (msgspec.ValidationError, UnicodeError) as error:
            raise _damaged(self._database, "the description of a run cannot be read") from error

    def _read_pages(self, sql: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query. Its first column is the id; its last two values are the last id and the limit."""
        last = 0
        while rows := self._database.read(sql, *values, last, _PAGE):
            last = rows[-1][0]
            yield from rows

    @contextlib.contextmanager
    def _write(self, *, lasting: bool = True) -> Generator[tuple[Connection, int]]:
        """Write to the run, which is in the store by then; yields its number too.

        StoreError if another process has deleted the run. UsageError if one has meanwhile made another run of its name.
        """
        with self._lock:
            with self._database.write(lasting=lasting) as connection:
                number = self._save(connection) if self._number is None else self._number
                if not connection.execute(_TOUCH, (time.time(), number)).rowcount:
                    raise StoreError(f"Run {self.name!r} was deleted while it was in use. Begin it again.")
                yield connection, number
            # Not before it is on the disk: the next write must save the run if this one fails.
            self._number = number
            self._unsaved.clear()

    def _save(self, connection: Connection) -> int:
        """Write down a new run, with all that was put; return its number."""
        now = time.time()
        values = (escape_surrogates(self.name), self.kind, json.dumps(self.about), now, now)
        made = connection.execute(
            "INSERT OR IGNORE INTO runs (name, kind, about, created, updated) VALUES (?, ?, ?, ?, ?)", values
        ).rowcount
        [number, kind] = connection.execute("SELECT id, kind FROM runs WHERE name = ?", values[:1]).fetchone()
        if not made:  # another process was quicker
            check_kind(self.name, kind, self.kind)
            mine = self._unsaved.get((_IDENTITY, ""), "{}")
            check_identity(self.name, self._identity(number), self._read_identity(mine))
        connection.executemany(_PUT, [(number, *item, text) for item, text in self._unsaved.items()])
        return number

    def _result(self, light: object) -> Result:
        """Return the result in a row. StoreError if it is not what was written."""
        try:
            return msgspec.convert(json.loads(cast("str", light)), Result)
        except (msgspec.ValidationError, ValueError, TypeError, RecursionError) as error:
            raise _damaged(self._database, "a judgement cannot be read") from error


def check_kind(name: str, kind: str, wanted: str) -> None:
    """Raise UsageError if a run is of another kind than the one wanted."""
    if kind != wanted:
        made, asked = (_COMMANDS.get(of, of) for of in (kind, wanted))
        raise UsageError(f"Run {name!r} is {made}, not {asked}. Give another --name.")


def parse_object(database: Database, text: str) -> dict[str, Any]:
    """Return the JSON object in a column. StoreError if it holds none."""
    try:
        found: object = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged(database, "the description of a run cannot be read") from error
    if not isinstance(found, dict):
        raise _damaged(database, "the description of a run is no JSON object")
    return cast("dict[str, Any]", found)


def _damaged(database: Database, what: str) -> StoreError:
    return StoreError(
        f"The store {database.path} is damaged: {what}. Move it aside; what can be saved: sqlite3 FILE .recover"
    )
