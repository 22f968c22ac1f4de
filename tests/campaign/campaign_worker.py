"""Carries out the attacks of a module, one for each line of standard input: KIND and a seed, with a blank between them.

"ready" is printed, and then a line of JSON for each: what is wrong ("" if nothing), and the most memory of this process
or a child.

python campaign_worker.py MODULE FOLDER
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

Attack = Callable[[random.Random, Path], None]
"""Attacks in a folder of its own, as the generator draws; AssertionError if the program does what it must not do."""


def most_bytes() -> int:
    """The most memory that this process, or a child that has ended, had at any time; 0 where it is not known."""
    if sys.platform == "win32":
        import psutil

        return psutil.Process().memory_info().peak_wset
    import resource

    # On Linux the first begins with the memory of the process that started this one.
    status = Path("/proc/self/status")
    if status.is_file():
        own = int(status.read_text("utf-8").partition("VmHWM:")[2].split()[0]) * 1024
    else:
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return max(own, children * (1 if sys.platform == "darwin" else 1024))


def carry_out(attack: Attack, seed: str, place: Path) -> str:
    """Attack in a new folder; returns what is wrong. Nothing may be written outside of `place`/work."""
    (place / "work").mkdir(parents=True)
    (place / "temporary").mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(place / "temporary")
    os.chdir(place / "work")
    try:
        attack(random.Random(seed), place / "work")
    except AssertionError as error:
        return str(error) or traceback.format_exc(limit=-2)
    except BaseException:
        return traceback.format_exc(limit=-6)
    finally:
        os.chdir(place.parent)
        strange = sorted(path.name for path in place.iterdir() if path.name not in ("work", "temporary"))
        shutil.rmtree(place)
    return f"written outside of its folder: {strange}" if strange else ""


def main(module: str, folder: str) -> None:
    answers = os.fdopen(os.dup(1), "w")  # an engine that prints does not disturb it
    os.dup2(2, 1)
    attacks: dict[str, Attack] = import_module(module).ATTACKS
    print("ready", file=answers, flush=True)
    for number, line in enumerate(sys.stdin):
        kind, _, seed = line.strip().partition(" ")
        wrong = carry_out(attacks[kind], f"{kind} {seed}", Path(folder) / str(number))
        answers.write(json.dumps({"wrong": wrong, "most_bytes": most_bytes()}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
