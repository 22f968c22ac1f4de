"""The server of a judge that is not on this machine: connected when first needed, told of in a judgement.

Knows what of the settings a server decides itself; refuses to know requests (the HTTP back end's) and verdicts.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from vrt_lite.backends import open_remote
from vrt_lite.backends.settings import Remote
from vrt_lite.errors import UsageError
from vrt_lite.interfaces import Observe
from vrt_lite.judgement import BackendUsed, ModelUsed
from vrt_lite.profile import Profile

if TYPE_CHECKING:
    from vrt_lite.backends.http import HttpBackend
    from vrt_lite.settings import Settings

_OF_THIS_MACHINE = ("ctx", "gpu_layers", "kv_type", "threads")


class Server:
    """Where a remote judge is; a context manager. Threads may share it: the first that needs it connects."""

    def __init__(self, remote: Remote, *, profile: Profile) -> None:
        self._remote = remote
        self._profile = profile
        self._lock = Lock()
        self._backend: HttpBackend | None = None
        self._free = contextlib.ExitStack()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc: object) -> None:
        self._free.close()

    def open(self) -> HttpBackend:
        """The one back end of this server."""
        with self._lock:
            if self._backend is None:
                self._backend = self._free.enter_context(open_remote(self._remote, profile=self._profile))
            return self._backend

    def connect(self, observe: Observe) -> None:
        """Ask what the server serves, unless the model is named; `observe` gets an event while waiting for it."""
        if self._remote.served_model is None:
            self.open().connect(observe)

    def identity(self) -> dict[str, str]:
        """What a stored verdict is kept under. A server that is not told which model to use is asked what it serves."""
        r = self._remote
        return {"url": r.url, "kind": r.kind, "model": r.served_model or self.open().served.model}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of a verdict must know of how it was asked for."""
        return self._backend.warnings if self._backend else ()

    def used(self) -> ModelUsed:
        """What a judgement tells of the judge; the server is not asked for this alone."""
        backend, r = self._backend, self._remote
        model, kind, form = (backend.served.model, backend.served.kind, backend.form) if backend else ("", "", "")
        used = BackendUsed(r.url, model or r.served_model or "", kind, form)
        return ModelUsed(used.model or r.url, "", "", "", "", self._profile.name, self._profile.sha256, used)


def refuse_local(settings: Settings, projector: Path | None) -> None:
    """UsageError for what only an engine on this machine could follow."""
    given = [name for name in _OF_THIS_MACHINE if getattr(settings, name) is not None]
    if projector is not None:
        given.append("projector")
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"With --backend the server decides how the model runs: leave out {options}.")
