"""Surveys of real footage, on clips synthesised here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from clips import write_clip
from numpy.typing import NDArray
from PIL import Image

pytest.importorskip("torch")

from train.tiny.footage.survey import SURVEY, SurveyedClip, load_survey, survey
from vrt_lite.errors import UsageError


def panned(seed: int, frames: int = 90, size: tuple[int, int] = (192, 108), pace: int = 3) -> list[NDArray[np.uint8]]:
    """A window that moves over a blotchy picture: motion and detail."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (60, 200, 3), dtype=np.uint8)
    picture = coarse.repeat(4, axis=0).repeat(4, axis=1)
    width, height = size
    return [np.ascontiguousarray(picture[20 : 20 + height, pace * i : pace * i + width]) for i in range(frames)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("footage")
    for split, package, seed, fps in (
        ("train", "toy", 1, 24),
        ("train", "play", 2, 12),
        ("test", "other", 3, 25),
        ("more", "late", 4, 25),
    ):
        (made / split / package).mkdir(parents=True)
        write_clip(made / split / package / f"{seed}.mp4", frames=90, fps=fps, size=(192, 108), pictures=panned(seed))
    survey(made)
    return made


def test_clips_are_listed_by_split(folder: Path) -> None:
    clips = load_survey(folder, "train")
    assert [clip.path for clip in clips] == ["train/play/2.mp4", "train/toy/1.mp4"]
    assert (clips[1].width, clips[1].height, clips[1].frames, clips[1].group) == (192, 108, 90, "train/toy")
    assert clips[1].fps == pytest.approx(24)
    assert [clip.path for clip in load_survey(folder, "test")] == ["test/other/3.mp4"]
    assert [clip.path for clip in load_survey(folder, "more")] == ["more/late/4.mp4"]
    before = (folder / SURVEY).read_bytes()
    (folder / "train" / "toy" / ".half.mp4").write_bytes(b"half written by a fetch that was killed")
    survey(folder)
    assert (folder / SURVEY).read_bytes() == before


def test_a_survey_that_says_more_is_read(folder: Path, tmp_path: Path) -> None:
    rows = [{**row, "motion": [0.0]} for row in json.loads((folder / SURVEY).read_text("utf-8"))]
    (tmp_path / SURVEY).write_text(json.dumps(rows), "utf-8")
    assert load_survey(tmp_path, "train") == load_survey(folder, "train")


def test_a_broken_clip_is_named(tmp_path: Path) -> None:
    (tmp_path / "train" / "toy").mkdir(parents=True)
    (tmp_path / "train" / "toy" / "a.mp4").write_bytes(b"no clip")
    with pytest.raises(UsageError, match=r"a\.mp4"):
        survey(tmp_path)


def test_a_photograph_is_listed(tmp_path: Path) -> None:
    place = tmp_path / "train" / "photos" / "wall.JPG"
    place.parent.mkdir(parents=True)
    Image.fromarray(panned(7, frames=1)[0]).save(place)
    [clip] = survey(tmp_path)
    assert clip == SurveyedClip("train/photos/wall.JPG", clip.sha256, 192, 108, 0.0, 1)
    assert clip.photograph
    place.write_bytes(b"no picture")
    with pytest.raises(UsageError, match=r"wall\.JPG cannot be used"):
        survey(tmp_path)
