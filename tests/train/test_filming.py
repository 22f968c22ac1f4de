"""Which footage a scene shows, by its seed and part."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("scipy")

from train.tiny.filming import Part, draw_spec
from train.tiny.footage.survey import SURVEY, SurveyedClip
from vrt_lite.errors import UsageError


def list_footage(folder: Path, *splits: str) -> Path:
    """A survey of photographs and films that are not there."""
    kinds = (("jpg", 0.0, 1), ("mp4", 24.0, 90))
    rows = [
        SurveyedClip(f"{split}/package{n}/a.{suffix}", "0", 1280, 720, fps, frames)
        for split in splits
        for n in range(40)
        for suffix, fps, frames in kinds
    ]
    folder.mkdir()
    (folder / SURVEY).write_text(json.dumps([asdict(row) for row in rows]), "utf-8")
    return folder


def test_only_later_scenes_of_training_show_the_later_footage(tmp_path: Path) -> None:
    before = list_footage(tmp_path / "before", "train", "test")
    after = list_footage(tmp_path / "after", "more", "train", "test")
    seeds: dict[Part, Iterable[int]] = {"train": (*range(40), *range(1520, 1560)), "held": (7, 1700), "test": (7, 1700)}
    for part, of_part in seeds.items():
        for seed in of_part:
            assert draw_spec(seed, part, after) == draw_spec(seed, part, before)
    later = [draw_spec(seed, "train", after) for seed in range(1560, 1960)]
    assert {spec.source.path.split("/")[0] for spec in later if spec.source} == {"more"}
    shares = {kind: count / len(later) for kind, count in Counter(spec.kind for spec in later).items()}
    wanted = {"photograph": 0.5, "footage": 0.12, "animation": 0.26, "picture": 0.12}
    assert shares == pytest.approx(wanted, abs=0.06)
    with pytest.raises(UsageError, match="no footage of the split more"):
        draw_spec(1560, "train", before)
