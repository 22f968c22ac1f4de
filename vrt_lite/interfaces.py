"""The seams: what the loop needs from a back end and from a store of frames, and what it tells a watcher.

Protocols and event values only; no implementation, no engine, no decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from vrt_lite.protocol.frames import FrameRef
from vrt_lite.protocol.messages import Conversation, Reply

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Loading:
    """Something large is being loaded."""

    what: str


@dataclass(frozen=True, slots=True)
class Encoding:
    """The vision tower has done `done` of `total` frame pairs of this round."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Prefill:
    """The text model has read `done` of `total` new tokens of this round."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Wrote:
    """The judge wrote some more text."""

    text: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A server is asked again after a pause: `what` is the server and why, `attempt` counts from 1."""

    what: str
    attempt: int


@dataclass(frozen=True, slots=True)
class RoundBegan:
    """A round begins; `frames` are the ones newly shown in it. `order` is 0, or 1 for the swapped pair."""

    order: int
    number: int
    frames: tuple[FrameRef, ...]


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A round ended with this outcome: "final", "tool", or "correction"."""

    order: int
    number: int
    outcome: str


Event = Loading | Encoding | Prefill | Wrote | Waiting | RoundBegan | RoundEnded
Observe = Callable[[Event], None]


def ignore(event: Event) -> None:
    """An observer that looks away."""


def never(text: str) -> bool:
    """No text is concluded before its writer ends it."""
    return False


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a reply is drawn. Temperature 0 is greedy; the same seed gives the same reply.

    `concluded` says of a text whether nothing that could follow would matter.
    """

    max_new_tokens: int
    temperature: float = 0.0
    seed: int = 0
    concluded: Callable[[str], bool] = never


class FrameStore(Protocol):
    """Pixels of workspace frames."""

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        """RGB arrays (height, width, 3), one a frame in the order asked, resized for the model."""
        ...


class Backend(Protocol):
    """A judge that can answer a conversation."""

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The judge's next turn. `conversation` is all that it may see; what was seen before is a cache at most."""
        ...
