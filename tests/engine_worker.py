"""Loads judges, each given as a line of standard input, and lets each one write a few tokens about two short clips.

A line has the paths of a text model and of its projector, with a tab between them. A line is printed for each: "ok", or
the error. For a judge that ends the process, no line is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp import EngineSettings, LlamaCppBackend
from vrt_lite.errors import VrtError
from vrt_lite.interfaces import Sampling, ignore
from vrt_lite.judge import Pair, opening
from vrt_lite.models import find
from vrt_lite.protocol.messages import FrameRef


class Noise:
    """A store of small frames of noise."""

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        return [np.random.default_rng(f.index).integers(0, 255, (56, 84, 3), dtype=np.uint8) for f in frames]


def try_judge(text: Path, projector: Path) -> str:
    try:
        files = find(text, projector=projector)
        settings = EngineSettings(gpu_layers=0, threads=1)
        with LlamaCppBackend(files.text, files.projector, profile=files.profile, settings=settings) as backend:
            conversation = opening(Pair("A red circle.", (1.0, 1.0)), files.profile)
            backend.reply(conversation, Noise(), sampling=Sampling(3), observe=ignore)
    except VrtError as error:
        text_of_error = str(error)
        return f"{error.kind}: {text_of_error}" if "\n" not in text_of_error else f"several lines: {text_of_error!r}"
    except Exception as error:  # the test looks at what it is
        return f"unexpected {error!r}"
    return "ok"


if __name__ == "__main__":
    for line in sys.stdin:
        text, projector = line.rstrip("\n").split("\t")
        print(try_judge(Path(text), Path(projector)), flush=True)
