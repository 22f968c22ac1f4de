"""Finds the values with which a model is quickest on this machine: each change is tried on the best values so far.

What is measured runs in a process that may end. It judges no clips.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import isqrt
from timeit import Timer
from typing import Final

import numpy as np
import psutil
from numpy.typing import NDArray

from vrt_lite.backends import describe_machine, read_memory
from vrt_lite.backends.llamacpp.context import Context, Tokens
from vrt_lite.backends.llamacpp.engine import Model
from vrt_lite.backends.llamacpp.vision import Vision
from vrt_lite.errors import ModelError, VrtError
from vrt_lite.models import ModelFiles
from vrt_lite.models.gguf import gguf_bytes, loses_detail
from vrt_lite.tuning import Tuning

TAKEN: Final = "taken"
_SHARE = 0.9
"""A change is taken if a judgement then takes less than this share of the time."""
_SPARE_BYTES = 2 * 2**30
_MOST_CELLS = 256
PATIENCE_SECONDS: Final = 600.0
"""How long a measurement may take in a worker."""
_READ = 96
"""Tokens that are read in a measurement."""
_MIN_CORRELATION = 0.9
"""The least correlation of the outputs of two setups. With rounding it is 0.99 or more; with another model about 0."""


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """Seconds that a judgement takes by the speed of its parts; the embeddings and logits that came out."""

    seconds: float
    embeddings: NDArray[np.float32]
    logits: NDArray[np.float32]


Measure = Callable[[Tuning], ModelSpeed]


@dataclass(frozen=True, slots=True)
class Tried:
    """A change that was tried, the tuning with it, what came of it, and the seconds of a judgement if it was measured.

    The default is tried first, and taken.
    """

    change: str
    tuning: Tuning
    outcome: str
    seconds: float | None = None


def tune(files: ModelFiles, measure: Measure, *, budget_seconds: float) -> Iterator[Tried]:
    """Try values for a model on this machine, and yield each; saves nothing. After `budget_seconds` nothing is begun.

    Raises ModelError, OutOfMemoryError, and WorkerEndedError if the engine does not run with its defaults.
    """
    end, best = time.monotonic() + budget_seconds, Tuning(projector=files.projector.name)
    first = measure(best)
    quickest = first.seconds
    yield Tried("default", best, TAKEN, quickest)
    for name, value in _list_changes(files):
        if time.monotonic() > end:
            return
        change, changed = f"{name} {value}", replace(best, **{name: value})
        try:
            measured = measure(changed)
            check_same(first, measured)
        except VrtError as error:
            yield Tried(change, changed, f"refused ({error})")
            continue
        outcome = "not faster"
        if measured.seconds <= _SHARE * quickest:
            best, quickest, outcome = changed, measured.seconds, TAKEN
        yield Tried(change, changed, outcome, measured.seconds)


def measure_model(files: ModelFiles, work: tuple[int, int, int], tuning: Tuning) -> ModelSpeed:
    """Encode a pair of frames, read a text, and write in all sequences together.

    `work` is how many tokens a judgement encodes, reads and writes. Raises ModelError, OutOfMemoryError.
    """
    encoded, read, written = work
    side = max(isqrt(min(files.profile.max_cells, _MOST_CELLS)), 1)
    settings = replace(tuning.settings, sequences=tuning.jobs)
    sequences = range(tuning.jobs)
    with Model(files.text, settings=settings) as model:
        with Vision(files.projector.with_name(tuning.projector), model, settings=settings) as vision:
            width = side * vision.cell
            frames = list(np.random.default_rng(0).integers(0, 256, (2, width, width, 3), dtype=np.uint8))
            vision.encode("warm-up", [frame[: vision.cell, : vision.cell] for frame in frames])
            seconds = encoded / side**2 * _measure_seconds(lambda: vision.encode("pair", frames))
            embeddings = vision.embeddings("pair").reshape(-1)
        with Context(model, size=_READ + 1, settings=settings) as context:

            def read_text(sequence: int) -> None:
                context.cut(0, sequence=sequence)
                for _ in context.feed(range(_READ), 0, sequence=sequence):
                    pass
                context.logits()

            def write() -> NDArray[np.float32]:
                for sequence in sequences:
                    context.cut(_READ, sequence=sequence)
                return context.feed_for_logits([Tokens([0], _READ, sequence) for sequence in sequences])[0][0]

            for sequence in sequences:  # weights are read and buffers set up before a measurement
                read_text(sequence)
            seconds += read / _READ * _measure_seconds(lambda: read_text(0))
            logits = write()
            seconds += written / tuning.jobs * _measure_seconds(write)
    return ModelSpeed(seconds, embeddings, logits)


def check_same(first: ModelSpeed, other: ModelSpeed) -> None:
    """Raise ModelError if both have not computed the same, but for rounding."""
    for what in ("embeddings", "logits"):
        correlation = np.corrcoef(getattr(first, what), getattr(other, what))[0, 1]
        if not correlation >= _MIN_CORRELATION:  # nor is it a number
            raise ModelError(f"The engine computes other {what} with this (correlation {correlation:.2f}).")


def _measure_seconds(run: Callable[[], object]) -> float:
    """The mean of as many runs as take a fifth of a second, at least one."""
    number, seconds = Timer(run).autorange()
    return seconds / number


def _list_changes(files: ModelFiles) -> Iterator[tuple[str, int | bool | str]]:
    """Yield the name and the value of what can be tried. Repacking needs memory for a second copy of the weights."""
    usable = describe_machine().cpus
    physical = psutil.cpu_count(logical=False) or usable
    for count in (physical, physical // 2):
        if 0 < count < usable:
            yield "threads", count
    for path in files.projectors:
        if path != files.projector and not loses_detail(path):
            yield "projector", path.name
    if read_memory().free_bytes > gguf_bytes(files.text) + _SPARE_BYTES:
        yield "repack", True
    yield "jobs", 2
    yield "jobs", 4
