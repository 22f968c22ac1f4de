"""The error tree. Knows the exit status of each kind; refuses to know where an error is printed.

    VrtError                   1  never raised itself
    ├── UsageError             2  an argument or a profile that cannot be used
    ├── VideoError             3  a file that is no usable video
    ├── ModelError             4  a model that is missing, broken or mismatched
    ├── OutOfMemoryError       5  the machine cannot hold the model or its context
    ├── NoVerdictError         6  the model ended without a readable judgement
    │   └── ContextFullError      the conversation outgrew the context before it did
    ├── StoreError             7  a store of runs that is damaged, or cannot be read or written
    └── BackendError           8  a server that cannot be reached, refuses, or answers with nonsense

An interrupt ends with 130 and is Python's own KeyboardInterrupt. A message is one line: what is
wrong, the value, what is allowed, the next step. What a model writes is never an exception.
"""

from __future__ import annotations

from typing import ClassVar


class VrtError(Exception):
    """Base of everything this package raises on purpose; `str(error)` is fit to show to a user."""

    status: ClassVar[int] = 1


class UsageError(VrtError):
    """An argument, option or profile value outside what is allowed."""

    status = 2


class VideoError(VrtError):
    """A clip that cannot be opened, is not a video, is cut short or too damaged to judge."""

    status = 3


class ModelError(VrtError):
    """A model file that is missing, corrupt, of another architecture, or paired with a wrong projector."""

    status = 4


class OutOfMemoryError(VrtError):
    """The engine could not allocate the weights, the context or a compute buffer."""

    status = 5


class NoVerdictError(VrtError):
    """All rounds are used and the model gave neither a final nor a recommended answer."""

    status = 6


class ContextFullError(NoVerdictError):
    """The next round does not fit into the context; a recommendation made before it may still stand."""


class StoreError(VrtError):
    """A store of runs that is damaged, or that cannot be read or written; also a run that was deleted while in use."""

    status = 7


class BackendError(VrtError):
    """A judge's server that cannot be reached, refuses, stalls or answers with nonsense, after all tries."""

    status = 8
