"""What the text model is shown: painted faults, filmed scenes, and that a frame is always the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch")
pytest.importorskip("lightgbm")

from clips import write_clip
from test_footage import panned

from train.tiny.fault_kinds import FAULTS
from train.tiny.footage.survey import survey
from train.tiny.seen_pairs import SeenFrames, SeenPair, draw_pair
from train.tiny.spoiled_pictures import Frames
from train.tiny.text_model import PROFILE
from vrt_lite.protocol.messages import FrameRef

WORLD = [draw_pair(number, "train", None) for number in range(120)]


@pytest.fixture(scope="module")
def footage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one clip and one photograph for each part."""
    made = tmp_path_factory.mktemp("footage")
    for split, packages in (("train", range(8)), ("test", range(1))):
        for package in packages:
            place = made / split / f"p{package}"
            place.mkdir(parents=True)
            pictures = panned(package)
            write_clip(place / "a.mp4", frames=90, fps=24, size=(192, 108), pictures=pictures)
            Image.fromarray(pictures[0]).save(place / "b.png")
    survey(made)
    return made


def frames_of(pair: SeenPair, refs: Sequence[FrameRef]) -> Frames:
    return SeenFrames(pair, PROFILE).pixels(refs)


def differs(pair: SeenPair, number: int) -> list[bool]:
    """For some frames of a clip, whether the painted fault changes them."""
    refs = [FrameRef(number, index) for index in (0, 13, 30, 47)]
    clean = replace(pair, clips=(replace(pair.clips[0], painting=None), replace(pair.clips[1], painting=None)))
    return [not np.array_equal(a, b) for a, b in zip(frames_of(pair, refs), frames_of(clean, refs), strict=True)]


def test_half_of_the_worlds_pairs_have_a_painted_fault() -> None:
    painted = [[clip.painting for clip in pair.clips if clip.painting] for pair in WORLD]
    assert all(len(each) < 2 for each in painted)
    assert 0.35 < np.mean([len(each) for each in painted]) < 0.65
    names = {FAULTS[each.kind].name for found in painted for each in found}
    assert len(names) > 8
    assert not names & {"colour", "jumps"}, "a colour and a way can be told"


def test_a_painted_fault_changes_its_clip_alone() -> None:
    painted = [pair for pair in WORLD if pair.clips[0].painting][:3]
    assert all(any(differs(pair, 0)) for pair in painted)
    assert not any(any(differs(pair, 1)) for pair in painted)


def test_a_frame_is_the_same_whatever_else_is_asked_for() -> None:
    pair = next(pair for pair in WORLD if pair.clips[1].painting)
    refs = [FrameRef(0, 2), FrameRef(1, 31), FrameRef(1, 0)]
    for ref, together in zip(refs[:2], frames_of(pair, refs), strict=False):
        assert np.array_equal(together, frames_of(pair, [ref])[0])


def test_every_fourth_pair_is_filmed(footage: Path) -> None:
    pairs = [draw_pair(number, "train", footage) for number in range(48)]
    filmed = pairs[::4]
    assert {clip.name for pair in filmed for clip in pair.clips} <= {
        "a photo",
        "real footage",
        "a drawing",
        "an animation",
    }
    assert len({pair.clips[0].name for pair in filmed}) >= 3
    assert all(pair.caption_looks is None for pair in filmed)
    assert all(one.caption == other.caption for one, other in zip(pairs[1::4], WORLD[1:48:4], strict=True))
    for pair in filmed[:3]:
        refs = [FrameRef(number, index) for number in (0, 1) for index in (3, 20, 47)]
        shown = frames_of(pair, refs)
        assert all(np.array_equal(a, b) for a, b in zip(shown, frames_of(pair, refs), strict=True))
        assert any(not np.array_equal(a, b) for a, b in zip(shown[:3], shown[3:], strict=True))
