"""Measures the two clips of a pair in threads of its own, while the judge works."""

from __future__ import annotations

from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Self

from vrt_lite.embeddings import users_disk
from vrt_lite.measures import MEASURES, MeasuredPair, compare_values
from vrt_lite.measures.clip_measures import ClipMeasures, MeasuringStoppedError, measure_clip
from vrt_lite.measures.kept import KeptMeasures
from vrt_lite.shortage import ThreadPool

if TYPE_CHECKING:
    from vrt_lite.settings import Settings
    from vrt_lite.video import Clip


def measure_beside(clips: tuple[Clip, Clip], settings: Settings) -> Measuring:
    """Start to measure both clips. The user's folder of measures is used unless the settings forbid a cache."""
    keeps = settings.cache and users_disk(settings.cache_mb) is not None
    return Measuring(clips, KeptMeasures() if keeps else None)


class Measuring:
    """Starts at once; a context manager. Leaving it stops what is not finished. The clips must stay open meanwhile."""

    def __init__(self, clips: tuple[Clip, Clip], kept: KeptMeasures | None = None) -> None:
        """Measure both clips, unless `kept` has them; what is measured is put there. Raises ShortageError."""
        self._kept = kept
        self._stop = Event()
        self._pool = ThreadPool(2)
        self._found = [self._pool.submit(self._measure, clip) for clip in clips]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._pool.shutdown()

    def finish(self) -> tuple[ClipMeasures | None, ClipMeasures | None]:
        """Wait for the measures of both clips; None for one of which no frame can be decoded. Raises ShortageError."""
        one, two = (found.result() for found in self._found)
        return one, two

    def compare(self) -> tuple[MeasuredPair, ...]:
        """Wait for both, and return the measures that people are shown."""
        one, two = (found.values if found else {} for found in self.finish())
        return tuple(compare_values(name, (one.get(name), two.get(name))) for name in MEASURES)

    def _measure(self, clip: Clip) -> ClipMeasures | None:
        found = self._kept.get(clip.info.sha256) if self._kept else None
        if found:
            return found
        try:
            found = measure_clip(clip, stop=self._stop)
        except (ValueError, MeasuringStoppedError):
            return None
        if self._kept:
            self._kept.put(clip.info.sha256, found)
        return found
