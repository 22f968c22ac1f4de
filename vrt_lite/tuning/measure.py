"""Measures how fast this machine runs a model with given settings, in a process that may end. It judges no clips."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.context import Context, Tokens
from vrt_lite.backends.llamacpp.engine import Model
from vrt_lite.backends.llamacpp.vision import Vision
from vrt_lite.errors import ModelError
from vrt_lite.machine import EngineSettings

_WARM, _READ, _WRITTEN = 8, 96, 8
"""Tokens that are read and written in a measurement, and before it: first the weights are read and buffers set up."""
_MIN_COSINE = 0.9
"""The least cosine between the output of two setups. With rounding it is 0.99 or more; with another model about 0."""
_MOST_REPEATS, _ENOUGH_SECONDS = 5, 0.3


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """Seconds to encode a visual token, to read a token and to write one; the embeddings and logits that came out."""

    encode: float
    read: float
    write: float
    embeddings: NDArray[np.float32]
    logits: NDArray[np.float32]


def measure_model(text: Path, projector: Path, settings: EngineSettings, cells: int) -> ModelSpeed:
    """Encode a pair of frames of about so many visual tokens, read a text, and write in all sequences together.

    Raises ModelError, OutOfMemoryError.
    """
    rows = max(isqrt(cells * 9 // 16), 1)
    columns, draw = max(cells // rows, 1), np.random.default_rng(0)
    sequences = range(settings.sequences)
    size = _READ + (_MOST_REPEATS + 1) * _WRITTEN
    with Model(text, settings=settings) as model:
        with Vision(projector, model, settings=settings) as vision:
            side = vision.cell
            frames = [draw.integers(0, 256, (rows * side, columns * side, 3), dtype=np.uint8) for _ in range(2)]
            vision.encode("warm-up", [frame[:side, :side] for frame in frames])
            encode_seconds = _median_seconds(lambda: vision.encode("pair", frames))
            embeddings = vision.embeddings("pair").reshape(-1)
        with Context(model, size=size, settings=settings) as context:

            def read(sequence: int, count: int = _READ) -> None:
                context.cut(0, sequence=sequence)
                for _ in context.feed(range(count), 0, sequence=sequence):
                    pass
                context.logits()

            def write(position: int) -> NDArray[np.float32]:
                return context.feed_for_logits([Tokens([0], position, sequence) for sequence in sequences])[0][0]

            read(0, _WARM)
            read_seconds = _median_seconds(lambda: read(0))
            for sequence in sequences:
                read(sequence)
            logits, positions = write(_READ), itertools.count(_READ + 1)
            write_seconds = _median_seconds(lambda: [write(next(positions)) for _ in range(_WRITTEN)])
    written = _WRITTEN * len(sequences)
    return ModelSpeed(
        encode_seconds / (rows * columns), read_seconds / _READ, write_seconds / written, embeddings, logits
    )


def check_same(first: ModelSpeed, other: ModelSpeed) -> None:
    """Raise ModelError if both have not computed the same, but for rounding."""
    for what in ("embeddings", "logits"):
        a, b = getattr(first, what), getattr(other, what)
        cosine = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
        if not cosine >= _MIN_COSINE:  # nor is it a number
            raise ModelError(f"The engine computes other {what} with this (cosine {cosine:.2f}).")


def _median_seconds(run: Callable[[], object]) -> float:
    times: list[float] = []
    while not times or (len(times) < _MOST_REPEATS and sum(times) < _ENOUGH_SECONDS):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times)
