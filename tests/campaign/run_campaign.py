"""Attacks the tool with bad input and in bad surroundings, at random, for some minutes; `make campaign` runs it.

Each case is a kind of attack and a seed, so a case can be repeated. A case fails if the program crashes, is at work for
more than 20 seconds (more in proportion to the machine's load), takes more than 1 GB, writes where it must not, or ends
with anything but a result or one line.

python tests/campaign/run_campaign.py --minutes 20 --seed 7
python tests/campaign/run_campaign.py --case "clip 7.123"
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

HERE = Path(__file__).parent
TESTS = HERE.parent
SECONDS = 20.0
MOST_BYTES = 10**9


@dataclass(frozen=True)
class Failure:
    """A case, and what the program did."""

    case: str
    what: str


class Worker:
    """A child process that carries out attacks, and is started again when one ends it."""

    def __init__(self, module: str, *, seconds: float = SECONDS) -> None:
        self._module = module
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def attack(self, case: str) -> str:
        """Carry out a case; returns what is wrong, or ""."""
        process = self._process or self._start()
        assert process.stdin
        assert process.stdout
        hung, done = threading.Event(), threading.Event()
        watch = threading.Thread(target=self._end_if_hung, args=(process, hung, done))
        watch.start()
        process.stdin.write(f"{case}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        done.set()
        watch.join()
        if not line:
            status = process.wait()
            self.close()
            return f"at work for more than {self._seconds:.0f} s" if hung.is_set() else f"ended with status {status}"
        answer = json.loads(line)
        if answer["most_bytes"] > MOST_BYTES // 3:
            self.close()  # a process keeps some memory of each case: the next begins with little again
        if answer["most_bytes"] > MOST_BYTES:
            return answer["wrong"] or f"took {answer['most_bytes'] / 1e9:.2f} GB"
        return answer["wrong"]

    def _end_if_hung(self, process: subprocess.Popen[str], hung: threading.Event, done: threading.Event) -> None:
        """Kill the process when it has had its seconds: more of them where other programs share the processors."""
        began = time.monotonic()
        while not done.wait(0.2):
            if time.monotonic() - began > self._seconds * max(1.0, psutil.getloadavg()[0] / (os.cpu_count() or 1)):
                hung.set()
                process.kill()
                return

    def _start(self) -> subprocess.Popen[str]:
        self._folder = tempfile.TemporaryDirectory(prefix="campaign")
        paths = [HERE, TESTS, TESTS.parent]
        command = [sys.executable, str(HERE / "campaign_worker.py"), self._module, self._folder.name]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **surroundings(Path(self._folder.name)), "PYTHONPATH": os.pathsep.join(map(str, paths))},
        )
        assert self._process.stdout
        self._process.stdout.readline()  # it is ready; to begin is no part of a case
        return self._process

    def close(self) -> None:
        """End the process."""
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._folder:
            self._folder.cleanup()
            self._folder = None


def surroundings(folder: Path) -> dict[str, str]:
    """Variables with which nothing of the user's is touched, and a crash is quick."""
    hub = {f"HF_HUB_{name}": "1" for name in ("DISABLE_TELEMETRY", "DISABLE_IMPLICIT_TOKEN", "DISABLE_XET")}
    return {
        **hub,
        "HF_HUB_DOWNLOAD_TIMEOUT": "2",
        "HF_HOME": str(folder / "hf"),
        "VRT_LITE_HOME": str(folder / "home"),
        "NO_PROXY": "127.0.0.1",
        "GGML_NO_BACKTRACE": "1",
        "OMP_NUM_THREADS": "1",
    }


def list_cases(weights: dict[str, int], seed: int) -> Iterator[str]:
    """Yield the cases of a seed without end: each kind as often as its weight says."""
    kinds = list(weights)
    draw = random.Random(seed)
    for number, kind in enumerate(kinds):  # each at least once
        yield f"{kind} {seed}.{number}"
    number = len(kinds)
    while True:
        yield f"{draw.choices(kinds, list(weights.values()))[0]} {seed}.{number}"
        number += 1


def run_cases(
    cases: Iterator[str],
    module: str,
    *,
    until: float,
    workers: int,
    seconds: float = SECONDS,
    report: Callable[[str], None] = print,
) -> tuple[Counter[str], list[Failure]]:
    """Carry out cases until a time of time.monotonic, or until there are no more.

    Returns how many there were by kind, and the failures, which are reported at once.
    """
    lock, counts, failures = threading.Lock(), Counter[str](), list[Failure]()

    def work() -> None:
        worker = Worker(module, seconds=seconds)
        try:
            while time.monotonic() < until:
                with lock:
                    case = next(cases, None)
                if case is None:
                    return
                what = worker.attack(case)
                with lock:
                    counts[case.partition(" ")[0]] += 1
                    if what:
                        failures.append(Failure(case, what))
                        report(f"FAILED {case}: {what}")
        finally:
            worker.close()

    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work) for _ in range(workers)]:
            done.result()
    return counts, failures


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=None, help="a random one if left out")
    parser.add_argument("--workers", type=int, default=min(os.cpu_count() or 1, 8))
    parser.add_argument("--case", help="one case of an earlier campaign, KIND SEED.NUMBER")
    options = parser.parse_args()
    sys.path[:0] = [str(TESTS), str(TESTS.parent)]
    from campaign_attacks import WEIGHTS

    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    cases = iter([options.case]) if options.case else list_cases(WEIGHTS, seed)
    began = time.monotonic()
    print(f"Seed {seed}, {options.minutes:g} minutes, {options.workers} processes", flush=True)
    counts, failures = run_cases(
        cases,
        "campaign_attacks",
        until=began + 60 * options.minutes,
        workers=options.workers,
        report=lambda line: print(line, flush=True),
    )
    processor = psutil.Process().cpu_times()
    minutes = (processor.children_user + processor.children_system) / 60
    kinds = ", ".join(f"{kind} {counts[kind]}" for kind in WEIGHTS if counts[kind])
    spent = f"{time.monotonic() - began:.0f} s, {minutes:.1f} minutes of processor time"
    print(f"{counts.total()} cases in {spent} ({kinds}): {len(failures)} failed")
    for failure in failures:
        print(f'Again: {sys.executable} tests/campaign/run_campaign.py --case "{failure.case}"')
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
