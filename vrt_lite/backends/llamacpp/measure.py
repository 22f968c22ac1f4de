"""Measures how fast this machine runs a model with given settings, and finds the settings for it.

Knows what to run and for how long: a frame pair at the profile's pixels, a text read, tokens written. Judges no clips.
What is tried, and when it is taken, is `search`'s.

Every setup that is tried must compute the same but for rounding: its logits and its embeddings are held against those
of the first one, so that garbled output on one GPU, or the projector of another model, is never taken for being quick.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event

import numpy as np
import psutil
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.context import Context
from vrt_lite.backends.llamacpp.engine import Model, usable_cpus
from vrt_lite.backends.llamacpp.vision import Vision
from vrt_lite.backends.settings import EngineSettings
from vrt_lite.errors import ModelError
from vrt_lite.fitting.search import Found, Setup, Stage, Watch, axes, search
from vrt_lite.fitting.tuning import Tuning
from vrt_lite.models.files import ModelFiles
from vrt_lite.profile import Profile
from vrt_lite.resize import CELL, PIXELS_PER_TOKEN

_LONGEST, _SHORTEST = 1024, 32
_WRITTEN = 24
_LIKE = 0.9
"""Cosine of what two setups compute, at least. Rounding leaves 0.99 and more; another projector gives about 0."""
_SPARE_BYTES = 2 * 2**30


class Bench:
    """A model that is opened with one setup after the other, to be timed; a context manager.

    The repeats of one measurement together take about a fortieth of `budget_seconds` where the machine is fast; on a
    slow one the text is shorter and read once.
    """

    def __init__(self, files: ModelFiles, *, profile: Profile, budget_seconds: float) -> None:
        self._text = files.text
        self._budget = budget_seconds
        self._largest = profile.max_pixels // PIXELS_PER_TOKEN
        self._prompt = profile.system_prompt + profile.user_prompt
        self._frames = _frame_pair(self._largest)
        self._encoded = 0
        self._like: dict[str, NDArray[np.float32]] = {}
        self.prefill_tokens = 0
        self._model: tuple[EngineSettings, Model] | None = None
        self._context: tuple[EngineSettings, Context] | None = None
        self._vision: tuple[Setup, Vision] | None = None

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc: object) -> None:
        self._close_all()

    def measure(self, setup: Setup, stage: Stage) -> float:
        """Seconds of a frame pair, of a token read, or of a token written. Raises ModelError, OutOfMemoryError."""
        match stage:
            case "vision":
                return self._encode(setup)
            case "prefill":
                return self._prefill(setup.settings)
            case "decode":
                return self._write(setup.settings)

    def repack_fits(self) -> bool:
        """Whether memory has room for a second copy of the weights."""
        return psutil.virtual_memory().available > self._text.stat().st_size + _SPARE_BYTES

    def _encode(self, setup: Setup) -> float:
        vision = self._vision_for(setup)

        def once() -> None:
            self._encoded += 1
            vision.encode(str(self._encoded), self._frames)

        seconds = self._median(once)
        self._same("embeddings", vision.embeddings(str(self._encoded)).reshape(-1))
        vision.trim(frozenset())
        return seconds

    def _prefill(self, settings: EngineSettings) -> float:
        context, tokens = self._reader(settings)

        def once() -> None:
            context.cut(0)
            _drain(context, tokens, 0)

        seconds = self._median(once) / len(tokens)
        self._same("logits", context.logits())
        return seconds

    def _write(self, settings: EngineSettings) -> float:
        context, tokens = self._reader(settings)
        start = min(len(tokens), _SHORTEST)
        context.cut(0)
        _drain(context, tokens[:start], 0)
        done, began = 0, time.perf_counter()
        times: list[float] = []
        while done < _WRITTEN and (done < 4 or time.perf_counter() - began < self._budget / 30):
            before = time.perf_counter()
            _drain(context, [tokens[done % len(tokens)]], start + done)
            context.logits()
            times.append(time.perf_counter() - before)
            done += 1
        return statistics.median(times)

    def _median(self, run: Callable[[], None]) -> float:
        """Seconds of a run: the median of up to five, as many as the time for one measurement holds."""
        times: list[float] = []
        while len(times) < 5 and sum(times) < self._budget / 40:
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        return statistics.median(times)

    def _same(self, what: str, values: NDArray[np.float32]) -> None:
        if not np.isfinite(values).all():
            raise ModelError(f"The engine gives {what} that are no numbers with these settings.")
        first = self._like.setdefault(what, values)
        alike = float(first @ values) / max(math.sqrt(float(first @ first) * float(values @ values)), 1e-30)
        if alike < _LIKE:
            raise ModelError(f"The engine gives other {what} with these settings (cosine {alike:.2f}).")

    def _reader(self, settings: EngineSettings) -> tuple[Context, list[int]]:
        """A context and the text that it reads: the same each time, as long as is read in a twelfth of the budget."""
        context = self._context_for(settings)
        words = self._model_for(settings).tokens(self._prompt, special=False) or [0]
        if not self.prefill_tokens:
            began = time.perf_counter()
            _drain(context, (words * _SHORTEST)[:_SHORTEST], 0)
            fits = _SHORTEST * self._budget / 12 / (time.perf_counter() - began)
            self.prefill_tokens = min(max(2 ** int(math.log2(max(fits, 1))), _SHORTEST), _LONGEST)
            context.cut(0)
        return context, (words * self.prefill_tokens)[: self.prefill_tokens]

    def _model_for(self, settings: EngineSettings) -> Model:
        wanted = EngineSettings(gpu_layers=settings.gpu_layers, repack=settings.repack)
        if self._model is None or self._model[0] != wanted:
            self._close_all()  # never two copies of the weights
            self._model = wanted, Model(self._text, settings=wanted)
        return self._model[1]

    def _context_for(self, settings: EngineSettings) -> Context:
        model = self._model_for(settings)
        if self._context is None or self._context[0] != settings:
            self._close_context()
            size = _LONGEST + _SHORTEST + _WRITTEN
            context = Context(model, size=size, settings=settings)
            self._context = settings, context
            # The first evaluation reads the weights from the disk and sets up buffers.
            _drain(context, (model.tokens(self._prompt, special=False) * 8 or [0])[:8], 0)
            context.cut(0)
        return self._context[1]

    def _vision_for(self, setup: Setup) -> Vision:
        model = self._model_for(setup.settings)
        if self._vision is None or self._vision[0] != setup:
            self._close_vision()
            self._vision = setup, Vision(setup.projector, model, settings=setup.settings)
            tiny = np.zeros((2 * CELL, 2 * CELL, 3), np.uint8)
            self._vision[1].encode("warm", [tiny, tiny])
        return self._vision[1]

    def _close_vision(self) -> None:
        if self._vision:
            self._vision[1].close()
            self._vision = None

    def _close_context(self) -> None:
        if self._context:
            self._context[1].close()
            self._context = None

    def _close_all(self) -> None:
        self._close_vision()
        self._close_context()
        if self._model:
            self._model[1].close()
            self._model = None


def busy() -> float:
    """The share of the processor's time, 0 to 1, that others use; looks for a third of a second."""
    return psutil.cpu_percent(interval=0.3) / 100


def tune(
    files: ModelFiles,
    *,
    profile: Profile,
    budget_seconds: float,
    observe: Watch = lambda _: None,
) -> tuple[Tuning, Found]:
    """Find the settings for a model on this machine; nothing is kept here.

    Measures in a thread of its own, so that an interrupt is never lost in the engine. Raises ModelError,
    OutOfMemoryError, KeyboardInterrupt.
    """
    stop = Event()
    with ThreadPoolExecutor(max_workers=1) as pool:
        work = pool.submit(_find, files, profile, budget_seconds, observe, stop)
        try:
            while not wait([work], timeout=0.2).done:
                pass
        except KeyboardInterrupt:
            stop.set()
            wait([work])
            raise
        found = work.result()
    s = found.setup.settings
    tuning = Tuning(
        threads=s.threads,
        repack=s.repack,
        flash_attention=s.flash_attention,
        ubatch=s.ubatch,
        kv_type=s.kv_type,
        projector=found.setup.projector.name,
        speed=found.speed,
        default_speed=found.default_speed,
    )
    return tuning, found


def _find(files: ModelFiles, profile: Profile, budget_seconds: float, observe: Watch, stop: Event) -> Found:
    with Bench(files, profile=profile, budget_seconds=budget_seconds) as bench:

        def measure(setup: Setup, stage: Stage) -> float:
            if stop.is_set():
                raise KeyboardInterrupt
            return bench.measure(setup, stage)

        return search(
            Setup(EngineSettings(), files.projector),
            axes(
                files.projectors,
                physical_cpus=psutil.cpu_count(logical=False) or usable_cpus(),
                usable_cpus=usable_cpus(),
                repack_fits=bench.repack_fits,
                long_prefill=lambda: bench.prefill_tokens == _LONGEST,
            ),
            measure=measure,
            budget_seconds=budget_seconds,
            observe=observe,
        )


def _drain(context: Context, tokens: list[int], position: int) -> None:
    for _ in context.feed(tokens, position):
        pass


def _frame_pair(cells: int) -> list[NDArray[np.uint8]]:
    """Two frames of noise, 16:9, of as many visual tokens as allowed."""
    rows = max(math.isqrt(cells * 9 // 16), 1)
    shape = (rows * CELL, cells // rows * CELL, 3)
    draw = np.random.default_rng(0)
    return [draw.integers(0, 256, shape, dtype=np.uint8) for _ in range(2)]
