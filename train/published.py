"""Labelled pairs of real files as cases: any set that `vrt-lite eval` reads, with written traces where there are any.

Knows tables and clips by vrt-lite's own readers; a clip is opened when its case is. Refuses to know models.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from train.cases import Case, OnDemand
from vrt_lite.errors import UsageError, VideoError
from vrt_lite.evaluation.layouts import LabelledPair
from vrt_lite.evaluation.sets import locate, read
from vrt_lite.interfaces import FrameStore
from vrt_lite.judge import Pair
from vrt_lite.profile import Profile
from vrt_lite.protocol.tags import Choice
from vrt_lite.sampled import PairFrames, workspace_of
from vrt_lite.video import open_clip


@dataclass(frozen=True)
class Published(OnDemand):
    """The pairs of a table whose clips are all there; `left_out` says of each other one why it is not used.

    `durations` are each pair's, in seconds; `sizes` its clips' (width, height) in pixels.
    """

    folder: Path
    pairs: tuple[LabelledPair, ...]
    durations: tuple[tuple[float, float], ...]
    sizes: tuple[tuple[tuple[int, int], tuple[int, int]], ...]
    scripts: Mapping[str, tuple[str, ...]]
    left_out: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.pairs)

    def make(self, place: int) -> Case:
        """The case of a pair; its clips are opened when it is."""
        pair = self.pairs[place]

        @contextlib.contextmanager
        def frames(profile: Profile) -> Generator[FrameStore]:
            with open_clip(self.folder / pair.a) as a, open_clip(self.folder / pair.b) as b:
                yield PairFrames((a, b), (workspace_of(a, profile), workspace_of(b, profile)))

        labels = {key: cast(Choice, label) for key, label in pair.labels.items()}
        told = Pair(pair.prompt, self.durations[place], self.sizes[place])
        return Case(pair.name, told, labels, frames, script=self.scripts.get(pair.name, ()))


def published(where: Path, traces: Path | None = None) -> Published:
    """The set at `where`; with `traces`, JSON lines of key and replies, the pairs that have one.

    UsageError for a set or traces that cannot be read, or where nothing is left. Clips are opened once, to know
    which are broken before hours of training are spent, and how long they are.
    """
    place = locate(where)
    found = read(place)
    scripts = _scripts(traces) if traces else {}
    pairs: list[LabelledPair] = []
    durations: list[tuple[float, float]] = []
    sizes: list[tuple[tuple[int, int], tuple[int, int]]] = []
    left_out = [row.why for row in found.left_out]
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
    return Published(place.folder, tuple(pairs), tuple(durations), tuple(sizes), scripts, tuple(left_out))


def _scripts(path: Path) -> dict[str, tuple[str, ...]]:
    """Replies by the pair's name."""
    scripts: dict[str, tuple[str, ...]] = {}
    try:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            try:
                trace = json.loads(line)
                scripts[str(trace["key"])] = tuple(map(str, trace["replies"]))
            except (ValueError, KeyError, TypeError) as error:
                raise UsageError(f"{path}, line {number} is no trace: needs key and replies ({error}).") from error
    except OSError as error:
        raise UsageError(f"Traces {path} cannot be read: {error.strerror}.") from error
    return scripts
