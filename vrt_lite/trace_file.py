"""Writes the rounds of a comparison to a file as they happen."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from vrt_lite.disk import write_file
from vrt_lite.errors import UsageError
from vrt_lite.judge import Round
from vrt_lite.recording import ShownPair, record_round


class TraceFile:
    """A file with a JSON line for each round, written whole each time, so that it is never cut in a line.

    The rounds of the first order come first, also if both orders are judged at once. `failure` says why it lacks
    rounds, "" if it has all: a judgement is worth more than its trace.
    """

    def __init__(self, path: Path) -> None:
        """Make the file, empty. Raises UsageError."""
        self._path = path
        self._lines: tuple[list[str], list[str]] = ([], [])
        self.failure = ""
        self._write()
        if self.failure:
            raise UsageError(self.failure)

    def add(self, first: int, pair: ShownPair, r: Round) -> None:
        """Add a round of the order that shows clip `first` (0 or 1) as video 1."""
        line = json.dumps({"first": first + 1, **asdict(record_round(r, first, pair))}) + "\n"
        self._lines[first].append(line)
        self._write()

    def _write(self) -> None:
        try:
            write_file(self._path, "".join(line for of_order in self._lines for line in of_order).encode())
            self.failure = ""
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            self.failure = f"The trace {str(self._path)!r} cannot be written: {reason}."
