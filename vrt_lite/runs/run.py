"""One run in a store: what it is about, and what was judged for it."""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from sqlite3 import Connection
from typing import Any, TypeVar

import msgspec

from vrt_lite.errors import StoreError, VrtError
from vrt_lite.reading import read_plain
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
    join_results,
    result_of,
)
from vrt_lite.runs.database import Database, Owner, is_alive

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

    def items(self, kind: str, of: type[_T] = dict[str, Any]) -> Iterator[tuple[str, _T]]:
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
