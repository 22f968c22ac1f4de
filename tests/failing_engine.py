"""Measures as the engine does, but crashes or hangs with some settings: `python failing_engine.py SETTING=WHAT...`.

SETTING is repack, flash, q8_0 or default (any at all); WHAT is crash, hang, stop (with a reason) or chatter (on
standard output, and goes on).
"""

from __future__ import annotations

import os
import signal
import sys
import time

from vrt_lite.backends.llamacpp.measure import Bench, serve
from vrt_lite.fitting.search import Setup, Stage

PLAN = dict(argument.split("=") for argument in sys.argv[1:])


class Failing(Bench):
    def measure(self, setup: Setup, stage: Stage) -> float:
        s = setup.settings
        tried = {"default": True, "repack": s.repack, "flash": s.flash_attention is True, "q8_0": s.kv_type == "q8_0"}
        for name, what in PLAN.items():
            if tried[name]:
                fail(what)
        return super().measure(setup, stage)


def fail(what: str) -> None:
    match what:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            time.sleep(3600)
        case "stop":
            raise RuntimeError("no such kernel")
        case "chatter":
            os.write(1, b"a library prints\n")


if __name__ == "__main__":
    serve(Failing)
