"""The interface of the places where a model can run, so that `Judge` works with any of them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from vrt_lite.errors import Warned
from vrt_lite.interfaces import Backend, FrameStore, Observe, Stopwatch
from vrt_lite.judgement import EngineUsed, ModelUsed, ServerUsed
from vrt_lite.models import ModelFiles
from vrt_lite.profile import Profile


@dataclass(frozen=True, slots=True)
class Used:
    """What judged, for the record."""

    model: ModelUsed
    backend: ServerUsed | None = None
    engine: EngineUsed | None = None


class Mode(Protocol):
    """Where the model runs. `own` is the checkpoint's profile, `profile` the one in force; `files` are the model's."""

    own: Profile
    profile: Profile
    files: ModelFiles | None

    def key(self) -> dict[str, str]:
        """What identifies the model in the key of a stored judgement. Loads no model."""
        ...

    def prepare(self) -> None:
        """Start in the background what is needed before frames can be shown."""
        ...

    def plan(self) -> Profile:
        """The profile that fits the machine; it may show smaller frames. Raises OutOfMemoryError."""
        ...

    def open(self, frames: FrameStore, observe: Observe, watch: Stopwatch) -> Backend:
        """The back end, opened once."""
        ...

    def turn(self) -> AbstractContextManager[object]:
        """Wait, in its context, until one more comparison may use the back end."""
        ...

    def used(self) -> Used:
        """What judged. This sends no request to a server."""
        ...

    def notes(self) -> tuple[Warned, ...]:
        """What a reader of a verdict must know about how the model ran."""
        ...

    def connect(self, observe: Observe) -> None:
        """Ask a server what it serves, if its key depends on that."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...
