"""The errors that this package raises on purpose, and its warnings, which are values.

    VrtError                   1  never raised itself
    ├── UsageError             2  an argument or a profile that cannot be used
    ├── VideoError             3  a file that is no usable video
    │   └── MissingClipError      a file that is not there
    ├── ClipsError             3  several clips that cannot be used, each reported before
    ├── ModelError             4  a model that is missing, broken or mismatched
    ├── WorkerEndedError       4  the process that judges crashed, or gave no answer in time
    │   └── WorkerKilledError  5  the system killed it, probably for want of memory
    ├── OutOfMemoryError       5  the machine cannot hold the model or its context
    ├── ShortageError          5  the machine has run out of memory, open files or threads
    ├── NoVerdictError         6  the model ended without a readable judgement
    │   └── ContextFullError      the conversation became too long for the context
    ├── StoreError             7  a store of runs that is damaged, or cannot be read or written
    ├── BackendError           8  a server that cannot be reached, refuses, or answers with nonsense
    └── DiagnosisError         9  `vrt-lite doctor` found something that does not work

The numbers are exit statuses. An interrupt ends with 130 and is Python's own KeyboardInterrupt. A message is one line:
what is wrong, the value, what is allowed, the next step. Nothing that a model writes raises an exception.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

ASK_DOCTOR = " See what is wrong: vrt-lite doctor"
"""The end of a message about an engine that does not work."""
CLOSED = "This judge was closed: open another."


class VrtError(Exception):
    """Base of every error here. `str(error)` can be shown to a user; `kind` tells programs what failed."""

    status: ClassVar[int] = 1
    kind: ClassVar[str] = "error"


class UsageError(VrtError):
    """An argument, option or profile value outside what is allowed."""

    status = 2
    kind = "usage"


class VideoError(VrtError):
    """A clip that cannot be opened, is not a video, is cut short or too damaged to judge.

    `path` is the file as it was given; `reason` completes a sentence that begins with the path.
    """

    status = 3
    kind = "broken_clip"

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = Path(path)
        self.reason = reason

    def __str__(self) -> str:
        # A path has one slash where a URL had two.
        name = re.sub(r"^([a-z][a-z0-9+.-]+:)/(?=[^/])", r"\1//", str(self.args[0]))
        return f"{name!r} {self.reason}"


class MissingClipError(VideoError):
    """A clip that is not at the path given."""

    kind = "missing_clip"


class ClipsError(VrtError):
    """Several clips that cannot be used; each was reported before, with its reason."""

    status = 3
    kind = "broken_clips"


class ModelError(VrtError):
    """A model file that is missing, corrupt, of another architecture, or paired with a wrong projector."""

    status = 4
    kind = "unusable_model"


class WorkerEndedError(VrtError):
    """The process that decodes and judges crashed, or gave no answer in time."""

    status = 4
    kind = "engine_ended"


class WorkerKilledError(WorkerEndedError):
    """The system killed the process that decodes and judges, or that had no memory left to give an answer."""

    status = 5
    kind = "worker_killed"

    def __str__(self) -> str:
        return (
            "The judge's process ended, probably for lack of memory. Close other programs, use "
            "fewer --jobs, or lower --max-pixels; then run the same command again."
        )


class OutOfMemoryError(VrtError):
    """The engine could not allocate the weights, the context or a compute buffer."""

    status = 5
    kind = "out_of_memory"


class ShortageError(VrtError):
    """The machine has, or grants, no more memory, open files or threads now. No clip and no model is at fault.

    `what` is what is short.
    """

    status = 5
    kind = "shortage"

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return (
            f"This machine has no more {self.what} for this program. Close other programs, use fewer --jobs, or raise "
            "the limit; then run the same command again."
        )


class NoVerdictError(VrtError):
    """All rounds are used and the model gave neither a final nor a recommended answer."""

    status = 6
    kind = "no_verdict"


class ContextFullError(NoVerdictError):
    """The next round does not fit into the context; an earlier recommendation may still be used."""

    kind = "context_full"


class StoreError(VrtError):
    """A store of runs that is damaged, or that cannot be read or written; also a run that was deleted while in use."""

    status = 7
    kind = "store"


class BackendError(VrtError):
    """A judge's server that cannot be reached, refuses, stalls or answers with nonsense, after all tries."""

    status = 8
    kind = "server"


class DiagnosisError(VrtError):
    """`vrt-lite doctor` found something that does not work; the list that it printed says what."""

    status = 9
    kind = "diagnosis"


@dataclass(frozen=True, slots=True)
class Warned:
    """Something a user should know about a judgement: its kind, for programs, and one line of text."""

    kind: str
    text: str
