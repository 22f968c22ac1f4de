"""A process that judges with given engine settings: python tests/gpu/device_worker.py TASK-AS-JSON OUTPUTS.NPZ.

It prints what it found as JSON, and writes embeddings and logits to the file.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convert.stage_outputs import StagedBackend
from vrt_lite.api import Judge
from vrt_lite.backends.llamacpp import Lane
from vrt_lite.backends.llamacpp.decoding import Sampler
from vrt_lite.interfaces import Sampling, ignore
from vrt_lite.judge import Pair, opening
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find
from vrt_lite.protocol.messages import Conversation, FrameRef, Generated, Image, Message, Reply
from vrt_lite.settings import Settings

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WRITTEN = 6


class Noise:
    """Frames of noise, as large as those of the pair; the clips are numbered."""

    def __init__(self, *clips: int) -> None:
        self.clips = clips

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        return [self._draw(1000 * self.clips[frame.clip] + frame.index) for frame in frames]

    def _draw(self, seed: int) -> NDArray[np.uint8]:
        return np.random.default_rng(seed).integers(0, 256, (140, 252, 3), dtype=np.uint8)


class Heard(Sampler):
    """The greedy choice, and the logits that it was made from."""

    def __init__(self, banned: Sequence[int]) -> None:
        super().__init__(temperature=0.0, seed=0, banned=banned)
        self.logits: list[NDArray[np.float32]] = []

    def pick(self, logits: NDArray[np.float32]) -> int:
        self.logits.append(logits.copy())
        return super().pick(logits)


class DeviceBackend(StagedBackend):
    """The back end, and the logits of the last reply."""

    def _sampler(self, lane: Lane, sampling: Sampling) -> Sampler:
        self.heard = Heard(self._banned)
        return self.heard

    def reply_heard(self, conversation: Conversation, frames: Noise) -> tuple[Reply, NDArray[np.float32]]:
        reply = self.reply(conversation, frames, sampling=Sampling(WRITTEN), observe=ignore)
        return reply, np.stack(self.heard.logits)

    def grow(self) -> tuple[int, int]:
        """Open a larger context with the content of this one, as a longer conversation does; both sizes."""
        assert self._context
        before = self._context.size
        return before, self._open_context(self.lanes[0], before + 1024).context.size


def judge(model: str, backend: DeviceBackend) -> list[dict[str, Any]]:
    """Judge both orders in two rounds, with the window; winners and probabilities by order."""
    with Judge(model, backend=backend, settings=Settings(both_orders=True, cache=False)) as judge_:
        judgement = judge_.compare(EXAMPLES / "a.mp4", EXAMPLES / "circle.mp4", prompt="A red square moving right.")
    return [
        {
            "rounds": len(order.rounds),
            "winners": {key: found.winner for key, found in order.verdict.preferences.items()},
            "odds": {key: found.odds for key, found in order.verdict.preferences.items()},
        }
        for order in judgement.orders
    ]


def keep(backend: DeviceBackend, conversation: Conversation) -> dict[str, Any]:
    """A pair with the same first clip, and a longer conversation in a larger context: as kept, and computed anew."""
    first, _ = backend.reply_heard(conversation, Noise(1, 2))
    second, kept = backend.reply_heard(conversation, Noise(1, 3))
    backend.reset()
    fresh, anew = backend.reply_heard(conversation, Noise(1, 3))
    said = Message("assistant", (Generated(fresh.text, fresh.tokens),))
    longer = (*conversation, said, Message("user", tuple(Image(FrameRef(0, i)) for i in (4, 5, 6))))
    sizes = backend.grow()
    after, grown = backend.reply_heard(longer, Noise(1, 3))
    backend.reset()
    again, whole = backend.reply_heard(longer, Noise(1, 3))
    return {
        "encoded": [reply.usage.frames_encoded for reply in (first, second, fresh, after, again)],
        "reused": [reply.usage.tokens_reused for reply in (first, second, fresh, after, again)],
        "same tokens": [second.tokens == fresh.tokens, after.tokens == again.tokens],
        "apart": [float(np.abs(a - b).max() / np.abs(b).max()) for a, b in ((kept, anew), (grown, whole))],
        "sizes": sizes,
    }


def work(task: dict[str, Any], outputs: Path) -> dict[str, Any]:
    began = time.perf_counter()
    files = find(task["model"])
    settings = EngineSettings(**task["settings"])
    conversation = opening(Pair("A red circle moving down.", (3.0, 3.0)), files.profile)
    with DeviceBackend(files.text, files.projector, profile=files.profile, settings=settings) as backend:
        # One guessed token at a time. Each number of them has a shader, which a software device compiles for long.
        backend.guesses = 1
        orders = judge(task["model"], backend)
        kept = keep(backend, conversation) if task["keep"] else {}
        stages = backend.evaluate_stages(conversation, Noise(1, 2))
    np.savez(outputs, embeddings=stages.embeddings, logits=stages.logits)
    return {"orders": orders, "kept": kept, "seconds": time.perf_counter() - began, "processor": time.process_time()}


if __name__ == "__main__":
    print(json.dumps(work(json.loads(sys.argv[1]), Path(sys.argv[2]))))
