"""The replies of a measured judgement, and a vocabulary for them.

All sides write the same replies. Byte-pair merges are learnt from the replies and from the prompt, until a token is as
long on average as a token of the published tokenizer. Otherwise a prompt of 600 tokens would have 3 000 tokens here,
one for each byte, and no stage would have its real cost.
"""

from __future__ import annotations

import functools
import random
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from vrt_lite.profile import Profile, default_profile
from vrt_lite.protocol.messages import plain, render_user

CHARACTERS_PER_TOKEN = 3.8
"""It is 4.0 if every word of this text is one token; the published tokenizer splits a few words."""

_printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
_others = [byte for byte in range(256) if byte not in _printable]
SPELLING = {byte: chr(byte) for byte in _printable} | {byte: chr(256 + i) for i, byte in enumerate(_others)}
"""The character of each byte in byte-level BPE."""

# The family's split for ASCII; the replies have no other characters.
_SPLIT = re.compile(
    r"'(?:[sdmt]|ll|ve|re)|[^\r\na-zA-Z0-9]?[a-zA-Z]+|[0-9]| ?[^\sa-zA-Z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NOTES = re.compile(r"(<(?:snapshot|think)>\n)(.*?)(\n</)", re.DOTALL)
Merge = tuple[str, str]


@functools.cache
def replies() -> dict[str, str]:
    """Read the texts of replies.toml, by key."""
    with (Path(__file__).parent / "replies.toml").open("rb") as file:
        return {key: text.strip() for key, text in tomllib.load(file).items()}


def script(rounds: int, *, number: int = 0) -> list[str]:
    """Return what a judge writes in judgement `number`: a reply for each of 1 to 3 rounds.

    From the second judgement on, the words of the notes are shuffled, because a real judge does not repeat a text
    either. So prompt lookup does not find a whole reply in an earlier one.
    """
    keys = (*("call", "second_call")[: rounds - 1], "final")
    texts = [replies()[key] for key in keys]
    order = random.Random(number)
    return [_NOTES.sub(lambda note: _shuffled(note, order), text) for text in texts] if number else texts


def _shuffled(note: re.Match[str], order: random.Random) -> str:
    words = note[2].split()
    order.shuffle(words)
    return f"{note[1]}{' '.join(words)}{note[3]}"


@functools.cache
def merges() -> tuple[Merge, ...]:
    """Learn byte-pair merges, the most frequent pair first, until tokens are long enough."""
    texts = replies()
    return tuple(_learn([*_prompt(default_profile(), texts["caption"]), *(texts[key] for key in sorted(texts))]))


def _prompt(profile: Profile, caption: str) -> list[str]:
    task = render_user(profile.user_prompt, caption=caption, dimensions=profile.dimensions, workspace=profile.workspace)
    return [profile.system_prompt, plain(task), profile.tool_text, profile.forgotten_text, profile.final_text]


def _learn(texts: Iterable[str]) -> list[Merge]:
    counted = Counter(word for text in texts for word in _SPLIT.findall(text))
    words = [([SPELLING[byte] for byte in word.encode()], count) for word, count in counted.items()]
    most = sum(len(pieces) * count for pieces, count in words) / CHARACTERS_PER_TOKEN
    found: list[Merge] = []
    while sum(len(pieces) * count for pieces, count in words) > most:
        pairs: Counter[Merge] = Counter()
        for pieces, count in words:
            for pair in pairwise(pieces):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        found.append(best)
        for pieces, _ in words:
            _join(pieces, best)
    return found


def _join(pieces: list[str], pair: Merge) -> None:
    """Merge every occurrence of a pair, from the left, in place."""
    at = 0
    while at < len(pieces) - 1:
        if (pieces[at], pieces[at + 1]) == pair:
            pieces[at : at + 2] = [pair[0] + pair[1]]
        at += 1
