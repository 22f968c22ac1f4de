from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrt_lite.protocol.messages import FrameRef, evenly_spaced, from_number, sample_workspace, shown_first


def test_first_frames_of_the_published_workspace() -> None:
    assert shown_first(48, 4, 1) == tuple(FrameRef(1, index) for index in (0, 16, 31, 47))


@given(total=st.integers(1, 5000), count=st.integers(1, 300))
def test_even_spacing_is_numpys(total: int, count: int) -> None:
    expected = np.round(np.linspace(0, total - 1, count)).astype(int).tolist()
    assert list(evenly_spaced(total, count)) == expected


@given(
    total=st.integers(4, 3000),
    count=st.integers(4, 100),
    step=st.integers(1, 5000),
    start=st.integers(-(10**9), 10**9),
)
def test_constant_rate_workspace_is_even_spacing(total: int, count: int, step: int, start: int) -> None:
    ticks = [start + i * step for i in range(total)]
    assert sample_workspace(ticks, count, 4) == evenly_spaced(total, count)


def test_a_rate_that_the_time_base_rounds_is_constant() -> None:
    ticks = [round(i * 1000 / 29.97) for i in range(300)]  # milliseconds, as Matroska keeps them
    assert sample_workspace(ticks, 48, 4) == evenly_spaced(300, 48)


@given(ticks=st.lists(st.integers(0, 10**6), min_size=4, max_size=60, unique=True).map(sorted))
def test_every_position_takes_the_nearest_frame(ticks: list[int]) -> None:
    """At a constant rate even spacing by index decides, which agrees to within the rounding of one tick."""
    targets = np.linspace(ticks[0], ticks[-1], 11)
    for target, index in zip(targets, sample_workspace(ticks, 11, 4), strict=True):
        assert abs(ticks[index] - target) <= min(abs(tick - target) for tick in ticks) + 1


@pytest.mark.parametrize(("total", "shown"), [(1, [0, 0, 0, 0]), (2, [0, 1, 1, 1]), (3, [0, 1, 2, 2])])
def test_a_clip_with_fewer_frames_than_shown_repeats_its_last(total: int, shown: list[int]) -> None:
    workspace = sample_workspace([i * 40 for i in range(total)], 48, 4)
    assert [workspace[ref.index] for ref in shown_first(48, 4, 0)] == shown
    assert len(workspace) == 48 and sorted(workspace) == list(workspace)


def test_numbers_run_over_both_videos() -> None:
    refs = [from_number(number, 48) for number in range(1, 97)]
    assert refs == [FrameRef(clip, index) for clip in (0, 1) for index in range(48)]
    assert [ref.number(48) for ref in refs] == [*range(1, 97)]
    for number in (0, 97, -1):
        with pytest.raises(ValueError, match="outside 1 to 96"):
            from_number(number, 48)
