"""Several pairs judged at once on this machine give the ladder that they give one after the other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vrt_lite import rank

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from ladder import write_ladder

PROMPT = "A red square moving right."


def test_the_ladder_is_the_same_whatever_is_judged_at_once(tmp_path: Path) -> None:
    clips = tuple(write_ladder(tmp_path / "clips")[:3])
    strengths: list[list[float]] = []
    for jobs in (1, 3):
        made = rank(clips, prompt=PROMPT, model="vrt-tiny-0", jobs=jobs, store=tmp_path / f"{jobs}.sqlite")
        [ladder] = made.ladders
        assert (ladder.judgements, ladder.failures) == (6, 0)
        standings = sorted(ladder.standings, key=lambda standing: standing.clip)
        strengths.append([standing.ratings["OA"].strength for standing in standings])
    assert strengths[1] == pytest.approx(strengths[0], abs=0.02)
