"""What attacks share, and those with what a user gives besides clips: arguments, tables, stores, profiles, models."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from clips import write_clip
from judgements import judgement, sure

from vrt_lite.cli import run
from vrt_lite.models import find
from vrt_lite.profile import PROFILE_NAME
from vrt_lite.records.pairs import Question
from vrt_lite.runs.store import Store

sys.path.insert(0, str(Path(__file__).parents[1] / "convert"))

import synthetic_checkpoint

Attack = Callable[[random.Random, Path], None]
"""Attacks in a folder of its own, as the generator draws; AssertionError if the program does what it must not do."""
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
ODD_TEXTS = (
    *("", " ", "-", "--", "-q", "0", "-1", "1e999", "nan", "9" * 400, "0x10", "١", "💥", "\udcff", ".", "a/../b", "=1"),
    *("/dev/null", "/dev/full", "/proc/self/mem", "x" * 5000, "%s%n", "\x1b]0;x\x07", "\u202e", "C:\\x", "file:a"),
    *("http://127.0.0.1:9", "http://[", "http://a b/", "//x", "[", "{", "*", "**", "?", "None", "true", "a\nb", "~"),
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
        for name, how in CONTAINERS:
            write_clip(Path(folder) / name, frames=24, size=(84, 56), gop=8, **how)
        return {name: (Path(folder) / name).read_bytes() for name, _ in CONTAINERS}


def place_clips(place: Path, *names: str) -> None:
    place.mkdir(exist_ok=True)
    for name in names or ("a.mp4", "b.mp4"):
        (place / name).write_bytes(good_clips()[name])


def mutate_bytes(given: bytes, draw: random.Random, *times: int) -> bytes:
    """Change bytes as often as one of `times` says, wherever they belong."""
    data = bytearray(given)
    for _ in range(draw.choice(times or (1,))):
        if not data:
            break
        at = draw.randrange(draw.choice((min(len(data), 300), len(data))))
        piece = data[at : at + draw.choice((1, 4, 8, 100, len(data) // 4))]
        number = draw.choice((0, 1, 7, 8, 2**16, 2**31 - 1, 2**31, 2**32 - 1))
        match draw.randrange(7):
            case 0:
                for _ in range(draw.choice((1, 10, 100, 1000))):
                    data[draw.randrange(at, len(data))] ^= 1 << draw.randrange(8)
            case 1:
                del data[at:]
            case 2:
                data[at : at + 4] = number.to_bytes(4, draw.choice(("big", "little")))
            case way:
                byte = draw.choice((b"\0", b"\xff", draw.randbytes(1)))
                others = (b"", piece * 2, byte * len(piece), draw.randbytes(len(piece)))
                data[at : at + len(piece)] = others[way - 3]
    return bytes(data)


def change_value(value: Any, draw: random.Random, *times: int) -> None:
    """Replace or remove values somewhere in plain data, as often as one of `times` says."""
    for _ in range(draw.choice(times or (1,))):
        inner = value
        while keys := list(inner) if isinstance(inner, dict) else list(range(len(inner))):
            key = draw.choice(keys)
            if isinstance(inner[key], dict | list) and draw.random() < 0.7:
                inner = inner[key]
                continue
            if draw.random() < 0.2:
                del inner[key]
            else:
                inner[key] = draw.choice(ODD)
            break


# fmt: off
OPTIONS = (
    "--prompt", "--prompt-file", "--model", "--projector", "--workspace", "--first-frames", "--window", "--rounds",
    "--max-pixels", "--tool-max-pixels", "--ctx", "--gpu-layers", "--kv-type", "--threads", "--seed", "--preset",
    "--temperature", "--dimension", "--orders", "--skip-second-at", "--json", "--sheet", "--trace", "--backend",
    "--served-model", "--store", "--name", "--budget", "--stop-at", "--top", "--copy-to", "--jobs", "--limit",
    "--sample", "--order", "--from", "--split", "--format", "-o", "--rm", "--retry", "--memory", "--vram", "--clear",
    "--no-cache", "--no-measures", "--out", "--type", "--lora", "--imatrix", "-v", "-h", "--version",
)
COMMANDS = (
    "compare", "rank", "eval", "runs", "show", "export", "report", "models", "estimate", "cache", "convert", "rm",
    "", "--help", "nothing",
)
VARIABLES = (
    "VRT_LITE_HOME", "VRT_LITE_CACHE_MB", "VRT_LITE_API_KEY", "HF_ENDPOINT", "XDG_CACHE_HOME", "XDG_DATA_HOME", "HOME",
    "COLUMNS", "LINES", "TERM", "NO_COLOR", "FORCE_COLOR", "TMPDIR", "LC_ALL", "HF_HOME", "PYTHONUTF8", "TZ",
    "LLAMA_CPP_LIB_PATH", "OMP_NUM_THREADS", "HTTP_PROXY", "ALL_PROXY", "SSL_CERT_FILE",
)
# fmt: on


def attack_with_arguments(draw: random.Random, place: Path) -> None:
    """Give a command options that it has or has not, with odd values."""
    place_clips(place)
    arguments = [draw.choice(COMMANDS)]
    arguments += [draw.choice(("a.mp4", "b.mp4", "a.mp4", "b.mp4", draw.choice(ODD_TEXTS))) for _ in range(2)]
    for _ in range(draw.choice((1, 2, 4))):
        arguments.append(draw.choice(OPTIONS))
        if draw.random() < 0.8:
            arguments.append(draw.choice(ODD_TEXTS))
    with patch.dict(os.environ, HF_ENDPOINT="http://127.0.0.1:9", VRT_LITE_HOME=str(place / "home")):
        command(*arguments)


def attack_with_variables(draw: random.Random, place: Path) -> None:
    """Run a command while variables of the environment have odd values."""
    values = [text for text in ODD_TEXTS if "\0" not in text and not text.startswith("/")]
    given = {draw.choice(VARIABLES): draw.choice(values) for _ in range(draw.choice((1, 2, 3)))}
    place_clips(place)
    commands = ("compare a.mp4 b.mp4 -q", "rank a.mp4 b.mp4 -q", "runs", "models", "cache", "estimate vrt-tiny-0")
    arguments = draw.choice((*commands, "pull someone/judge")).split()
    with patch.dict(os.environ, {"HF_ENDPOINT": "http://127.0.0.1:9", **given}):
        command(*arguments)


def attack_with_table(draw: random.Random, place: Path) -> None:
    """Rank or evaluate by a table with odd cells."""
    place_clips(place)
    ranks = draw.random() < 0.5
    columns = ["clip", "prompt", "group"] if ranks else ["a", "b", "prompt", "overall", "VQ", "id", "group"]
    clips = ("a.mp4", "b.mp4", "gone.mp4", "../a.mp4", "/dev/zero")
    rows = [
        {name: draw.choice(clips if name in ("clip", "a", "b") else ("A", "B", "same", "1", "")) for name in columns}
        for _ in range(draw.choice((1, 3)))
    ]
    suffix = draw.choice((".csv", ".tsv", ".jsonl", ".json"))
    change_value(rows, draw, 0, 1, 3)
    if suffix in (".jsonl", ".json"):
        text = json.dumps(rows) if suffix == ".json" else "\n".join(json.dumps(row) for row in rows)
    else:
        mark = draw.choice(",;\t")
        lines = [row.values() for row in rows if isinstance(row, dict)]
        text = "\n".join([mark.join(columns), *(mark.join(map(str, line)) for line in lines)])
    data = text.encode("utf-8", "replace")
    (place / f"table{suffix}").write_bytes(mutate_bytes(data, draw, 0, 0, 0, 1, 1))
    with patch.dict(os.environ, VRT_LITE_HOME=str(place / "home")):
        command("rank" if ranks else "eval", str(place / f"table{suffix}"), "-q", "--budget", "2", "--rounds", "1")


@functools.cache
def good_store() -> bytes:
    """The bytes of a store with a ranking."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.sqlite"
        with Store(path) as store:
            run = store.begin("foxes", kind="rank", about={})
            for number in range(4):
                run.add(Question(f"first {number}", f"second {number}", "A fox.", "judge"), JUDGED)
        return path.read_bytes()


def attack_with_store(draw: random.Random, place: Path) -> None:
    """Use a damaged store."""
    (place / "runs.sqlite").write_bytes(mutate_bytes(good_store(), draw, 1, 3))
    if draw.random() < 0.2:
        (place / "runs.sqlite-wal").write_bytes(draw.randbytes(draw.choice((0, 32, 5000))))
    for arguments in ("runs", "show foxes", "export foxes -o a.csv", "report foxes -o a.html"):
        command(*arguments.split(), "--store", str(place / "runs.sqlite"))


def attack_with_report(draw: random.Random, place: Path) -> None:
    """Make a report of a judgement with odd values."""
    told = json.loads(json.dumps(JUDGED.to_json()))
    change_value(told, draw, 1, 2, 5)
    (place / "a.json").write_bytes(mutate_bytes(json.dumps(told).encode(), draw, 0, 0, 0, 0, 1))
    command("report", "a.json", "-o", "a.html")
    assert {path.name for path in place.iterdir()} <= {"a.json", "a.html"}


def attack_with_profile(draw: random.Random, place: Path) -> None:
    """Judge by a profile with odd values."""
    files = find(draw.choice(("vrt-tiny-0", "vrt-tiny-2")))
    for path in (files.text, files.projector):
        (place / path.name).symlink_to(path)
    profile = files.text.parent / PROFILE_NAME
    lines = profile.read_text("utf-8").splitlines() if profile.is_file() else ["window = 1"]
    odd = ("-1", "0", "1e400", "nan", '""', "[]", "{}", "true", "99999999999999999999", '"\\u0000"', "'''x", "[[a]]")
    for _ in range(draw.choice((1, 1, 3))):
        at = draw.randrange(len(lines))
        name, equals, _ = lines[at].partition("=")
        lines[at] = f"{name}={draw.choice(odd)}" if equals and draw.random() < 0.8 else draw.choice(odd)
    (place / PROFILE_NAME).write_text("\n".join(lines), "utf-8")
    place_clips(place)
    command("compare", "a.mp4", "b.mp4", "-m", str(place), "-q", "--no-cache")


@functools.cache
def good_checkpoint() -> dict[str, bytes]:
    """The bytes of a small checkpoint's files."""
    with tempfile.TemporaryDirectory() as folder:
        synthetic_checkpoint.make(Path(folder) / "checkpoint", shards=2)
        return {path.name: path.read_bytes() for path in (Path(folder) / "checkpoint").iterdir()}


def attack_with_checkpoint(draw: random.Random, place: Path) -> None:
    """Convert a checkpoint whose headers, index or settings are odd."""
    folder = place / "checkpoint"
    folder.mkdir()
    for name, data in good_checkpoint().items():
        (folder / name).write_bytes(data)
    path = folder / draw.choice(sorted(good_checkpoint()))
    data = path.read_bytes()
    if path.suffix == ".json" and draw.random() < 0.8:
        told = json.loads(data)
        change_value(told, draw, 1, 2)
        if "weight_map" in told and draw.random() < 0.5 and isinstance(told["weight_map"], dict) and told["weight_map"]:
            name = draw.choice(sorted(told["weight_map"]))
            told["weight_map"][name] = draw.choice(("../x.safetensors", "/etc/passwd", "", "config.json", "a\0b"))
        path.write_bytes(json.dumps(told).encode())
    elif path.suffix == ".safetensors" and draw.random() < 0.8:
        path.write_bytes(change_header(data, draw))
    else:
        path.write_bytes(mutate_bytes(data, draw))
    command("convert", str(folder), "--out", str(place / "out"), "-q", "--type", draw.choice(("f16", "q8_0")))
    assert {path.name for path in place.iterdir()} <= {"checkpoint", "out"}


def change_header(data: bytes, draw: random.Random) -> bytes:
    """Change the header of a safetensors file in one way."""
    size = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + size])
    names = [name for name in header if name != "__metadata__"]
    entry = header[draw.choice(names)]
    odd: dict[str, tuple[Any, ...]] = {
        "data_offsets": ([0, 2**63], [-8, 0], [8, 0], [0], "0", [0.5, 1.5], [10**30, 10**31]),
        "shape": ([2**40, 2**40], [-1], [], [0], "64", [1.5], [[64]]),
        "dtype": ("F64", "I8", "F8_E4M3", "", None, "BF16 ", 3),
    }
    match draw.choice((*odd, "another's offsets", "any value", "size", "brackets")):
        case "another's offsets":
            entry["data_offsets"] = header[draw.choice(names)]["data_offsets"]
        case "any value":
            change_value(header, draw)
        case "size":
            return draw.choice((0, 1, 2**31, 2**63, 2**64 - 1)).to_bytes(8, "little") + data[8:]
        case "brackets":
            return size.to_bytes(8, "little") + b"[" * size + data[8 + size :]
        case key:
            entry[key] = draw.choice(odd[key])
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


INPUT_ATTACKS: dict[str, Attack] = {
    "arguments": attack_with_arguments,
    "variables": attack_with_variables,
    "table": attack_with_table,
    "store": attack_with_store,
    "report": attack_with_report,
    "profile": attack_with_profile,
    "checkpoint": attack_with_checkpoint,
}
INPUT_WEIGHTS = {"arguments": 15, "variables": 6, "table": 10, "store": 10, "report": 10, "profile": 5, "checkpoint": 8}
