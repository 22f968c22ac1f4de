"""A pair that ends the process does not take the judgements of the other pairs with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from brightness import write_greys

from vrt_lite.runs.store import Store

WORKER = Path(__file__).with_name("dying_worker.py")
DEATHLY = 120


def test_all_other_pairs_are_judged_by_giving_the_same_command_again(tmp_path: Path) -> None:
    write_greys(tmp_path / "clips", [40, DEATHLY, 160])
    store = tmp_path / "runs.sqlite"
    paths = [str(WORKER.parent), str(WORKER.parents[1]), str(WORKER.parents[2])]
    kept: list[int] = []
    # A run dies once for each order of each pair that ends it, and then judges the others first.
    for _ in range(5):
        process = subprocess.run(
            [sys.executable, str(WORKER), str(store), str(tmp_path / "clips"), str(DEATHLY)],
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        assert process.returncode == 134
        with Store(store) as opened:
            infos = opened.runs()  # none before the first judgement
        assert len(infos) <= 1
        kept.append(sum(info.judgements for info in infos))
        assert not any(info.failures for info in infos)
    assert kept[-1] == 2  # of 6: the clip takes part in the other 4
