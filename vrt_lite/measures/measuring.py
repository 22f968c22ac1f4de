"""Measures clips, each once: one by itself, or the two of a pair in threads of their own while the judge works."""

from __future__ import annotations

from functools import cached_property
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Self

from vrt_lite.measures import MEASURES, MeasuredPair, compare_values
from vrt_lite.measures.clip_measures import ClipMeasures, MeasuringStoppedError, measure_clip
from vrt_lite.measures.kept import KeptMeasures, measures_folder
from vrt_lite.measures.measured_preference import MeasuredPreference
from vrt_lite.measures.preference import prefer_by_measures
from vrt_lite.protocol.report import Measured
from vrt_lite.shortage import ThreadPool

if TYPE_CHECKING:
    from pathlib import Path

    from vrt_lite.settings import Settings
    from vrt_lite.video import Clip


def keep_measures(settings: Settings) -> KeptMeasures:
    """Return where measures are kept: the user's folder, unless the settings forbid a cache, and memory."""
    return KeptMeasures(measures_folder() if settings.keeps_on_disk else None)


def measure_file(path: Path, kept: KeptMeasures) -> ClipMeasures | None:
    """Measure a clip by itself, unless `kept` has it; None if no frame can be decoded. Raises VideoError."""
    from vrt_lite.video import open_clip  # noqa: PLC0415 - the decoder only when there is something to decode

    with open_clip(path) as clip:
        return _find_or_measure(clip, kept, Event())


class Measuring:
    """Starts at once; a context manager. Leaving it stops what is not finished. The clips must stay open meanwhile."""

    def __init__(self, clips: tuple[Clip, Clip], kept: KeptMeasures) -> None:
        """Measure both clips, unless `kept` has them; what is measured is put there. Raises ShortageError."""
        self._stop = Event()
        self._pool = ThreadPool(2)
        self._found = [self._pool.submit(_find_or_measure, clip, kept, self._stop) for clip in clips]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._pool.shutdown()

    def finish(self) -> tuple[ClipMeasures | None, ClipMeasures | None]:
        """Wait for the measures of both clips; None for one of which no frame can be decoded.

        Raises ShortageError, and VideoError for a clip that was replaced.
        """
        one, two = (found.result() for found in self._found)
        return one, two

    @cached_property
    def preference(self) -> MeasuredPreference | None:
        """Which clip is better by what was measured of both; it is waited for. None if one could not be measured."""
        one, two = self.finish()
        return prefer_by_measures(one, two) if one and two else None

    def report(self) -> Measured | None:
        """Wait for both; return what a judge may read of them. None if a clip could not be measured."""
        one, two = self.finish()
        if not (one and two and self.preference):
            return None
        return Measured(self.preference.odds, self.preference.faults, (one.moments, two.moments))

    def compare(self) -> tuple[tuple[MeasuredPair, ...], MeasuredPreference | None]:
        """Wait for both; return the measures that people are shown, and which clip is better by all of them.

        The latter is None if a clip could not be measured.
        """
        a, b = (found.values if found else {} for found in self.finish())
        shown = tuple(compare_values(name, (a.get(name), b.get(name))) for name in MEASURES)
        return shown, self.preference


def _find_or_measure(clip: Clip, kept: KeptMeasures, stop: Event) -> ClipMeasures | None:
    if found := kept.get(clip.info.sha256):
        return found
    try:
        found = measure_clip(clip, stop=stop)
    except (ValueError, MeasuringStoppedError):
        return None
    kept.put(clip.info.sha256, found)
    return found
