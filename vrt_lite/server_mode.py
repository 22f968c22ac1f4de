"""Where the model of a judge runs on a server."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from vrt_lite.backends import Used, open_remote
from vrt_lite.errors import UsageError, Warned
from vrt_lite.interfaces import Backend, FrameStore, Observe, Stopwatch
from vrt_lite.judgement import ModelUsed, ServerUsed
from vrt_lite.models import ModelFiles
from vrt_lite.profile import Profile
from vrt_lite.settings import LOCAL_SETTINGS, Remote, ServerKind, Settings

if TYPE_CHECKING:
    from vrt_lite.backends.http import HttpBackend

_BATCHING: Final[tuple[ServerKind, ...]] = ("vllm", "sglang")
"""Servers that write several replies at once."""


class ServerMode:
    """A server. Threads may share it: the first that needs it connects."""

    def __init__(self, remote: Remote, own: Profile, settings: Settings, *, projector: Path | None) -> None:
        _refuse_local_settings(settings, projector)
        self.files: ModelFiles | None = None
        self.own = own
        self.profile = settings.applied_to(own)
        self._remote = remote
        self._lock = Lock()
        self._backend: HttpBackend | None = None
        self._free = contextlib.ExitStack()

    def key(self) -> dict[str, str]:
        """The server and its model. Asks the server what it serves, unless the model is named."""
        r = self._remote
        return {"url": r.url, "kind": r.kind, "model": r.served_model or self._open().connect().model}

    def prepare(self) -> None:
        """Nothing can be done before the first request."""

    def plan(self) -> Profile:
        """The profile as it is: the server decides how the model runs."""
        return self.profile

    def open(self, frames: FrameStore, observe: Observe, watch: Stopwatch) -> Backend:
        """The HTTP back end."""
        return self._open()

    def turn(self, most: int, observe: Observe) -> AbstractContextManager[int]:
        """Nothing to wait for: the server has a queue. Only one that is known for it gets more requests at once.

        llama-cpp-python's server breaks off a reply when the next request comes.
        """
        at_once = most > 1 and self._open().connect(observe).kind in _BATCHING
        return contextlib.nullcontext(most if at_once else 1)

    def used(self) -> Used:
        """The server, with what its answers have shown so far."""
        backend, r = self._backend, self._remote
        if backend is None:
            server = ServerUsed(r.url, r.served_model, None, None)
        else:
            info = backend.connect()
            server = ServerUsed(r.url, info.model, info.kind, backend.form)
        return Used(ModelUsed(server.model or r.url, None, None), server)

    def notes(self) -> tuple[Warned, ...]:
        """What a user should know about the requests to the server."""
        return self._backend.warnings if self._backend else ()

    def connect(self, observe: Observe) -> None:
        """Ask what the server serves, unless the model is named; `observe` gets an event while waiting for it."""
        if self._remote.served_model is None:
            self._open().connect(observe)

    def close(self) -> None:
        """Close the connections."""
        self._free.close()

    def _open(self) -> HttpBackend:
        with self._lock:
            if self._backend is None:
                self._backend = self._free.enter_context(open_remote(self._remote, profile=self.profile))
            return self._backend


def _refuse_local_settings(settings: Settings, projector: Path | None) -> None:
    """UsageError for settings that only an engine on this machine can use."""
    names = [name for name in LOCAL_SETTINGS if getattr(settings, name) is not None]
    if projector is not None:
        names.append("projector")
    if names:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise UsageError(f"With --backend the server decides how the model runs: leave out {options}.")
