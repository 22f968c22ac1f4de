"""Ranks a folder in a process that may end at any moment: by a kill, or at a clip of one grey, as by an engine.

python rank_worker.py JUDGE STORE FOLDER LINES
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from brightness import Brightness, read_greys, unwatched
from scored_worker import BrightnessScore, make_scorer

from examples.ladder import PROMPT
from vrt_lite.api import Judge
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.protocol.messages import Conversation, Reply
from vrt_lite.ranking.entries import read_entries
from vrt_lite.ranking.rank import rank_clips
from vrt_lite.ranking.rank_run import Effort
from vrt_lite.records.judgement import Judgement
from vrt_lite.runs.store import Store

FATAL = 120


class Dying(Brightness):
    """Ends the process, without any clearing up, when one of the clips is of `FATAL`; `said` is printed before."""

    def __init__(self, said: str = "") -> None:
        super().__init__()
        self._said = said

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        if FATAL in map(round, read_greys(frames)):
            os.write(2, self._said.encode())
            os.abort() if self._said else os._exit(134)
        return super().reply(conversation, frames, sampling=sampling, observe=observe)


class Traced(Judge):
    """Says in a file which clips it judges, before it does."""

    lines: Path

    def compare(self, a: str | Path, b: str | Path, **options: Any) -> Judgement:
        with self.lines.open("a", encoding="utf-8") as file:
            file.write(f"{Path(a).name} {Path(b).name}\n")
        return super().compare(a, b, **options)


JUDGES: dict[str, Callable[[Path], Traced]] = {
    "bundled": lambda _: Traced("vrt-tiny-2"),
    "scores": lambda folder: Traced(make_scorer(folder / "scorer"), backend=BrightnessScore(), measures=False),
    "dying": lambda _: Traced(backend=Dying()),
}


def main(judge: str, store: str, folder: str, lines: str) -> list[str]:
    """The names of the clips, best first."""
    Traced.lines = Path(lines)
    with Store(Path(store)) as opened, JUDGES[judge](Path(store).parent) as made:
        groups, effort = read_entries([folder], prompt=PROMPT), Effort(both_orders=False)
        ranking = rank_clips(groups, store=opened, judge=made, watcher=unwatched(), effort=effort)
    return [clip.name for clip in ranking.ladders[0].ranked]


if __name__ == "__main__":
    print(*main(*sys.argv[1:]))
