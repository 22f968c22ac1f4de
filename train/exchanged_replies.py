"""Replies about a pair, rewritten as if its clips had been shown in the other order.

So a written trace teaches both orders. Answers, calls, and the words for the clips ("video 1", "the second clip", "the
latter") are exchanged. A number of a frame is, too, if the trace calls for that frame. All else is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_CALL: Final = re.compile(r'("target_frames"\s*:\s*\[)([\s\d,]*)(\])')
_NUMBERS: Final = re.compile(r"\b(frames?\s+)(\d+(?:(?:\s*(?:,|and|to|or|-|–|&)\s*)+\d+)*)\b", re.IGNORECASE)
_CLIPS: Final = re.compile(
    r"\b(?:TA|VQ|MQ|OA)\s*[=:]\s*[12]\b"
    r"|\b(?i:video|clip)[\s#]*[12AB]\b"
    r"|\b(?i:videos|clips)\s*[12AB]\s*(?:and|or|vs\.?|,|/|&)\s*[12AB]\b"
    r"|\b(?i:first|second)(?=\s+(?i:video|clip|one)\b)"
    r"|\b(?i:former|latter)\b"
)
_SIDE: Final = re.compile(r"\b[12AB]\b")
_OTHER: Final = {"1": "2", "A": "B", "first": "second", "former": "latter"}
_MIRRORED: Final = {**_OTHER, **{b: a for a, b in _OTHER.items()}}
_SECOND_FIRST: Final = re.compile(r"^(video 2\b.*)\n(video 1\b.*)$", re.IGNORECASE | re.MULTILINE)


def exchange_replies(replies: Sequence[str], workspace: int) -> tuple[str, ...]:
    """Rewrite a trace's replies for the other order of its clips, each with `workspace` frames."""
    called = {int(n) for reply in replies for call in _CALL.finditer(reply) for n in re.findall(r"\d+", call[2])}
    return tuple(_exchange(reply, workspace, called) for reply in replies)


def _exchange(reply: str, workspace: int, called: set[int]) -> str:
    def other(number: str) -> int:
        n = int(number)
        if not 1 <= n <= 2 * workspace:
            return n
        return n + workspace if n <= workspace else n - workspace

    def exchange_call(call: re.Match[str]) -> str:
        numbers = sorted(map(other, re.findall(r"\d+", call[2])), key=lambda n: n > workspace)  # video 1's first
        return f"{call[1]}{', '.join(map(str, numbers))}{call[3]}"

    def exchange_numbers(named: re.Match[str]) -> str:
        known = called.issuperset(map(int, re.findall(r"\d+", named[2])))
        return named[1] + re.sub(r"\d+", lambda n: str(other(n[0])), named[2]) if known else named[0]

    text = _CLIPS.sub(_exchange_words, reply)
    text = _NUMBERS.sub(exchange_numbers, text)
    text = _CALL.sub(exchange_call, text)
    return _SECOND_FIRST.sub(r"\2\n\1", text)


def _exchange_words(words: re.Match[str]) -> str:
    """Exchange "VQ=1", "video 1", "videos 1 and 2", or an ordinal, which keeps its capital."""
    found = words[0]
    if other := _MIRRORED.get(found.lower()):
        return other.capitalize() if found[0].isupper() else other
    return _SIDE.sub(lambda side: _MIRRORED[side[0]], found)
