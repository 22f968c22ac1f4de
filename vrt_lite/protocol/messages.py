"""What controller and judge exchange: frames, messages of parts, the prompt, the memory window, and the reply.

A message holds frame references, never pixels, so that prompts, memory, traces and training data are plain values, the
same for every model.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

Choice = Literal[0, 1, 2]
"""0 is a tie, 1 and 2 name the better video."""

Key = Literal["TA", "VQ", "MQ", "OA"]
DIMENSIONS: Final = ("TA", "VQ", "MQ")
OVERALL: Final = "OA"
KEYS: Final = (*DIMENSIONS, OVERALL)

Role = Literal["system", "user", "assistant"]
StopReason = Literal["end", "limit", "loop"]
Odds = tuple[float, float, float]
"""Probabilities of (tie, video 1, video 2) at one answer digit; their sum is 1."""
CELL = 28
"""Pixels a side of one visual token: a 2x2 block of 14-pixel patches."""
_MAX_RATIO = 200
LONGEST_PROMPT = 8_000
"""The most characters of a prompt."""
_PLACEHOLDER = re.compile(r"\{(caption|prompt|text_prompt|dim_name_[123]|dim_explain_[123]|n|n_half)\}")
_CAPTION: Final = ("caption", "prompt", "text_prompt")
"""The placeholders of a caption: ours, and those of published prompts."""
_NAME = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Text:
    """Text of a turn. What a user typed is not `trusted`: it can never become a control token."""

    text: str
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class Generated:
    """What the model wrote, as text and as its tokens; a back end without tokens reads the text."""

    text: str
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Video:
    """Frames of one clip as one native video: two consecutive frames make one temporal patch.

    `times` has the second of each frame for a clock that is told in words.
    """

    frames: tuple[FrameRef, ...]
    seconds_per_patch: float
    times: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Image:
    """One frame by itself."""

    frame: FrameRef


Part = Text | Generated | Video | Image


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `tool_outcome` marks the frames of a tool call, which the memory window may forget."""

    role: Role
    parts: tuple[Part, ...]
    tool_outcome: bool = False

    @property
    def frames(self) -> tuple[FrameRef, ...]:
        """Every frame that the turn shows, in order."""
        return tuple(
            frame
            for part in self.parts
            for frame in (part.frames if isinstance(part, Video) else (part.frame,) if isinstance(part, Image) else ())
        )


Conversation = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """What one reply cost. Tokens and frame pairs that the engine already held count as reused.

    Of a batch for several replies each has an equal part of the seconds. In `waited_seconds` the engine worked for
    others.
    """

    tokens_prefilled: int = 0
    tokens_reused: int = 0
    tokens_generated: int = 0
    frames_encoded: int = 0
    frames_reused: int = 0
    vision_seconds: float = 0.0
    prefill_seconds: float = 0.0
    generate_seconds: float = 0.0
    waited_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What a judge wrote in one round.

    `odds` maps the offset of a character in `text` to the model's own probabilities at that character,
    for each digit 0, 1 or 2 that it wrote, and for each word with which an answer begins (`Sampling.openings`).
    `scores` has the raw value of each head that was asked for; then nothing was written.
    """

    text: str
    tokens: tuple[int, ...] = ()
    stop: StopReason = "end"
    odds: Mapping[int, Odds] = field(default_factory=dict[int, Odds])
    usage: Usage = Usage()
    scores: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, order=True)
class FrameRef:
    """One frame of a workspace: `clip` 0 or 1 in prompt order, `index` 0-based inside that clip's workspace.

    `called` marks a frame of a tool call: it has its own pixel range.
    """

    clip: int
    index: int
    called: bool = False

    def number(self, workspace: int) -> int:
        """This frame in the prompt's numbering, 1..N over both videos (`workspace` frames each)."""
        return self.clip * workspace + self.index + 1


def from_number(number: int, workspace: int) -> FrameRef:
    """The frame that the prompt calls `number`; ValueError outside 1..2·workspace."""
    if not 1 <= number <= 2 * workspace:
        raise ValueError(f"frame {number} is outside 1 to {2 * workspace}")
    return FrameRef(*divmod(number - 1, workspace))


def evenly_spaced(total: int, count: int) -> tuple[int, ...]:
    """`round(linspace(0, total - 1, count))`, halves to even: the same arithmetic as NumPy's."""
    if total < 1 or count < 1:
        raise ValueError(f"cannot take {count} of {total} frames: both must be at least 1")
    if count == 1:
        return (0,)
    step = (total - 1) / (count - 1)
    return (*(round(i * step) for i in range(count - 1)), total - 1)


def shown_first(workspace: int, count: int, clip: int) -> tuple[FrameRef, ...]:
    """The `count` evenly spaced workspace frames that a judge sees before it asks for any."""
    return tuple(FrameRef(clip, index) for index in evenly_spaced(workspace, count))


def sample_workspace(ticks: Sequence[int], workspace: int, shown: int) -> tuple[int, ...]:
    """Source frame of every workspace position, chosen by presentation time.

    `ticks` are the sorted presentation timestamps of all source frames, in any unit. Positions are evenly spaced
    between the first and the last; each takes the nearest frame in time (halves to the even index). At a
    constant rate that is `evenly_spaced(len(ticks), workspace)`. In a clip with fewer frames than are
    `shown` first, each of those positions gets another frame, and the last is repeated.
    """
    total = len(ticks)
    if total < shown:
        starts = [ref.index for ref in shown_first(workspace, shown, 0)]
        return tuple(min(total, bisect_right(starts, position)) - 1 for position in range(workspace))
    if _constant_rate(ticks):
        return evenly_spaced(total, workspace)
    first, span = ticks[0], ticks[-1] - ticks[0]
    return tuple(
        _nearest(ticks, first * parts + span * position, parts)
        for parts in (max(workspace - 1, 1),)
        for position in range(workspace)
    )


def _constant_rate(ticks: Sequence[int]) -> bool:
    """Whether every timestamp is within one tick of an even spacing (containers round to their time base)."""
    first, span, last = ticks[0], ticks[-1] - ticks[0], max(len(ticks) - 1, 1)
    return all(abs((tick - first) * last - span * i) <= last for i, tick in enumerate(ticks))


def _nearest(ticks: Sequence[int], target: int, scale: int) -> int:
    """Index of the tick nearest to target/scale, in exact integers; a tie goes to the even index."""
    right = bisect_left(ticks, target, key=lambda tick: tick * scale)
    if right == 0:
        return 0
    if right == len(ticks):
        return right - 1
    left = right - 1
    before, after = target - ticks[left] * scale, ticks[right] * scale - target
    if before == after:
        return left if left % 2 == 0 else right
    return left if before < after else right


@dataclass(frozen=True, slots=True)
class Dimension:
    """How the prompt words one dimension: "**{name}**: {explain}"."""

    name: str
    explain: str


def show_key(key: str, dimension: Dimension) -> Dimension:
    """The dimension with its key after its name, "Fineness (VQ)", unless the name has it already.

    The answer's format has the keys alone: without a key in the name the judge cannot know which dimension is which.
    """
    shown = f"({key})"
    return dimension if shown in dimension.name else replace(dimension, name=f"{dimension.name} {shown}")


def has_caption(template: str) -> bool:
    """Whether a template has a place for the caption."""
    return any(name in _CAPTION for name in _PLACEHOLDER.findall(template))


def render_user(
    template: str, *, caption: str, dimensions: Mapping[str, Dimension], workspace: int
) -> tuple[Text, ...]:
    """The user turn's text. The caption and the dimensions stay untrusted: plain text to the model.

    `n` is the frames of both workspaces; `n_half` prints as a float ("48.0"), as the model card's script does.
    """
    total = 2 * workspace
    values: dict[str, Text] = {
        **dict.fromkeys(_CAPTION, Text(caption, trusted=False)),
        "n": Text(str(total)),
        "n_half": Text(str(total / 2)),
    }
    for i, key in enumerate(DIMENSIONS, start=1):
        values[f"dim_name_{i}"] = Text(dimensions[key].name, trusted=False)
        values[f"dim_explain_{i}"] = Text(dimensions[key].explain, trusted=False)
    pieces = _PLACEHOLDER.split(template)
    parts = (values[piece] if i % 2 else Text(piece) for i, piece in enumerate(pieces))
    return tuple(part for part in parts if part.text)


def fill(template: str, **values: object) -> str:
    """A template with each `{name}` that is among `values` replaced, in one pass; other braces stay as they are."""
    return _NAME.sub(lambda match: str(values.get(match[1], match[0])), template)


def plain(parts: Sequence[Text]) -> str:
    """The text as one string."""
    return "".join(part.text for part in parts)


def apply_window(transcript: Conversation, *, window: int, stand_in: str) -> Conversation:
    """The conversation as the judge sees it: without the frames of tool calls before the last `window` ones."""
    outcomes = [i for i, message in enumerate(transcript) if message.tool_outcome]
    forgotten = set(outcomes[: max(len(outcomes) - window, 0)])
    return tuple(_forget(m, stand_in) if i in forgotten else m for i, m in enumerate(transcript))


def _forget(message: Message, stand_in: str) -> Message:
    """The turn without its frames; one stand-in replaces them all."""
    parts: list[Part] = []
    replaced = False
    for part in message.parts:
        if not isinstance(part, Video | Image):
            parts.append(part)
        elif not replaced:
            replaced = True
            if stand_in:
                parts.append(Text(stand_in))
    return replace(message, parts=tuple(parts))


def smart_resize(width: int, height: int, *, min_pixels: int, max_pixels: int, cell: int = CELL) -> tuple[int, int]:
    """(width, height) for the model: multiples of `cell` within the pixel range, aspect ratio kept as far as possible.

    The reference's rule exactly (transformers, `smart_resize` of Qwen2-VL's image processor); ValueError for
    an aspect ratio beyond 200, as in the reference.
    """
    if max(width, height) > _MAX_RATIO * min(width, height):
        raise ValueError(f"is {width}x{height}, which is too narrow: at most {_MAX_RATIO}:1 is allowed")
    w = max(cell, round(width / cell) * cell)
    h = max(cell, round(height / cell) * cell)
    if w * h > max_pixels:
        shrink = math.sqrt(width * height / max_pixels)
        w = max(cell, math.floor(width / shrink / cell) * cell)
        h = max(cell, math.floor(height / shrink / cell) * cell)
    elif w * h < min_pixels:
        grow = math.sqrt(min_pixels / (width * height))
        w = math.ceil(width * grow / cell) * cell
        h = math.ceil(height * grow / cell) * cell
    return w, h
