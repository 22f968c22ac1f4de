"""Patches at one temporal position, as clips of under two seconds have: read in batches, and exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.context import Context
from vrt_lite.backends.llamacpp.engine import Model, llama
from vrt_lite.backends.llamacpp.kv_cache import KvCache, PrefixCache
from vrt_lite.backends.llamacpp.lower import FrameBlock
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find

ROWS, COLUMNS, PATCHES = 3, 4, 3
TOKENS = ROWS * COLUMNS
Layout = tuple[int, ...]
REPEATED: tuple[Layout, ...] = ((0, 0, 0), (0, 0, 1), (0, 1, 1))


class Counting(Context):
    """A context that counts its evaluations."""

    evaluated = 0

    def _decode(self, batch: Any) -> None:
        self.evaluated += 1
        super()._decode(batch)


class InBatchesOfOne(Context):
    """Patches token by token, so that every kernel is the one for a single token."""

    def _feed_embeddings(self, embeddings: NDArray[np.float32], positions: NDArray[np.int32], sequence: int) -> None:
        for i in range(len(embeddings)):
            super()._feed_embeddings(embeddings[i : i + 1], positions[:, i : i + 1], sequence)


class InOrder(Context):
    """The definition: a token with the mask off sees what was before it, whatever its position."""

    def feed_patch(self, embeddings: NDArray[np.float32], positions: NDArray[np.int32], *, sequence: int = 0) -> None:
        llama.llama_set_causal_attn(self.pointer, False)
        for i in range(len(embeddings)):
            self._feed_embeddings(embeddings[i : i + 1], positions[:, i : i + 1], sequence)
        llama.llama_set_causal_attn(self.pointer, True)

    feed_patch_in_order = feed_patch


class MaskedByPosition(Context):
    """What the engine does if it is told nothing."""

    def feed_patch_in_order(
        self, embeddings: NDArray[np.float32], positions: NDArray[np.int32], *, sequence: int = 0
    ) -> None:
        self.feed_patch(embeddings, positions, sequence=sequence)


def embeddings_of(name: str, width: int) -> NDArray[np.float32]:
    drawn = np.random.default_rng(list(name.encode())).standard_normal((TOKENS, width))
    return (drawn / 2).astype(np.float32)


def read(kind: type[Context], layout: Layout, *, model: str = "vrt-tiny-0", **settings: Any) -> NDArray[np.float32]:
    """The logits behind two videos in each sequence; the second is read, dropped, and read again behind other text."""
    engine = EngineSettings(gpu_layers=0, threads=1, **settings)
    found: list[NDArray[np.float32]] = []
    with Model(find(model).text, settings=engine) as opened, kind(opened, size=512, settings=engine) as context:
        for number in range(engine.sequences):
            cache = KvCache(context, lambda key: embeddings_of(key, opened.width), PrefixCache(0), sequence=number)
            cache.append_tokens([5, 6, 7 + number])
            cache.append_block(block(f"a{number}", layout))
            cache.append_tokens([8])
            kept = len(cache.items)
            for text in ([9, 10], [11]):
                cache.truncate(kept)
                cache.append_tokens(text)
                cache.append_block(block("b", layout))
                found += cache.append_tokens([12, 13, 14])
        if isinstance(context, Counting):
            texts = 6 * engine.sequences
            assert context.evaluated == texts + 3 * PATCHES * engine.sequences, "one for each patch"
    return np.stack(found)


def block(name: str, layout: Layout) -> FrameBlock:
    return FrameBlock(tuple(f"{name} {i}" for i in range(PATCHES)), layout, ROWS, COLUMNS)


CASES: tuple[tuple[Layout, dict[str, Any]], ...] = (
    *((layout, {}) for layout in REPEATED),
    ((0, 0, 1), {"model": "vrt-tiny-2"}),
    ((0, 0, 1), {"exact": True}),
    ((0, 0, 1), {"kv_type": "q8_0"}),
    ((0, 0, 1), {"sequences": 3}),
)


@pytest.mark.parametrize(("layout", "settings"), CASES, ids=str)
def test_the_tokens_of_repeated_positions_see_what_was_before_them_to_the_last_bit(
    layout: Layout, settings: dict[str, Any]
) -> None:
    one_by_one, by_definition, masked = (
        read(kind, layout, **settings) for kind in (InBatchesOfOne, InOrder, MaskedByPosition)
    )
    assert np.array_equal(one_by_one, by_definition)
    assert not np.allclose(masked, by_definition, rtol=1e-4, atol=1e-4), "the order does matter"


@pytest.mark.parametrize(("layout", "settings"), [((0, 1, 2), {}), *CASES], ids=str)
def test_a_patch_is_one_evaluation_and_rounds_as_any_other(layout: Layout, settings: dict[str, Any]) -> None:
    batched, single = (read(kind, layout, **settings) for kind in (Counting, InBatchesOfOne))
    assert np.linalg.norm(batched - single) < 0.01 * np.linalg.norm(single)
