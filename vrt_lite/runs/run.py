"""One run in a store: what it is about, and what was judged for it."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, cast

import msgspec

from vrt_lite.errors import StoreError, UsageError, VrtError
from vrt_lite.judgement import Judgement
from vrt_lite.runs.database import Database, Owner, is_alive
from vrt_lite.runs.question import Question, Result, escape_surrogates, failure_of, result_of

_PAGE = 256
_LIGHT = (
    *("key", "first", "second", "prompt", "winners", "odds", "source", "rounds", "calls", "tokens", "seconds"),
    *("error", "failure", "warnings", "max_pixels", "tool_max_pixels", "kv_type"),
)
"""The columns that are fields of `Result`, in their order."""
_COLUMNS = ", ".join(f"j.{name}" for name in _LIGHT)
_JSON = ("winners", "odds", "warnings")


class Run:
    """One run in a store: what it is about, and what was judged for it. Made by `Store.begin` and `Store.run`."""

    def __init__(
        self, database: Database, owner: Owner, number: int, name: str, kind: str, about: Mapping[str, Any]
    ) -> None:
        self._database = database
        self._owner = owner
        self.id = number
        self.name = name
        self.kind = kind
        self.about = about

    def result(self, question: Question) -> Result | None:
        """Return what is known from any run in the file, and link it to this run. None if it was never judged."""
        rows = self._database.read(
            f"SELECT {_COLUMNS}, j.id, EXISTS (SELECT 1 FROM links WHERE run = ? AND judgement = j.id) "
            "FROM judgements AS j WHERE key = ?",
            self.id,
            question.key,
        )
        if not rows:
            return None
        *light, judgement, linked = rows[0]
        if not linked:
            # Not lasting: if it is lost, it is found and linked again.
            with self._database.write(lasting=False) as connection:
                self._touch(connection)
                connection.execute("INSERT OR IGNORE INTO links (run, judgement) VALUES (?, ?)", (self.id, judgement))
        return self._result(light)

    def add(self, question: Question, judgement: Judgement) -> Result:
        """Keep the judgement of a question; it is on the disk on return.

        If another process was first, its result stays. Returns what is kept. Our claim of the question ends.
        """
        body = zlib.compress(json.dumps(judgement.to_json(), separators=(",", ":")).encode())
        return self._add(question, result_of(question, judgement), body)

    def add_failure(self, question: Question, error: VrtError) -> Result:
        """Keep that a question got no verdict, and why; all else is as in `add`."""
        return self._add(question, failure_of(question, error), None)

    def _add(self, question: Question, result: Result, body: bytes | None) -> Result:
        light = asdict(result)
        light |= {name: json.dumps(light[name]) for name in _JSON}
        light |= {"prompt": escape_surrogates(question.prompt), "judge": question.judge, "made": time.time()}
        with self._database.write() as connection:
            self._touch(connection)
            inserted = connection.execute(
                f"INSERT OR IGNORE INTO judgements ({', '.join(light)}) VALUES ({', '.join('?' * len(light))})",
                tuple(light.values()),
            )
            [kept] = connection.execute("SELECT id FROM judgements WHERE key = ?", (result.key,)).fetchone()
            if inserted.rowcount and body is not None:
                connection.execute("INSERT INTO bodies VALUES (?, ?)", (kept, body))
            connection.execute("INSERT OR IGNORE INTO links (run, judgement) VALUES (?, ?)", (self.id, kept))
            connection.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (result.key, self._owner.token))
        return result if inserted.rowcount else self.result(question) or result

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
        """Yield what was judged for this run, in the order in which it was added; it is read a page at a time."""
        rows = self._read_pages(
            f"SELECT l.id, {_COLUMNS} FROM links AS l JOIN judgements AS j ON j.id = l.judgement "
            "WHERE l.run = ? AND l.id > ? ORDER BY l.id LIMIT ?",
            self.id,
        )
        return (self._result(light) for _, *light in rows)

    def judgement(self, key: str) -> Judgement | None:
        """Return one judgement as a whole; None for a failure, and for a key that is not there."""
        rows = self._database.read("SELECT json FROM bodies JOIN judgements ON id = judgement WHERE key = ?", key)
        try:
            return Judgement.from_json(json.loads(zlib.decompress(rows[0][0]))) if rows else None
        except (zlib.error, ValueError, TypeError, RecursionError, UsageError) as error:
            raise _damaged(self._database, f"judgement {key[:12]} cannot be read") from error

    def note(self, about: Mapping[str, Any]) -> None:
        """Replace what the run is about: plain JSON."""
        text = json.dumps(about)
        with self._database.write() as connection:
            self._touch(connection)
            connection.execute("UPDATE runs SET about = ? WHERE id = ?", (text, self.id))
        self.about = json.loads(text)

    def put(self, kind: str, key: str, value: Mapping[str, Any]) -> None:
        """Keep an item of this run, plain JSON. It replaces an earlier one of that kind and key.

        It is on the disk after the next judgement, or when the store is closed.
        """
        with self._database.write(lasting=False) as connection:
            values = (self.id, kind, escape_surrogates(key), json.dumps(value))
            connection.execute(
                "INSERT INTO items (run, kind, key, value) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (run, kind, key) DO UPDATE SET value = excluded.value",
                values,
            )

    def items(self, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the items of a kind, in the order in which they were first put; they are read a page at a time."""
        rows = self._read_pages(
            "SELECT id, key, value FROM items WHERE run = ? AND kind = ? AND id > ? ORDER BY id LIMIT ?", self.id, kind
        )
        return ((key, parse_object(self._database, value)) for _, key, value in rows)

    def _read_pages(self, sql: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query. Its first column is the id; its last two values are the last id and the limit."""
        last = 0
        while rows := self._database.read(sql, *values, last, _PAGE):
            last = rows[-1][0]
            yield from rows

    def _touch(self, connection: Any) -> None:
        """Set the time of the last use. StoreError if another process has deleted the run."""
        if not connection.execute("UPDATE runs SET updated = ? WHERE id = ?", (time.time(), self.id)).rowcount:
            raise StoreError(f"Run {self.name!r} was deleted while it was in use. Begin it again.")

    def _result(self, light: list[Any]) -> Result:
        """Return the result in a row of the light columns. StoreError if they are not what was written."""
        columns: dict[str, Any] = dict(zip(_LIGHT, light, strict=True))
        try:
            columns |= {name: json.loads(columns[name]) for name in _JSON}
            return msgspec.convert(columns, Result, dec_hook=lambda kind, value: kind(value))
        except (ValueError, TypeError, RecursionError) as error:
            raise _damaged(self._database, f"judgement {columns['key']!s:.12} cannot be read") from error


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
