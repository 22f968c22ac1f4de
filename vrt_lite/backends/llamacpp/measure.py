"""Measures how fast this machine runs a model with given settings: `python -m vrt_lite.backends.llamacpp.measure`.

Knows what to run and for how long: a frame pair at the profile's pixels, a text read, tokens written. Judges no clips.
It is a process of its own, for an engine may crash or hang with settings that it was built badly for; `tune` starts it.

On standard input come lines of JSON: first a task and what is known from an earlier process, then one setup and stage
after the other. Each is answered by a line on standard output. The process ends when its standard input does.

Every setup that is tried must compute the same but for rounding: its logits and its embeddings are held against those
of the first one, so that garbled output on one GPU, or the projector of another model, is never taken for being quick.
"""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.context import Context
from vrt_lite.backends.llamacpp.engine import Model
from vrt_lite.backends.llamacpp.vision import Vision
from vrt_lite.backends.settings import EngineSettings
from vrt_lite.errors import ModelError, OutOfMemoryError, VrtError
from vrt_lite.fitting.search import Setup, Stage
from vrt_lite.resize import CELL

LONGEST: Final = 1024
"""Tokens of the text that is read, at most."""
_SHORTEST = 32
_WRITTEN = 24
_LIKE = 0.9
"""Cosine of what two setups compute, at least. Rounding leaves 0.99 and more; another projector gives about 0."""
_SAMPLE = 4096
"""Values that are compared, drawn from all."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is measured: a text model, the text that it reads, the tokens of a frame, the seconds of a whole search."""

    text: str
    prompt: str
    cells: int
    budget_seconds: float


@dataclass(slots=True)
class Known:
    """What the first setup gave: how many tokens are read, and by name a sample of what it computed."""

    prefill_tokens: int = 0
    like: dict[str, list[float]] = field(default_factory=dict[str, list[float]])


class Measuring(AbstractContextManager["Measuring"], Protocol):
    """What `serve` asks."""

    known: Known

    def measure(self, setup: Setup, stage: Stage) -> float:
        """Seconds of a frame pair, of a token read, or of a token written. Raises ModelError, OutOfMemoryError."""
        ...


class Bench:
    """A model that is opened with one setup after the other, to be timed; a context manager.

    The repeats of one measurement together take about a fortieth of the budget where the machine is fast; on a slow one
    the text is shorter and read once.
    """

    def __init__(self, task: Task, known: Known) -> None:
        self.known = known
        self._text = Path(task.text)
        self._budget = task.budget_seconds
        self._prompt = task.prompt
        self._frames = _frame_pair(task.cells)
        self._encoded = 0
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
        sample = values[np.random.default_rng(0).integers(len(values), size=_SAMPLE)]
        first = np.array(self.known.like.setdefault(what, sample.tolist()), np.float32)
        alike = float(first @ sample) / max(math.sqrt(float(first @ first) * float(sample @ sample)), 1e-30)
        if alike < _LIKE:
            raise ModelError(f"The engine gives other {what} with these settings (cosine {alike:.2f}).")

    def _reader(self, settings: EngineSettings) -> tuple[Context, list[int]]:
        """A context and the text that it reads: the same each time, as long as is read in a twelfth of the budget."""
        context = self._context_for(settings)
        words = self._model_for(settings).tokens(self._prompt, special=False) or [0]
        if not self.known.prefill_tokens:
            began = time.perf_counter()
            _drain(context, (words * _SHORTEST)[:_SHORTEST], 0)
            fits = _SHORTEST * self._budget / 12 / (time.perf_counter() - began)
            self.known.prefill_tokens = min(max(2 ** int(math.log2(max(fits, 1))), _SHORTEST), LONGEST)
            context.cut(0)
        return context, (words * self.known.prefill_tokens)[: self.known.prefill_tokens]

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
            size = LONGEST + _SHORTEST + _WRITTEN
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


def _drain(context: Context, tokens: list[int], position: int) -> None:
    for _ in context.feed(tokens, position):
        pass


def _frame_pair(cells: int) -> list[NDArray[np.uint8]]:
    """Two frames of noise, 16:9, of as many visual tokens as allowed."""
    rows = max(math.isqrt(cells * 9 // 16), 1)
    shape = (rows * CELL, cells // rows * CELL, 3)
    draw = np.random.default_rng(0)
    return [draw.integers(0, 256, shape, dtype=np.uint8) for _ in range(2)]


def serve(open_measuring: Callable[[Task, Known], Measuring]) -> None:
    """Answer the lines of standard input, until it ends and the process with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who asks is interrupted too, and ends this process
    _crash_quietly()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what else is printed is no answer
    lines = _lines()
    try:
        job = json.loads(next(lines))
        with open_measuring(Task(**job["task"]), Known(**job["known"])) as measuring:
            for line in lines:
                print(json.dumps(_answer(measuring, json.loads(line))), file=answers, flush=True)
    except BaseException:
        traceback.print_exc()
    # At the usual end of the interpreter the thread of `_lines` would still hold the lock of standard input.
    os._exit(1)


def _lines() -> Iterator[str]:
    """The lines of standard input. Its end is seen at once, also while the engine computes, and ends the process."""
    lines: SimpleQueue[str] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    Thread(target=listen, daemon=True).start()
    while True:
        yield lines.get()


def _answer(measuring: Measuring, asked: dict[str, Any]) -> dict[str, Any]:
    setup = Setup(EngineSettings(**asked["settings"]), Path(asked["projector"]))
    try:
        seconds = measuring.measure(setup, asked["stage"])
    except VrtError as error:
        return {"error": str(error), "status": error.status}
    except MemoryError:
        return {"error": "Not enough memory to measure with these settings.", "status": OutOfMemoryError.status}
    return {"seconds": seconds, "known": asdict(measuring.known)}


def _crash_quietly() -> None:
    """A crash writes no copy of the memory and opens no window: both may take minutes."""
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 - of this system alone

        msvcrt.SetErrorMode(msvcrt.SEM_NOGPFAULTERRORBOX)
    else:
        import resource  # noqa: PLC0415 - of the other systems

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    serve(Bench)
