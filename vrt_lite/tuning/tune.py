"""Finds the quickest engine settings for a model on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from vrt_lite.backends import describe_machine, read_memory
from vrt_lite.errors import EngineEndedError, ModelError, VrtError
from vrt_lite.machine import EngineSettings
from vrt_lite.models import ModelFiles, loses_detail
from vrt_lite.models.gguf import gguf_bytes
from vrt_lite.profile import Profile
from vrt_lite.settings import Settings
from vrt_lite.tuning import SETTINGS, Tuning, plan_engine
from vrt_lite.tuning.child import run_in_child
from vrt_lite.tuning.measure import MAX_PREFILL, Baseline, MeasuringTask, measure_setup
from vrt_lite.tuning.search import (
    MOST_TRIED_JOBS,
    SearchResult,
    Seconds,
    Setup,
    ShowProgress,
    Stage,
    list_changes,
    search,
)

_SPARE_BYTES = 2 * 2**30
MeasureSetup = Callable[[MeasuringTask, Setup, tuple[Stage, ...], Baseline], tuple[Seconds, Baseline]]


class Measurer:
    """Measures setups of a model, each in a process of its own.

    It waits `first_seconds` for the first measurement. For later ones it waits `times` as long as the slowest one so
    far took, and at least `least_seconds`.
    """

    def __init__(
        self,
        files: ModelFiles,
        *,
        profile: Profile,
        budget_seconds: float,
        measure_setup: MeasureSetup = measure_setup,
        first_seconds: float = 600.0,
        least_seconds: float = 30.0,
        times: float = 10.0,
    ) -> None:
        prompt, cells = profile.system_prompt + profile.user_prompt, profile.max_pixels // profile.pixels_per_token
        self._task = MeasuringTask(files.text, prompt, cells, budget_seconds)
        self._measure_setup = measure_setup
        self._patience_seconds = first_seconds
        self._least_seconds = least_seconds
        self._times = times
        self._slowest = 0.0
        self.baseline = Baseline()

    def measure(self, setup: Setup, stages: tuple[Stage, ...]) -> Seconds:
        """Seconds for a frame pair, for a token read and for a token written.

        Raises EngineEndedError for a crash or no answer in time, ModelError and OutOfMemoryError.
        """
        began = time.monotonic()
        seconds, self.baseline = run_in_child(
            self._measure_setup, self._task, setup, stages, self.baseline, seconds=self._patience_seconds
        )
        self._slowest = max(self._slowest, time.monotonic() - began)
        self._patience_seconds = max(self._times * self._slowest, self._least_seconds)
        return seconds


def read_cpu_load() -> float:
    """The share of the processor's time, 0 to 1, that other programs use; measures for a third of a second."""
    return psutil.cpu_percent(interval=0.3) / 100


def _count_jobs(files: ModelFiles) -> int:
    """Count the judgements at once that fit the memory, up to the most that are tried."""
    try:
        return plan_engine(files, Settings(), sequences=MOST_TRIED_JOBS, pairs=MOST_TRIED_JOBS).settings.sequences
    except VrtError:
        return 1  # compare will say what would fit


def tune(
    files: ModelFiles,
    *,
    profile: Profile,
    budget_seconds: float,
    show_progress: ShowProgress = lambda _: None,
    open_measurer: Callable[..., Measurer] = Measurer,
) -> tuple[Tuning, SearchResult]:
    """Find the settings for a model on this machine; saves nothing.

    Raises OutOfMemoryError, KeyboardInterrupt, and ModelError, also if the engine crashes or hangs with its defaults.
    """
    start = Setup(EngineSettings(), files.projector)
    cpus = describe_machine().cpus
    measurer = open_measurer(files, profile=profile, budget_seconds=budget_seconds)
    changes = list_changes(
        start,
        [path for path in files.projectors if not loses_detail(path)],
        physical_cpus=psutil.cpu_count(logical=False) or cpus,
        usable_cpus=cpus,
        most_jobs=lambda: _count_jobs(files),
        repack_fits=lambda: read_memory().free_bytes > gguf_bytes(files.text) + _SPARE_BYTES,
        long_prefill=lambda: measurer.baseline.prefill_tokens == MAX_PREFILL,
    )
    try:
        result = search(
            start, changes, measure=measurer.measure, budget_seconds=budget_seconds, show_progress=show_progress
        )
    except EngineEndedError as error:
        raise ModelError(
            f"{files.name} cannot be measured, the engine does not run with its default settings: {error}. "
            "Install it again: pip install --force-reinstall --no-cache-dir llama-cpp-python"
        ) from error
    tuning = Tuning(
        **{name: getattr(result.setup.settings, name) for name in SETTINGS},
        projector=result.setup.projector.name,
        jobs=result.setup.jobs,
        speed=result.speed,
        default_speed=result.default_speed,
    )
    return tuning, result
