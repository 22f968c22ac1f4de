"""Measures an engine that crashes, hangs, or stops with a reason."""

from __future__ import annotations

import os
import signal
import time

from vrt_lite.errors import ModelError
from vrt_lite.models import ModelFiles
from vrt_lite.tuning import Tuning
from vrt_lite.tuning.tune import ModelSpeed, measure_model


def fail_or_measure(failure: str, files: ModelFiles, tuning: Tuning) -> ModelSpeed:
    match failure:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(60)  # the signal may come to another thread, a little later
        case "hang":
            time.sleep(3600)
        case "stop":
            raise ModelError("There is no such kernel.")
        case _:
            pass
    return measure_model(files, (1, 1, 1), tuning)
