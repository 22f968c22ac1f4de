"""Which captions the bundled judge understands: its own kind, and none of everyday kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from vrt_lite.models import find


@pytest.mark.parametrize(("name", "count", "understood"), [("everyday.txt", 200, False), ("own_kind.txt", 50, True)])
def test_the_bundled_judge_reads_captions_of_its_own_kind_alone(name: str, count: int, understood: bool) -> None:
    lines = (Path(__file__).parent / "captions" / name).read_text("utf-8").splitlines()
    captions = {line for line in lines if not line.startswith("#")}
    assert len(captions) >= count
    assert [caption for caption in captions if find().profile.understands(caption) != understood] == []


@pytest.mark.parametrize("word", ["a", "red", "circle", "moves", "the video of", "across the scene"])
def test_a_long_caption_is_read_in_time(word: str) -> None:
    assert not find().profile.understands(f"{word} " * 8000)
