"""States kept after a conversation's first video: how many, and how many bytes."""

from __future__ import annotations

import numpy as np

from vrt_lite.backends.llamacpp.kv_cache import MOST_STATE_BYTES, PrefixCache


def kept(prefixes: PrefixCache, names: range) -> list[int]:
    return [name for name in names if not prefixes.lacks([name])]


def test_the_least_recently_used_leave_first() -> None:
    prefixes = PrefixCache(3)
    for name in range(3):
        prefixes.add([name], np.zeros(8, np.uint8))
    assert prefixes.find_longest([0, 99]) is not None  # used again
    prefixes.add([3], np.zeros(8, np.uint8))
    assert kept(prefixes, range(4)) == [0, 2, 3]


def test_large_states_are_bounded_by_their_bytes_but_one_pair_keeps_both() -> None:
    third, whole = np.zeros(MOST_STATE_BYTES // 3, np.uint8), np.zeros(MOST_STATE_BYTES + 1, np.uint8)
    prefixes = PrefixCache(8)
    for name in range(5):
        prefixes.add([name], third)
    assert kept(prefixes, range(5)) == [2, 3, 4]
    for name in range(5, 7):
        prefixes.add([name], whole)
    assert kept(prefixes, range(7)) == [5, 6]
