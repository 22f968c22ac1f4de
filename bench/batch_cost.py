"""Measures what is saved by a batch, and by a smaller projector: seconds of one evaluation."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.measurements import Figure, Report
from vrt_lite.backends.llamacpp.context import Context, Tokens
from vrt_lite.backends.llamacpp.engine import Model
from vrt_lite.backends.llamacpp.vision import Vision
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find
from vrt_lite.profile import CELL

CONVERSATIONS = (1, 2, 4, 8)
READ = 256
"""Tokens that each conversation holds."""


def measure_steps(folder: Path, *, repeat: int) -> Report:
    """Measure the evaluation of one token in each of several conversations, for each number in turn."""
    files, seconds = find(folder), dict[str, float]()
    for count in CONVERSATIONS:
        settings = EngineSettings(sequences=count)
        with Model(files.text, settings=settings) as model, Context(model, size=1024, settings=settings) as context:
            for sequence in range(count):
                for _ in context.feed(range(1, READ + 1), 0, sequence=sequence):
                    pass

            def step(number: int, sequences: int = count, context: Context = context) -> None:
                context.feed_for_logits([Tokens([1], READ + number, sequence) for sequence in range(sequences)])

            seconds[_name(count)] = _median_seconds(step, repeat)
    each = {name: value / count for (name, value), count in zip(seconds.items(), CONVERSATIONS, strict=True)}
    figures = [Figure("one token in each", "s", seconds), Figure("a token", "s", each)]
    return Report("batch", "One token written", {"model": files.name, "repeat": repeat}, figures)


def measure_projectors(folder: Path, *, size: tuple[int, int] = (588, 336), repeat: int = 3) -> Report:
    """Measure the encoding of a frame pair with each of a folder's projectors, by turns."""
    files = find(folder)
    sides = (size[1] // CELL * CELL, size[0] // CELL * CELL, 3)
    frames = [np.random.default_rng(seed).integers(0, 256, sides, np.uint8) for seed in (0, 1)]
    times: dict[str, list[float]] = {path.name: [] for path in files.projectors}
    settings = EngineSettings()
    with Model(files.text, settings=settings) as model:
        for _ in range(repeat):
            for path in files.projectors:
                with Vision(path, model, settings=settings) as vision:
                    vision.encode("warm-up", [np.zeros((2 * CELL, 2 * CELL, 3), np.uint8)] * 2)
                    began = time.perf_counter()
                    vision.encode("pair", frames)
                    times[path.name].append(time.perf_counter() - began)
    figures = [
        Figure("a frame pair", "s", {name: statistics.median(found) for name, found in times.items()}),
        Figure("file", "MB", {path.name: path.stat().st_size / 1e6 for path in files.projectors}),
    ]
    options = {"model": files.name, "size": list(sides[1::-1]), "repeat": repeat}
    return Report("projectors", f"Frames of {sides[1]}x{sides[0]}", options, figures)


def _name(count: int) -> str:
    return "1 conversation" if count == 1 else f"{count} conversations"


def _median_seconds(step: Callable[[int], None], repeat: int) -> float:
    times: list[float] = []
    for number in range(repeat + 1):
        began = time.perf_counter()
        step(number)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])  # the first one reads the weights
