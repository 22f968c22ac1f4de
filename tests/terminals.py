"""A stream that says it is a terminal."""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """Keeps what is written, which is text of one encoding."""

    encoding = "utf-8"

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__()
        self.encoding = encoding

    def isatty(self) -> bool:
        return True
