"""Ranks a folder with a judge that scores each clip by its brightness, a line in a file a judgement. May be killed.

python scored_worker.py STORE FOLDER LINES
"""

from __future__ import annotations

import io
import shutil
import sys
import time
from pathlib import Path

from vrt_lite.api import Judge
from vrt_lite.errors import NoVerdictError
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.protocol.messages import Conversation, Reply
from vrt_lite.ranking.entries import read_entries
from vrt_lite.ranking.rank import rank_clips
from vrt_lite.records.ladders import Ranking
from vrt_lite.runs.store import Store
from vrt_lite.show.run_views import RankingView
from vrt_lite.show.screen import Screen

BUNDLED = Path(__file__).parents[2] / "vrt_lite" / "bundled" / "vrt-tiny-0"
PROMPT = "A grey."
HEADS = """
name = "heads"
user_prompt = "{prompt} <|VQ|> <|TA|>"
[answer]
form = "clip"
frames = 4
[answer.head.VQ]
token = "<|VQ|>"
mean = 100.0
std = 50.0
tie = 1.609
[answer.head.TA]
token = "<|TA|>"
[answer.overall]
sum = ["VQ", "TA"]
"""


class BrightnessScore:
    """Reads a clip's brightness off at VQ and 1 at TA. A clip darker than `dark` cannot be judged."""

    def __init__(self, *, lines: Path | None = None, dark: int = 0) -> None:
        self.asked: list[int] = []
        self._lines, self._dark = lines, dark

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        assert sampling.heads == {"VQ": "<|VQ|>", "TA": "<|TA|>"}
        shown = [frame for message in conversation for frame in message.frames]
        grey = round(float(frames.pixels(shown)[0].mean()) / 10) * 10
        self.asked.append(grey)
        if self._lines:
            with self._lines.open("a") as file:
                file.write(f"{grey}\n")
            time.sleep(0.02)
        if grey < self._dark:
            raise NoVerdictError("No verdict: it is too dark.")
        return Reply("", scores={"VQ": float(grey), "TA": 1.0})


def make_scorer(folder: Path, profile: str = HEADS) -> Path:
    """A folder with a model whose profile scores clips."""
    folder.mkdir(exist_ok=True)
    for file in BUNDLED.glob("*.gguf"):
        shutil.copy(file, folder)
    (folder / "profile.toml").write_text(profile)
    return folder


def rank_folder(store: Path, clips: Path, scorer: Path, backend: BrightnessScore, *, jobs: int = 1) -> Ranking:
    """Rank the clips of a folder."""
    with Store(store) as kept, Judge(scorer, backend=backend, measures=False, jobs=jobs) as judge:
        groups = read_entries([str(clips)], prompt=PROMPT)
        watcher = RankingView(Screen(io.StringIO(), quiet=True))
        return rank_clips(groups, store=kept, judge=judge, watcher=watcher, jobs=jobs)


if __name__ == "__main__":
    at, of, lines = map(Path, sys.argv[1:])
    ranking = rank_folder(at, of, make_scorer(at.with_name("scorer")), BrightnessScore(lines=lines))
    print(*ranking.ladders[0].best)
