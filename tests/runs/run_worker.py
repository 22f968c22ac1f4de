"""Questions and judgements made by hand, and a process that judges all pairs of a folder by their pixels alone."""

from __future__ import annotations

import hashlib
import multiprocessing
import sys
import time
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

from judgements import FINAL, judgement, sure, with_odds

from vrt_lite.api import Judge
from vrt_lite.interfaces import FrameStore
from vrt_lite.protocol.messages import Conversation, Reply
from vrt_lite.records.judgement import Judgement
from vrt_lite.records.pairs import Question, Result
from vrt_lite.runs.judging import Task, judge_all
from vrt_lite.runs.store import Store

PROMPT = "A red square moving right."
JUDGED = judgement([sure()])


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def question(number: int = 0, *, prompt: str = "A fox runs.", judge: str = "j") -> Question:
    return Question(sha(f"first {number}"), sha(f"second {number}"), prompt, judge)


def process_context() -> Any:
    """How processes are started: on POSIX forked from one that has the imports done, to save the time."""
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["run_worker", "av", "vrt_lite.pair_frames", "vrt_lite.video"])
    return context


class ByPixels:
    """A back end whose answer is a function of the frames it is shown; one round, which takes this time at least."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def reply(self, conversation: Conversation, frames: FrameStore, **_: Any) -> Reply:
        time.sleep(self.seconds)
        shown = [frame for message in conversation for frame in message.frames]
        digest = hashlib.sha256(b"".join(picture.tobytes() for picture in frames.pixels(shown))).digest()
        first = digest[0] / 256
        odds = (0.0, first, 1 - first)
        return with_odds(FINAL.replace("OA=2", f"OA={digest[1] % 3}"), odds, odds, odds, odds)


class Logged(Judge):
    """A judge that writes a line into a file for each pair that it begins."""

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
