"""A file that is being downloaded, which takes no more than the hub lists."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Advance = Callable[[int], None]
"""Called with bytes before they are written, below 0 for bytes that are lost. What it raises ends the download."""


class OversizedError(Exception):
    """A server sends more than it lists."""


class BoundedFile(io.BufferedWriter):
    """A file being downloaded, which takes one byte more than is listed, and then no more."""

    def __init__(self, path: Path, most_bytes: int, advance: Advance) -> None:
        super().__init__(io.FileIO(path, "ab"))
        self._most_bytes = most_bytes
        self._advance = advance

    def write(self, data: Any, /) -> int:
        """Write what a server sent."""
        room = self._most_bytes + 1 - self.tell()
        self._advance(min(len(data), room))
        written = super().write(data[:room])
        if len(data) >= room:
            raise OversizedError
        return written

    def truncate(self, size: int | None = None, /) -> int:
        """Cut the file; the client does so if a server begins anew."""
        self.flush()
        before = os.fstat(self.fileno()).st_size
        after = super().truncate(size)
        self._advance(after - before)
        return after
