"""This project's side of a comparison: its own back end, made to write a given text.

The one seam is where tokens are drawn; all else is what `vrt-lite compare` runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp import LlamaCppBackend
from vrt_lite.backends.llamacpp.sampling import Sampler
from vrt_lite.backends.settings import EngineSettings
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Conversation, Reply


class Scripted(Sampler):
    """Picks the tokens of a text one after the other, then the one that ends the turn, whatever the logits are."""

    def __init__(self, tokens: Sequence[int], end: int) -> None:
        super().__init__(temperature=0.0, seed=0, banned=())
        self._tokens = iter(tokens)
        self._end = end

    def pick(self, logits: NDArray[np.float32]) -> int:
        """The next token of the text."""
        return next(self._tokens, self._end)


class Ours(LlamaCppBackend):
    """A back end that writes what `say` was given, a text a reply; `whole_seconds` is what its replies took."""

    def __init__(self, text: Path, projector: Path, *, profile: Profile, settings: EngineSettings) -> None:
        super().__init__(text, projector, profile=profile, settings=settings)
        self.whole_seconds = 0.0
        self._said: Iterator[str] = iter(())

    def __enter__(self) -> Ours:
        return self

    def say(self, texts: Sequence[str]) -> None:
        """What the next replies will be."""
        self._said = iter(texts)

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The next text, at the cost of writing it."""
        began = time.perf_counter()
        reply = super().reply(conversation, frames, sampling=sampling, observe=observe)
        self.whole_seconds += time.perf_counter() - began
        return reply

    def _sampler(self, sampling: Sampling) -> Sampler:
        return Scripted(self._model.tokens(next(self._said), special=True), self._model.control("<|im_end|>"))
