"""Measures an engine that crashes or hangs with some settings.

The settings are repack, flash, q8_0 or default (any at all); with each comes what happens: crash, hang, stop (with a
reason) or chatter (on standard output, and goes on).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping

from vrt_lite.tuning.measure import Baseline, MeasuringTask, measure_setup
from vrt_lite.tuning.search import Seconds, Setup, Stage


def fail_or_measure(
    failures: Mapping[str, str], task: MeasuringTask, setup: Setup, stages: tuple[Stage, ...], baseline: Baseline
) -> tuple[Seconds, Baseline]:
    s = setup.settings
    tried = {"default": True, "repack": s.repack, "flash": s.flash_attention is True, "q8_0": s.kv_type == "q8_0"}
    for name, failure in failures.items():
        if tried[name]:
            fail(failure)
    return measure_setup(task, setup, stages, baseline)


def fail(failure: str) -> None:
    match failure:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            time.sleep(3600)
        case "stop":
            raise RuntimeError("no such kernel")
        case "chatter":
            os.write(1, b"a library prints\n")
