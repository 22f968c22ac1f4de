"""A process that judges every ordered pair of a folder's clips into a store. What it judges depends on pixels alone.

    python run_worker.py STORE FOLDER LOG [SECONDS]

LOG gets a line for every pair that a judge begins. SECONDS is how long a judgement takes at least.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

from judgements import FINAL, with_odds

from vrt_lite.api import Judge
from vrt_lite.interfaces import FrameStore, Observe, Sampling, Wrote
from vrt_lite.protocol.messages import Conversation, Reply
from vrt_lite.records.judgement import Judgement
from vrt_lite.records.pairs import Result
from vrt_lite.runs.judging import Task, judge_all
from vrt_lite.runs.store import Store

PROMPT = "A red square moving right."


class ByPixels:
    """A back end whose answer is a function of the frames it is shown; one round."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        shown = [frame for message in conversation for frame in message.frames]
        digest = hashlib.sha256(b"".join(picture.tobytes() for picture in frames.pixels(shown))).digest()
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            observe(Wrote("."))
            time.sleep(0.01)
        tie, one, two = (1 + byte for byte in digest[:3])
        odds = (tie / (tie + one + two), one / (tie + one + two), two / (tie + one + two))
        text = FINAL.replace("OA=2", f"OA={digest[3] % 3}")
        return with_odds(text, odds, odds, odds, odds)


class Logged(Judge):
    """A judge that writes down what it begins."""

    def __init__(self, log: Path, seconds: float = 0.0) -> None:
        super().__init__(backend=ByPixels(seconds))
        self.log = log

    def compare(self, a: str | Path, b: str | Path, **options: object) -> Judgement:  # type: ignore[override]
        with self.log.open("a") as file:
            file.write(f"{Path(a).name} {Path(b).name}\n")
        return super().compare(a, b, **options)  # type: ignore[arg-type]


def pairs(folder: Path) -> Iterator[Task]:
    for first, second in permutations(sorted(folder.glob("*.mp4")), 2):
        yield Task(first, second, PROMPT, label=f"{first.name} {second.name}")


def work(store_path: Path, folder: Path, log: Path, seconds: float = 0.0, name: str = "run") -> dict[str, bool]:
    """Judge them all; by label, whether it was judged now."""
    told: dict[str, bool] = {}

    def done(task: Task, result: Result, now: bool) -> None:
        assert task.label not in told
        told[task.label] = now

    with Store(store_path) as store, Logged(log, seconds) as judge:
        run = store.begin(name, kind="rank", about={"prompt": PROMPT})
        judge_all(pairs(folder), run, store=store, judge=judge, done=done)
    return told


def main() -> None:
    store, folder, log = map(Path, sys.argv[1:4])
    work(store, folder, log, float(sys.argv[4]) if len(sys.argv) > 4 else 0.0)


if __name__ == "__main__":
    main()
