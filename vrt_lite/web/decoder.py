"""Decodes clips in a process of its own: a file that ends the decoder ends no server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from vrt_lite.errors import VideoError, WorkerEndedError
from vrt_lite.worker import Worker

_T = TypeVar("_T")
_MOST_SECONDS: Final = 300.0


class Decoder:
    """What the server asks of clips. The process begins when it is needed. Each method raises VideoError."""

    def __init__(self) -> None:
        self._worker = Worker()

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def check(self, path: Path) -> None:
        """Open a clip, and decode its first frame."""
        self._call(_check, path)

    def draw_frame(self, path: Path, source: int | None) -> bytes:
        """Draw one frame of a clip as a JPEG: by its number in the file, or the middle one."""
        return self._call(_draw_frame, path, source)

    def copy(self, path: Path) -> bytes:
        """Make a small copy of a clip that every browser plays."""
        return self._call(_copy, path)

    def _call(self, function: Callable[..., _T], path: Path, *more: Any) -> _T:
        try:
            return self._worker.call(function, path, *more, seconds=_MOST_SECONDS)
        except WorkerEndedError as error:
            raise VideoError(path, f"cannot be decoded: {error}") from error


def _check(path: Path) -> None:
    from vrt_lite.video import open_clip  # noqa: PLC0415 - in the worker alone

    open_clip(path).close()


def _draw_frame(path: Path, source: int | None) -> bytes:
    from vrt_lite.viewer.frame_album import draw_frame  # noqa: PLC0415

    return draw_frame(path, source)


def _copy(path: Path) -> bytes:
    from vrt_lite.video import open_clip  # noqa: PLC0415
    from vrt_lite.video.small_copy import write_small_copy  # noqa: PLC0415

    with open_clip(path) as clip:
        return write_small_copy(clip).data
