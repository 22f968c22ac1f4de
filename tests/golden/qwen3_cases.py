"""What Qwen3-VL's golden file is about: a random checkpoint, and conversations of images and of timed videos.

Shared by the script that asks the reference and the test that asks the engine. NumPy alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "convert"), str(HERE)]

import synthetic_families as families  # noqa: E402
from fidelity_cases import Case  # noqa: E402

from vrt_lite.profile import Clock, Profile  # noqa: E402
from vrt_lite.protocol.messages import Conversation, FrameRef, Image, Message, Text, Video  # noqa: E402

GREEDY_TOKENS = 32
CELLS = (4 * 32**2, 24 * 32**2)
PROFILE = Profile(
    min_pixels=CELLS[0],
    max_pixels=CELLS[1],
    tool_min_pixels=CELLS[0],
    tool_max_pixels=CELLS[1],
    cell=32,
    clock=Clock("text"),
    max_new_tokens=GREEDY_TOKENS,
    rounds=1,
)


def make_checkpoint(folder: Path) -> None:
    """Write the folder. The weights are those of a BF16 file, as published."""
    families.make(folder, "qwen3_vl", dtype="BF16", tied=False)


def _images(clip: int, count: int) -> tuple[Image, ...]:
    return tuple(Image(FrameRef(clip, i)) for i in range(count))


def _video(clip: int, count: int, rate: float) -> Video:
    times = tuple(i / rate for i in range(count))
    return Video(tuple(FrameRef(clip, 3 * i) for i in range(count)), 2 / rate, times)


def _ask(*parts: Text | Image | Video) -> Conversation:
    return (Message("user", (*parts, Text("hello, which is the lower?"))),)


def cases() -> list[Case]:
    """All conversations."""
    wide, tall, square = (160, 90), (90, 160), (117, 117)
    system = Message("system", (Text("the judge"),))
    said = Message("assistant", (Text("the second clip"),))
    videos = (system, *_ask(_video(0, 6, 1.3), _video(1, 4, 2.0)))
    found = [
        ("four and three images", _ask(*_images(0, 4), *_images(1, 3)), (wide, tall)),
        ("two videos with their times", videos, (wide, square)),
        ("an odd number of frames", _ask(_video(0, 5, 0.9), _video(1, 2, 24.0)), (square, tall)),
        ("later images", (*videos, said, Message("user", (Text("frames:"), *_images(1, 2)))), (wide, wide)),
        ("the whole table of positions", _ask(*_images(0, 2)), ((128, 128), wide)),
        ("a strip", _ask(_video(0, 2, 1.0), *_images(1, 1)), ((640, 36), (30, 500))),
        ("text alone", _ask(), (wide, wide)),
    ]
    return [Case(name, conversation, sizes, PROFILE) for name, conversation, sizes in found]
