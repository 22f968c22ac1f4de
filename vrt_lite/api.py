"""The front door of the library: `compare` two clips, or open a `Judge` once and compare many.

choose_mode          where the model runs                    modes
open_clips           both files, checked and sampled         video, pair_frames
follow               rounds until a verdict, in each order   judge
make_judgement       the record                              recording, judgement

A comparison is one piece of work for the scheduler, which does all of them in one thread.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vrt_lite.disk import file_sha256
from vrt_lite.errors import NoVerdictError, UsageError, Warned
from vrt_lite.interfaces import (
    Backend,
    Event,
    FrameStore,
    Observe,
    Sampling,
    Stop,
    Stopwatch,
    Working,
    check_stops,
    ignore,
    stops_in_force,
    wait_until_done,
)
from vrt_lite.judge import Answer, Trial, follow
from vrt_lite.judgement import Judgement
from vrt_lite.models import ModelFiles
from vrt_lite.modes import LocalMode, Mode, choose_mode
from vrt_lite.pair_frames import PairFrames, workspace_of
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import LONGEST_PROMPT
from vrt_lite.recording import ShownPair, add_warning, make_judgement
from vrt_lite.scheduler import InThread, Scheduler, Together, Work
from vrt_lite.settings import MOST_JOBS, Remote, Settings, Source, describe_settings, key_of
from vrt_lite.shortage import ThreadPool

if TYPE_CHECKING:
    from vrt_lite.fitting.predicted_time import Prediction
    from vrt_lite.measures.kept import KeptMeasures
    from vrt_lite.measures.measuring import Measuring
    from vrt_lite.trace_file import TraceFile
    from vrt_lite.video import Clip

Finish = Callable[[Judgement, FrameStore], None]
_MOST_CALLS = 2 * MOST_JOBS
"""Requests to a server at once: two orders of each pair."""


class Judge:
    """A judge that is loaded once, when first needed, and compares many pairs; a context manager.

    It may compare from several threads at once: on this machine in up to `jobs` sequences of the engine, as far as the
    memory allows, and on a server (`backend=Remote(URL)`) in as many requests. Both orders of a pair are judged at once
    where there is memory for a second sequence, and on a server of vLLM or SGLang.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        projector: Path | None = None,
        settings: Settings | None = None,
        backend: Backend | Remote | None = None,
        digest: Callable[[Path], str] = file_sha256,
        measures: bool = True,
        jobs: int = 1,
        verbose: bool = False,
    ) -> None:
        """Find the model's files, and check them. A `backend`, if given, is used in place of the model's own.

        With `measures` the clips are measured too, beside the judge. For a `Remote` no file is needed: `model` names
        only its profile, VR-Thinker's if left out. `digest` gives a file's sha256, and is called once for each file.
        It may remember digests, as `Store.digest` does. Raises ShortageError if memory is too short for threads, and
        UsageError for settings that exclude each other.
        """
        settings = settings or Settings()
        if settings.evidence and not measures:
            raise UsageError("Evidence is what is measured: it cannot be given to a judge without measuring.")
        given: dict[str, Source] = {"model": "option"} if model is not None else {}
        self.settings = replace(settings, sources={**given, **settings.sources})
        self._measures = measures
        digest = functools.cache(digest)
        self.mode: Mode = choose_mode(
            model, projector, self.settings, backend, digest=digest, jobs=jobs, verbose=verbose
        )
        self._scheduler = Scheduler(_MOST_CALLS)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model, when nothing uses it any more."""
        self._scheduler.close()
        self.mode.close()

    @property
    def files(self) -> ModelFiles | None:
        """The model's files; None for a judge on a server."""
        return self.mode.files

    @property
    def scope(self) -> str:
        """What the judge sees, in a line; "" if its profile does not say."""
        return self.mode.profile.scope

    def connect(self, observe: Observe = ignore, *, stop: Stop | None = None) -> None:
        """Ask a server what it serves, if the key depends on that; `stop` ends it, `observe` is told of waits."""
        with stops_in_force(*([stop] if stop else ())):
            self.mode.connect(observe)

    def key(self) -> str:
        """A digest of all that a verdict depends on besides clips, order and prompt. It loads nothing.

        If no model is named for a server, the server is asked what it serves.
        """
        return self._key(self.settings.applied_to(self.mode.own))

    def describe(self) -> dict[str, str]:
        """Return the judge in words by name of option, to say how two judges with different keys differ.

        "--model" is the model's name, on a server with its URL.
        """
        if self.files:
            model = self.files.name
        else:
            served = self.mode.key()
            model = f"{served['model']} at {served['url']}"
        return {"--model": model, **describe_settings(self.settings, self.settings.applied_to(self.mode.own))}

    def key_here(self) -> str:
        """The key of what is judged on this machine now. It differs from `key` if frames are smaller to fit the memory.

        Loads the engine's library, but no model. Raises OutOfMemoryError.
        """
        return self._key(self.mode.plan())

    def predict(self, clip: str | Path) -> Prediction | None:
        """Predict how long a judgement of clips like this one takes here; None if that is not known.

        It is not known for a server, for a clip that cannot be read, and on a GPU before the first judgement.
        """
        from vrt_lite.forecast import predict_like  # noqa: PLC0415 - a small judge's compare does without

        return predict_like(self.mode, Path(clip))

    @functools.cached_property
    def _kept_measures(self) -> KeptMeasures:
        from vrt_lite.measures.measuring import keep_measures  # noqa: PLC0415 - numpy

        return keep_measures(self.settings)

    def measure(self, clip: str | Path) -> Mapping[str, float]:
        """Measure a clip by itself, by the names of `measures.definitions`; empty if no frame can be decoded.

        What was measured of this content before is found again. Raises VideoError.
        """
        from vrt_lite.measures.measuring import measure_file  # noqa: PLC0415 - numpy

        found = measure_file(Path(clip), self._kept_measures)
        return found.values if found else {}

    def compare(
        self,
        a: str | Path,
        b: str | Path,
        *,
        prompt: str = "",
        trace: Path | None = None,
        observe: Observe = ignore,
        finish: Finish | None = None,
        stop: Stop | None = None,
    ) -> Judgement:
        """Judge two clips made from one prompt. Another thread may end it with `stop`, whose error is raised here.

        `trace` is written anew after each round, with a JSON line for each; a warning says if that fails. `finish` is
        called with the judgement and the frames while the clips are still open, to draw what the judge saw. `observe`
        and `finish` are called in other threads, but never two of them at once for all comparisons of this judge.
        Raises VideoError, ModelError, OutOfMemoryError, NoVerdictError; UsageError for a long prompt.
        """
        if len(prompt) > LONGEST_PROMPT:
            raise UsageError(
                f"The prompt has {len(prompt)} characters; at most {LONGEST_PROMPT} are allowed. Shorten it."
            )
        # An interrupt arrives in the main thread. The engine runs in another, or an interrupt could arrive in the
        # middle of its log callback and be lost.
        stop = Stop(*([stop] if stop else ()))
        work = self._scheduler.submit(self._compare((Path(a), Path(b)), prompt, trace, _checked(observe), finish), stop)
        try:
            return wait_until_done(work)
        except KeyboardInterrupt as interrupt:
            stop.set(interrupt)
            wait([work])
            raise

    def _key(self, profile: Profile) -> str:
        # Without measures, or with others, a judge that gives way to them may give another verdict.
        measures: dict[str, str] = {}
        if profile.decides or profile.trusts_measures or profile.reports:
            from vrt_lite.measures.measured_preference import HEADS_FILE  # noqa: PLC0415 - most judges do without

            measures["measures"] = file_sha256(HEADS_FILE) if self._measures else "none"
        return key_of(self.settings, profile, judge={**self.mode.key(), **measures})

    def _compare(
        self, paths: tuple[Path, Path], prompt: str, trace: Path | None, observe: Observe, finish: Finish | None
    ) -> Work[Judgement]:
        stopwatch, mode = Stopwatch(), self.mode
        takes_long = isinstance(mode, LocalMode) and mode.files is not None and not mode.files.is_small
        with contextlib.ExitStack() as stack:
            lines = None
            if trace:
                from vrt_lite.trace_file import TraceFile  # noqa: PLC0415

                lines = TraceFile(trace)
            mode.prepare()
            clips: tuple[Clip, Clip] = yield InThread(lambda _: stack.enter_context(open_clips(*paths)))
            same = clips[0].info.sha256 == clips[1].info.sha256
            if not same:
                with stopwatch.measure("wait"):
                    yield InThread(lambda _: mode.plan())
            spaces = (workspace_of(clips[0], mode.profile), workspace_of(clips[1], mode.profile))
            frames = PairFrames(clips, spaces)
            pair = ShownPair(prompt, (clips[0].info, clips[1].info), spaces)
            trials: dict[int, Trial] = {}
            measuring = None
            if self._measures and not same:
                from vrt_lite.measures.measuring import Measuring  # noqa: PLC0415 - numpy

                measuring = stack.enter_context(Measuring(clips, self._kept_measures))
            if not same:
                if takes_long:
                    from vrt_lite.forecast import announce  # noqa: PLC0415

                    announce(mode, clips[0].info, observe, both_orders=self.settings.both_orders)
                with stopwatch.measure("wait"):
                    yield from mode.open(frames, observe, stopwatch)
                if mode.profile.reports and measuring:
                    pair = yield from self._add_evidence(pair, measuring, observe)
                trials = yield from self._judge_orders(pair, frames, lines, observe)
            if measuring and not mode.profile.reports:
                observe(Working("measuring the clips"))
            measures, measured = (yield InThread(lambda _: measuring.compare())) if measuring else (None, None)
            record = functools.partial(
                make_judgement,
                pair,
                clips,
                trials,
                mode=mode,
                settings=self.settings,
                stopwatch=stopwatch,
                measures=measures,
                measured=measured,
            )
            judgement: Judgement = yield InThread(lambda _: record())  # the digest of the model may not be ready
            if takes_long and trials:
                from vrt_lite.forecast import learn  # noqa: PLC0415

                learn(mode, judgement)
            if lines and lines.failure:
                judgement = add_warning(judgement, Warned("trace_not_written", lines.failure))
            if finish:
                yield InThread(lambda _: finish(judgement, frames))
            return judgement

    def _add_evidence(self, pair: ShownPair, measuring: Measuring, observe: Observe) -> Work[ShownPair]:
        observe(Working("measuring the clips"))
        measured = yield InThread(lambda _: measuring.report())
        if self.settings.evidence and not measured:
            raise UsageError("A clip could not be measured, so there is no evidence: leave --evidence out.")
        return replace(pair, measured=measured)

    def _judge_orders(
        self, pair: ShownPair, frames: PairFrames, lines: TraceFile | None, observe: Observe
    ) -> Work[dict[int, Trial]]:
        """A trial for each order, keyed by the clip (0 or 1) shown as video 1. NoVerdictError if no order gives one."""
        mode, settings = self.mode, self.settings

        def judge_order(first: int) -> Work[Trial | NoVerdictError]:
            shown = frames.swapped() if first else frames

            def trial(answer: Answer) -> Work[Trial]:
                return follow(
                    pair.for_judge().swapped() if first else pair.for_judge(),
                    mode.profile,
                    answer,
                    sampling=Sampling(mode.profile.max_new_tokens, settings.temperature, settings.seed),
                    order=first,
                    observe=observe,
                    on_round=functools.partial(lines.add, first, pair) if lines else lambda _: None,
                )

            try:
                return (yield from mode.run(trial, shown))
            except NoVerdictError as error:
                return error

        found: list[Trial | NoVerdictError]
        if settings.both_orders is True and mode.at_once:
            found = yield Together([judge_order(0), judge_order(1)])
        else:
            found = [(yield from judge_order(0))]
            first = found[0].verdict if isinstance(found[0], Trial) else None
            if settings.both_orders and not settings.skip_second_order(first):
                found.append((yield from judge_order(1)))
        trials = {order: trial for order, trial in enumerate(found) if isinstance(trial, Trial)}
        for failure in found:
            if not trials and isinstance(failure, NoVerdictError):
                raise failure
        return trials


def _checked(observe: Observe) -> Observe:
    """Let an event end the work that was told to stop."""

    def tell(event: Event) -> None:
        check_stops()
        observe(event)

    return tell


def compare(
    a: str | Path,
    b: str | Path,
    *,
    prompt: str = "",
    model: str | Path | None = None,
    projector: Path | None = None,
    settings: Settings | None = None,
    backend: Backend | Remote | None = None,
    measures: bool = True,
) -> Judgement:
    """Judge two clips made from one prompt, with the bundled judge if neither a model nor a back end is named.

    Both are measured too, unless `measures` is false.

    >>> from vrt_lite import compare
    >>> judgement = compare("examples/star.mp4", "examples/circle.mp4", prompt="A blue star moves up.")
    >>> judgement.winner  # 1 or 2 for the better video, 0 for a tie or if undecided
    1
    >>> judgement.verdict.preferences["VQ"].winner
    0

    Raises UsageError, VideoError, ModelError, OutOfMemoryError, NoVerdictError or BackendError: all are VrtError.
    """
    with Judge(model, projector=projector, settings=settings, backend=backend, measures=measures) as judge_:
        return judge_.compare(a, b, prompt=prompt)


@contextlib.contextmanager
def open_clips(a: Path, b: Path) -> Generator[tuple[Clip, Clip]]:
    """Open both clips at once. Closes one also if the other cannot be opened. Raises VideoError."""
    from vrt_lite.video import open_clip  # noqa: PLC0415 - the decoder only when there is something to decode

    with contextlib.ExitStack() as stack:
        with ThreadPool(2) as pool:
            opening = [pool.submit(open_clip, path) for path in (a, b)]
        for future in opening:
            if not future.exception():
                stack.enter_context(future.result())
        yield opening[0].result(), opening[1].result()
