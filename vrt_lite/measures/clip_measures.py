"""Measures a clip in one pass: a thumbnail of each frame, five pictures as stored, and six pairs of neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Final

import numpy as np
from PIL import Image

from vrt_lite.measures.arrays import Floats, Luma
from vrt_lite.measures.colours import measure_colour_changes
from vrt_lite.measures.moments import FindingMoments
from vrt_lite.measures.moving import measure_run
from vrt_lite.measures.overlays import OVERLAY_FRAMES, measure_overlays, shrink
from vrt_lite.measures.stills import Window, find_window, measure_neighbours, measure_still, scale_down

if TYPE_CHECKING:
    from vrt_lite.video import Clip
    from vrt_lite.video.frame_conversion import Planes

VERSION: Final = 3
"""Of the measures: it changes when a value of the same clip does."""
MOST_FRAMES: Final = 480
MOST_PIXELS: Final = 420_000_000
"""So much of a clip is measured; of a longer one, as many runs of frames, spread evenly."""
RUNS: Final = 6
THUMBNAIL_PIXELS: Final = 12_000
LOOK: Final = (3, 8, 14)
"""Of a clip's look: its first, middle and last measured frame, each in (rows, columns)."""
_SHARES = (0.08, 0.29, 0.5, 0.71, 0.92)
"""Where in the clip the pictures lie that are measured as stored."""
_PAIRS = 6
_EVERY = 8
"""Of the chroma planes, so many rows and columns have one that counts for the mean colour of a frame."""
_SMALLEST = 32
"""Rows and columns."""
_LARGEST = frozenset(("frozen", "jump", "lone_jump", "largest_pulse", "vanishing"))
"""Of several runs the largest value counts, for others the mean."""

Turn = Callable[[Image.Image], Image.Image]


class MeasuringStoppedError(Exception):
    """Nobody waits for the measures any more."""


@dataclass(frozen=True, slots=True)
class ClipMeasures:
    """What is measured of a clip's content, by name; `definitions` says what each is.

    Of `frames` frames, `frames_measured` were decoded. `look` has the bytes of three tiny pictures (LOOK), upright.
    `moments` are its worst, the worst first, as shares of its length; there may be none.
    """

    values: dict[str, float]
    frames_measured: int
    frames: int
    look: bytes
    moments: tuple[float, ...] = ()


def measure_clip(clip: Clip, *, stop: Event | None = None) -> ClipMeasures:
    """Measure an open clip. The result depends on its content alone; another thread may use the clip meanwhile.

    Raises MeasuringStoppedError if `stop` is set meanwhile, ShortageError, VideoError for a clip that was replaced, and
    ValueError if no frame can be decoded.
    """
    collecting = Collecting(choose_runs(clip))
    for index, planes in clip.planes(collecting.runs):
        if stop and stop.is_set():
            raise MeasuringStoppedError
        collecting.add(index, planes)
    return collecting.measure([clip.seconds(i) for i in range(clip.info.frames)], turn=clip.turn)


def choose_runs(clip: Clip) -> tuple[range, ...]:
    """Return the frames to measure: all, or of a long clip some runs that begin at keyframes, at even distances."""
    frames = clip.info.frames
    most = max(min(MOST_FRAMES, MOST_PIXELS // (clip.info.width * clip.info.height)), RUNS * 4)
    if frames <= most:
        return (range(frames),)
    length = most // RUNS
    starts = [clip.key_before(round(number * (frames - length) / (RUNS - 1))) for number in range(RUNS)]
    runs: list[range] = []
    for start in starts:
        begin = max(start, runs[-1].stop if runs else 0)
        if begin < min(start + length, frames):
            runs.append(range(begin, min(start + length, frames)))
    return tuple(runs)


class Collecting:
    """Keeps of each frame what is measured of it."""

    def __init__(self, runs: Sequence[range]) -> None:
        """Take the frames that will come, as runs of neighbours."""
        self.runs = tuple(runs)
        order = [index for run in self.runs for index in run]
        self._place = {index: place for place, index in enumerate(order)}
        count = len(order)
        self._stills = {min(count - 1, int(count * share)): number for number, share in enumerate(_SHARES)}
        pairs = (min(count - 2, int(count * (number + 0.5) / _PAIRS)) for number in range(_PAIRS))
        self._pairs = {place: number for number, place in enumerate(pairs) if place >= 0}
        self._overlays = frozenset(
            round(number * (count - 1) / (OVERLAY_FRAMES - 1)) for number in range(OVERLAY_FRAMES)
        )
        self._small: list[Luma] = []
        self._thumbnails: dict[int, Luma] = {}
        self._colours: dict[int, tuple[float, float]] = {}
        self._found: list[dict[str, float]] = []
        self._changes: list[dict[str, float]] = []
        self._before: tuple[int, int, Luma] | None = None
        self._range = 0, 1.0
        self._size = 0, 0

    def add(self, index: int, planes: Planes) -> None:
        """Keep what is measured of a frame; its planes are not needed any more."""
        place = self._place[index]
        planes = _extend(planes)
        self._size = planes.luma.shape[0], planes.luma.shape[1]
        self._range = (0, 1.0) if planes.full_range else (16, 255 / 219)
        self._thumbnails[index] = make_thumbnail(planes.luma)
        self._colours[index] = (
            float(planes.blue[::_EVERY, ::_EVERY].mean()),
            float(planes.red[::_EVERY, ::_EVERY].mean()),
        )
        if place in self._overlays:
            self._small.append(shrink(planes.luma))
        if place in self._stills:
            self._found.append(measure_still(self._cut(planes, self._stills[place])))
        if self._before and self._before[0] == index - 1:
            where = find_window(*self._size, self._before[1])
            self._changes.append(measure_neighbours(self._before[2], planes.luma[where]))
        number = self._pairs.get(place)
        self._before = None if number is None else (index, number, planes.luma[find_window(*self._size, number)].copy())

    def _cut(self, planes: Planes, number: int) -> Window:
        rows, columns = find_window(*self._size, number)
        of_colour = slice(rows.start // 2, rows.stop // 2), slice(columns.start // 2, columns.stop // 2)
        scaled = scale_down(planes.luma)
        return Window(planes.luma[rows, columns], planes.blue[of_colour], planes.red[of_colour], scaled, *self._range)

    def measure(self, seconds: Sequence[float], *, turn: Turn | None = None) -> ClipMeasures:
        """Measure what was kept. `seconds` has the time of each frame of the clip. Raises ValueError without any."""
        if not self._found:
            raise ValueError("no frame could be decoded")
        runs: list[tuple[int, dict[str, float]]] = []
        found = FindingMoments(len(seconds))
        for run in self.runs:
            shown = [index for index in run if index in self._thumbnails]
            if shown:
                stack = self._level(np.stack([self._thumbnails[i] for i in shown]))
                found.add(shown, stack)
                moving = measure_run(stack, np.array([seconds[i] for i in shown]))
                runs.append((len(shown), moving | measure_colour_changes(np.array([self._colours[i] for i in shown]))))
        interval = (seconds[-1] - seconds[0]) / max(len(seconds) - 1, 1) or 1.0
        values = {
            **_average(self._found),
            **dict.fromkeys(("block_change", "grid_change", "quiet_change"), 0.0),
            **_average(self._changes),
            **_join(runs),
            **measure_overlays(self._small, self._range[1]),
            "rows": math.log(min(self._size) / 360),
            "rate": math.log(1 / 24 / interval),
            "length": math.log(len(seconds) / 48),
        }
        order = sorted(self._thumbnails)
        look = b"".join(_look(self._level(self._thumbnails[order[at]]), turn) for at in (0, len(order) // 2, -1))
        return ClipMeasures({k: float(v) for k, v in values.items()}, len(order), len(seconds), look, found.worst())

    def _level(self, luma: Luma) -> Floats:
        """Return luma in levels from 0 to 255."""
        black, scale = self._range
        levels = luma.astype(np.float32)
        levels -= black
        levels *= np.float32(scale)
        return levels


def _extend(planes: Planes) -> Planes:
    """Repeat the margin of a picture that is too small for windows and tiles."""
    if min(planes.luma.shape) >= _SMALLEST:
        return planes

    def extend(plane: Luma, least: int) -> Luma:
        return np.pad(plane, [(0, max(least - length, 0)) for length in plane.shape], mode="edge")

    luma, blue, red = extend(planes.luma, _SMALLEST), *(extend(p, _SMALLEST // 2) for p in (planes.blue, planes.red))
    return replace(planes, luma=luma, blue=blue, red=red)


def make_thumbnail(luma: Luma) -> Luma:
    """Return a picture averaged to about 12 000 pixels."""
    scale = min(1.0, math.sqrt(THUMBNAIL_PIXELS / luma.size))
    size = max(round(luma.shape[1] * scale), 8), max(round(luma.shape[0] * scale), 8)
    return np.asarray(Image.fromarray(luma).resize(size, Image.Resampling.BOX, reducing_gap=2.0))


def _look(thumbnail: Floats, turn: Turn | None) -> bytes:
    picture = Image.fromarray(np.rint(thumbnail).clip(0, 255).astype(np.uint8))
    upright = turn(picture) if turn else picture
    return upright.resize((LOOK[2], LOOK[1]), Image.Resampling.BOX).tobytes()


def _average(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: sum(each[name] for each in found) / len(found) for name in (found[0] if found else ())}


def _join(runs: Sequence[tuple[int, dict[str, float]]]) -> dict[str, float]:
    """Join the measures of runs: their mean by the number of frames, or the largest."""
    whole = sum(count for count, _ in runs)
    return {
        name: max(each[name] for _, each in runs)
        if name in _LARGEST
        else sum(count * each[name] for count, each in runs) / whole
        for name in runs[0][1]
    }
