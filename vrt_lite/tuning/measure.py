"""Measures how fast this machine runs a model with given settings. It judges no clips.

It measures encoding a frame pair at the profile's pixels, reading a text, and writing tokens, also those of several
replies together. Every setup must compute the same apart from rounding: its logits and embeddings are compared with
those of the first one. A setup with wrong output, from some GPU or from another model's projector, is refused.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.context import Context, Tokens
from vrt_lite.backends.llamacpp.engine import Model
from vrt_lite.backends.llamacpp.vision import Vision
from vrt_lite.errors import ModelError
from vrt_lite.tuning.search import Seconds, Setup, Stage

MAX_PREFILL: Final = 1024
"""The most tokens of the text that is read."""
_MIN_PREFILL = 32
_GENERATED = 24
_MIN_COSINE = 0.9
"""The least cosine between the output of two setups. With rounding it is 0.99 or more; with another model about 0."""
_SAMPLE = 4096
"""The number of values that are compared, drawn from all."""


@dataclass(frozen=True, slots=True)
class MeasuringTask:
    """What is measured: a text model, the text that it reads, the tokens of a frame, the seconds of a whole search."""

    text: Path
    prompt: str
    cells: int
    budget_seconds: float


@dataclass(slots=True)
class Baseline:
    """The result of the first setup: how many tokens it read, and by name a sample of its output."""

    prefill_tokens: int = 0
    samples: dict[str, NDArray[np.float32]] = field(default_factory=dict[str, "NDArray[np.float32]"])


def measure_setup(
    task: MeasuringTask, setup: Setup, stages: tuple[Stage, ...], baseline: Baseline
) -> tuple[Seconds, Baseline]:
    """Measure a setup: seconds for a frame pair (vision), for a token read (prefill) and for a token written (decode).

    Also for a token where the setup's jobs each write one (together). Returns the baseline too, with new samples added.
    Raises ModelError, OutOfMemoryError.
    """
    seconds: Seconds = {}
    with Model(task.text, settings=setup.settings) as model:
        if "vision" in stages:
            with Vision(setup.projector, model, settings=setup.settings) as vision:
                seconds["vision"] = _time_encoding(vision, task, baseline)
        if "prefill" in stages:
            size = MAX_PREFILL + _MIN_PREFILL + _GENERATED
            prompt = model.tokens(task.prompt, special=False) or [0]
            with Context(model, size=size, settings=setup.settings) as context:
                seconds |= _time_text(context, prompt * MAX_PREFILL, task, baseline)
        if "together" in stages:
            settings = replace(setup.settings, sequences=setup.jobs)
            prompt = model.tokens(task.prompt, special=False) or [0]
            with Context(model, size=2 * _MIN_PREFILL, settings=settings) as context:
                seconds["together"] = _time_together(context, prompt * _MIN_PREFILL, setup.jobs, task, baseline)
    return seconds, baseline


def _time_encoding(vision: Vision, task: MeasuringTask, baseline: Baseline) -> float:
    # The first evaluation reads the weights from the disk and sets up buffers.
    vision.encode("warm-up", [np.zeros((2 * vision.cell, 2 * vision.cell, 3), np.uint8)] * 2)
    frames = _noise_frames(task.cells, vision.cell)
    seconds = _median_seconds(lambda: vision.encode("pair", frames), task)
    _check_same("embeddings", vision.embeddings("pair").reshape(-1), baseline)
    return seconds


def _time_text(context: Context, tokens: list[int], task: MeasuringTask, baseline: Baseline) -> Seconds:
    _feed(context, tokens[:8], 0)  # warm-up
    if not baseline.prefill_tokens:
        began = time.perf_counter()
        _feed(context, tokens[:_MIN_PREFILL], 0)
        # As many as are read in a twelfth of the budget.
        most = _MIN_PREFILL * task.budget_seconds / 12 / (time.perf_counter() - began)
        baseline.prefill_tokens = min(max(2 ** int(math.log2(max(most, 1))), _MIN_PREFILL), MAX_PREFILL)
    count = baseline.prefill_tokens
    prefill = _median_seconds(lambda: _feed(context, tokens[:count], 0), task) / count
    _check_same("logits", context.logits(), baseline)
    _feed(context, tokens[:_MIN_PREFILL], 0)
    positions = itertools.count(_MIN_PREFILL)
    decode = _median_seconds(lambda: _feed(context, tokens[:1], next(positions)), task, least=4, most=_GENERATED)
    return {"prefill": prefill, "decode": decode}


def _time_together(context: Context, tokens: list[int], jobs: int, task: MeasuringTask, baseline: Baseline) -> float:
    """Seconds for each token where so many sequences write one in the same evaluation."""
    for sequence in range(jobs):
        for _ in context.feed(tokens[:_MIN_PREFILL], 0, sequence=sequence):
            pass
    positions = itertools.count(_MIN_PREFILL)

    def write() -> list[list[NDArray[np.float32]]]:
        position = next(positions)
        return context.feed_for_logits([Tokens(tokens[:1], position, sequence) for sequence in range(jobs)])

    for [logits] in write():  # the first one sets up buffers
        _check_same("logits of a token written", logits, baseline)
    return _median_seconds(write, task, least=4, most=_GENERATED) / jobs


def _median_seconds(run: Callable[[], object], task: MeasuringTask, *, least: int = 1, most: int = 5) -> float:
    """The median of `least` to `most` runs, as many as fit a fortieth of the budget."""
    times: list[float] = []
    while len(times) < least or (len(times) < most and sum(times) < task.budget_seconds / 40):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _check_same(what: str, values: NDArray[np.float32], baseline: Baseline) -> None:
    if not np.isfinite(values).all():
        raise ModelError(f"The engine returns {what} that are not numbers with these settings.")
    sample = values[np.random.default_rng(0).integers(len(values), size=_SAMPLE)]
    first = baseline.samples.setdefault(what, sample)
    cosine = float(first @ sample) / max(math.sqrt(float(first @ first) * float(sample @ sample)), 1e-30)
    if cosine < _MIN_COSINE:
        raise ModelError(f"The engine returns other {what} with these settings (cosine {cosine:.2f}).")


def _feed(context: Context, tokens: list[int], position: int) -> None:
    """Evaluate tokens in place of what the context holds from this position on, and wait for the last logits."""
    context.cut(position)
    for _ in context.feed(tokens, position):
        pass
    context.logits()


def _noise_frames(cells: int, cell: int) -> list[NDArray[np.uint8]]:
    """Two frames of noise, 16:9, with at most `cells` visual tokens each, of `cell` pixels a side."""
    rows = max(math.isqrt(cells * 9 // 16), 1)
    shape = (rows * cell, cells // rows * cell, 3)
    draw = np.random.default_rng(0)
    return [draw.integers(0, 256, shape, dtype=np.uint8) for _ in range(2)]
