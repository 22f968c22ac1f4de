"""Lowers a conversation to one flat list: token ids and frame blocks, in the ChatML layout of Qwen2.5-VL.

The list is a value: two conversations share exactly the context on which their lists agree. Knows the
template and how text becomes tokens; refuses to know what the engine holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from vrt_lite.backends.llamacpp.positions import extent
from vrt_lite.protocol.messages import Conversation, Generated, Image, Message, Text, Video


@dataclass(frozen=True, slots=True)
class FrameBlock:
    """One video, or one image, between vision_start and vision_end.

    `patches` are content keys, one a temporal patch; `steps` their temporal positions relative to the start;
    the merged grid of every patch is `rows` x `columns` cells, one token a cell.
    """

    patches: tuple[str, ...]
    steps: tuple[int, ...]
    rows: int
    columns: int

    @property
    def tokens(self) -> int:
        """Tokens the block takes up in the context."""
        return len(self.patches) * self.rows * self.columns

    @property
    def positions(self) -> int:
        """Positions the block takes up."""
        return extent(self.steps, self.rows, self.columns)


Item = int | FrameBlock


class Tokenizer(Protocol):
    """What lowering needs of a vocabulary. `added` are texts that are matched even where special parsing is off."""

    added: tuple[str, ...]

    def tokens(self, text: str, *, special: bool) -> list[int]: ...  # noqa: D102
    def control(self, name: str) -> int: ...  # noqa: D102


def lower(conversation: Conversation, tokenizer: Tokenizer, block: Callable[[Video | Image], FrameBlock]) -> list[Item]:
    """The whole conversation and the opening of the judge's next turn; `block` turns a part into its block."""
    items: list[Item] = []
    for message in conversation:
        items += _turn(message, tokenizer, block)
    items.append(tokenizer.control("<|im_start|>"))
    items += tokenizer.tokens("assistant\n", special=False)
    return items


def _turn(message: Message, tokenizer: Tokenizer, block: Callable[[Video | Image], FrameBlock]) -> list[Item]:
    items: list[Item] = [tokenizer.control("<|im_start|>")]
    run: list[Text] = [Text(f"{message.role}\n")]

    def flush() -> None:
        items.extend(tokenize(run, tokenizer))
        run.clear()

    for part in message.parts:
        match part:
            case Text():
                run.append(part)
            case Generated(text, tokens):
                flush()
                items.extend(tokens or tokenizer.tokens(text, special=True))
            case Video() | Image():
                flush()
                items.append(tokenizer.control("<|vision_start|>"))
                items.append(block(part))
                items.append(tokenizer.control("<|vision_end|>"))
    flush()
    items.append(tokenizer.control("<|im_end|>"))
    items += tokenizer.tokens("\n", special=False)
    return items


def tokenize(run: Sequence[Text], tokenizer: Tokenizer) -> list[int]:
    """Tokens of adjacent texts as one string, so that merges across their borders are the model's own.

    With an untrusted text in it the run is read without control tokens, and an added token's text that touches
    an untrusted character is cut after its first character, so that it stays plain as well.
    """
    text = "".join(piece.text for piece in run)
    if not text:
        return []
    if all(piece.trusted for piece in run):
        return tokenizer.tokens(text, special=True)
    cuts: set[int] = set()
    end = 0
    for piece in run:
        start, end = end, end + len(piece.text)
        if not piece.trusted:
            cuts.update(_touching(text, start, end, tokenizer.added))
    edges = [0, *sorted(cuts), len(text)]
    return [token for a, b in pairwise(edges) for token in tokenizer.tokens(text[a:b], special=False)]


def _touching(text: str, start: int, end: int, added: Sequence[str]) -> set[int]:
    """Where to cut: after the first character of every added token's text that overlaps text[start:end]."""
    cuts: set[int] = set()
    for name in added:
        at = text.find(name, max(start - len(name) + 1, 0), end + len(name) - 1)
        while at >= 0:
            cuts.add(at + 1)
            at = text.find(name, at + 1, end + len(name) - 1)
    return cuts
