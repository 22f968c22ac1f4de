"""What is learned from: labelled pairs of a table with their clips, and traces that were written about them.

A pair is known by its content: the bytes of its two clips, in either order, and its prompt. So neither other names nor
another order of the columns bring a pair from one table into another.

A file of traces has a line of JSON for each pair that was asked about: {"key": …, "replies": […]}, replies null if no
trace was kept. Lines are only appended, and one that a kill cut short is dropped.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, cast, get_args

from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.disk import file_sha256
from vrt_lite.errors import NoVerdictError, UsageError, VideoError
from vrt_lite.evaluation.clips import Clips
from vrt_lite.evaluation.sets import LabelledPair, Place, locate_set, read_set
from vrt_lite.interfaces import FrameStore
from vrt_lite.judge import Pair, Trial, judge_with
from vrt_lite.pair_frames import PairFrames, workspace_of
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import KEYS, Choice, Conversation, FrameRef, Reply
from vrt_lite.video import open_clip

if TYPE_CHECKING:
    from train.recipe import Tables

TableKey = Literal["cold_start", "sample", "grpo", "test"]
TABLES: Final[tuple[TableKey, ...]] = get_args(TableKey)
"""The tables of a recipe, as keys of `data`."""


@dataclass(frozen=True, slots=True)
class TrainingCase:
    """One labelled pair. `labels` are by key (TA, VQ, MQ, OA), some of which a set may lack.

    `open` opens its frames, at the size that a profile shows them. `script` are replies to learn, if there are any.
    """

    key: str
    pair: Pair
    labels: Mapping[str, Choice]
    open: Callable[[Profile], AbstractContextManager[FrameStore]]
    script: tuple[str, ...] = ()


Cases = Sequence[TrainingCase]


@dataclass(frozen=True, slots=True)
class TablePair:
    """A row of a table whose two clips are there."""

    row: LabelledPair
    clips: tuple[Path, Path]

    @property
    def prompt(self) -> str:
        """The prompt, in which only the words count."""
        return " ".join(self.row.prompt.split())

    @property
    def content(self) -> str:
        """The digest of the prompt and of both clips in either order. Raises UsageError for a clip that is not read."""
        parts = (self.prompt, *sorted(map(_digest_clip, self.clips)))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class PairTable:
    """A table's pairs, and the reasons for the rows that are left out."""

    place: Place
    pairs: tuple[TablePair, ...]
    left_out: tuple[str, ...]


def read_table(where: Path) -> PairTable:
    """Read a table, and find its clips. Raises UsageError for a table that cannot be read, or two pairs of one name."""
    found = read_set(locate_set(where))
    place = found.place
    clips = Clips(place.folder, table=place.table, anywhere=place.layout.own)
    pairs: dict[str, TablePair] = {}
    left_out = [row.reason for row in found.left_out]
    for row in found.pairs:
        a, b = clips.find(row.a), clips.find(row.b)
        if isinstance(a, str) or isinstance(b, str):
            left_out.append(f"{row.name}: {a if isinstance(a, str) else b}")
        elif row.name in pairs:
            rows = f"rows {pairs[row.name].row.row} and {row.row}"
            raise UsageError(f"{place.table} has two pairs {row.name!r} ({rows}): give each an id of its own.")
        else:
            pairs[row.name] = TablePair(row, (a, b))
    return PairTable(place, tuple(pairs.values()), tuple(left_out))


def check_tables(data: Tables) -> None:
    """Raise UsageError if two tables of a recipe share a pair.

    Only pairs with one prompt and clips of the same sizes can be equal: no other clip is read.
    """
    tables = {name: read_table(Path(getattr(data, name))) for name in TABLES}
    alike: dict[tuple[str, ...], list[tuple[str, TablePair]]] = defaultdict(list)
    for name, table in tables.items():
        for pair in table.pairs:
            alike[pair.prompt, *sorted(str(path.stat().st_size) for path in pair.clips)].append((name, pair))
    for group in alike.values():
        first: dict[str, tuple[str, TablePair]] = {}
        for name, pair in group if len({name for name, _ in group}) > 1 else ():
            other_name, other = first.setdefault(pair.content, (name, pair))
            if other_name != name:
                one, two = (f"data.{each} ({tables[each].place.table})" for each in (other_name, name))
                raise UsageError(
                    f"{one} and {two} share a pair: {other.row.name!r} and {pair.row.name!r} have the same clips and "
                    "prompt. Remove it from one of them."
                )


@dataclass(frozen=True, slots=True)
class ClipOpener:
    """Opens the frames of two clips: a `TrainingCase.open` that can be sent to another process."""

    clips: tuple[Path, Path]

    @contextlib.contextmanager
    def __call__(self, profile: Profile) -> Generator[FrameStore]:
        """Open the frames at a profile's size, for a `with` block. Raises VideoError."""
        with open_clip(self.clips[0]) as a, open_clip(self.clips[1]) as b:
            yield PairFrames((a, b), (workspace_of(a, profile), workspace_of(b, profile)))


@dataclass(frozen=True, slots=True)
class TableCases(Sequence[TrainingCase]):
    """The cases of a table, each built when it is used, and the reason for each pair that is left out."""

    cases: tuple[TrainingCase, ...]
    left_out: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.cases)

    def __getitem__(self, index: Any) -> Any:
        return self.cases[index]


def load_cases(where: Path, traces: Path | None = None) -> TableCases:
    """Load the pairs of a table; with `traces`, only those that have a trace, which is their script.

    Every clip is opened once, to find its duration, and to find broken clips before hours of training. Raises
    UsageError for a table or traces that cannot be read, or if no pair can be used.
    """
    table = read_table(where)
    scripts = {key: replies for key, replies in read_traces(traces).items() if replies} if traces else None
    left_out = list(table.left_out)
    cases: list[TrainingCase] = []
    for pair in table.pairs:
        if scripts is not None and pair.row.name not in scripts:
            left_out.append(f"{pair.row.name} has no trace")
            continue
        try:
            cases.append(_case_of(pair, (scripts or {}).get(pair.row.name, ())))
        except VideoError as error:
            left_out.append(f"{pair.row.name}: {error}")
    if not cases:
        raise UsageError(f"{table.place.table} has no pair to learn from. The first: {(left_out or ['none'])[0]}.")
    return TableCases(tuple(cases), tuple(left_out))


def _case_of(pair: TablePair, script: tuple[str, ...]) -> TrainingCase:
    """Build the case of a pair. Raises VideoError for a clip that cannot be opened."""
    with open_clip(pair.clips[0]) as a, open_clip(pair.clips[1]) as b:
        durations = a.info.duration_seconds, b.info.duration_seconds
        sizes = (a.info.width, a.info.height), (b.info.width, b.info.height)
    labels: dict[str, Choice] = {key: cast("Choice", label) for key, label in pair.row.labels.items()}
    return TrainingCase(pair.row.name, Pair(pair.row.prompt, durations, sizes), labels, ClipOpener(pair.clips), script)


def right(marks: Mapping[str, int], labels: Mapping[str, int]) -> dict[str, bool]:
    """Return for each key with a label whether an answer names the right winner."""
    return {key: marks.get(key) == labels[key] for key in KEYS if key in labels}


def replay(case: TrainingCase, replies: Sequence[str | Reply], profile: Profile) -> tuple[list[Conversation], Trial]:
    """Replay written replies. Returns what the judge saw before each of them, and the trial.

    Turns, corrections and the memory window are those of inference, because the loop is the same. Raises UsageError if
    the replies end before the trial or reach no verdict.
    """
    script = ScriptedBackend(replies)
    try:
        return script.conversations, judge_with(case.pair, profile, script, UNSEEN)
    except NoVerdictError as error:
        raise UsageError(f"The trace of {case.key} cannot be learned: {error}") from error


class _Unseen:
    """A frame store for replays, which never read a frame."""

    def pixels(self, frames: Sequence[FrameRef]) -> NoReturn:
        raise AssertionError("a replay must not read frames")


UNSEEN = _Unseen()


def read_traces(path: Path) -> dict[str, tuple[str, ...]]:
    """Read the replies by the pair's key; () where none were kept. No file is no trace. UsageError for another file."""
    found: dict[str, tuple[str, ...]] = {}
    for number, row in enumerate(read_rows(path), start=1):
        try:
            found[str(row["key"])] = tuple(map(str, row["replies"] or ()))
        except (KeyError, TypeError) as error:
            raise UsageError(f"{path}, line {number} is not a trace: it needs key and replies ({error}).") from error
    return found


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read the lines of a file of JSON lines, but for a last one that is cut short. UsageError for one that is none."""
    lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                yield json.loads(line)
        except ValueError as error:
            if number < len(lines):
                raise UsageError(f"{path}, line {number} is not JSON ({error}).") from error


def append_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append objects as lines, after the last whole line, and flush them to the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    with path.open("a+b") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def _digest_clip(path: Path) -> str:
    try:
        return _digest_version(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise UsageError(f"Clip {path} cannot be read: {error.strerror}.") from error


@functools.lru_cache(maxsize=100_000)
def _digest_version(path: Path, _changed_ns: int) -> str:
    return file_sha256(path)
