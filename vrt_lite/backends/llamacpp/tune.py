"""Finds the quickest engine settings for a model on this machine; what is tried runs in a process of its own.

An engine may crash or hang with settings that it was built badly for. That ends the process that measures
(`measure`), not this one: the setting counts as refused, and the next one is measured in a fresh process. What is
tried, and when it is taken, is `search`'s.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from vrt_lite.backends.llamacpp.engine import usable_cpus
from vrt_lite.backends.llamacpp.measure import LONGEST, Known, Task
from vrt_lite.backends.settings import EngineSettings
from vrt_lite.errors import ModelError, OutOfMemoryError
from vrt_lite.fitting.search import Found, Setup, Stage, Watch, axes, search
from vrt_lite.fitting.tuning import Tuning
from vrt_lite.models.files import ModelFiles
from vrt_lite.profile import Profile
from vrt_lite.resize import PIXELS_PER_TOKEN

_MODULE = "vrt_lite.backends.llamacpp.measure"
_SPARE_BYTES = 2 * 2**30
_MOST_TOLD = 200
"""Characters of what a process that ended had to say."""


class EngineEndedError(ModelError):
    """The engine crashed, or hung, while it was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """The program that measures, and how long it is waited for.

    `first_seconds` is for the first answer, before it is known how fast the machine is; later ones may take
    `times` as long as the slowest before, and `least_seconds`.
    """

    arguments: Sequence[str] = ("-m", _MODULE)
    first_seconds: float = 600.0
    least_seconds: float = 30.0
    times: float = 10.0


USUAL: Final = Worker()


class Measurer:
    """A bench in a child process, which is started again after a crash; a context manager."""

    def __init__(self, files: ModelFiles, *, profile: Profile, budget_seconds: float, worker: Worker = USUAL) -> None:
        prompt, cells = profile.system_prompt + profile.user_prompt, profile.max_pixels // PIXELS_PER_TOKEN
        self._task = Task(str(files.text), prompt, cells, budget_seconds)
        self._bytes = files.text.stat().st_size
        self._worker = worker
        self._known: dict[str, Any] = asdict(Known())
        self._slowest = 0.0
        self._process: _Process | None = None

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, whatever it does."""
        if self._process:
            self._process.close()
            self._process = None

    def measure(self, setup: Setup, stage: Stage) -> float:
        """Seconds of a frame pair, of a token read, or of a token written.

        Raises EngineEndedError for a crash or silence, ModelError and OutOfMemoryError.
        """
        asked = {"settings": asdict(setup.settings), "projector": str(setup.projector), "stage": stage}
        if self._process is None:
            self._process = _Process(self._worker.arguments)
            self._process.send({"task": asdict(self._task), "known": self._known})
        self._process.send(asked)
        began = time.monotonic()
        patience = max(self._worker.times * self._slowest, self._worker.least_seconds)
        try:
            answer = self._process.answer(patience if self._slowest else self._worker.first_seconds)
        except BaseException:
            self.close()
            raise
        if "error" in answer:
            kind = OutOfMemoryError if answer["status"] == OutOfMemoryError.status else ModelError
            raise kind(answer["error"])
        self._slowest = max(self._slowest, time.monotonic() - began)
        self._known = answer["known"]
        return answer["seconds"]

    def repack_fits(self) -> bool:
        """Whether memory has room for a second copy of the weights."""
        return psutil.virtual_memory().available > self._bytes + _SPARE_BYTES

    def reads_long(self) -> bool:
        """Whether the machine is fast enough to be measured with the longest text."""
        return self._known["prefill_tokens"] == LONGEST


class _Process:
    """The process that measures: JSON lines to it and from it."""

    def __init__(self, arguments: Sequence[str]) -> None:
        # It finds the modules that this process finds, and none in the folder that the user happens to be in.
        path = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)
        # An abort of the engine would start a debugger for a stack trace.
        environment = os.environ | {"PYTHONPATH": path, "GGML_NO_BACKTRACE": "1"}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._process = subprocess.Popen(
            [sys.executable, "-P", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
        )
        # Writing and reading may both block for as long as the process lives, and an interrupt must not wait.
        self._pool = ThreadPoolExecutor(max_workers=1)

    def send(self, table: Mapping[str, Any]) -> None:
        """Send a line as soon as it can be; if it never can, there is no answer."""
        self._pool.submit(self._write, json.dumps(table).encode() + b"\n")

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next line. EngineEndedError or OutOfMemoryError if there is none within these seconds, or ever."""
        reading = self._pool.submit(self._read)
        until = time.monotonic() + seconds
        # The short waits are for Windows, where a wait cannot be broken.
        while not wait([reading], timeout=0.2).done:
            if time.monotonic() > until:
                raise EngineEndedError(f"no answer in {seconds:.0f} s")
        if (line := reading.result()).endswith(b"\n"):
            return json.loads(line)
        raise self._end()

    def close(self) -> None:
        """Kill it, and free what it used."""
        self._process.kill()
        self._process.wait()
        self._pool.shutdown()
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(OSError):  # what it did not read any more
            self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def _read(self) -> bytes:
        assert self._process.stdout
        return self._process.stdout.readline()

    def _end(self) -> EngineEndedError | OutOfMemoryError:
        """Why it ended, in words."""
        status = self._process.wait()
        if -status == getattr(signal, "SIGKILL", None):
            return OutOfMemoryError("The engine was killed by the system, as for lack of memory.")
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        last = f": {lines[-1]:.{_MOST_TOLD}}" if lines else ""
        return EngineEndedError(f"the engine ended {_ending(status)}{last}")


def busy() -> float:
    """The share of the processor's time, 0 to 1, that others use; looks for a third of a second."""
    return psutil.cpu_percent(interval=0.3) / 100


def tune(
    files: ModelFiles,
    *,
    profile: Profile,
    budget_seconds: float,
    observe: Watch = lambda _: None,
    worker: Worker = USUAL,
) -> tuple[Tuning, Found]:
    """Find the settings for a model on this machine; nothing is kept here.

    Raises OutOfMemoryError, KeyboardInterrupt, and ModelError, also if the engine crashes or hangs with its defaults.
    """
    with Measurer(files, profile=profile, budget_seconds=budget_seconds, worker=worker) as measurer:
        try:
            found = search(
                Setup(EngineSettings(), files.projector),
                axes(
                    files.projectors,
                    physical_cpus=psutil.cpu_count(logical=False) or usable_cpus(),
                    usable_cpus=usable_cpus(),
                    repack_fits=measurer.repack_fits,
                    long_prefill=measurer.reads_long,
                ),
                measure=measurer.measure,
                budget_seconds=budget_seconds,
                observe=observe,
            )
        except EngineEndedError as error:
            raise ModelError(
                f"{files.name} cannot be measured, the engine does not run with its default settings: {error}. "
                "Install it anew: pip install --force-reinstall --no-cache-dir llama-cpp-python"
            ) from error
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


def _ending(status: int) -> str:
    """A process's exit status in words; Windows gives numbers that are known in hexadecimal."""
    if status >= 0:
        return f"with status {status if status < 256 else hex(status)}"
    try:
        return f"by signal {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"
