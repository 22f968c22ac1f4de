"""Attacks with what a user gives besides clips: arguments, variables, tables, stores, reports, profiles, models."""

from __future__ import annotations

import functools
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from attack_tools import JUDGED, change_value, command, good_clips, mutate_bytes

from vrt_lite.models import find
from vrt_lite.profile import PROFILE_NAME
from vrt_lite.records.pairs import Question
from vrt_lite.runs.store import Store

sys.path.insert(0, str(Path(__file__).parents[1] / "convert"))

import synthetic_checkpoint

ODD_TEXTS = (
    *("", " ", "-", "--", "-q", "0", "-1", "1e999", "nan", "9" * 400, "0x10", "١", "💥", "\udcff", ".", "a/../b"),
    *(
        "/dev/null",
        "/dev/full",
        "/proc/self/mem",
        "x" * 5000,
        "%s%n",
        "=1",
        "\x1b]0;x\x07",
        "\u202e",
        "C:\\x",
        "file:a",
    ),
    *("http://127.0.0.1:9", "http://[", "http://a b/", "//x", "[", "{", "*", "**", "?", "None", "true", "a\nb", "~"),
)
_OPTIONS = (
    *("--prompt", "--prompt-file", "--model", "--projector", "--workspace", "--first-frames", "--window", "--rounds"),
    *("--max-pixels", "--tool-max-pixels", "--ctx", "--gpu-layers", "--kv-type", "--threads", "--seed", "--preset"),
    *(
        "--temperature",
        "--dimension",
        "--orders",
        "--skip-second-at",
        "--json",
        "--sheet",
        "--trace",
        "--backend",
        "--served-model",
    ),
    *("--store", "--name", "--budget", "--stop-at", "--top", "--copy-to", "--jobs", "--limit"),
    *("--sample", "--order", "--from", "--split", "--format", "-o", "--rm", "--retry", "--memory", "--vram", "--clear"),
    *("--no-cache", "--no-measures", "--out", "--type", "--lora", "--imatrix", "-v", "-h", "--version"),
)
_COMMANDS = (
    *("compare", "rank", "eval", "runs", "show", "export", "report", "models", "estimate", "cache", "convert", "rm"),
    *("", "--help", "nothing"),
)
_VARIABLES = (
    *(
        "VRT_LITE_HOME",
        "VRT_LITE_CACHE_MB",
        "VRT_LITE_API_KEY",
        "HF_ENDPOINT",
        "XDG_CACHE_HOME",
        "XDG_DATA_HOME",
        "HOME",
    ),
    *("COLUMNS", "LINES", "TERM", "NO_COLOR", "FORCE_COLOR", "TMPDIR", "LC_ALL", "HF_HOME", "PYTHONUTF8", "TZ"),
    *("LLAMA_CPP_LIB_PATH", "OMP_NUM_THREADS", "HTTP_PROXY", "ALL_PROXY", "SSL_CERT_FILE"),
)


def attack_with_arguments(draw: random.Random, place: Path) -> None:
    """Give a command options that it has or has not, with odd values."""
    for name in ("a.mp4", "b.mp4"):
        (place / name).write_bytes(good_clips()[name])
    arguments = [draw.choice(_COMMANDS)]
    arguments += [draw.choice(("a.mp4", "b.mp4", "a.mp4", "b.mp4", draw.choice(ODD_TEXTS))) for _ in range(2)]
    for _ in range(draw.choice((1, 2, 4))):
        arguments.append(draw.choice(_OPTIONS))
        if draw.random() < 0.8:
            arguments.append(draw.choice(ODD_TEXTS))
    with patch.dict(os.environ, HF_ENDPOINT="http://127.0.0.1:9", VRT_LITE_HOME=str(place / "home")):
        command(*arguments)


def attack_with_variables(draw: random.Random, place: Path) -> None:
    """Run a command while variables of the environment have odd values."""
    values = [text for text in ODD_TEXTS if "\0" not in text and not text.startswith("/")]
    given = {draw.choice(_VARIABLES): draw.choice(values) for _ in range(draw.choice((1, 2, 3)))}
    for name in ("a.mp4", "b.mp4"):
        (place / name).write_bytes(good_clips()[name])
    arguments = draw.choice(
        (
            ("compare", "a.mp4", "b.mp4", "-q"),
            ("rank", "a.mp4", "b.mp4", "-q"),
            ("runs",),
            ("models",),
            ("cache",),
            ("estimate", "vrt-tiny-0"),
            ("pull", "someone/judge"),
        )
    )
    with patch.dict(os.environ, {"HF_ENDPOINT": "http://127.0.0.1:9", **given}):
        command(*arguments)


def attack_with_table(draw: random.Random, place: Path) -> None:
    """Rank or evaluate by a table with odd cells."""
    (place / "a.mp4").write_bytes(good_clips()["a.mp4"])
    (place / "b.mp4").write_bytes(good_clips()["b.mp4"])
    ranks = draw.random() < 0.5
    columns = ["clip", "prompt", "group"] if ranks else ["a", "b", "prompt", "overall", "VQ", "id", "group"]
    clips = ("a.mp4", "b.mp4", "gone.mp4", "../a.mp4", "/dev/zero")
    rows = [
        {name: draw.choice(clips if name in ("clip", "a", "b") else ("A", "B", "same", "1", "")) for name in columns}
        for _ in range(draw.choice((1, 3)))
    ]
    suffix = draw.choice((".csv", ".tsv", ".jsonl", ".json"))
    for _ in range(draw.choice((0, 1, 3))):
        change_value(rows, draw)
    if suffix in (".jsonl", ".json"):
        text = json.dumps(rows) if suffix == ".json" else "\n".join(json.dumps(row) for row in rows)
    else:
        mark = draw.choice(",;\t")
        lines = [row.values() for row in rows if isinstance(row, dict)]
        text = "\n".join([mark.join(columns), *(mark.join(map(str, line)) for line in lines)])
    data = bytearray(text.encode("utf-8", "replace"))
    if data and draw.random() < 0.4:
        mutate_bytes(data, draw)
    (place / f"table{suffix}").write_bytes(data)
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
    data = bytearray(good_store())
    for _ in range(draw.choice((1, 3))):
        if data:
            mutate_bytes(data, draw)
    (place / "runs.sqlite").write_bytes(data)
    if draw.random() < 0.2:
        (place / "runs.sqlite-wal").write_bytes(draw.randbytes(draw.choice((0, 32, 5000))))
    for arguments in (
        ("runs",),
        ("show", "foxes"),
        ("export", "foxes", "-o", "a.csv"),
        ("report", "foxes", "-o", "a.html"),
    ):
        command(*arguments, "--store", str(place / "runs.sqlite"))


def attack_with_report(draw: random.Random, place: Path) -> None:
    """Make a report of a judgement with odd values."""
    told = json.loads(json.dumps(JUDGED.to_json()))
    for _ in range(draw.choice((1, 2, 5))):
        change_value(told, draw)
    data = bytearray(json.dumps(told).encode())
    if draw.random() < 0.2:
        mutate_bytes(data, draw)
    (place / "a.json").write_bytes(data)
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
    for name in ("a.mp4", "b.mp4"):
        (place / name).write_bytes(good_clips()[name])
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
        for _ in range(draw.choice((1, 2))):
            change_value(told, draw)
        if "weight_map" in told and draw.random() < 0.5 and isinstance(told["weight_map"], dict) and told["weight_map"]:
            name = draw.choice(sorted(told["weight_map"]))
            told["weight_map"][name] = draw.choice(("../x.safetensors", "/etc/passwd", "", "config.json", "a\0b"))
        path.write_bytes(json.dumps(told).encode())
    elif path.suffix == ".safetensors" and draw.random() < 0.8:
        path.write_bytes(change_header(data, draw))
    else:
        changed = bytearray(data)
        mutate_bytes(changed, draw)
        path.write_bytes(changed)
    command("convert", str(folder), "--out", str(place / "out"), "-q", "--type", draw.choice(("f16", "q8_0")))
    assert {path.name for path in place.iterdir()} <= {"checkpoint", "out"}


def change_header(data: bytes, draw: random.Random) -> bytes:
    """Change the header of a safetensors file in one way."""
    size = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + size])
    names = [name for name in header if name != "__metadata__"]
    entry = header[draw.choice(names)]
    match draw.randrange(7):
        case 0:
            entry["data_offsets"] = draw.choice(([0, 2**63], [-8, 0], [8, 0], [0], "0", [0.5, 1.5], [10**30, 10**31]))
        case 1:
            entry["shape"] = draw.choice(([2**40, 2**40], [-1], [], [0], "64", [1.5], [[64]]))
        case 2:
            entry["dtype"] = draw.choice(("F64", "I8", "F8_E4M3", "", None, "BF16 ", 3))
        case 3:
            entry["data_offsets"] = header[draw.choice(names)]["data_offsets"]
        case 4:
            change_value(header, draw)
        case 5:
            return draw.choice((0, 1, 2**31, 2**63, 2**64 - 1)).to_bytes(8, "little") + data[8:]
        case _:
            return size.to_bytes(8, "little") + b"[" * size + data[8 + size :]
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


INPUT_ATTACKS: dict[str, Callable[[random.Random, Path], None]] = {
    "arguments": attack_with_arguments,
    "variables": attack_with_variables,
    "table": attack_with_table,
    "store": attack_with_store,
    "report": attack_with_report,
    "profile": attack_with_profile,
    "checkpoint": attack_with_checkpoint,
}
INPUT_WEIGHTS = {"arguments": 15, "variables": 6, "table": 10, "store": 10, "report": 10, "profile": 5, "checkpoint": 8}
