"""Attacks the tool with bad input and in bad surroundings, at random, for some minutes; `make campaign` runs it.

Each case is a kind of attack and a seed, so a case can be repeated. A case fails if the program crashes, is at work for
more than 20 seconds (more in proportion to the machine's load), takes more than 1 GB, writes where it must not, or ends
with anything but a result or one line.

python tests/campaign/run_campaign.py --minutes 20 --seed 7
python tests/campaign/run_campaign.py --case "clip 7.123"
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import psutil

TESTS = Path(__file__).parents[1]
SECONDS = 20.0
MOST_BYTES = 10**9
SURROUNDINGS = {
    **{f"HF_HUB_{name}": "1" for name in ("DISABLE_TELEMETRY", "DISABLE_IMPLICIT_TOKEN", "DISABLE_XET")},
    **{"HF_HUB_DOWNLOAD_TIMEOUT": "2", "NO_PROXY": "127.0.0.1", "GGML_NO_BACKTRACE": "1", "OMP_NUM_THREADS": "1"},
}
"""Variables with which nothing leaves this machine, and a crash is quick."""


def begin(folder: Path) -> None:
    """Prepare a process for attacks: nothing of the user's is touched, and an engine that prints disturbs nobody."""
    os.environ.update(SURROUNDINGS, HF_HOME=str(folder / "hf"), VRT_LITE_HOME=str(folder / "home"))
    os.environ["PYTHONPATH"] = os.pathsep.join((str(TESTS), str(TESTS.parent)))
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    import campaign_attacks

    campaign_attacks.good_clips()  # to begin is no part of a case


def carry_out(case: str, place: Path) -> tuple[str, int]:
    """Attack in a new folder, outside of which nothing may be written. Returns what is wrong, and `most_bytes`."""
    from campaign_attacks import ATTACKS

    wrong = ""
    for name in ("work", "temporary"):
        (place / name).mkdir(parents=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(place / "temporary")
    os.chdir(place / "work")
    try:
        ATTACKS[case.partition(" ")[0]][1](random.Random(case), place / "work")
    except AssertionError as error:
        wrong = str(error) or traceback.format_exc(limit=-2)
    except BaseException:
        wrong = traceback.format_exc(limit=-6)
    os.chdir(place.parent)
    strange = sorted({path.name for path in place.iterdir()} - {"work", "temporary"})
    shutil.rmtree(place)
    return wrong or (f"written outside of its folder: {strange}" if strange else ""), most_bytes()


def most_bytes() -> int:
    """The most memory that this process, or a child that has ended, had at any time."""
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    own, children = (
        resource.getrusage(who).ru_maxrss * unit for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    status = Path("/proc/self/status")
    if status.is_file():  # on Linux the other begins with the memory of the process that started this one
        own = int(status.read_text("utf-8").partition("VmHWM:")[2].split()[0]) * 1024
    return max(own, children)


class Worker:
    """A child process that carries out attacks, and is started again when one ends it."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def attack(self, case: str) -> str:
        """Carry out a case; returns what is wrong, or ""."""
        if not self._pool:
            self._folder = tempfile.TemporaryDirectory(prefix="campaign")
            context, folder = multiprocessing.get_context("spawn"), Path(self._folder.name)
            self._pool = ProcessPoolExecutor(1, context, initializer=begin, initargs=(folder,))
            self._pool.submit(most_bytes).result()  # it has begun
        # More time where other programs share the processors.
        seconds = SECONDS * max(1.0, psutil.getloadavg()[0] / (os.cpu_count() or 1))
        place = Path(self._folder.name) / str(time.monotonic_ns())
        try:
            wrong, taken = self._pool.submit(carry_out, case, place).result(seconds)
        except TimeoutError:
            self.close()
            return f"at work for more than {seconds:.0f} s"
        except BrokenProcessPool:
            self.close()
            return "the process ended"
        if taken > MOST_BYTES // 3:
            self.close()  # a process keeps some memory of each case: the next begins with little again
        return wrong or (f"took {taken / 1e9:.2f} GB" if taken > MOST_BYTES else "")

    def close(self) -> None:
        """End the process."""
        if self._pool:
            for process in list((self._pool._processes or {}).values()):
                process.kill()
            self._pool.shutdown()
            self._pool = None
            self._folder.cleanup()


def list_cases(seed: int) -> Iterator[str]:
    """Yield the cases of a seed without end: each kind once, and then as often as it is to come."""
    from campaign_attacks import ATTACKS

    draw, kinds = random.Random(seed), list(ATTACKS)
    weights = [often for often, _ in ATTACKS.values()]
    for number in itertools.count():
        kind = kinds[number] if number < len(kinds) else draw.choices(kinds, weights)[0]
        yield f"{kind} {seed}.{number}"


def run_cases(cases: Iterator[str], *, until: float, workers: int) -> tuple[Counter[str], list[str]]:
    """Carry out cases until a time of time.monotonic, or until there are no more.

    Returns how many there were by kind, and those that failed, each of which is printed at once.
    """
    lock, counts, failed = threading.Lock(), Counter[str](), list[str]()

    def work() -> None:
        worker = Worker()
        try:
            while time.monotonic() < until:
                with lock:
                    case = next(cases, None)
                if case is None:
                    return
                wrong = worker.attack(case)
                with lock:
                    counts[case.partition(" ")[0]] += 1
                    if wrong:
                        failed.append(case)
                        print(f"FAILED {case}: {wrong}", flush=True)
        finally:
            worker.close()

    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work) for _ in range(workers)]:
            done.result()
    return counts, failed


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="else a random one")
    parser.add_argument("--workers", type=int, default=min(os.cpu_count() or 1, 8))
    parser.add_argument("--case", help="one case of an earlier campaign, KIND SEED.NUMBER")
    options = parser.parse_args()
    sys.path[:0] = [str(TESTS), str(TESTS.parent)]
    cases = iter([options.case]) if options.case else list_cases(options.seed)
    began = time.monotonic()
    print(f"Seed {options.seed}, {options.minutes:g} minutes, {options.workers} processes", flush=True)
    counts, failed = run_cases(cases, until=began + 60 * options.minutes, workers=options.workers)
    processor = psutil.Process().cpu_times()
    minutes = (processor.children_user + processor.children_system) / 60
    kinds = ", ".join(f"{kind} {counts[kind]}" for kind in sorted(counts))
    spent = f"{time.monotonic() - began:.0f} s, {minutes:.1f} minutes of processor time"
    print(f"{counts.total()} cases in {spent} ({kinds}): {len(failed)} failed")
    for case in failed:
        print(f'Again: {sys.executable} tests/campaign/run_campaign.py --case "{case}"')
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
