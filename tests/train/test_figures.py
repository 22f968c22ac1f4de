"""Pictures of an evaluation: they are drawn, of the size said, on a light ground, and show what they are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

pytest.importorskip("matplotlib")

from train.assessment import charts
from train.assessment.assess import report
from train.assessment.compute_figures import figures
from train.assessment.outcomes import CaseOutcome
from vrt_lite.errors import UsageError
from vrt_lite.protocol.messages import KEYS

pytestmark = pytest.mark.filterwarnings("default")

GROUND = (0xF6, 0xF8, 0xFA)


def judged(right: int, of: int, *, hidden: int = 0) -> dict[str, CaseOutcome]:
    """`right` of `of` cases all right, the others wrong in VQ and OA; the first `hidden` have hidden evidence."""
    labels = dict.fromkeys(KEYS, 1)
    made: dict[str, CaseOutcome] = {}
    for i in range(of):
        good = i < right
        winners = labels if good else {**labels, "VQ": 2, "OA": 0}
        sure = 0.9 if good else 0.6
        odds = {
            key: tuple(sure if n == winner else (1 - sure) / 2 for n in range(3)) for key, winner in winners.items()
        }
        facts: dict[str, Any] = {"winners": winners, "odds": odds, "rounds": 1 + i % 2, "calls": i % 2}
        facts |= {"defects": ("blur",) if i % 3 else ("stutter", "noise"), "hidden": i < hidden, "well_formed": True}
        made[str(i)] = CaseOutcome(str(i), labels, **facts)
    return made


def opened(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        return np.asarray(picture.convert("RGB"))


def coloured(picture: NDArray[np.uint8], colour: str) -> int:
    """How many pixels have a colour."""
    rgb = np.frombuffer(bytes.fromhex(colour[1:]), np.uint8)
    return int((np.abs(picture.astype(int) - rgb).max(axis=2) < 6).sum())


def test_every_picture_is_drawn(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for stage, key in (("cold-start", "loss"), ("grpo", "reward")):
        (run / stage).mkdir(parents=True)
        rows = [{"step": i, key: 1 / (1 + i), "kl": 0.001 * i} for i in range(120)]
        (run / stage / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    one = report({"asked": judged(30, 60, hidden=20), "none": judged(20, 60, hidden=20)}, about={})
    other = report({"asked": judged(50, 60, hidden=20)}, about={})
    made = charts.draw({"cold start": one, "refine": other}, tmp_path / "out", run=run)
    assert [path.name for path in made] == ["stages.png", "views.png", "defects.png", "reliability.png", "curves.png"]
    for path in made:
        picture = opened(path)
        assert picture.shape[0] >= 300 and picture.shape[1] >= 700
        assert tuple(picture[picture.shape[0] // 2, 4]) == GROUND
        assert coloured(picture, charts.COLOURS[0]) > 50, path.name
    assert not list(tmp_path.rglob("*.part"))


def test_pictures_have_the_size_said(tmp_path: Path) -> None:
    made = figures(judged(3, 9).values())
    assert opened(charts.reliability(made, tmp_path / "a.png")).shape == (
        round(4.6 * charts.DPI),
        round(5.0 * charts.DPI),
        3,
    )


def test_better_stages_lie_higher(tmp_path: Path) -> None:
    reports = {"one": report({"asked": judged(12, 60)}, about={}), "two": report({"asked": judged(54, 60)}, about={})}
    picture = opened(charts.by_stage(reports, tmp_path / "stages.png"))
    rgb = np.frombuffer(bytes.fromhex(charts.COLOURS[0][1:]), np.uint8)
    rows, columns = np.nonzero(np.abs(picture.astype(int) - rgb).max(axis=2) < 6)
    plot = columns < 0.7 * picture.shape[1]  # the legend is at the right
    rows, columns = rows[plot], columns[plot]
    middle = (columns.min() + columns.max()) / 2
    assert rows[columns > middle].mean() < rows[columns < middle].mean() - 50


def test_what_is_missing_is_left_out(tmp_path: Path) -> None:
    nothing = report({"asked": {}, "none": judged(2, 4)}, about={})
    made = charts.draw({"cold start": nothing}, tmp_path, run=tmp_path / "no run")
    assert [path.name for path in made] == ["stages.png", "views.png"]
    assert charts.curves(tmp_path, tmp_path / "curves.png") is None
    empty = figures([])
    for draw in (charts.by_defect, charts.reliability):
        opened(draw(empty, tmp_path / "empty.png"))


def test_all_right_and_all_wrong_are_drawn(tmp_path: Path) -> None:
    for right in (0, 5):
        made = report({"asked": judged(right, 5)}, about={})
        opened(charts.by_stage({"only": made}, tmp_path / "stages.png"))
        opened(charts.reliability(made["views"]["asked"], tmp_path / "reliability.png"))


def test_a_log_with_a_gap_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(
        '{"step": 1, "loss": 2.0}\n{"step": 2}\n{"step": 3, "loss": NaN}\n{"step": 4, "lo'
    )
    path = charts.curves(tmp_path, tmp_path / "curves.png")
    assert path is not None
    opened(path)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        charts.reliability(figures(judged(1, 2).values()), tmp_path / "file" / "a.png")
