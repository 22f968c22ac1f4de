"""Ranks a folder with the judge of brightness, which ends the process at a clip of one grey, as an engine may.

python dying_worker.py STORE FOLDER GREY
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from brightness import Brightness, judge_of, unwatched

from vrt_lite.api import Judge
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.protocol.messages import Conversation, FrameRef, Reply
from vrt_lite.ranking.entries import read_entries
from vrt_lite.ranking.rank import rank_clips
from vrt_lite.runs.store import Store


class Dying(Brightness):
    """Ends the process, without any clearing up, when one of the clips has this grey; `said` is printed before."""

    grey = 0
    said = ""

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        greys = [round(float(picture.mean())) for picture in frames.pixels([FrameRef(0, 0), FrameRef(1, 0)])]
        if self.grey in greys:
            os.write(2, self.said.encode())
            os.abort() if self.said else os._exit(134)
        return super().reply(conversation, frames, sampling=sampling, observe=observe)


def open_dying_judge(grey: int, said: str) -> Judge:
    Dying.grey, Dying.said = grey, said
    return judge_of(Dying())


def main(store: str, folder: str, grey: str) -> None:
    Dying.grey = int(grey)
    with Store(Path(store)) as opened, judge_of(Dying()) as judge:
        rank_clips(read_entries([folder], prompt="Bright."), store=opened, judge=judge, watcher=unwatched())


if __name__ == "__main__":
    main(*sys.argv[1:])
