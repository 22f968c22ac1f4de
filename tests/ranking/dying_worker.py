"""Ranks a folder with the judge of brightness, which ends the process at a clip of one grey, as an engine may.

python dying_worker.py STORE FOLDER GREY
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from brightness import Brightness, judge_of, unwatched

from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.protocol.messages import Conversation, FrameRef, Reply
from vrt_lite.ranking.entries import read_entries
from vrt_lite.ranking.rank import rank_clips
from vrt_lite.runs.store import Store


class Dying(Brightness):
    """Ends the process, without any clearing up, when one of the clips is of `grey`; `said` is printed before."""

    def __init__(self, grey: int, said: str = "") -> None:
        super().__init__()
        self._grey = grey
        self._said = said

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        greys = [round(float(picture.mean())) for picture in frames.pixels([FrameRef(0, 0), FrameRef(1, 0)])]
        if self._grey in greys:
            os.write(2, self._said.encode())
            os.abort() if self._said else os._exit(134)
        return super().reply(conversation, frames, sampling=sampling, observe=observe)


def main(store: str, folder: str, grey: str) -> None:
    with Store(Path(store)) as opened, judge_of(Dying(int(grey))) as judge:
        rank_clips(read_entries([folder], prompt="Bright."), store=opened, judge=judge, watcher=unwatched())


if __name__ == "__main__":
    main(*sys.argv[1:])
