"""Makes any text harmless on a terminal. Standard library only, so that an error can be shown without the rest."""

from __future__ import annotations

_JOINERS = "\u200c\u200d"  # invisible, but Persian and emoji are not spelled without them
_WIDE_SPACES = "\u00a0\u3000"  # not "printable" to Python


def safe(text: str, *, lines: bool = False, encoding: str = "utf-8") -> str:
    """Any text, harmless on a terminal: what is not printable becomes a visible escape.

    That covers ANSI escapes and other control characters, bidirectional marks, invisible characters, line breaks,
    lone surrogates and what `encoding` lacks. `lines` keeps line breaks, and makes tabs spaces.
    """
    if lines:
        text = text.replace("\t", "    ")
    if not text.isprintable():
        text = "".join(c if _shows(c) or (lines and c == "\n") else ascii(c)[1:-1] for c in text)
    return text if text.isascii() else text.encode(encoding, "backslashreplace").decode(encoding)


def _shows(character: str) -> bool:
    return character.isprintable() or character in _JOINERS or character in _WIDE_SPACES
