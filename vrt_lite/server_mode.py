"""Where the model of a judge runs on a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from vrt_lite.backends import BackendEngine, Engine, Used, open_remote
from vrt_lite.errors import UsageError
from vrt_lite.interfaces import FrameStore, Observe, Stopwatch
from vrt_lite.models import ModelFiles
from vrt_lite.profile import Profile
from vrt_lite.records.judgement import ModelUsed, ServerKind, ServerUsed
from vrt_lite.scheduler import InThread, Work
from vrt_lite.settings import LOCAL_SETTINGS, Remote, Settings

if TYPE_CHECKING:
    from vrt_lite.backends.http import HttpBackend
    from vrt_lite.backends.http.request import ServerInfo

_BATCHING: Final[tuple[ServerKind, ...]] = ("vllm", "sglang")
"""Servers that write several replies at once. Others have a queue, or break off a reply when the next request comes, as
llama-cpp-python's does."""


class ServerMode:
    """A server. Nothing is sent to it before it is needed."""

    def __init__(self, remote: Remote, own: Profile, settings: Settings, *, projector: Path | None) -> None:
        _refuse_local_settings(settings, projector)
        if own.answer and own.answer.head:
            raise UsageError(f"{own.name} is read at the model's state, which no server tells: leave --backend out.")
        self.files: ModelFiles | None = None
        self.own = own
        self.profile = settings.applied_to(own)
        self._remote = remote
        self._backend: HttpBackend = open_remote(remote, profile=self.profile)
        self._server: ServerInfo | None = None

    def key(self) -> dict[str, str]:
        """The server and its model. Asks the server what it serves, unless the model is named."""
        r = self._remote
        return {"url": r.url, "kind": r.kind, "model": r.served_model or self._backend.connect().model}

    def prepare(self) -> None:
        """Nothing can be done before the first request."""

    def plan(self) -> None:
        """Nothing to plan: the server decides how the model runs."""

    def open(self, frames: FrameStore, observe: Observe, watch: Stopwatch) -> Work[Engine]:
        """Ask what the server is."""
        self._server = server = yield InThread(self._backend.connect, observe)
        return BackendEngine(self._backend, at_once=server.kind in _BATCHING)

    def describe(self) -> Used:
        """The server, with what its answers have shown so far."""
        info, r = self._server, self._remote
        if info is None:
            server = ServerUsed(r.url, r.served_model, None, None)
        else:
            server = ServerUsed(r.url, info.model, info.kind, info.form)
        return Used(ModelUsed(server.model or r.url, None, None), server, warnings=self._backend.warnings)

    def connect(self, observe: Observe) -> None:
        """Ask what the server serves, unless the model is named; `observe` is told of waits."""
        if self._remote.served_model is None:
            self._backend.connect(observe)

    def close(self) -> None:
        """Close the connections."""
        self._backend.close()


def _refuse_local_settings(settings: Settings, projector: Path | None) -> None:
    """UsageError for settings that only an engine on this machine can use."""
    names = [name for name in LOCAL_SETTINGS if getattr(settings, name) is not None]
    if projector is not None:
        names.append("projector")
    if names:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise UsageError(f"With --backend the server decides how the model runs: leave out {options}.")
