"""A back end on this machine that goes on with less on GPUs if memory cannot be allocated."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from vrt_lite.errors import OutOfMemoryError
from vrt_lite.interfaces import Backend, FrameStore, Observe, Sampling
from vrt_lite.machine import EngineSettings
from vrt_lite.protocol.messages import Conversation, Reply


class FallbackBackend(contextlib.ExitStack):
    """A back end that is opened with the first of several settings, and with the next ones if memory runs out.

    A reply that fails so starts again: each reply gets the whole conversation. `settings` are those in force. A context
    manager. OutOfMemoryError if the last settings fail, too.
    """

    def __init__(
        self,
        open_backend: Callable[[EngineSettings], AbstractContextManager[Backend]],
        choices: Sequence[EngineSettings],
    ) -> None:
        super().__init__()
        self._open_backend = open_backend
        self._choices = list(choices)
        self._open()

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The judge's next turn."""
        while True:
            try:
                return self._backend.reply(conversation, frames, sampling=sampling, observe=observe)
            except OutOfMemoryError:
                if not self._choices:
                    raise
            self._open()

    def _open(self) -> None:
        """Close the back end, and open one with the first of the remaining settings for which there is memory."""
        self.close()
        while True:
            self.settings = self._choices.pop(0)
            try:
                self._backend = self.enter_context(self._open_backend(self.settings))
                return
            except OutOfMemoryError:
                if not self._choices:
                    raise
