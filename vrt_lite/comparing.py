"""Compares clips in this process: a comparison is one piece of work for the scheduler, which does all in one thread.

open_clips           both files, checked and sampled         video, pair_frames
follow               rounds until a verdict, in each order   judge
make_judgement       the record                              recording, judgement
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vrt_lite.errors import NoVerdictError, UsageError, Warned
from vrt_lite.interfaces import (
    Event,
    FrameStore,
    Observe,
    Sampling,
    Stop,
    Stopwatch,
    TimeRange,
    Working,
    check_stops,
    wait_until_done,
)
from vrt_lite.judge import Answer, Trial, follow
from vrt_lite.machine import SMALL_MODEL_BYTES
from vrt_lite.modes import Mode
from vrt_lite.pair_frames import ClipLook, PairFrames, Workspace, workspace_of
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import shown_first
from vrt_lite.recording import ShownPair, make_judgement
from vrt_lite.records.judgement import Judgement, add_warning
from vrt_lite.scheduler import InThread, Scheduler, Together, Work
from vrt_lite.settings import MOST_JOBS, Settings
from vrt_lite.shortage import ThreadPool

if TYPE_CHECKING:
    from vrt_lite.backends import Engine
    from vrt_lite.fitting import EnginePlan
    from vrt_lite.measures.kept import KeptMeasures
    from vrt_lite.measures.measuring import Measuring
    from vrt_lite.trace_file import TraceFile
    from vrt_lite.video import Clip

Finish = Callable[[Judgement, FrameStore], None]
_MOST_CALLS = 2 * MOST_JOBS
"""Requests to a server at once: two orders of each pair."""


@dataclass(frozen=True, slots=True)
class PairToCompare:
    """Two clips to be compared, made from one prompt. `trace` and `finish` are those of `Judge.compare`."""

    clips: tuple[Path, Path]
    prompt: str = ""
    trace: Path | None = None
    finish: Finish | None = None


class Comparer:
    """Compares clips in this process, with what a mode runs. To be closed. Threads may share it."""

    def __init__(self, mode: Mode, settings: Settings, *, measures: bool) -> None:
        """With `measures` clips are measured too. Raises ShortageError if memory is too short for threads."""
        self.mode = mode
        self._settings = settings
        self._measures = measures
        self._scheduler = Scheduler(_MOST_CALLS)

    def close(self) -> None:
        """Free the model, when nothing uses it any more."""
        self._scheduler.close()
        self.mode.close()

    def plan(self) -> Profile:
        """The profile in force, if it fits the memory. Loads no model. Raises OutOfMemoryError."""
        self.mode.plan()
        return self.mode.profile

    def predict(self, clip: Path) -> TimeRange | None:
        """As `Judge.predict`."""
        from vrt_lite.forecast import predict_like  # noqa: PLC0415 - a small judge's compare does without

        return predict_like(self.mode, clip)

    def look_at(self, clip: Path) -> ClipLook:
        """As `Judge.look_at`."""
        from vrt_lite.video import open_clip  # noqa: PLC0415 - the decoder only when there is something to decode

        with open_clip(clip) as opened:
            space = workspace_of(opened, self.mode.profile)
            return ClipLook(opened.info.duration_seconds, space, opened.info.open_ended)

    @functools.cached_property
    def _kept_measures(self) -> KeptMeasures:
        from vrt_lite.measures.measuring import keep_measures  # noqa: PLC0415 - numpy

        return keep_measures(self._settings)

    def measure(self, clip: Path) -> Mapping[str, float]:
        """As `Judge.measure`."""
        from vrt_lite.measures.measuring import measure_file  # noqa: PLC0415 - numpy

        found = measure_file(clip, self._kept_measures)
        return found.values if found else {}

    def compare(self, wanted: PairToCompare, *, observe: Observe, stop: Stop) -> Judgement:
        """As `Judge.compare`."""
        # An interrupt arrives in the main thread. The engine runs in another, or an interrupt could arrive in the
        # middle of its log callback and be lost.
        stop = Stop(stop)
        work = self._scheduler.submit(self._compare(wanted, _checked(observe)), stop)
        try:
            return wait_until_done(work)
        except KeyboardInterrupt as interrupt:
            stop.set(interrupt)
            wait([work])
            raise

    def _compare(self, wanted: PairToCompare, observe: Observe) -> Work[Judgement]:
        stopwatch, mode = Stopwatch(), self.mode
        with contextlib.ExitStack() as stack:
            lines = None
            if wanted.trace:
                from vrt_lite.trace_file import TraceFile  # noqa: PLC0415

                lines = TraceFile(wanted.trace)
            mode.prepare()
            clips: tuple[Clip, Clip] = yield InThread(lambda _: stack.enter_context(open_clips(*wanted.clips)))
            plan: EnginePlan | None = None
            same = clips[0].info.sha256 == clips[1].info.sha256
            runs = not same or mode.profile.pointwise
            if runs:
                with stopwatch.measure("wait"):
                    plan = yield InThread(lambda _: mode.plan())
            spaces = (workspace_of(clips[0], mode.profile), workspace_of(clips[1], mode.profile))
            pair = ShownPair(wanted.prompt, (clips[0].info, clips[1].info), spaces)
            trials, measuring = dict[int, Trial](), None
            if self._measures and not same:
                measuring = stack.enter_context(self._start_measuring(clips, spaces))
            reported = measuring if mode.profile.reports else None  # the judge waits for it anyway
            frames = PairFrames(clips, spaces, wait=reported.finish if reported else None)
            if runs:
                if plan and plan.estimate.shape.text_bytes >= SMALL_MODEL_BYTES:
                    from vrt_lite.forecast import announce  # noqa: PLC0415

                    size = clips[0].info.width, clips[0].info.height
                    announce(plan, size, observe, both_orders=self._settings.both_orders)
                with stopwatch.measure("wait"):
                    engine = yield from mode.open(frames, observe, stopwatch)
                if mode.profile.reports and measuring:
                    pair = yield from self._add_evidence(pair, measuring, observe)
                trials = yield from self._judge_orders(engine, pair, frames, lines, observe)
            if measuring and not mode.profile.reports:
                observe(Working("measuring the clips"))
            measures, measured = (yield InThread(lambda _: measuring.compare())) if measuring else (None, None)
            record = functools.partial(
                make_judgement,
                pair,
                clips,
                trials,
                mode=mode,
                settings=self._settings,
                stopwatch=stopwatch,
                measures=measures,
                measured=measured,
            )
            judgement: Judgement = yield InThread(lambda _: record())  # the digest of the model may not be ready
            if trials and plan:
                from vrt_lite.forecast import keep_time  # noqa: PLC0415

                keep_time(plan, judgement)
            if lines and lines.failure:
                judgement = add_warning(judgement, Warned("trace_not_written", lines.failure))
            return (yield from _finish(wanted.finish, judgement, frames)) if wanted.finish else judgement

    def _start_measuring(self, clips: tuple[Clip, Clip], spaces: tuple[Workspace, Workspace]) -> Measuring:
        """Measure both clips, and for a judge that waits for it keep the frames that it is shown first."""
        from vrt_lite.measures.measuring import Measuring  # noqa: PLC0415 - numpy

        profile = self.mode.profile
        if profile.reports and not profile.answer:  # else their number depends on the clip
            for number, (clip, space) in enumerate(zip(clips, spaces, strict=True)):
                first = shown_first(profile.workspace, profile.first_frames, number)
                clip.keep_in_passing((space.source[frame.index] for frame in first), size=space.size)
        return Measuring(clips, self._kept_measures)

    def _add_evidence(self, pair: ShownPair, measuring: Measuring, observe: Observe) -> Work[ShownPair]:
        observe(Working("measuring the clips"))
        measured = yield InThread(lambda _: measuring.report())
        if self._settings.evidence and not measured:
            raise UsageError("A clip could not be measured, so there is no evidence: leave --evidence out.")
        return replace(pair, measured=measured)

    def _judge_orders(
        self, engine: Engine, pair: ShownPair, frames: PairFrames, lines: TraceFile | None, observe: Observe
    ) -> Work[dict[int, Trial]]:
        """A trial for each order, keyed by the clip (0 or 1) shown as video 1. NoVerdictError if no order gives one."""
        mode, settings = self.mode, self._settings

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
                return (yield from engine.run(trial, shown))
            except NoVerdictError as error:
                return error

        found: list[Trial | NoVerdictError]
        both = False if mode.profile.pointwise else settings.both_orders
        if both is True and engine.at_once:
            found = yield Together([judge_order(0), judge_order(1)])
        else:
            found = [(yield from judge_order(0))]
            first = found[0].verdict if isinstance(found[0], Trial) else None
            if both and not settings.skip_second_order(first):
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


def _finish(finish: Finish, judgement: Judgement, frames: FrameStore) -> Work[Judgement]:
    """Draw what the judge saw; return the judgement, with a warning if that fails: it is worth more than a picture."""
    try:
        yield InThread(lambda _: finish(judgement, frames))
    except UsageError as error:
        return add_warning(judgement, Warned("sheet_not_written", str(error)))
    return judgement


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
