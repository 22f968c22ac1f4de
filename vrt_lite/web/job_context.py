"""What jobs work with: the clips, a store for each job, and the one judge that is loaded, lent to several jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import msgspec

from vrt_lite.api import Judge
from vrt_lite.errors import ModelError
from vrt_lite.interfaces import Observe, Stop
from vrt_lite.models import bundled_names
from vrt_lite.models.library import find_stored
from vrt_lite.records.judgement import Judgement
from vrt_lite.runs.store import Store
from vrt_lite.settings import Remote, Settings
from vrt_lite.web.clip_store import ClipStore
from vrt_lite.web.served_job import ServedJob


@dataclass(frozen=True, slots=True)
class JudgeChoice:
    """How the server was told to judge: a client that names nothing gets this. `jobs` judgements run at once."""

    model: str | None = None
    projector: Path | None = None
    backend: Remote | None = None
    settings: Settings = field(default_factory=Settings)
    jobs: int = 1


class JobJudge:
    """The judge as one job uses it: all that is asked of it ends with StoppedError when the job is cancelled."""

    def __init__(self, judge: Judge, job: ServedJob) -> None:
        self._judge = judge
        self._job = job

    def __getattr__(self, name: str) -> Any:
        self._job.stop.check()
        return getattr(self._judge, name)

    def compare(self, a: Path, b: Path, *, prompt: str, observe: Observe, stop: Stop) -> Judgement:
        """As `Judge.compare`."""
        return self._judge.compare(a, b, prompt=prompt, observe=observe, stop=Stop(stop, self._job.stop))


class JobContext:
    """The clips, the path of the store, and the one judge that is loaded. The threads of the queue use it."""

    def __init__(self, store: Store, clip_store: ClipStore, choice: JudgeChoice) -> None:
        self.clip_store = clip_store
        self.choice = choice
        self.gives_way: Callable[[], bool] = lambda: False
        """Whether a job waits that is shorter than a ranking."""
        self._store = store
        self._judge: Judge | None = None
        self._usable: object = None
        """What those have asked for to whom the judge that is loaded may be lent."""

    def check_model(self, model: str | None) -> None:
        """Raise ModelError unless a model may be named: the server's own, a bundled or a pulled one. Never a path."""
        known = (None, self.choice.model, *bundled_names())
        if model not in known and not find_stored(str(model)):
            raise ModelError(f"Model {str(model)[:80]!r} is not here. See /v1/models, or: vrt-lite models")

    def admits(self, job: ServedJob, running: int) -> bool:
        """Return whether a job may begin beside others: they use one judge at the same time. It is lent to it then."""
        if self._usable != _wanted(job):
            if running:
                return False
            self._usable = None
        return True

    @contextlib.contextmanager
    def lend_judge(self, job: ServedJob) -> Generator[tuple[Judge, Store]]:
        """Lend a job that was admitted the judge it asks for, and a store of its own.

        The judge stays loaded until a job asks for another one. Two open stores never judge the same question at the
        same time.
        """
        if self._usable is None or self._judge is None:
            self.close()
            self._judge = self._open(*_wanted(job))
            self._usable = _wanted(job)
        try:
            self._judge.connect(stop=job.stop)
            with Store(self._store.path) as store:
                yield cast("Judge", JobJudge(self._judge, job)), store
        except MemoryError:
            self._usable = None  # the next job loads it again
            raise

    def close(self) -> None:
        """Free the judge that is loaded, when no job uses it any more."""
        if self._judge:
            self._judge.close()
        self._judge = self._usable = None

    def _open(self, model: str | None, options: msgspec.Struct) -> Judge:
        choice = self.choice
        given = {name: value for name, value in msgspec.structs.asdict(options).items() if value is not None}
        return Judge(
            model or choice.model,
            projector=choice.projector if model in (None, choice.model) else None,
            # Both orders are two questions to the store.
            settings=replace(choice.settings, **given, both_orders=False),
            backend=choice.backend,
            digest=self._store.digest,
            jobs=choice.jobs,
            process=True,
        )


def _wanted(job: ServedJob) -> tuple[str | None, msgspec.Struct]:
    """Return the judge that a job asks for: its model and its options."""
    body: Any = job.body
    return body.model, body.options
