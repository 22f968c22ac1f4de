"""The bundled judge ranks one world's clean clip and its five worse ones; killed again and again, it goes on."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from examples.ladder import PROMPT, STEPS, write_ladder
from vrt_lite.runs.judged import Result
from vrt_lite.runs.store import Store

WORKER = Path(__file__).parent / "killed_worker.py"
KILLS = 30
BEST_FIRST = [f"{name}.mp4" for name in STEPS]


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ladder")
    write_ladder(folder)
    return folder


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
            names = {clip["sha256"]: clip["name"] for clip in about.get("clips", [])}
            results = list(store.run(run.name).results())
            found |= {(names[result.first], names[result.second]): result for result in results}
            assert len({result.key for result in results}) == len(results)
        return found


def said(results: dict[tuple[str, str], Result]) -> Iterator[tuple[object, ...]]:
    yield from sorted(
        (pair, sorted(r.winners.items()), sorted(r.odds.items()), r.source) for pair, r in results.items()
    )


def live_and_die(folder: Path, ladder: Path, *, lines: Path, seconds: float | None) -> list[str] | None:
    """One life, killed after so many seconds: None; or, if it came to its end, the names it printed, best first."""
    process = start(folder, ladder, lines)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    ended = process.poll() is not None
    process.kill()
    out, _ = process.communicate()
    assert not ended or process.returncode == 0
    return out.split() if ended else None


def test_killed_at_thirty_moments_it_comes_to_the_same_judgements(ladder: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    names = live_and_die(whole, ladder, lines=whole / "lines", seconds=None)
    assert names
    assert (names[0], names[-1]) == (BEST_FIRST[0], BEST_FIRST[-1]), "the clean clip is first"
    once = stored(whole)
    assert len(once) == len((whole / "lines").read_text().splitlines()) == 30

    chance, kills, lives = random.Random(0), 0, 0
    while kills < KILLS:  # on a quick machine a run may end before it was killed so often; then another is
        killed = tmp_path / f"killed{lives}"
        killed.mkdir()
        ended = None
        while ended is None:
            before = stored(killed)
            lines = killed / f"lines{lives}"
            seconds = chance.uniform(0.05, 1.5) if kills < KILLS else None
            ended = live_and_die(killed, ladder, lines=lines, seconds=seconds)
            # Nothing that was stored when this process began was judged by it.
            ran = lines.read_text().splitlines() if lines.exists() else []
            assert not {f"{one} {two}" for one, two in before} & set(ran)
            kills += ended is None
            lives += 1
        assert ended == names
        assert list(said(stored(killed))) == list(said(once))
