"""What jobs work with in the engine's thread: the store, the clips, and the one judge that is loaded."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from vrt_lite.api import Judge
from vrt_lite.errors import ModelError
from vrt_lite.models import bundled_names
from vrt_lite.models.library import find_stored
from vrt_lite.runs.store import Store
from vrt_lite.settings import Remote, Settings
from vrt_lite.web.clip_store import ClipStore
from vrt_lite.web.request_bodies import JudgeOptions


@dataclass(frozen=True, slots=True)
class JudgeChoice:
    """How the server was told to judge: a client that names nothing gets this."""

    model: str | None = None
    projector: Path | None = None
    backend: Remote | None = None
    settings: Settings = field(default_factory=Settings)


class JobContext:
    """The store, the clips and the one judge that is loaded. Jobs run in one thread."""

    def __init__(self, store: Store, clip_store: ClipStore, choice: JudgeChoice) -> None:
        self.store = store
        self.clip_store = clip_store
        self.choice = choice
        self.gives_way: Callable[[], bool] = lambda: False
        self.seconds: float | None = None
        """How long the judge that is loaded takes for one order, as far as it is known."""
        self._opened: tuple[tuple[str | None, Settings], Judge] | None = None

    def check_model(self, model: str | None) -> None:
        """Raise ModelError unless a model may be named: the server's own, a bundled or a pulled one. Never a path."""
        known = model is None or model in (self.choice.model, *bundled_names())
        plain = bool(model) and not any(character in str(model) for character in "\\\0") and ".." not in str(model)
        if not known and not (plain and find_stored(str(model))):
            raise ModelError(f"Model {str(model)[:80]!r} is not here. See /v1/models, or: vrt-lite models")

    def open_judge(self, model: str | None, options: JudgeOptions) -> Judge:
        """Open a judge; it stays loaded until a job asks for another one."""
        given = {name: value for name, value in msgspec.structs.asdict(options).items() if value is not None}
        # Both orders are two questions to the store.
        settings = replace(self.choice.settings, **given, both_orders=False)
        if model in (None, self.choice.model):
            model, projector = self.choice.model, self.choice.projector
        else:
            projector = None
        wanted = (model, settings)
        if self._opened is None or self._opened[0] != wanted:
            self.close()
            digest = self.store.digest
            judge = Judge(model, projector=projector, settings=settings, backend=self.choice.backend, digest=digest)
            self._opened = (wanted, judge)
        return self._opened[1]

    def end_judgement(self, seconds: float) -> None:
        """Learn how long one order took, and free what it used.

        A decoder's objects refer to each other, so that only a collection frees them; Python knows nothing of their
        megabytes and collects too seldom.
        """
        gc.collect()
        self.seconds = seconds if self.seconds is None else self.seconds + 0.3 * (seconds - self.seconds)

    def close(self) -> None:
        """Free the judge that is loaded; the engine's thread calls it, or has ended."""
        if self._opened:
            self._opened, (_, judge), self.seconds = None, self._opened, None
            judge.close()


def name_daily_run(what: str) -> str:
    """Name the run that keeps what was asked for one by one today."""
    return f"{what} {time.strftime('%Y-%m-%d')}"
