"""The bundled heads get what their card says, on scenes that nothing was fitted on."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("lightgbm")

from train.tiny.figures_of_heads import evaluate
from train.tiny.making import load
from train.tiny.specimens import count_scenes
from vrt_lite.measures.preference import HEADS_FILE

ROOT = Path(__file__).parents[2]
CARD = (ROOT / "models" / "vrt-tiny-2.md").read_text(encoding="utf-8")
ROWS = ("light", "medium", "plain", "all", "one plainly faulty", "harmless versions")


def test_the_figures_of_the_card_are_those_of_the_bundled_heads(tmp_path: Path) -> None:
    with tarfile.open(ROOT / "train" / "tiny" / "start" / "specimens.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    specimens = load(tmp_path)
    assert {part: len({s.seed for s in specimens if s.part == part}) for part in ("train", "held", "test")} == {
        part: count_scenes(part) for part in ("train", "held", "test")
    }
    told = list[str]()
    evaluate(specimens, HEADS_FILE, say=told.append)
    for row in ROWS:
        line = next(line for line in told if re.search(rf"\b{row}: ", line))
        right, none, wrong, pairs = re.findall(r"\d+", line)
        assert f"{right} / {none} / {wrong} of {pairs} |" in CARD, line
