"""vrt-lite's side of a comparison: its llama.cpp back end, which writes given texts.

Only the choice of tokens is replaced. Everything else runs as in `vrt-lite compare`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import local

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp import LlamaCppBackend
from vrt_lite.backends.llamacpp.decoding import Sampler
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.machine import EngineSettings
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Conversation, Reply


class ForcedSampler(Sampler):
    """Picks the tokens of a text one after the other, and then the end of the turn. It ignores the logits."""

    def __init__(self, tokens: Sequence[int], end: int) -> None:
        super().__init__(temperature=0.0, seed=0, banned=())
        self._tokens = iter(tokens)
        self._end = end

    def pick(self, logits: NDArray[np.float32]) -> int:
        """Return the next token of the text."""
        return next(self._tokens, self._end)


class _Replies(local):
    texts: Iterator[str] = iter(())


class VrtLiteSide(LlamaCppBackend):
    """vrt-lite's back end, which writes the texts of `set_replies`, one for each reply of the same thread.

    `whole_seconds` is the time of all replies, and has no meaning if several threads asked for them.
    """

    def __init__(self, text: Path, projector: Path, *, profile: Profile, settings: EngineSettings) -> None:
        super().__init__(text, projector, profile=profile, settings=settings)
        self.whole_seconds = 0.0
        self._replies = _Replies()

    def __enter__(self) -> VrtLiteSide:
        return self

    def set_replies(self, texts: Sequence[str]) -> None:
        """Set the texts of the next replies."""
        self._replies.texts = iter(texts)

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """Write the next text, at the full cost of a reply."""
        began = time.perf_counter()
        reply = super().reply(conversation, frames, sampling=sampling, observe=observe)
        self.whole_seconds += time.perf_counter() - began
        return reply

    def _sampler(self, sampling: Sampling) -> Sampler:
        return ForcedSampler(
            self._model.tokens(next(self._replies.texts), special=True), self._model.control("<|im_end|>")
        )
