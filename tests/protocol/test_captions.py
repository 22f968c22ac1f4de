"""Which captions the bundled judge understands: its own kind, and none of everyday kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from vrt_lite.models import find

HERE = Path(__file__).parent / "captions"


def captions(name: str) -> list[str]:
    lines = (HERE / name).read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


@pytest.mark.parametrize(("name", "count", "understood"), [("everyday.txt", 200, False), ("own_kind.txt", 50, True)])
def test_the_bundled_judge_reads_captions_of_its_own_kind_alone(name: str, count: int, understood: bool) -> None:
    listed = captions(name)
    assert len(set(listed)) == len(listed) >= count
    profile = find().profile
    assert [caption for caption in listed if profile.understands(caption) != understood] == []


def test_a_long_caption_is_read_in_time() -> None:
    profile = find().profile
    for word in ("a", "red", "circle", "moves", "the video of", "across the scene"):
        assert not profile.understands(f"{word} " * 8000)
