"""transformers' side of a comparison: the reference on the CPU, which runs the same rounds.

Each round prepares all inputs again. It runs a checkpoint folder of the measured shape (`python -m bench checkpoint`),
because it cannot read a GGUF.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from convert.reference import Reference
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.judge import Answer, Trial, answer_with
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Conversation, Reply, Usage
from vrt_lite.scheduler import Work


class TransformersSide(Reference):
    """The reference as a back end that writes given texts, in F32 or BF16, with torch's fused attention."""

    def __init__(self, folder: Path, *, profile: Profile, threads: int, dtype: str) -> None:
        super().__init__(folder, profile=profile)
        self._torch.set_num_threads(threads)
        self._model = self._model.to(getattr(self._torch, dtype))
        self._model.set_attn_implementation("sdpa")
        self.whole_seconds = self._vision_seconds = 0.0
        self._replies: Iterator[str] = iter(())
        visual = self._model.model.visual
        visual.register_forward_pre_hook(self._began)
        visual.register_forward_hook(self._ended)
        # NumPy has no BF16.
        self._model.lm_head.register_forward_hook(lambda module, arguments, logits: logits.float())

    def __enter__(self) -> TransformersSide:
        return self

    def __exit__(self, *exc: object) -> None:
        """Do nothing: the end of the process frees all memory."""

    def run(self, trial: Callable[[Answer], Work[Trial]], frames: FrameStore, texts: Sequence[str]) -> Work[Trial]:
        """Run a trial whose replies are these texts."""
        self._replies = iter(texts)
        return trial(answer_with(self, frames))

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """Write the next text, at the full cost of a reply."""
        text = next(self._replies)
        tokens = self._tokenizer.encode(text, add_special_tokens=False)
        self._vision_seconds = 0.0
        began = time.perf_counter()
        turn = self._turn(conversation, frames)
        next(turn)
        read = time.perf_counter()
        for token in tokens:
            turn.send(token)
        wrote = time.perf_counter()
        turn.close()
        self.whole_seconds += wrote - began
        usage = Usage(
            tokens_generated=len(tokens),
            frames_encoded=sum(len(message.frames) for message in conversation),
            vision_seconds=self._vision_seconds,
            prefill_seconds=read - began - self._vision_seconds,
            generate_seconds=wrote - read,
        )
        return Reply(text, tuple(tokens), usage=usage)

    def _began(self, *_: Any) -> None:
        self._at = time.perf_counter()

    def _ended(self, *_: Any) -> None:
        self._vision_seconds += time.perf_counter() - self._at
