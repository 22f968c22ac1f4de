"""One run in a store: what it is about, and what was judged for it.

Knows the tables of judgements, links, claims and items; refuses to know how a judgement is made or shown.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from vrt_lite.errors import StoreError
from vrt_lite.protocol.messages import Odds
from vrt_lite.runs.claims import Owner, lives
from vrt_lite.runs.database import Database
from vrt_lite.runs.judged import Question, Result, result_of

_PAGE = 256
_COLUMNS = "j.key, j.first, j.second, j.prompt, winners, odds, source, rounds, calls, tokens, seconds, error"


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
        """What is known, from any run in the file; it then is this run's as well. None if it was never judged."""
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
        return _result(light)

    def add(self, question: Question, judgement: Mapping[str, Any] | None, *, error: str = "") -> Result:
        """Keep what came of a question: `Judgement.to_json()`, or None and why. It is on the disk on return.

        The first writer wins; what is returned is what is kept. Our claim of the question ends.
        """
        result = result_of(question, judgement, error=plain(error))
        body = None if judgement is None else zlib.compress(json.dumps(judgement, separators=(",", ":")).encode())
        now, light = time.time(), asdict(result)
        light |= {"winners": json.dumps(light["winners"]), "odds": json.dumps(light["odds"])}
        light |= {"prompt": plain(question.prompt), "judge": question.judge, "made": now}
        with self._database.write() as connection:
            self._touch(connection)
            made = connection.execute(
                f"INSERT OR IGNORE INTO judgements ({', '.join(light)}) VALUES ({', '.join('?' * len(light))})",
                tuple(light.values()),
            )
            [kept] = connection.execute("SELECT id FROM judgements WHERE key = ?", (result.key,)).fetchone()
            if made.rowcount and body is not None:
                connection.execute("INSERT INTO bodies VALUES (?, ?)", (kept, body))
            connection.execute("INSERT OR IGNORE INTO links (run, judgement) VALUES (?, ?)", (self.id, kept))
            connection.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (result.key, self._owner.token))
        return result if made.rowcount else self.result(question) or result

    def claim(self, question: Question, *, force: bool = False) -> bool:
        """Take a question on, for this open store; False while another living process has it, or if it is judged.

        A dead one's claim is taken over, and with `force` anyone's.
        """
        key, me = question.key, self._owner
        with self._database.write(lasting=False) as connection:
            if connection.execute("SELECT 1 FROM judgements WHERE key = ?", (key,)).fetchone():
                return False
            columns = "owner, host, pid, born, beat"
            held = connection.execute(f"SELECT {columns} FROM claims WHERE key = ?", (key,)).fetchone()
            if held and held[0] != me.token and not force and lives(Owner(*held[:4]), held[4]):
                return False
            values = (key, me.token, me.host, me.pid, me.born, time.time())
            connection.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?)", values)
        return True

    def release(self, question: Question) -> None:
        """Give up a claim of ours without a judgement."""
        with self._database.write(lasting=False) as connection:
            values = (question.key, self._owner.token)
            connection.execute("DELETE FROM claims WHERE key = ? AND owner = ?", values)

    def claimed(self, question: Question) -> float | None:
        """The last sign of life, in unix seconds, of whoever has claimed the question; None if nobody has."""
        rows = self._database.read("SELECT beat FROM claims WHERE key = ?", question.key)
        return rows[0][0] if rows else None

    def results(self) -> Iterator[Result]:
        """What was judged for this run, in the order made; read as it is asked for, a page at a time."""
        last = 0
        while rows := self._database.read(
            f"SELECT l.id, {_COLUMNS} FROM links AS l JOIN judgements AS j ON j.id = l.judgement "
            "WHERE l.run = ? AND l.id > ? ORDER BY l.id LIMIT ?",
            self.id,
            last,
            _PAGE,
        ):
            last = rows[-1][0]
            yield from (_result(light) for _, *light in rows)

    def judgement(self, key: str) -> dict[str, Any] | None:
        """The whole JSON of one judgement; None for a failure, and for a key that is not there."""
        rows = self._database.read("SELECT json FROM bodies JOIN judgements ON id = judgement WHERE key = ?", key)
        try:
            return json.loads(zlib.decompress(rows[0][0])) if rows else None
        except (zlib.error, ValueError) as error:
            raise StoreError(
                f"The store {self._database.path} is damaged: judgement {key[:12]} cannot be read."
            ) from error

    def note(self, about: Mapping[str, Any]) -> None:
        """Replace what the run says of itself: plain JSON."""
        text = json.dumps(about)
        with self._database.write() as connection:
            self._touch(connection)
            connection.execute("UPDATE runs SET about = ? WHERE id = ?", (text, self.id))
        self.about = json.loads(text)

    def put(self, kind: str, key: str, value: Mapping[str, Any]) -> None:
        """Keep a fact about this run, plain JSON, in the place of an earlier one of that kind and key.

        It is on the disk with the next judgement, or when the store is closed.
        """
        with self._database.write(lasting=False) as connection:
            values = (self.id, kind, plain(key), json.dumps(value))
            connection.execute(
                "INSERT INTO items (run, kind, key, value) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (run, kind, key) DO UPDATE SET value = excluded.value",
                values,
            )

    def items(self, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The facts of a kind, in the order first put, a page at a time."""
        last = 0
        while rows := self._database.read(
            "SELECT id, key, value FROM items WHERE run = ? AND kind = ? AND id > ? ORDER BY id LIMIT ?",
            self.id,
            kind,
            last,
            _PAGE,
        ):
            last = rows[-1][0]
            yield from ((key, json.loads(value)) for _, key, value in rows)

    def _touch(self, connection: Any) -> None:
        """The run is used now. StoreError if another process has deleted it."""
        if not connection.execute("UPDATE runs SET updated = ? WHERE id = ?", (time.time(), self.id)).rowcount:
            raise StoreError(f"Run {self.name!r} was deleted while it was in use. Begin it again.")


def _result(light: list[Any]) -> Result:
    key, first, second, prompt, winners, odds, *rest = light
    read: dict[str, list[float] | None] = json.loads(odds)
    return Result(key, first, second, prompt, json.loads(winners), {k: _odds(o) for k, o in read.items()}, *rest)


def _odds(odds: list[float] | None) -> Odds | None:
    return None if odds is None else (odds[0], odds[1], odds[2])


def plain(text: str) -> str:
    """Text that SQLite takes: a lone surrogate, as in a file name that is not UTF-8, becomes an escape."""
    return text.encode("utf-8", "backslashreplace").decode()
