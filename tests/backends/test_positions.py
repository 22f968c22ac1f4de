"""Positions and sizes against the reference (golden files, made by tests/golden/make_positions.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vrt_lite.backends.llamacpp.lower import FrameBlock
from vrt_lite.profile import Clock
from vrt_lite.protocol.messages import smart_resize

GOLDEN = Path(__file__).parent.parent / "golden"
CASES: list[dict[str, Any]] = json.loads((GOLDEN / "positions.json").read_text("utf-8"))["cases"]
EXACT: list[dict[str, Any]] = json.loads((GOLDEN / "positions_exact.json").read_text("utf-8"))["cases"]


def positions(parts: list[list[Any]], clock: Clock) -> list[list[int]]:
    """Planes t, y, x of a sequence of parts, as the back end gives them to the engine."""
    found = [np.empty((4, 0), np.int32)]
    position = 0
    for kind, *sizes in parts:
        if kind == "text":
            found.append(np.tile(np.arange(position, position + sizes[0]), (4, 1)))
            position += sizes[0]
            continue
        patches, rows, columns, seconds = sizes if kind == "video" else (1, *sizes, 0.0)
        block = FrameBlock(tuple("k" * patches), clock.steps(patches, seconds), rows, columns)
        found += [block.planes(number, position) for number in range(patches)]
        position += block.positions
    return np.concatenate(found, axis=1)[:3].tolist()


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_positions_are_the_references(case: dict[str, Any]) -> None:
    assert positions(case["parts"], Clock("truncate", tokens_per_second=2)) == case["positions"]


@pytest.mark.parametrize("case", EXACT, ids=[case["name"] for case in EXACT])
def test_positions_of_the_exact_clock_are_those_of_transformers_5_where_the_two_agree(case: dict[str, Any]) -> None:
    """`differs` says why they cannot; such a case is kept, so that a 5.x that comes round is noticed."""
    ours = positions(case["parts"], Clock("exact", tokens_per_second=2))
    assert (ours == case["positions"]) == (not case["differs"])


def test_transformers_5_is_left_only_where_t_passes_the_grid_or_32_bits_round() -> None:
    reasons = {case["name"]: case["differs"] for case in EXACT if case["differs"]}
    assert set(reasons) == {
        "two videos on their own clocks",
        "long clip: t exceeds rows and columns",
        "very long clip after a tall one",
        "odd sizes",
        "one video, under 1 s becomes 0",
        "t passes the last column by one",
        "a step that 32 bits round up",
    }
    assert [name for name, reason in reasons.items() if "32 bits" in reason] == ["a step that 32 bits round up"]


def test_clock_rules() -> None:
    assert Clock("truncate").steps(4, 1.7) == (0, 2, 4, 6)
    assert Clock("truncate").steps(3, 0.99) == (0, 0, 0)
    assert Clock("exact").steps(4, 1.7) == (0, 3, 6, 10)
    assert Clock("fixed", seconds_per_patch=1.5).steps(3, 99.0) == (0, 3, 6)


def test_sizes_are_the_references() -> None:
    rows: list[list[int]] = json.loads((GOLDEN / "sizes.json").read_text())["rows"]
    assert len(rows) > 300
    for width, height, least, most, *expected in rows:
        assert list(smart_resize(width, height, min_pixels=least, max_pixels=most)) == expected


def test_the_bundled_judge_sees_every_16_9_clip_at_the_size_it_knows() -> None:
    for size in ((252, 140), (640, 360), (1280, 720), (1920, 1080), (3840, 2160)):
        assert smart_resize(*size, min_pixels=35280, max_pixels=35840) == (252, 140)
