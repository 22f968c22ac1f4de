"""States kept after a conversation's first video: how many, and how many bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.context import Context
from vrt_lite.backends.llamacpp.engine import Model
from vrt_lite.backends.llamacpp.kv_cache import MOST_STATE_BYTES, KvCache, PrefixCache
from vrt_lite.backends.llamacpp.lower import FrameBlock
from vrt_lite.interfaces import ignore
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find


def kept(prefixes: PrefixCache, names: range) -> list[int]:
    return [name for name in names if not prefixes.lacks([name])]


def test_large_states_are_bounded_by_their_bytes_but_one_pair_keeps_both() -> None:
    third, whole = np.zeros(MOST_STATE_BYTES // 3, np.uint8), np.zeros(MOST_STATE_BYTES + 1, np.uint8)
    prefixes = PrefixCache(8)
    for name in range(5):
        prefixes.add([name], third)
    assert kept(prefixes, range(5)) == [2, 3, 4]
    for name in range(5, 7):
        prefixes.add([name], whole)
    assert kept(prefixes, range(7)) == [5, 6]


def test_a_state_is_saved_when_the_first_video_is_dropped_and_copied_from_another_sequence() -> None:
    """So a single comparison keeps no state, and a clip that another sequence shows first is not read again."""
    first, second, third = (FrameBlock((name,), (0,), 2, 2) for name in "abc")
    settings = EngineSettings(gpu_layers=0, threads=1, sequences=2)
    prefixes = PrefixCache(8)
    with Model(find("vrt-tiny-0").text, settings=settings) as model, Context(model, size=256, settings=settings) as c:

        def embed(key: str) -> NDArray[np.float32]:
            return np.full((4, model.width), ord(key) / 100, np.float32)

        one, two = (KvCache(c, embed, prefixes, sequence=number) for number in (0, 1))
        one.prefill([5, first, 6, second, 7], ignore)
        one.prefill([5, first, 6, second, 8, third, 9], ignore)  # the next round
        assert prefixes.lacks([5, first])
        assert two.prefill([5, first, 6, third, 7], ignore, others=[one]) == 3
        copied = c.logits()
        assert prefixes.lacks([5, first])
        one.prefill([5, second, 6, first, 7], ignore, others=[two])
        assert not prefixes.lacks([5, first])
        assert prefixes.lacks([5, second])
        assert one.prefill([5, first, 6, third, 7], ignore) == 2  # restored
        assert np.array_equal(copied, c.logits())
        assert not prefixes.lacks([5, second])
