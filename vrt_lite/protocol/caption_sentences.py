"""Which captions a judge understands, by sentences that its profile lists.

A table of captions has `sentences`, and words by role. A sentence has words, {roles} that stand for one of their words,
and [optional parts].
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

Captions = Mapping[str, list[str]]

_SENTENCES = "sentences"
_PIECE = re.compile(r"\{(?P<role>\w+)\}|(?P<word>\w+)|(?P<bracket>[\[\]])|\s+")


def understands(caption: str, captions: Captions) -> bool:
    """Whether a caption is one of the sentences; any is if there are none. Case and punctuation do not matter."""
    words = "".join(f" {word}" for word in re.findall(r"\w+", caption.lower()))
    sentences: Sequence[str] = captions.get(_SENTENCES, ())
    return not sentences or any(re.fullmatch(_pattern(sentence, captions), words) for sentence in sentences)


def check_captions(captions: Mapping[str, object]) -> None:
    """Check a table of captions; ValueError, naming the entry."""
    for name, listed in captions.items():
        entries = cast("list[object]", listed) if isinstance(listed, list) else []
        if not entries or not all(isinstance(entry, str) and entry == entry.lower() for entry in entries):
            raise ValueError(f"captions.{name} is not a list of texts in lower case.")
        if name != _SENTENCES and not all(re.fullmatch(r"\w+", word) for word in cast("list[str]", entries)):
            raise ValueError(f"captions.{name} are not single words.")
    if captions and _SENTENCES not in captions:
        raise ValueError("captions have no sentences.")
    table = cast("Captions", captions)
    for sentence in table.get(_SENTENCES, ()):
        try:
            re.compile(_pattern(sentence, table))
        except (KeyError, re.error):
            raise ValueError(
                f"captions.sentences: {sentence!r} is not made of words, listed {{roles}} and [optional parts]."
            ) from None


def _pattern(sentence: str, captions: Captions) -> str:
    """Write a sentence as a regular expression over words with a space before each. KeyError for an unknown role."""

    def translate(piece: re.Match[str]) -> str:
        if role := piece["role"]:
            return f" (?:{'|'.join(captions[role])})"
        if bracket := piece["bracket"]:
            return "(?:" if bracket == "[" else ")?"
        return f" {word}" if (word := piece["word"]) else ""

    if left_over := _PIECE.sub("", sentence):
        raise KeyError(left_over)
    return _PIECE.sub(translate, sentence)
