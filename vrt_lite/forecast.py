"""Says before a judgement how long it will take on this machine.

What this model took here at about this size tells most. Without that the time is added up from the speed of the engine
with matrices of the model's types, which is measured once in a process of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING

from vrt_lite.backends import describe_machine
from vrt_lite.errors import VrtError
from vrt_lite.fitting import EnginePlan
from vrt_lite.fitting.memory_estimate import ModelShape, read_shape
from vrt_lite.fitting.time_estimate import F16, MatrixSpeeds, count_cells, estimate_seconds
from vrt_lite.interfaces import Observe, Predicted, TimeRange
from vrt_lite.models import ModelFiles
from vrt_lite.modes import Mode
from vrt_lite.settings import BothOrders
from vrt_lite.tuning import keep, kept_path, read_kept, read_times

if TYPE_CHECKING:
    from vrt_lite.video import ClipInfo

_ADDED_UP = 2.0
"""The factor on both sides of what was added up."""
_SAME_SIZE = 1.25
"""Clips whose frames have visual tokens within this factor take about as long."""
Size = tuple[int, int]


def predict(files: ModelFiles, plan: EnginePlan, size: Size | None = None) -> TimeRange | None:
    """Predict a judgement in one order of clips of this (width, height); without it, of the largest frames.

    None if nothing is known: before the first judgement by a small model, or with layers on a GPU.
    """
    cells = count_cells(plan.profile, size)
    times = [seconds for of, seconds in read_times(files, plan) if 1 / _SAME_SIZE < of / cells < _SAME_SIZE]
    if times:
        margin = 1.5 + 0.5 / len(times)  # the more is known, the less it differs
        return TimeRange(min(times) / margin, max(times) * margin)
    return predict_shape(read_shape(files), plan, size)


def predict_shape(shape: ModelShape, plan: EnginePlan, size: Size | None = None) -> TimeRange | None:
    """The same for a model of this shape, which may not be here."""
    if shape.is_small or any(plan.estimate.gpu_bytes):
        return None
    try:
        speeds = _measure_speeds(
            {F16}.union(*shape.matrices.values()), plan.settings.threads or describe_machine().cpus
        )
    except (AttributeError, VrtError):  # the engine lacks a function, or cannot multiply these types
        return None
    seconds = estimate_seconds(shape, plan.profile, speeds, size)
    return TimeRange(seconds / _ADDED_UP, seconds * _ADDED_UP)


def predict_like(mode: Mode, path: Path) -> TimeRange | None:
    """Predict a judgement of clips like the one at `path`; None if that is not known, or nothing can be judged."""
    from vrt_lite.video import open_clip  # noqa: PLC0415 - the decoder only when there is something to decode

    try:
        with open_clip(path) as clip:
            return _predict(mode, clip.info)
    except VrtError:
        return None  # judging will say why


def announce(mode: Mode, clip: ClipInfo, observe: Observe, *, both_orders: BothOrders) -> None:
    """Tell `observe` how long judging clips like this one will take, if that is known."""
    if one := _predict(mode, clip):
        both = TimeRange(one.least, 2 * one.most)  # nothing is encoded again
        observe(Predicted(both if both_orders is True else one, both if both_orders == "auto" else None))


def _predict(mode: Mode, clip: ClipInfo) -> TimeRange | None:
    plan = mode.plan()
    return predict(mode.files, plan, (clip.width, clip.height)) if plan and mode.files else None


def _measure_speeds(types: Set[int], threads: int) -> MatrixSpeeds:
    """How fast this machine multiplies matrices of these types: as it is kept, else measured in a worker."""
    path = kept_path("speeds", describe_machine(), threads)
    kept = read_kept(path, MatrixSpeeds) or MatrixSpeeds({}, {})
    if missing := types - kept.many.keys():
        from vrt_lite.backends.llamacpp.matrix_speed import measure_matrices  # noqa: PLC0415 - the engine
        from vrt_lite.worker import Worker  # noqa: PLC0415 - once on a machine

        with Worker() as worker:
            one, many = worker.call(measure_matrices, missing, threads)
        kept = MatrixSpeeds({**kept.one, **one}, {**kept.many, **many})
        with contextlib.suppress(OSError):
            keep(path, kept)
    return kept
