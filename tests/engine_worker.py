"""Loads a judge, and lets it write a few tokens about two short clips."""

from __future__ import annotations

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
    """Return "ok", or the kind of an error and its text."""
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
