"""What the attacks of a campaign share: a command and how it must end, good clips, and odd values."""

from __future__ import annotations

import contextlib
import functools
import io
import random
import tempfile
from pathlib import Path
from typing import Any

from clips import write_clip
from judgements import judgement, sure

from vrt_lite.cli import run

JUDGED = judgement([sure()])
STATUSES = frozenset(range(10)) - {1}
CONTAINERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("a.mp4", {"audio_seconds": 1}),
    ("b.mp4", {"faststart": True, "bframes": 2}),
    ("c.mp4", {"movflags": "frag_keyframe+empty_moov"}),
    ("d.mov", {"rotation": 90}),
    ("e.mkv", {}),
    ("f.webm", {"codec": "libvpx"}),
    ("g.avi", {"codec": "mpeg4"}),
    ("h.ts", {"codec": "mpeg2video"}),
    ("i.mp4", {"codec": "libx265"}),
)
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**63, 10**400, 1e308, -1e-308, "", "x" * 100_000, "\ud800", "\0", "\x1b]0;x\x07", [], {}),
    *([[]], {"": {}}, [None], "2", "<final answer>", float("nan"), float("inf")),
)


def command(*arguments: str) -> int:
    """Run a command here; returns its status. It must be known, and a failure must be said in one line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(arguments)
    check(status, err.getvalue(), arguments)
    return status


def check(status: int, err: str, arguments: object) -> None:
    assert status in STATUSES, f"status {status} of {arguments}: {err[-500:]}"
    assert "Unexpected" not in err, f"{arguments}: {err[-500:]}"
    assert "Traceback" not in err, f"{arguments}: {err[-1500:]}"
    said = [line for line in err.splitlines() if line.startswith("vrt-lite: ")]
    assert status == 0 or len(said) <= 1, f"{arguments}: {err[-500:]}"
    assert all(line.isprintable() for line in err.splitlines()), f"not printable, of {arguments}: {err[-500:]!r}"


@functools.cache
def good_clips() -> dict[str, bytes]:
    """The bytes of a clip in each container."""
    with tempfile.TemporaryDirectory() as folder:
        made = {
            name: write_clip(Path(folder) / name, frames=24, size=(84, 56), gop=8, **how) for name, how in CONTAINERS
        }
        return {name: path.read_bytes() for name, path in made.items()}


def mutate_bytes(data: bytearray, draw: random.Random) -> None:
    """Change bytes in one way, wherever they belong."""
    at = draw.randrange(draw.choice((min(len(data), 300), len(data))))
    length = draw.choice((1, 4, 8, 100, len(data) // 4))
    match draw.randrange(7):
        case 0:
            for _ in range(draw.choice((1, 10, 100, 1000))):
                data[draw.randrange(at, len(data))] ^= 1 << draw.randrange(8)
        case 1:
            del data[at:]
        case 2:
            del data[at : at + length]
        case 3:
            data[at:at] = data[at : at + length]
        case 4:
            data[at : at + length] = draw.choice((b"\0", b"\xff", draw.randbytes(1))) * len(data[at : at + length])
        case 5:
            data[at : at + length] = draw.randbytes(length)
        case _:
            number = draw.choice((0, 1, 7, 8, 2**16, 2**31 - 1, 2**31, 2**32 - 1))
            data[at : at + 4] = number.to_bytes(4, draw.choice(("big", "little")))


def change_value(value: Any, draw: random.Random) -> None:
    """Replace, remove or add a value somewhere in plain data."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = draw.choice(keys)
        if isinstance(value[key], dict | list) and draw.random() < 0.7:
            value = value[key]
        elif draw.random() < 0.2:
            del value[key]
            return
        else:
            value[key] = draw.choice(ODD)
            return
