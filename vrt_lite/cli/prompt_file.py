"""Reads a prompt from a file."""

from __future__ import annotations

from pathlib import Path

from vrt_lite.disk import open_to_read
from vrt_lite.errors import UsageError
from vrt_lite.protocol.messages import LONGEST_PROMPT


def read_prompt_file(path: Path) -> str:
    """Return the text of a file without line ends at its end. UsageError if it cannot be read, or is no short text."""
    try:
        with open_to_read(path) as file:
            # A character is at most four bytes; one byte more is enough to know that it is too long.
            return file.read(4 * LONGEST_PROMPT + 1).decode("utf-8-sig").rstrip("\r\n")
    except OSError as error:
        raise UsageError(f"The prompt file {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"The prompt file {path} is not UTF-8 text, or is too long.") from error
