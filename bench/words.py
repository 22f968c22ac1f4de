"""What is said in a measured judgement, and a vocabulary for it.

Knows the replies that both sides are made to write, and learns byte-pair merges from them and from the prompt, until a
token is as long as the published tokenizer's: otherwise a prompt of 600 tokens would be one of 3 000 bytes, and no
stage would cost what it costs. Refuses to know models.
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
from vrt_lite.protocol.prompt import plain, render_user

CHARACTERS_PER_TOKEN = 3.8
"""With every word of this text a token of its own it is 4.0; the published tokenizer splits a few."""

_printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
_others = [byte for byte in range(256) if byte not in _printable]
SPELLING = {byte: chr(byte) for byte in _printable} | {byte: chr(256 + i) for i, byte in enumerate(_others)}
"""How byte-level BPE writes each byte."""

# The family's split for ASCII, all that is said here.
_SPLIT = re.compile(
    r"'(?:[sdmt]|ll|ve|re)|[^\r\na-zA-Z0-9]?[a-zA-Z]+|[0-9]| ?[^\sa-zA-Z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NOTES = re.compile(r"(<(?:snapshot|think)>\n)(.*?)(\n</)", re.DOTALL)
Merge = tuple[str, str]


@functools.cache
def replies() -> dict[str, str]:
    """The texts of replies.toml, by key."""
    with (Path(__file__).parent / "replies.toml").open("rb") as file:
        return {key: text.strip() for key, text in tomllib.load(file).items()}


def script(rounds: int, *, number: int = 0) -> list[str]:
    """What a judge writes in judgement `number`, of 1 to 3 rounds: a reply a round.

    From the second judgement on the words of its notes stand in an order of their own: no judge writes one text again
    and again, and an engine that guesses from what was written before must not find it here either.
    """
    said = replies()
    texts = [said[key] for key in ("call", "second_call")[: rounds - 1]]
    texts.append(said["final"])
    order = random.Random(number)
    return [_NOTES.sub(lambda note: _shuffled(note, order), text) for text in texts] if number else texts


def _shuffled(note: re.Match[str], order: random.Random) -> str:
    words = note[2].split()
    order.shuffle(words)
    return f"{note[1]}{' '.join(words)}{note[3]}"


@functools.cache
def merges() -> tuple[Merge, ...]:
    """Byte-pair merges, the most frequent pair first, up to the length of token that is wanted."""
    said = replies()
    return tuple(_learn([*_prompt(default_profile(), said["caption"]), *(said[key] for key in sorted(said))]))


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
