"""The library's front door: `compare` two clips, or open a `Judge` once and compare many.

Puts the pieces together: model files, back end, clips, loop. Knows the order in which they are opened and what
runs side by side; refuses to know the command line and the terminal.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, TextIO

from vrt_lite.backends import open_backend, this_machine
from vrt_lite.backends.settings import EngineSettings, Remote
from vrt_lite.errors import NoVerdictError, UsageError
from vrt_lite.fitting.planning import planned, refuse_impossible
from vrt_lite.fitting.tuning import with_projector
from vrt_lite.interfaces import Backend, Loading, Observe, Sampling, ignore
from vrt_lite.interfaces import Event as Happening
from vrt_lite.judge import Round, judge
from vrt_lite.judgement import JudgedClip, JudgedOrder, Judgement, ModelUsed, pair_of, round_json, stages, warnings_of
from vrt_lite.models.files import ModelFiles, find, sha256
from vrt_lite.models.profiles import profile_of
from vrt_lite.protocol.frames import shown_first
from vrt_lite.protocol.verdict import TIE, average, disagreements
from vrt_lite.sampled import PairFrames, workspace_of
from vrt_lite.server import Server, refuse_local
from vrt_lite.settings import Settings, in_force, key_of

if TYPE_CHECKING:
    from vrt_lite.fitting.fit import Plan
    from vrt_lite.video import Clip

LONGEST_PROMPT = 8_000


class Judge:
    """A judge that is loaded once, when first needed, and compares many pairs; a context manager.

    On a server (`backend=Remote(URL)`) it may compare from several threads at once.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        projector: Path | None = None,
        settings: Settings | None = None,
        backend: Backend | Remote | None = None,
        digest: Callable[[Path], str] = sha256,
        verbose: bool = False,
    ) -> None:
        """Find the model's files, and check them. A `backend` given takes the place of the model's own.

        For a `Remote` no file is needed: `model` names its profile alone, VR-Thinker's if left out. `digest` gives a
        file's sha256 and may remember it, as `Store.digest` does: a text model has gigabytes. Each is asked for once.
        """
        self.settings = settings or Settings()
        if isinstance(backend, Remote):
            refuse_local(self.settings, projector)
            self.files, self._own = None, profile_of(model)
        else:
            refuse_impossible(self.settings)
            self.files = with_projector(find(model, projector=projector), this_machine)
            self._own = self.files.profile
        self.profile = self.settings.applied_to(self._own)
        self._verbose = verbose
        self._backend: Backend | None = None if isinstance(backend, Remote) else backend
        self.server = Server(backend, profile=self.profile) if isinstance(backend, Remote) else None
        self._model: ModelUsed | None = None
        self._plan: Plan | None = None
        self._engine: dict[str, object] | None = None
        self._free = contextlib.ExitStack()
        self._free.push(self.server or contextlib.nullcontext())
        # The comparison itself, and beside it two clips, or the weights, the choice that fits, and the digests. On a
        # server many run side by side, and none may wait for a thread that another holds.
        self._pool = ThreadPoolExecutor(max_workers=1024 if self.server else 5)
        self._sha256 = functools.cache(digest)
        # Begun at once: what was encoded in earlier runs is looked up by it.
        self._projector_sha256 = self._pool.submit(self._sha256, self.files.projector).result if self.files else str

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model, once nothing uses it any more."""
        self._pool.shutdown()
        self._free.close()

    def key(self) -> str:
        """A digest of all that a verdict depends on beside clips, order and prompt; nothing is loaded for it.

        A server that is not told which model to use is asked what it serves.
        """
        if self.server:
            return key_of(self.settings, self._own, judge=self.server.identity())
        judge = {"text": self._sha256(self._local().text), "projector": self._projector_sha256()}
        return key_of(self.settings, self._own, judge=judge)

    def compare(
        self,
        a: str | Path,
        b: str | Path,
        *,
        prompt: str = "",
        trace: Path | None = None,
        sheet: Path | None = None,
        observe: Observe = ignore,
    ) -> Judgement:
        """Judge two clips made from one prompt.

        `trace` gets a JSON line a round, as it happens; `sheet` a PNG of the frames that the judge saw.
        Raises VideoError, ModelError, OutOfMemoryError, NoVerdictError; UsageError for a long prompt, a sheet not .png.
        """
        if len(prompt) > LONGEST_PROMPT:
            raise UsageError(
                f"The prompt has {len(prompt)} characters; at most {LONGEST_PROMPT} are allowed. Shorten it."
            )
        if sheet:
            from vrt_lite.sheet import check_place  # noqa: PLC0415 - Pillow only when a sheet is asked for

            check_place(sheet)
        stop = Event()

        def watched(event: Happening) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            observe(event)

        work = self._pool.submit(self._compare, a, b, prompt, trace, sheet, watched)
        try:
            # An interrupt arrives in the main thread. The engine runs in another, or an interrupt could arrive in the
            # middle of its log callback and be lost. The short waits are for Windows, where a wait cannot be broken.
            while not wait([work], timeout=0.2).done:
                pass
        except KeyboardInterrupt:
            stop.set()
            wait([work])
            raise
        return work.result()

    def _compare(
        self, a: str | Path, b: str | Path, prompt: str, trace: Path | None, sheet: Path | None, observe: Observe
    ) -> Judgement:
        began = time.perf_counter()
        with contextlib.ExitStack() as stack:
            lines = stack.enter_context(_line_file(trace)) if trace else None
            fitting = self._fit()
            clips = self._open_clips(stack, a, b)
            same = clips[0].info.sha256 == clips[1].info.sha256
            ready = time.perf_counter()
            if fitting and not same:
                # The size of the frames may be part of what was chosen.
                self._plan, self._engine = fitting.result()
                self.profile = self._plan.profile
            waited = time.perf_counter() - ready
            spaces = (workspace_of(clips[0], self.profile), workspace_of(clips[1], self.profile))
            judged = (JudgedClip(clips[0].info, spaces[0], ()), JudgedClip(clips[1].info, spaces[1], ()))
            frames = PairFrames(clips, spaces)
            orders: list[JudgedOrder] = []
            load_seconds = 0.0
            if not same:
                digests = self._pool.submit(self._digest) if self.files else None
                ready = time.perf_counter()
                backend, load_seconds = self._ready(frames, observe)
                waited += time.perf_counter() - ready
                failures: list[NoVerdictError] = []
                for first in range(2 if self.settings.both_orders else 1):
                    try:
                        orders.append(self._judge(first, prompt, judged, frames, backend, lines, observe))
                    except NoVerdictError as error:
                        failures.append(error)
                if not orders:
                    raise failures[0]
                self._model = digests.result() if digests else None
            judged = (replace(judged[0], warnings=clips[0].warnings), replace(judged[1], warnings=clips[1].warnings))
            judgement = self._judgement(prompt, judged, tuple(orders))
            if sheet:
                from vrt_lite.sheet import draw_sheet  # noqa: PLC0415 - as above

                draw_sheet(judgement, frames, sheet)
            total = time.perf_counter() - began
            decode, resize = sum(c.decode_seconds for c in clips), sum(c.resize_seconds for c in clips)
            seconds = stages(orders, load=load_seconds, decode=decode, resize=resize, waited=waited, total=total)
            return replace(judgement, seconds=seconds, total_seconds=total)

    def _open_clips(self, stack: contextlib.ExitStack, a: str | Path, b: str | Path) -> tuple[Clip, Clip]:
        """Both clips, opened side by side; what was opened is closed by the stack, also if the other fails."""
        from vrt_lite.video import open_clip  # noqa: PLC0415 - the decoder only when there is something to decode

        opening = [self._pool.submit(open_clip, path) for path in (a, b)]
        for future in wait(opening).done:
            if not future.exception():
                stack.enter_context(future.result())
        return opening[0].result(), opening[1].result()

    def _ready(self, frames: PairFrames, observe: Observe) -> tuple[Backend, float]:
        """The back end, loaded while the first frames are decoded, and the seconds its loading took."""
        if self._backend is not None:
            return self._backend, 0.0
        if self.server:
            return self.server.open(), 0.0
        observe(Loading(self._local().name))
        loading = self._pool.submit(self._load, self._local())
        p = self.profile
        frames.pixels([frame for clip in (0, 1) for frame in shown_first(p.workspace, p.first_frames, clip)])
        self._backend, seconds = loading.result()
        return self._backend, seconds

    def _fit(self) -> Future[tuple[Plan, dict[str, object]]] | None:
        """Begin to choose what fits this machine's memory, unless that is done."""
        if self._backend is not None or self._plan is not None or self.files is None:
            return None
        return self._pool.submit(planned, self.files, self.settings, verbose=self._verbose)

    def _load(self, files: ModelFiles) -> tuple[Backend, float]:
        began = time.perf_counter()
        engine = self._plan.settings if self._plan else EngineSettings()
        from vrt_lite.embeddings import EmbeddingCache, users_disk  # noqa: PLC0415 - numpy

        disk = users_disk() if self.settings.cache else None
        cache = EmbeddingCache(disk, namespace=self._projector_sha256)
        backend = open_backend(files, profile=self.profile, settings=engine, cache=cache)
        self._free.enter_context(backend)
        return backend, time.perf_counter() - began

    def _judge(
        self,
        first: int,
        prompt: str,
        clips: tuple[JudgedClip, JudgedClip],
        frames: PairFrames,
        backend: Backend,
        lines: TextIO | None,
        observe: Observe,
    ) -> JudgedOrder:
        """One order of the pair: `first` is the clip shown as video 1. The verdict is about the clips as given."""
        pair = pair_of(prompt, clips)
        order = JudgedOrder(first, (), TIE)

        def write(r: Round) -> None:
            if lines:
                lines.write(json.dumps({"first": first + 1, **round_json(r, order, clips)}) + "\n")
                lines.flush()

        trial = judge(
            pair.swapped() if first else pair,
            self.profile,
            backend,
            frames.swapped() if first else frames,
            sampling=Sampling(self.profile.max_new_tokens, self.settings.temperature, self.settings.seed),
            order=first,
            observe=observe,
            on_round=write,
        )
        return JudgedOrder(first, trial.rounds, trial.verdict.mirrored() if first else trial.verdict)

    def _judgement(
        self, prompt: str, clips: tuple[JudgedClip, JudgedClip], orders: tuple[JudgedOrder, ...]
    ) -> Judgement:
        verdicts = [order.verdict for order in orders]
        both = len(verdicts) == 2
        return Judgement(
            verdict=average(*verdicts) if both else verdicts[0] if verdicts else TIE,
            orders=orders,
            disagreements=disagreements(*verdicts) if both else (),
            clips=clips,
            prompt=prompt,
            model=self._model or self._digest(),
            settings={**in_force(self.settings, self.profile), "engine": self._engine},
            warnings=tuple(self._warnings(prompt, clips, orders)),
            seconds={},
            total_seconds=0.0,
        )

    def _warnings(
        self, prompt: str, clips: tuple[JudgedClip, JudgedClip], orders: tuple[JudgedOrder, ...]
    ) -> Iterator[str]:
        """What a reader of the verdict must know."""
        yield from self._plan.notes if self._plan else ()
        yield from self.server.warnings if self.server and orders else ()
        if len(orders) == 1 and self.settings.both_orders:
            yield f"With video {2 - orders[0].first} shown first there was no verdict: only the other order counts."
        limited = bool(orders) and self.settings.limits_pixels
        yield from warnings_of(prompt, clips, self.profile, own=self._own, limited=limited)

    def _digest(self) -> ModelUsed:
        if self._model is not None:
            return self._model
        if self.server:
            return self.server.used()
        files = self._local()
        return ModelUsed(
            name=files.name,
            text=files.text.name,
            text_sha256=self._sha256(files.text),
            projector=files.projector.name,
            projector_sha256=self._projector_sha256(),
            profile=self.profile.name,
            profile_sha256=self.profile.sha256,
        )

    def _local(self) -> ModelFiles:
        assert self.files is not None, "a judge is on a server, or has its files here"
        return self.files


def compare(
    a: str | Path,
    b: str | Path,
    *,
    prompt: str = "",
    model: str | Path | None = None,
    projector: Path | None = None,
    settings: Settings | None = None,
    backend: Backend | Remote | None = None,
) -> Judgement:
    """Judge two clips made from one prompt, with the bundled judge if neither a model nor a back end is named.

    >>> from vrt_lite import compare
    >>> judgement = compare("examples/star.mp4", "examples/circle.mp4", prompt="A blue star moves up.")
    >>> judgement.winner  # 1 or 2 for the better video, 0 for a tie or if undecided
    1
    >>> judgement.verdict.preferences["VQ"].winner
    0

    Raises UsageError, VideoError, ModelError, OutOfMemoryError, NoVerdictError or BackendError: all are VrtError.
    """
    with Judge(model, projector=projector, settings=settings, backend=backend) as judge_:
        return judge_.compare(a, b, prompt=prompt)


@contextlib.contextmanager
def _line_file(path: Path) -> Generator[TextIO]:
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"The trace {path} cannot be written: {error.strerror}.") from error
    with file:
        yield file
