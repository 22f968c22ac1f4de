"""The default judge ranks a clean clip and worse ones; killed again and again, it goes on."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.ladder import PROMPT, STEPS, write_ladder
from vrt_lite.records.pairs import Result
from vrt_lite.run_api import rank
from vrt_lite.runs.store import Store

WORKER = Path(__file__).parent / "killed_worker.py"
BEST_FIRST = [f"{name}.mp4" for name in STEPS]


def start(folder: Path, ladder: Path, lines: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKER), str(folder / "runs.sqlite"), str(ladder), PROMPT, str(lines)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def stored(folder: Path) -> dict[tuple[str, str], Result]:
    """What the store holds, by the names of the clips."""
    if not (folder / "runs.sqlite").exists():
        return {}
    with Store(folder / "runs.sqlite") as store:
        found: dict[tuple[str, str], Result] = {}
        for run in store.runs():
            about: Any = run.about
            names = {clip["sha256"]: clip["name"] for group in about["groups"] for clip in group["clips"]}
            results = list(store.run(run.name).results())
            found |= {(names[result.first], names[result.second]): result for result in results}
            assert len({result.key for result in results}) == len(results)
        return found


def said(results: dict[tuple[str, str], Result]) -> Iterator[tuple[object, ...]]:
    yield from sorted(
        (pair, sorted(r.winners.items()), sorted(r.odds.items()), r.source) for pair, r in results.items()
    )


def pairs_begun(lines: Path) -> list[str]:
    return lines.read_text().splitlines() if lines.exists() else []


def run_and_kill(folder: Path, ladder: Path, *, lines: Path, after: float = math.inf) -> list[str] | None:
    """A process, killed once it has begun so many pairs: None; or, if it ended before, the names it printed."""
    process = start(folder, ladder, lines)
    while process.poll() is None and len(pairs_begun(lines)) < after:
        time.sleep(0.005)
    ended = process.poll() is not None
    process.kill()
    out, _ = process.communicate()
    assert not ended or process.returncode == 0
    return out.split() if ended else None


def test_the_default_judge_ranks_the_ladder(tmp_path: Path) -> None:
    write_ladder(tmp_path / "ladder")
    ranking = rank(tmp_path / "ladder", prompt=PROMPT, store=tmp_path / "runs.sqlite")
    [ladder] = ranking.ladders
    assert [clip.path.name for clip in ladder.ranked] == BEST_FIRST
    assert [standing.won for standing in ladder.standings] == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(("kills", "left_out"), [(5, 2), pytest.param(30, 0, marks=pytest.mark.nightly)])
def test_killed_again_and_again_it_comes_to_the_same_judgements(tmp_path: Path, kills: int, left_out: int) -> None:
    ladder, whole = tmp_path / "ladder", tmp_path / "whole"
    clips = write_ladder(ladder)
    for clip in clips[1 : 1 + left_out]:
        clip.unlink()
    count = len(clips) - left_out
    whole.mkdir()
    names = run_and_kill(whole, ladder, lines=whole / "lines")
    assert names
    assert (names[0], names[-1]) == (BEST_FIRST[0], BEST_FIRST[-1]), "the clean clip is first"
    once = stored(whole)
    assert len(once) == len(pairs_begun(whole / "lines")) == count * (count - 1)

    chance, killed, runs = random.Random(0), 0, 0
    while killed < kills:  # a run may end before it was killed so often; then another is
        folder = tmp_path / f"run{runs}"
        folder.mkdir()
        ended = None
        while ended is None:
            before = stored(folder)
            lines = folder / f"lines{runs}"
            after = chance.randrange(count) if killed < kills else math.inf
            ended = run_and_kill(folder, ladder, lines=lines, after=after)
            # Nothing that was stored when this process began was judged by it.
            assert not {f"{one} {two}" for one, two in before} & set(pairs_begun(lines))
            killed += ended is None
            runs += 1
        assert ended == names
        assert list(said(stored(folder))) == list(said(once))
