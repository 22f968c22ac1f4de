"""What jobs work with: the clips, a store for each job, and the one judge that is loaded, lent to several jobs."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Condition

import msgspec

from vrt_lite.api import Judge
from vrt_lite.errors import ModelError
from vrt_lite.interfaces import Observe, Stop, TimeRange
from vrt_lite.models import bundled_names
from vrt_lite.models.library import find_stored
from vrt_lite.pair_frames import ClipLook
from vrt_lite.records.judgement import Judgement
from vrt_lite.runs.store import Store
from vrt_lite.settings import Remote, Settings
from vrt_lite.web.clip_store import ClipStore
from vrt_lite.web.request_bodies import CompareBody, JudgeOptions, RankBody, RewardsBody
from vrt_lite.web.served_job import ServedJob

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class JudgeChoice:
    """How the server was told to judge: a client that names nothing gets this. `jobs` judgements run at once."""

    model: str | None = None
    projector: Path | None = None
    backend: Remote | None = None
    settings: Settings = field(default_factory=Settings)
    jobs: int = 1


class JobJudge:
    """The judge as one job uses it: a comparison ends with StoppedError when the job is cancelled."""

    def __init__(self, judge: Judge, job: ServedJob) -> None:
        self._judge = judge
        self._job = job

    @property
    def scope(self) -> str:
        """As `Judge.scope`."""
        return self._judge.scope

    @property
    def pointwise(self) -> bool:
        """As `Judge.pointwise`."""
        return self._judge.pointwise

    def key(self) -> str:
        """As `Judge.key`."""
        return self._judge.key()

    def describe(self) -> dict[str, str]:
        """As `Judge.describe`."""
        return self._judge.describe()

    def key_here(self) -> str:
        """As `Judge.key_here`."""
        return self._judge.key_here()

    def predict(self, clip: Path) -> TimeRange | None:
        """As `Judge.predict`."""
        return self._judge.predict(clip)

    def look_at(self, clip: Path) -> ClipLook:
        """As `Judge.look_at`."""
        self._job.check_cancelled()
        return self._judge.look_at(clip)

    def measure(self, clip: Path) -> Mapping[str, float]:
        """As `Judge.measure`."""
        self._job.check_cancelled()
        return self._judge.measure(clip)

    def compare(self, a: Path, b: Path, *, prompt: str, observe: Observe, stop: Stop) -> Judgement:
        """As `Judge.compare`."""
        return self._judge.compare(a, b, prompt=prompt, observe=observe, stop=Stop(stop, self._job.stop))


class JobContext:
    """The clips, the path of the store, and the one judge that is loaded. Several threads may use it."""

    def __init__(self, store: Store, clip_store: ClipStore, choice: JudgeChoice) -> None:
        self.clip_store = clip_store
        self.choice = choice
        self.is_short_job_queued: Callable[[], bool] = lambda: False
        self.seconds: float | None = None
        """How long the judge that is loaded takes for one order, as far as it is known."""
        self._store = store
        self._changed = Condition()
        self._line: list[ServedJob] = []
        """The jobs that wait for the judge, in the order in which they get it."""
        self._users = 0
        self._is_spoiled = False
        """Whether the judge ran out of memory, so that the next job has to load it again."""
        self._opened: tuple[tuple[str | None, Settings], Judge] | None = None

    def check_model(self, model: str | None) -> None:
        """Raise ModelError unless a model may be named: the server's own, a bundled or a pulled one. Never a path."""
        known = model is None or model in (self.choice.model, *bundled_names())
        plain = bool(model) and not any(character in str(model) for character in "\\\0") and ".." not in str(model)
        if not known and not (plain and find_stored(str(model))):
            raise ModelError(f"Model {str(model)[:80]!r} is not here. See /v1/models, or: vrt-lite models")

    def gives_way(self) -> bool:
        """Return whether a job that is shorter than a ranking waits: in the queue, or for another judge."""
        return self.is_short_job_queued() or any(job.kind != "rank" for job in list(self._line))

    @contextlib.contextmanager
    def lend_judge(
        self, job: ServedJob, body: CompareBody | RankBody | RewardsBody
    ) -> Generator[tuple[JobJudge, Store]]:
        """Lend a job the judge that its body asks for, and a store of its own. StoppedError if it is cancelled.

        Jobs that ask for the same judge use it at the same time; another one is loaded when nobody uses this one. Two
        open stores never judge the same question at the same time.
        """
        wanted = self._describe_wanted(body.model, body.options)
        with self._wait_in_line(job, wanted):
            judge = self._open(wanted)  # without the lock: those who wait can be cancelled meanwhile
        try:
            judge.connect(stop=job.stop)
            with Store(self._store.path) as store:
                yield JobJudge(judge, job), store
        except MemoryError:
            self._is_spoiled = True
            raise
        finally:
            with self._changed:
                self._users -= 1
                if self._is_spoiled and not self._users:
                    self.close()
                self._changed.notify_all()

    @contextlib.contextmanager
    def _wait_in_line(self, job: ServedJob, wanted: tuple[str | None, Settings]) -> Generator[None]:
        """Wait until a job may have the judge that it wants. It stays first in the line while the block opens it."""
        with self._changed:
            self._line.append(job)
        try:
            with self._changed:
                while self._line[0] is not job or (self._users and not self._find_open(wanted)):
                    self._changed.wait(_POLL_SECONDS)
                    job.check_cancelled()
                self._users += 1
            try:
                yield
            except BaseException:
                self._users -= 1
                raise
        finally:
            with self._changed:
                self._line.remove(job)
                self._changed.notify_all()

    def end_judgement(self, seconds: float) -> None:
        """Learn how long one order took, and free what it used.

        A decoder's objects refer to each other, so that only a collection frees them; Python knows nothing of their
        megabytes and collects too seldom.
        """
        gc.collect()
        self.seconds = seconds if self.seconds is None else self.seconds + 0.3 * (seconds - self.seconds)

    def close(self) -> None:
        """Free the judge that is loaded, when no job uses it any more."""
        self._is_spoiled = False
        if self._opened:
            self._opened, (_, judge), self.seconds = None, self._opened, None
            judge.close()

    def _describe_wanted(self, model: str | None, options: JudgeOptions) -> tuple[str | None, Settings]:
        given = {name: value for name, value in msgspec.structs.asdict(options).items() if value is not None}
        # Both orders are two questions to the store.
        return model or self.choice.model, replace(self.choice.settings, **given, both_orders=False)

    def _find_open(self, wanted: tuple[str | None, Settings]) -> Judge | None:
        return self._opened[1] if self._opened and self._opened[0] == wanted else None

    def _open(self, wanted: tuple[str | None, Settings]) -> Judge:
        """Open a judge; it stays loaded until a job asks for another one."""
        if judge := self._find_open(wanted):
            return judge
        self.close()
        model, settings = wanted
        choice = self.choice
        judge = Judge(
            model,
            projector=choice.projector if model == choice.model else None,
            settings=settings,
            backend=choice.backend,
            digest=self._store.digest,
            jobs=choice.jobs,
            process=True,
        )
        self._opened = (wanted, judge)
        return judge
