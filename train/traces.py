"""Traces: what a judge wrote about a case, on disk and played again. Knows no torch, no pictures and no rewards.

A file of traces is JSON lines that are only ever appended; a line that a kill cut short is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.errors import UsageError
from vrt_lite.judge import Trial, judge
from vrt_lite.protocol.messages import Conversation, Reply

if TYPE_CHECKING:
    from train.cases import Case
    from vrt_lite.profile import Profile
    from vrt_lite.protocol.frames import FrameRef

LOG = "log.jsonl"
"""What a stage logs, a line a logged step, in the stage's folder."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What was written about the case of this key, round by round."""

    key: str
    replies: tuple[str, ...]


def replay(case: Case, replies: Sequence[str | Reply], profile: Profile) -> tuple[list[Conversation], Trial]:
    """What the judge saw before each of these replies, and the trial that they make.

    Turns, corrections and the memory window are inference's own, for it is the same loop. NoVerdictError if the
    replies end before the trial does, or reach no verdict.
    """
    script = ScriptedBackend(replies)
    trial = judge(case.pair, profile, script, UNSEEN)
    return script.conversations, trial


def read_traces(path: Path) -> list[Trace]:
    """All traces of a file, in the order written; none if there is no file. UsageError for a file of another kind."""
    try:
        return [Trace(str(row["key"]), tuple(map(str, row["replies"]))) for row in read_rows(path)]
    except (KeyError, TypeError) as error:
        raise UsageError(f"Traces {path}: a line has no key and replies ({error}).") from error


def append_traces(path: Path, traces: Iterable[Trace]) -> None:
    """Add traces behind those of the file, which is made if it is missing."""
    append_rows(path, ({"key": trace.key, "replies": list(trace.replies)} for trace in traces))


def ledger(out: Path) -> Path:
    """The file beside the traces that tells which queries have been sampled: {key, samples, well_formed, right}."""
    return out.with_name(f"{out.stem}.sampled.jsonl")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines; a last line without its end is left out. UsageError for a broken one."""
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    lines = whole.split(b"\n") if whole else []
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise UsageError(f"{path}: a line is not JSON ({error}); is it a file of traces?") from error


def append_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add objects as lines, behind the last line that is whole; on the disk when it returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    with path.open("ab") as file:
        file.truncate(_whole(path))
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def keep_rows(path: Path, count: int) -> None:
    """Drop all but the first `count` lines of a file of JSON lines, if it has more."""
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")[:-1]
    if len(lines) > count:
        os.truncate(path, sum(len(line) + 1 for line in lines[:count]))


def _whole(path: Path) -> int:
    """Bytes up to the end of the last line that is whole."""
    return path.read_bytes().rfind(b"\n") + 1


class _Unseen:
    """Frames that nobody looks at: a script needs none."""

    def pixels(self, frames: Sequence[FrameRef]) -> NoReturn:
        raise AssertionError("a replayed trace looks at no frames")


UNSEEN = _Unseen()
