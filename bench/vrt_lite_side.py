"""vrt-lite's side of a comparison: its llama.cpp back end, which writes given texts.

Only the choice of tokens is replaced. Everything else runs as in `vrt-lite compare`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp import Lane, LlamaCppBackend
from vrt_lite.backends.llamacpp.decoding import Sampler
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.judge import Answer, Ask, Trial
from vrt_lite.machine import EngineSettings
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Reply
from vrt_lite.scheduler import Seats, Work


class ForcedSampler(Sampler):
    """Picks the tokens of a text one after the other, and then the end of the turn. It ignores the logits."""

    def __init__(self, tokens: Sequence[int], end: int) -> None:
        super().__init__(temperature=0.0, seed=0, banned=())
        self._tokens = iter(tokens)
        self._end = end

    def pick(self, logits: NDArray[np.float32]) -> int:
        """Return the next token of the text."""
        return next(self._tokens, self._end)


class VrtLiteSide(LlamaCppBackend):
    """vrt-lite's back end, which writes given texts. Several trials may run at once, each in a lane of its own.

    `whole_seconds` is the time of all replies, and has no meaning for trials at once.
    """

    def __init__(self, text: Path, projector: Path, *, profile: Profile, settings: EngineSettings) -> None:
        super().__init__(text, projector, profile=profile, settings=settings)
        self.whole_seconds = 0.0
        self._texts: dict[Lane, Iterator[str]] = {}
        self._seats = Seats(self.lanes)

    def __enter__(self) -> VrtLiteSide:
        return self

    def set_replies(self, texts: Sequence[str]) -> None:
        """Set the texts of the next replies of `reply`."""
        self._texts[self.lanes[0]] = iter(texts)

    def run(self, trial: Callable[[Answer], Work[Trial]], frames: FrameStore, texts: Sequence[str]) -> Work[Trial]:
        """Run a trial whose replies are these texts, each at the full cost of a reply."""
        lane = yield from self._seats.take()
        assert lane
        self._texts[lane] = iter(texts)

        def answer(ask: Ask, observe: Observe) -> Work[Reply]:
            began = time.perf_counter()
            reply = yield from self.answer(lane, ask.conversation, frames, sampling=ask.sampling, observe=observe)
            self.whole_seconds += time.perf_counter() - began
            return reply

        try:
            return (yield from trial(answer))
        finally:
            self._seats.give_back(lane)

    def _sampler(self, lane: Lane, sampling: Sampling) -> Sampler:
        text = next(self._texts[lane])
        return ForcedSampler(self._model.tokens(text, special=True), self._model.control("<|im_end|>"))
