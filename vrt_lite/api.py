"""The front door of the library: `compare` two clips, or open a `Judge` once and compare many.

choose_mode         where the model runs: here, on a server, in a back end that is given    modes
Comparer            what compares in this process                                           comparing
WorkerComparer      what compares in a process that may die                                 judge_worker
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vrt_lite.comparing import Comparer, Finish, PairToCompare
from vrt_lite.disk import file_sha256
from vrt_lite.errors import UsageError
from vrt_lite.interfaces import Backend, Observe, Stop, TimeRange, ignore, stops_in_force
from vrt_lite.models import ModelFiles
from vrt_lite.modes import WantedJudge, choose_mode
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import LONGEST_PROMPT
from vrt_lite.records.judgement import Judgement
from vrt_lite.settings import Remote, Settings, Source, describe_settings, key_of
from vrt_lite.shortage import check_memory

if TYPE_CHECKING:
    from vrt_lite.judge_worker import WorkerComparer
    from vrt_lite.pair_frames import ClipLook


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
        process: bool = False,
    ) -> None:
        """Find the model's files, and check them. A `backend`, if given, is used in place of the model's own.

        With `measures` the clips are measured too, beside the judge. For a `Remote` no file is needed: `model` names
        only its profile, VR-Thinker's if left out. `digest` gives a file's sha256, and is called once for each file.
        It may remember digests, as `Store.digest` does. With `process` clips are opened and judged in a process of
        their own, which may crash, and which is told the digests that are known by then. What it is given (a back end,
        `finish`) must be picklable, and `observe` is called in the thread that compares. Raises ShortageError if memory
        is too short for threads, and UsageError for settings that exclude each other.
        """
        check_memory()
        settings = settings or Settings()
        if settings.evidence and not measures:
            raise UsageError("Evidence is what is measured: it cannot be given to a judge without measuring.")
        given: dict[str, Source] = {"model": "option"} if model is not None else {}
        self.settings = replace(settings, sources={**given, **settings.sources})
        self.measures, self.jobs = measures, jobs
        wanted = WantedJudge(model, projector, self.settings, backend, measures, jobs, verbose)
        self._comparer: Comparer | WorkerComparer
        if process:
            from vrt_lite.judge_worker import WorkerComparer  # noqa: PLC0415

            self._comparer = WorkerComparer(wanted)
            self.mode = choose_mode(wanted, digest=digest, describe=self._comparer.describe_machine)
        else:
            self.mode = choose_mode(wanted, digest=digest)
            self._comparer = Comparer(self.mode, self.settings, measures=measures)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model, when nothing uses it any more. Whoever asks the judge later gets a UsageError."""
        self._comparer.close()
        self.mode.close()

    @property
    def files(self) -> ModelFiles | None:
        """The model's files; None for a judge on a server."""
        return self.mode.files

    @property
    def scope(self) -> str:
        """What the judge sees, in a line; "" if its profile does not say."""
        return self.mode.profile.scope

    @property
    def pointwise(self) -> bool:
        """Whether each clip is judged by itself."""
        return self.mode.profile.pointwise

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
        """The key of what is judged on this machine, once it is known that it fits the memory.

        Loads the engine's library, but no model. Raises OutOfMemoryError.
        """
        self.mode.profile = self._comparer.plan()
        return self._key(self.mode.profile)

    def predict(self, clip: str | Path) -> TimeRange | None:
        """Predict how long judging clips like this one in one order takes here; None if that is not known.

        It is not known for a server, for a clip that cannot be read, and before the first judgement by a small model
        or on a GPU.
        """
        return self._comparer.predict(Path(clip))

    def look_at(self, clip: str | Path) -> ClipLook:
        """Open a clip; return what is known of it then: also which frames the judge can see. Raises VideoError."""
        return self._comparer.look_at(Path(clip))

    def measure(self, clip: str | Path) -> Mapping[str, float]:
        """Measure a clip by itself, by the names of `measures.definitions`; empty if no frame can be decoded.

        What was measured of this content before is found again. Raises VideoError.
        """
        return self._comparer.measure(Path(clip))

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
        called with the judgement and the frames while the clips are still open, to draw what the judge saw; its
        UsageError becomes a warning. `observe` and `finish` are called in other threads, but never two of them at once
        for all comparisons of this judge.
        Raises VideoError, ModelError, OutOfMemoryError, NoVerdictError; UsageError for a long prompt, or if the judge
        was closed.
        """
        if len(prompt) > LONGEST_PROMPT:
            raise UsageError(
                f"The prompt has {len(prompt)} characters; at most {LONGEST_PROMPT} are allowed. Shorten it."
            )
        wanted = PairToCompare((Path(a), Path(b)), prompt, trace, finish)
        return self._comparer.compare(wanted, observe=observe, stop=stop or Stop())

    def _key(self, profile: Profile) -> str:
        # Without measures, or with others, a judge that gives way to them may give another verdict.
        measures: dict[str, str] = {}
        if profile.decides or profile.trusts_measures or profile.reports:
            from vrt_lite.measures.measured_preference import HEADS_FILE  # noqa: PLC0415 - most judges do without

            measures["measures"] = file_sha256(HEADS_FILE) if self.measures else "none"
        return key_of(self.settings, profile, judge={**self.mode.key(), **measures})


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
