"""Lowers a conversation to one flat list: token ids and frame blocks, in the ChatML layout of Qwen2.5-VL.

Two conversations share exactly the context on which their lists agree. Positions (M-RoPE) are those that Qwen2.5-VL was
trained with (transformers, `get_rope_index`): each text token advances one position on all three axes; a
video that starts at p has t = p + step of its temporal patch, y = p + row, x = p + column over its merged grid (28
pixels a cell), and the next item starts at the largest of the three + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vrt_lite.protocol.messages import Conversation, Generated, Image, Message, Part, Text, Video


@dataclass(frozen=True, slots=True)
class FrameBlock:
    """One video, or one image, between vision_start and vision_end.

    `patches` are content keys, one for each temporal patch; `steps` are their temporal positions relative to the start.
    The merged grid of every patch is `rows` x `columns` cells, one token for each. Without steps each token has the
    next position on every axis, like text.
    """

    patches: tuple[str, ...]
    steps: tuple[int, ...]
    rows: int
    columns: int

    @property
    def tokens(self) -> int:
        """Tokens of the block in the context."""
        return len(self.patches) * self.rows * self.columns

    @property
    def positions(self) -> int:
        """Positions of the block."""
        return max(*self.steps, self.rows - 1, self.columns - 1) + 1 if self.steps else self.tokens

    def planes(self, number: int, start: int) -> NDArray[np.int32]:
        """Positions of a temporal patch, shape (4, rows·columns): planes t, y, x and an unused zero.

        The block begins at `start`.
        """
        y, x = np.divmod(np.arange(self.rows * self.columns, dtype=np.int32), np.int32(self.columns))
        if not self.steps:
            t = y = x = number * len(x) + np.arange(len(x), dtype=np.int32)
        else:
            t = np.full_like(y, self.steps[number])
        return np.stack([start + t, start + y, start + x, np.zeros_like(y)])


Item = int | FrameBlock


class Tokenizer(Protocol):
    """What lowering needs of a vocabulary. `added` are texts that are matched even with `special` off."""

    added: tuple[str, ...]

    def tokens(self, text: str, *, special: bool) -> list[int]: ...  # noqa: D102
    def control(self, name: str) -> int: ...  # noqa: D102


def stamp(conversation: Conversation) -> Conversation:
    """The conversation with each video as one video for each temporal patch, behind the mean time of its frames."""
    return tuple(replace(message, parts=tuple(_stamped(message.parts))) for message in conversation)


def _stamped(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        if not isinstance(part, Video):
            yield part
            continue
        for i in range(0, len(part.frames), 2):
            times = part.times[i : i + 2]
            yield Text(f"<{sum(times) / len(times):.1f} seconds>")
            yield replace(part, frames=part.frames[i : i + 2], times=times)


def lower(conversation: Conversation, tokenizer: Tokenizer, block: Callable[[Video | Image], FrameBlock]) -> list[Item]:
    """Lower the whole conversation and the opening of the judge's next turn; `block` turns a part into its block."""
    items: list[Item] = []
    for message in conversation:
        items += _lower_message(message, tokenizer, block)
    items.append(tokenizer.control("<|im_start|>"))
    items += tokenizer.tokens("assistant\n", special=False)
    return items


def _lower_message(message: Message, tokenizer: Tokenizer, block: Callable[[Video | Image], FrameBlock]) -> list[Item]:
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
    """Tokenize adjacent texts as one string, so that merges across their borders are the model's own.

    With an untrusted text in the run no control tokens are recognised, and an added token's text that touches an
    untrusted character is cut after its first character, so that it also stays plain.
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
            cuts.update(_find_cuts(text, start, end, tokenizer.added))
    edges = [0, *sorted(cuts), len(text)]
    return [token for a, b in pairwise(edges) for token in tokenizer.tokens(text[a:b], special=False)]


def _find_cuts(text: str, start: int, end: int, added: Sequence[str]) -> set[int]:
    """Where to cut: after the first character of every added token's text that overlaps text[start:end]."""
    cuts: set[int] = set()
    for name in added:
        at = text.find(name, max(start - len(name) + 1, 0), end + len(name) - 1)
        while at >= 0:
            cuts.add(at + 1)
            at = text.find(name, at + 1, end + len(name) - 1)
    return cuts
