"""Says before a judgement how long it will take where the judge runs, and learns from the judgements made there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vrt_lite.errors import VrtError
from vrt_lite.fitting.predicted_time import Prediction, event_of
from vrt_lite.interfaces import Observe
from vrt_lite.judgement import Judgement
from vrt_lite.modes import LocalMode, Mode
from vrt_lite.settings import BothOrders
from vrt_lite.tuning import prediction

if TYPE_CHECKING:
    from vrt_lite.video import ClipInfo


def predict(mode: Mode, size: tuple[int, int] | None = None) -> Prediction | None:
    """Predict a judgement of clips of this (width, height); without it, of the largest frames.

    None if that is not known, as for a server. Raises OutOfMemoryError.
    """
    if not isinstance(mode, LocalMode) or mode.files is None:
        return None
    return prediction.predict(mode.files, mode.start_planning().result(), size)


def predict_like(mode: Mode, path: Path) -> Prediction | None:
    """Predict a judgement of clips like the one at `path`; None if that is not known, or nothing can be judged."""
    from vrt_lite.video import open_clip  # noqa: PLC0415 - the decoder only when there is something to decode

    try:
        with open_clip(path) as clip:
            return predict(mode, (clip.info.width, clip.info.height))
    except VrtError:
        return None  # judging will say why


def announce(mode: Mode, clip: ClipInfo, observe: Observe, *, both_orders: BothOrders) -> None:
    """Tell `observe` how long judging clips like this one will take, if that is known."""
    if predicted := predict(mode, (clip.width, clip.height)):
        observe(event_of(predicted, mode.profile, both_orders=both_orders))


def learn(mode: Mode, judgement: Judgement) -> None:
    """Keep what a judgement has cost, for the next prediction."""
    if isinstance(mode, LocalMode) and mode.files is not None:
        prediction.learn(mode.files, mode.start_planning().result(), judgement)
