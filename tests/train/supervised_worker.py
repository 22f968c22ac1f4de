"""Trains on coloured cases, to be killed or run in two processes: START RUN STEPS EVERY [MINUTES]."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import torch  # noqa: E402
from coloured import RECIPE, SUPERVISED, cases  # noqa: E402

from train.__main__ import leave_group  # noqa: E402
from train.supervised import supervise  # noqa: E402

if __name__ == "__main__":
    start, run, steps, every, *minutes = sys.argv[1:]
    torch.set_num_threads(1)
    recipe = replace(SUPERVISED, samples=4 * int(steps))
    done = supervise(
        recipe,
        cases(4 * int(steps)),
        start=Path(start),
        run=Path(run),
        recipe_all=RECIPE,
        minutes=float(minutes[0]) if minutes else None,
        every=float(every),
    )
    print("finished" if done else "leg")
    leave_group()
