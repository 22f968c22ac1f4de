"""Attacks with which a program would do each thing that a campaign must notice, and one that it withstands."""

from __future__ import annotations

import ctypes
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from attack_tools import check


def crash(draw: random.Random, place: Path) -> None:
    os.kill(os.getpid(), 9) if os.name == "posix" else os._exit(134)


def take_memory(draw: random.Random, place: Path) -> None:
    size = 12 * 10**8
    block = ctypes.create_string_buffer(size)
    ctypes.memset(block, 1, size)


ATTACKS: dict[str, Callable[[random.Random, Path], None]] = {
    "good": lambda draw, place: check(3, "vrt-lite: 'a.mp4' is empty\n", ()),
    "crash": crash,
    "hang": lambda draw, place: time.sleep(60),
    "memory": take_memory,
    "elsewhere": lambda draw, place: (place.parent / "stray").touch(),
    "unexpected": lambda draw, place: check(1, "vrt-lite: Unexpected KeyError: 3\n", ()),
    "traceback": lambda draw, place: check(2, "Traceback (most recent call last)\n", ()),
    "unprintable": lambda draw, place: check(3, "vrt-lite: \x1b]0;x\n", ()),
    "error": lambda draw, place: print({}["nothing"]),
}
