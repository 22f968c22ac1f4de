"""Traces: what a judge wrote about a case; how it is stored and replayed.

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
from vrt_lite.judge import Trial, judge_with
from vrt_lite.protocol.messages import Conversation, Reply

if TYPE_CHECKING:
    from train.training_cases import TrainingCase
    from vrt_lite.profile import Profile
    from vrt_lite.protocol.messages import FrameRef

LOG = "log.jsonl"
"""The log in a stage's folder, with one line for each logged step."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The replies about the case with this key, round by round."""

    key: str
    replies: tuple[str, ...]


def replay(case: TrainingCase, replies: Sequence[str | Reply], profile: Profile) -> tuple[list[Conversation], Trial]:
    """Replay written replies. Returns what the judge saw before each of them, and the trial.

    Turns, corrections and the memory window are the same as in inference, because the loop is the same. Raises
    NoVerdictError if the replies end before the trial or reach no verdict.
    """
    script = ScriptedBackend(replies)
    trial = judge_with(case.pair, profile, script, UNSEEN)
    return script.conversations, trial


def read_traces(path: Path) -> list[Trace]:
    """Read all traces of a file, in order; none if there is no file. Raises UsageError for a file of another kind."""
    try:
        return [Trace(str(row["key"]), tuple(map(str, row["replies"]))) for row in read_rows(path)]
    except (KeyError, TypeError) as error:
        raise UsageError(f"Traces {path}: a line has no key and replies ({error}).") from error


def append_traces(path: Path, traces: Iterable[Trace]) -> None:
    """Append traces to a file, which is created if it is missing."""
    append_rows(path, ({"key": trace.key, "replies": list(trace.replies)} for trace in traces))


def ledger(out: Path) -> Path:
    """Return the file beside the traces that lists the sampled queries: {key, samples, well_formed, right, kept}."""
    return out.with_name(f"{out.stem}.sampled.jsonl")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines. An incomplete last line is left out. Raises UsageError for a broken line."""
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    lines = whole.split(b"\n") if whole else []
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise UsageError(f"{path}: a line is not JSON ({error}); is it a file of traces?") from error


def append_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append objects as lines, after the last complete line, and flush them to the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    with path.open("ab") as file:
        file.truncate(_whole_bytes(path))
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def keep_rows(path: Path, count: int) -> None:
    """Keep only the first `count` lines of a file of JSON lines."""
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")[:-1]
    if len(lines) > count:
        os.truncate(path, sum(len(line) + 1 for line in lines[:count]))


def _whole_bytes(path: Path) -> int:
    """Return the number of bytes up to the end of the last complete line."""
    return path.read_bytes().rfind(b"\n") + 1


class _Unseen:
    """A frame store for replays. A replay never reads a frame."""

    def pixels(self, frames: Sequence[FrameRef]) -> NoReturn:
        raise AssertionError("a replay must not read frames")


UNSEEN = _Unseen()
