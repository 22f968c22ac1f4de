"""Labelled pairs of real files as cases: any set that `vrt-lite eval` reads, with written traces if there are any.

vrt-lite's own readers read tables and clips. A clip is opened together with its case.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from train.training_cases import LazyCases, TrainingCase
from vrt_lite.errors import UsageError, VideoError
from vrt_lite.evaluation.layouts import LabelledPair
from vrt_lite.evaluation.sets import locate_set, read_set
from vrt_lite.interfaces import FrameStore
from vrt_lite.judge import Pair
from vrt_lite.pair_frames import PairFrames, workspace_of
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Choice
from vrt_lite.video import open_clip


@dataclass(frozen=True)
class PublishedPairs(LazyCases):
    """The pairs of a table that have both clips. `left_out` has the reason for each other pair.

    `durations` are in seconds; `sizes` are (width, height) in pixels.
    """

    folder: Path
    pairs: tuple[LabelledPair, ...]
    durations: tuple[tuple[float, float], ...]
    sizes: tuple[tuple[tuple[int, int], tuple[int, int]], ...]
    scripts: Mapping[str, tuple[str, ...]]
    left_out: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.pairs)

    def make(self, place: int) -> TrainingCase:
        """Build the case of a pair."""
        pair = self.pairs[place]

        @contextlib.contextmanager
        def frames(profile: Profile) -> Generator[FrameStore]:
            with open_clip(self.folder / pair.a) as a, open_clip(self.folder / pair.b) as b:
                yield PairFrames((a, b), (workspace_of(a, profile), workspace_of(b, profile)))

        labels: dict[str, Choice] = {key: cast("Choice", label) for key, label in pair.labels.items()}
        described = Pair(pair.prompt, self.durations[place], self.sizes[place])
        return TrainingCase(pair.name, described, labels, frames, script=self.scripts.get(pair.name, ()))


def load_published_pairs(where: Path, traces: Path | None = None) -> PublishedPairs:
    """Load the set at `where`; with `traces` (JSON lines of key and replies), only the pairs that have a trace.

    Every clip is opened once, to find its duration, and to find broken clips before hours of training. Raises
    UsageError for a set or traces that cannot be read, or if no pair can be used.
    """
    place = locate_set(where)
    found = read_set(place)
    scripts = _scripts(traces) if traces else {}
    pairs: list[LabelledPair] = []
    durations: list[tuple[float, float]] = []
    sizes: list[tuple[tuple[int, int], tuple[int, int]]] = []
    left_out = [row.reason for row in found.left_out]
    for pair in found.pairs:
        if traces and pair.name not in scripts:
            left_out.append(f"{pair.name} has no trace")
            continue
        try:
            with open_clip(place.folder / pair.a) as a, open_clip(place.folder / pair.b) as b:
                durations.append((a.info.duration_seconds, b.info.duration_seconds))
                sizes.append(((a.info.width, a.info.height), (b.info.width, b.info.height)))
        except VideoError as error:
            left_out.append(f"{pair.name}: {error}")
        else:
            pairs.append(pair)
    if not pairs:
        raise UsageError(f"{place.table} has no pair to learn from. The first: {left_out[0] if left_out else 'none'}.")
    return PublishedPairs(place.folder, tuple(pairs), tuple(durations), tuple(sizes), scripts, tuple(left_out))


def _scripts(path: Path) -> dict[str, tuple[str, ...]]:
    """Read replies by the pair's name."""
    scripts: dict[str, tuple[str, ...]] = {}
    try:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            try:
                trace = json.loads(line)
                scripts[str(trace["key"])] = tuple(map(str, trace["replies"]))
            except (ValueError, KeyError, TypeError) as error:
                raise UsageError(
                    f"{path}, line {number} is not a trace: it needs key and replies ({error})."
                ) from error
    except OSError as error:
        raise UsageError(f"Traces {path} cannot be read: {error.strerror}.") from error
    return scripts
