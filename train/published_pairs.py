"""Labelled pairs of real files as cases: any set that `vrt-lite eval` reads, with written traces if there are any.

vrt-lite's own readers read tables and clips. A clip is opened together with its case.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, cast

from train.exchanged_replies import exchange_replies
from train.pair_tables import Part, TablePair, choose_part, read_table
from train.training_cases import Exchanged, LazyCases, TrainingCase
from vrt_lite.errors import UsageError, VideoError
from vrt_lite.evaluation.sets import choose_pairs
from vrt_lite.interfaces import FrameStore
from vrt_lite.judge import Pair
from vrt_lite.pair_frames import PairFrames, workspace_of
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Choice
from vrt_lite.video import open_clip

_MIRRORED: Final[Mapping[int, Choice]] = {0: 0, 1: 2, 2: 1}


@dataclass(frozen=True, slots=True)
class Traces:
    """The written replies by the names of their pairs, for clips in the table's order and in the other order."""

    given: Mapping[str, tuple[str, ...]]
    swapped: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class OpenedPair:
    """A pair whose clips can be opened. Durations are in seconds; sizes are (width, height) in pixels."""

    pair: TablePair
    durations: tuple[float, float]
    sizes: tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class PublishedPairs(LazyCases):
    """The pairs of a table that have both clips. `left_out` has the reason for each other pair.

    A clip has `workspace` frames in the judge's numbering.
    """

    pairs: tuple[OpenedPair, ...]
    traces: Traces
    left_out: tuple[str, ...]
    workspace: int

    def __len__(self) -> int:
        return len(self.pairs)

    def make(self, place: int) -> TrainingCase:
        """Build the case of a pair."""
        opened = self.pairs[place]
        row, clips = opened.pair.row, opened.pair.clips

        @contextlib.contextmanager
        def frames(profile: Profile) -> Generator[FrameStore]:
            with open_clip(clips[0]) as a, open_clip(clips[1]) as b:
                yield PairFrames((a, b), (workspace_of(a, profile), workspace_of(b, profile)))

        labels: dict[str, Choice] = {key: cast("Choice", label) for key, label in row.labels.items()}
        return TrainingCase(
            row.name,
            Pair(row.prompt, opened.durations, opened.sizes),
            labels,
            frames,
            script=self.traces.given.get(row.name, ()),
            exchanged=partial(self._exchange, place),
        )

    def _exchange(self, place: int) -> TrainingCase:
        """Build a case with the clips in the other order. Its script is the trace written for that order, if any."""
        case = self.make(place)

        @contextlib.contextmanager
        def frames(profile: Profile) -> Generator[FrameStore]:
            with case.open(profile) as shown:
                yield Exchanged(shown)

        written = self.traces.swapped.get(case.key)
        return replace(
            case,
            pair=case.pair.swapped(),
            labels={key: _MIRRORED[label] for key, label in case.labels.items()},
            open=frames,
            script=written or exchange_replies(case.script, self.workspace),
            exchanged=partial(self.make, place),
        )


def load_published_pairs(
    where: Path, traces: Path | None = None, *, workspace: int = 48, part: Part | None = None, most: int | None = None
) -> PublishedPairs:
    """Load the set at `where`; with `traces` (JSON lines of key and replies), only the pairs that have a trace.

    With `part` only these test pairs, whose names then have the beginning of their content's digest, so that outcomes
    of another pair are never taken for theirs. At most `most` pairs, drawn at random: a larger number has the smaller
    one's pairs. Every clip is opened once, to find its duration, and to find broken clips before hours of training.
    Raises UsageError for a set or traces that cannot be read, or if no pair can be used.
    """
    table = read_table(where)
    written = _read_traces(traces) if traces else Traces({}, {})
    left_out = list(table.left_out)
    pairs = choose_part(table.pairs, part) if part else list(table.pairs)
    if traces:
        left_out += [f"{pair.row.name} has no trace" for pair in pairs if pair.row.name not in written.given]
        pairs = [pair for pair in pairs if pair.row.name in written.given]
    found: list[OpenedPair] = []
    chosen = {row.name for row in choose_pairs([pair.row for pair in pairs], sample=most)}
    for pair in (pair for pair in pairs if pair.row.name in chosen):
        name = f"{pair.row.name} {pair.content[:12]}" if part else pair.row.name
        try:
            found.append(_open(replace(pair, row=replace(pair.row, name=name))))
        except VideoError as error:
            left_out.append(f"{name}: {error}")
    if not found:
        first = left_out[0] if left_out else "none"
        raise UsageError(f"{table.place.table} has no pair to learn from or to judge. The first: {first}.")
    return PublishedPairs(tuple(found), written, tuple(left_out), workspace)


def _open(pair: TablePair) -> OpenedPair:
    """Open the clips of a pair once. Raises VideoError."""
    with open_clip(pair.clips[0]) as a, open_clip(pair.clips[1]) as b:
        return OpenedPair(
            pair,
            (a.info.duration_seconds, b.info.duration_seconds),
            ((a.info.width, a.info.height), (b.info.width, b.info.height)),
        )


def _read_traces(path: Path) -> Traces:
    """Read replies by the pair's name. A line with "order": "swapped" is of the clips in the other order."""
    by_order: dict[str, dict[str, tuple[str, ...]]] = {"given": {}, "swapped": {}}
    try:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            try:
                trace = json.loads(line)
                by_order[trace.get("order", "given")][str(trace["key"])] = tuple(map(str, trace["replies"]))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise UsageError(
                    f"{path}, line {number} is not a trace: it needs key and replies, and may have order, given or "
                    f"swapped ({error})."
                ) from error
    except OSError as error:
        raise UsageError(f"Traces {path} cannot be read: {error.strerror}.") from error
    return Traces(**by_order)
