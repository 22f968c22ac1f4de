"""vrt-lite: which of two generated videos is better, judged on this machine.

    >>> from vrt_lite import compare
    >>> judgement = compare("examples/star.mp4", "examples/circle.mp4", prompt="A blue star moves up.")
    >>> judgement.winner
    1

Public names are loaded when first used: importing this package does no work.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which takes time to import; type checkers know the name
if TYPE_CHECKING:
    from vrt_lite.api import Judge, compare
    from vrt_lite.backends.scripted import ScriptedBackend
    from vrt_lite.errors import (
        BackendError,
        ModelError,
        NoVerdictError,
        OutOfMemoryError,
        ShortageError,
        StoreError,
        UsageError,
        VideoError,
        VrtError,
    )
    from vrt_lite.judgement import Judgement
    from vrt_lite.settings import Remote, Settings

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "Judge",
    "Judgement",
    "ModelError",
    "NoVerdictError",
    "OutOfMemoryError",
    "Remote",
    "ScriptedBackend",
    "Settings",
    "ShortageError",
    "StoreError",
    "UsageError",
    "VideoError",
    "VrtError",
    "compare",
]

_HOMES = {
    "Judge": "api",
    "Settings": "settings",
    "compare": "api",
    "Judgement": "judgement",
    "Remote": "settings",
    "ScriptedBackend": "backends.scripted",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
