"""The outputs of each stage of a model for a conversation, by which two implementations are compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp import LlamaCppBackend, Patches
from vrt_lite.backends.llamacpp.kv_cache import split_runs
from vrt_lite.backends.llamacpp.lower import FrameBlock
from vrt_lite.interfaces import FrameStore, ignore
from vrt_lite.protocol.messages import Conversation

FRAME = -1
"""The id in `StageOutputs.tokens` of a frame's token."""


@dataclass(frozen=True, slots=True)
class StageOutputs:
    """A conversation as evaluated, up to where the judge's next turn begins.

    `tokens` (n,) are ids, `FRAME` for a frame's; `positions` (3, n) the planes t, y, x; `embeddings` (frame
    tokens, width) what the vision tower gave, in the order shown; `logits` (text tokens, vocabulary) what
    follows each token of text.
    """

    tokens: NDArray[np.int64]
    positions: NDArray[np.int64]
    embeddings: NDArray[np.float32]
    logits: NDArray[np.float32]


class StagedBackend(LlamaCppBackend):
    """The llama.cpp back end, which can also return the outputs of its stages."""

    def evaluate_stages(self, conversation: Conversation, frames: FrameStore) -> StageOutputs:
        """Evaluate a conversation from its start. Returns the outputs of every stage."""
        patches: Patches = {}
        items = self._lower(conversation, frames, patches)
        cache = self._cache_for(self.lanes[0], items, 0)
        self._encode(patches, frames, ignore)
        cache.truncate(0)
        tokens: list[int] = []
        positions: list[NDArray[np.int32]] = [np.empty((4, 0), np.int32)]
        embeddings: list[NDArray[np.float32]] = [np.empty((0, self._model.input_width), np.float32)]
        logits: list[NDArray[np.float32]] = []
        for run in split_runs(items):
            start = cache.position
            if isinstance(run, FrameBlock):
                cache.append_block(run)
                tokens += [FRAME] * run.tokens
                positions += [run.planes(number, start) for number in range(len(run.patches))]
                embeddings += [self._vision.embeddings(key) for key in run.patches]
            else:
                logits.append(np.stack(cache.append_tokens(run)))
                tokens += run
                positions.append(np.tile(np.arange(start, start + len(run), dtype=np.int32), (4, 1)))
        planes = np.concatenate(positions, axis=1)[:3].astype(np.int64)
        return StageOutputs(np.array(tokens), planes, np.concatenate(embeddings), np.concatenate(logits))
