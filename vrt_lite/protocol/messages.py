"""What goes between controller and judge: messages of parts, and the reply.

A message holds frame references, never pixels, so that prompts, memory, traces and training data are
plain values. It refuses to know templates and token ids of any model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from vrt_lite.protocol.frames import FrameRef

Role = Literal["system", "user", "assistant"]
StopReason = Literal["end", "limit", "loop"]
Odds = tuple[float, float, float]
"""Probabilities of (tie, video 1, video 2) at one answer digit; they sum to 1."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text of a turn. What a user typed is not `trusted`: it can never become a control token."""

    text: str
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class Generated:
    """What the model wrote, with the tokens it wrote it in; a back end without tokens reads the text."""

    text: str
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Video:
    """Frames of one clip as one native video: two consecutive frames make one temporal patch."""

    frames: tuple[FrameRef, ...]
    seconds_per_patch: float


@dataclass(frozen=True, slots=True)
class Image:
    """One frame that stands alone."""

    frame: FrameRef


Part = Text | Generated | Video | Image


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `tool_outcome` marks frames that a call brought, which the memory window may forget."""

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
    """What one reply cost. Tokens and frame pairs that the engine already held count as reused."""

    tokens_prefilled: int = 0
    tokens_reused: int = 0
    tokens_generated: int = 0
    frames_encoded: int = 0
    frames_reused: int = 0
    vision_seconds: float = 0.0
    prefill_seconds: float = 0.0
    generate_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What a judge wrote in one round.

    `odds` maps the offset of a character in `text` to the model's own probabilities at that character,
    wherever it wrote one of the digits 0, 1, 2.
    """

    text: str
    tokens: tuple[int, ...] = ()
    stop: StopReason = "end"
    odds: Mapping[int, Odds] = field(default_factory=dict[int, Odds])
    usage: Usage = Usage()
