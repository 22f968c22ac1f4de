"""Says before a judgement how long it will take on this machine, and keeps how long it took.

What this model took here at this size tells most. Without that the time is added up from the speed of the engine, which
is measured once in a process of its own, with a matrix of one type. With the speeds of all its types a 7B judge would
be said to take 0.96 to 1.4 times as long.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from vrt_lite.backends import describe_machine
from vrt_lite.errors import VrtError
from vrt_lite.fitting import EnginePlan
from vrt_lite.fitting.memory_estimate import ModelShape, count_work
from vrt_lite.interfaces import Observe, Predicted, TimeRange
from vrt_lite.machine import SMALL_MODEL_BYTES
from vrt_lite.modes import Mode
from vrt_lite.profile import Profile
from vrt_lite.records.judgement import Judgement
from vrt_lite.settings import BothOrders
from vrt_lite.tuning import keep, kept_path, read_kept

_ADDED_UP = 2.0
"""The factor on both sides of what was added up."""
_MOST_TIMES = 8
_Q6_K: Final = 14
"""ggml's type that is measured: neither the quickest of those that judges have nor the slowest."""
_PATCHES_PER_TOKEN = 4
_WINDOW_PATCHES = 64
_BESIDE = 1.15
"""What a layer takes beside its multiplications by weights: norms, positions, copies. Measured with the 7B's widths."""
_ATTENTION = 2.5
"""What attention takes beside its own multiplications: masks, softmax and copies. Measured with the 7B's widths."""
Speed = tuple[float, float]
"""Weights that are multiplied in a second, with one token and with each of many."""
Size = tuple[int, int]
"""A clip's (width, height)."""


def predict(plan: EnginePlan, size: Size = (1280, 720)) -> TimeRange | None:
    """Predict a judgement in one order of clips of this size.

    None if nothing is known: before the first judgement by a small model, or with layers on a GPU.
    """
    estimate = plan.estimate
    if times := read_kept(_times_path(plan, plan.profile.frame_size(*size, called=False)), list[float]):
        margin = 1.5 + 0.5 / len(times)  # the more is known, the less it differs
        return TimeRange(min(times) / margin, max(times) * margin)
    if estimate.gpu_bytes or estimate.shape.text_bytes < SMALL_MODEL_BYTES:
        return None
    threads = plan.settings.threads or describe_machine().cpus
    try:
        speed = _measure_speed(threads)
    except (AttributeError, VrtError):  # the engine lacks a function
        return None
    seconds = estimate_seconds(estimate.shape, plan.profile.for_size(*size), speed)
    return TimeRange(seconds / _ADDED_UP, seconds * _ADDED_UP)


def estimate_seconds(shape: ModelShape, profile: Profile, speed: Speed) -> float:
    """Seconds of a judgement of two new clips, by the engine's speed."""
    one, many = (_BESIDE / weights for weights in speed)
    encoded, read, written = count_work(profile)
    attention = _ATTENTION * 2 / speed[1]
    # Half of the conversation is read before a token, in the mean.
    attended = attention * shape.query_width * shape.layers * read / 2
    patches = _PATCHES_PER_TOKEN * profile.max_cells
    seen = _WINDOW_PATCHES + (patches - _WINDOW_PATCHES) / shape.vision_full_every
    weights = shape.matrices
    patch = many * weights["tower"] + attention * shape.vision_width * shape.vision_layers * seen
    return (
        encoded * (_PATCHES_PER_TOKEN * patch + many * weights["merger"])
        + read * (many * weights["layers"] + attended)
        + written * (one * (weights["layers"] + weights["output"]) + attended)
    )


def predict_like(mode: Mode, path: Path) -> TimeRange | None:
    """Predict a judgement of clips like the one at `path`; None if that is not known, or nothing can be judged."""
    from vrt_lite.video import open_clip  # noqa: PLC0415 - the decoder only when there is something to decode

    try:
        with open_clip(path) as clip:
            plan = mode.plan()
            return predict(plan, (clip.info.width, clip.info.height)) if plan else None
    except VrtError:
        return None  # judging will say why


def announce(plan: EnginePlan, size: Size, observe: Observe, *, both_orders: BothOrders) -> None:
    """Tell `observe` how long judging clips of this size will take, if that is known."""
    if one := predict(plan, size):
        both = TimeRange(one.least, 2 * one.most)  # nothing is encoded again
        observe(Predicted(both if both_orders is True else one, both if both_orders == "auto" else None))


def keep_time(plan: EnginePlan, judgement: Judgement) -> None:
    """Keep how long a judgement took with this plan, unless frames of it were encoded before."""
    encoded = sum(order.rounds[0].frames_encoded for order in judgement.orders)
    if encoded < 2 * plan.profile.first_frames:
        return
    t, path = judgement.timings, _times_path(plan, judgement.inputs[0].shown_size)
    seconds = (t.vision + t.prefill + t.generate + t.other) / len(judgement.orders)
    times = [*(read_kept(path, list[float]) or ()), seconds]
    with contextlib.suppress(OSError):
        keep(path, times[-_MOST_TIMES:])


def _times_path(plan: EnginePlan, shown: Size) -> Path:
    """The file with the seconds that the last judgements took, of frames that are shown at this size.

    A model is known by its shape: two with the same matrices take as long.
    """
    return kept_path("speeds", plan.estimate.shape, plan.profile.sha256, describe_machine(), plan.settings, shown)


def _measure_speed(threads: int) -> Speed:
    """How fast this machine multiplies matrices: as it is kept, else measured in a worker."""
    path = kept_path("speeds", describe_machine(), threads)
    speed = read_kept(path, Speed)
    if speed is None:
        from vrt_lite.backends.llamacpp.matrix_speed import measure_matrix  # noqa: PLC0415 - the engine
        from vrt_lite.worker import Worker  # noqa: PLC0415 - once on a machine

        with Worker() as worker:
            speed = worker.call(measure_matrix, _Q6_K, threads)
        with contextlib.suppress(OSError):
            keep(path, speed)
    return speed
