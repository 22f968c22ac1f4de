"""vrt-lite: which of two generated videos is better, judged on this machine.

    >>> from vrt_lite import compare
    >>> judgement = compare("examples/star.mp4", "examples/circle.mp4", prompt="A blue star moves up.")
    >>> judgement.winner
    1

Public names are loaded when first used: importing this package does no work. `dir(vrt_lite)` lists them.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which takes time to import; type checkers know the name
if TYPE_CHECKING:
    from vrt_lite.api import Judge, compare
    from vrt_lite.backends.scripted import ScriptedBackend
    from vrt_lite.errors import (
        BackendError,
        MissingClipError,
        ModelError,
        NoVerdictError,
        OutOfMemoryError,
        ShortageError,
        StoreError,
        UsageError,
        VideoError,
        VrtError,
    )
    from vrt_lite.evaluation.evaluate import Evaluation
    from vrt_lite.protocol.messages import Dimension
    from vrt_lite.records.figures import Figures
    from vrt_lite.records.judgement import Judgement
    from vrt_lite.records.ladders import Ladder, Ranking
    from vrt_lite.records.pairs import Result
    from vrt_lite.run_api import evaluate, rank, read_figures, read_ladders
    from vrt_lite.runs.store import Run, Store
    from vrt_lite.settings import Remote, Settings

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "Dimension",
    "Evaluation",
    "Figures",
    "Judge",
    "Judgement",
    "Ladder",
    "MissingClipError",
    "ModelError",
    "NoVerdictError",
    "OutOfMemoryError",
    "Ranking",
    "Remote",
    "Result",
    "Run",
    "ScriptedBackend",
    "Settings",
    "ShortageError",
    "Store",
    "StoreError",
    "UsageError",
    "VideoError",
    "VrtError",
    "compare",
    "evaluate",
    "rank",
    "read_figures",
    "read_ladders",
]

_HOMES = {
    "Dimension": "protocol.messages",
    "Evaluation": "evaluation.evaluate",
    "Figures": "records.figures",
    "Judge": "api",
    "Judgement": "records.judgement",
    "Ladder": "records.ladders",
    "Ranking": "records.ladders",
    "Remote": "settings",
    "Result": "records.pairs",
    "Run": "runs.store",
    "ScriptedBackend": "backends.scripted",
    "Settings": "settings",
    "Store": "runs.store",
    "compare": "api",
    "evaluate": "run_api",
    "rank": "run_api",
    "read_figures": "run_api",
    "read_ladders": "run_api",
}
"""The modules of the public names that are not in `errors`."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
