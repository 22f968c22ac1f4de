"""The attacks of a campaign: each draws one at random, and checks that it ends in a result or in one plain line."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import broken_gguf
import mp4_boxes
from chat_server import Act, answers, delta, dies_after, pieces, sends
from chat_server import serving as serving_chat
from clips import write_clip
from engine_worker import try_judge
from hub_server import Hub
from hub_server import serving as serving_hub
from judgements import FINAL, judgement, sure
from surroundings import LIMITED

from vrt_lite import Remote, compare
from vrt_lite.cli import run
from vrt_lite.errors import VrtError, WorkerEndedError
from vrt_lite.models import bundled_names, find
from vrt_lite.profile import PROFILE_NAME
from vrt_lite.records.pairs import Question
from vrt_lite.runs.store import Store
from vrt_lite.worker import Worker

sys.path.insert(0, str(Path(__file__).parents[1] / "convert"))

import synthetic_checkpoint

JUDGED = judgement([sure()])
LONGEST_TEXT = 100_000
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
    "--sample", "--order", "--from", "--split", "-o", "--rm", "--retry", "--memory", "--vram", "--clear",
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


def mutate_boxes(data: bytes, draw: random.Random) -> bytes:
    """Change the boxes of an MP4 in one way."""
    boxes = mp4_boxes.take_apart(data)
    level = draw.choice([each for each in levels(boxes) if each])
    at = draw.randrange(len(level))
    kind, body = level[at]
    numbers = [draw.choice((0, 1, 2, 100, 2**31, 2**32 - 1)) for _ in range(draw.randrange(8))]
    match draw.randrange(5):
        case 0:
            draw.shuffle(level)
        case 1:
            mp4_boxes.put(level, kind, *numbers)
        case way:
            other = draw.choice((b"free", b"moov", b"trak", b"stsz", draw.randbytes(4)))
            level[at : at + 1] = ([], [(kind, body)] * 2, [(other, body)])[way - 2]
    return mp4_boxes.put_together(boxes)


def levels(boxes: mp4_boxes.Boxes) -> list[mp4_boxes.Boxes]:
    inner = [level for _, body in boxes if isinstance(body, list) for level in levels(body)]
    return [boxes, *inner]


def attack_with_clip(draw: random.Random, place: Path) -> None:
    """Compare a mutated clip with a good one."""
    name = draw.choice(list(good_clips()))
    data = good_clips()[name]
    if Path(name).suffix in (".mp4", ".mov") and draw.random() < 0.4:
        data = mutate_boxes(data, draw)
    else:
        data = mutate_bytes(data, draw, 1, 1, 2, 5)
    (place / name).write_bytes(data)
    (place / "good.mp4").write_bytes(good_clips()["a.mp4"])
    status = command("compare", name, "good.mp4", "-p", "A fox.", "-q", "--no-cache")
    assert status in {0, 3}, f"status {status} for a bad clip"
    assert sorted(path.name for path in place.iterdir()) == sorted({name, "good.mp4"})


def attack_with_reply(draw: random.Random, place: Path) -> None:
    """Answer a request with a malformed reply."""
    place_clips(place)
    quick = {"connect_seconds": 5.0, "silence_seconds": 2.0, "total_seconds": 4.0, "tries": 2, "pause_seconds": 0.01}
    with serving_chat(bad_reply(draw)) as server:
        try:
            judged = compare("a.mp4", "b.mp4", prompt="A fox.", backend=Remote(server.url, **quick))
        except VrtError as error:
            assert error.status in {6, 8}, repr(error)
            assert str(error).isprintable(), repr(error)
        else:
            assert json.dumps(judged.to_json(), allow_nan=False)


def bad_reply(draw: random.Random) -> Act:
    text = mutate_text(FINAL, draw) if draw.random() < 0.5 else FINAL
    events: list[Any] = [delta(piece, odds=((piece, -0.1),)) for piece in pieces(text)]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    match draw.randrange(5):
        case 0:
            for _ in range(draw.choice((1, 1, 5))):
                change_value(draw.choice(events), draw)
        case 1:
            return sends(mutate_bytes(b"".join(map(encode_event, events)), draw))
        case 2:
            header = draw.choice(("99999999999", "-1", "nan", "", "Wed, 21 Oct 99999999999 07:28:00 GMT"))
            status = draw.choice((200, 204, 301, 400, 401, 404, 413, 429, 500, 503, 599))
            return answers(status, draw.choice((*ODD[:6], {"error": draw.choice(ODD[:15])})), retry_after=header)
        case 3:
            return dies_after(text[: draw.randrange(len(text) + 1)])
        case _:
            draw.shuffle(events)
    return sends(*(encode_event(event) for event in events), b"data: [DONE]\n\n")


def encode_event(event: object) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def mutate_text(text: str, draw: random.Random) -> str:
    """Change what a model writes: its tags, their order, or what is in them."""
    parts = text.split("<")
    for _ in range(draw.choice((1, 3, 10))):
        at = draw.randrange(len(parts))
        part = parts[at]
        if draw.random() < 0.2:
            draw.shuffle(parts)
        call = {"name": "select_frames", "arguments": {"target_frames": draw.choice(ODD[:12])}}
        odd = part[: draw.randrange(len(part) + 1)] + str(draw.choice(ODD[:15]))
        ends = parts[:at]
        repeats = [*ends, *parts[at : at + 3] * draw.choice((1, 50)), *parts[at:]]
        others = (ends, repeats, [*ends, f"tool_call>{json.dumps(call)}", *parts[at:]], [*ends, odd, *parts[at + 1 :]])
        parts = [part[:LONGEST_TEXT] for part in draw.choice(others)[:1000]] or [""]
    return "<".join(parts)[:LONGEST_TEXT].encode("utf-8", "replace").decode()


def attack_with_gguf(draw: random.Random, place: Path) -> None:
    """Judge with a mutated file of a judge."""
    files = find(draw.choice(bundled_names()))
    paths = [files.text, files.projector]
    at = draw.randrange(2)
    done, data = broken_gguf.mutate(broken_gguf.take_apart(paths[at]), draw)
    paths[at] = place / "mutant.gguf"
    paths[at].write_bytes(data)
    with Worker() as worker:
        try:
            answer = worker.call(try_judge, *paths)
        except WorkerEndedError as error:
            answer = f"ended: {error}"
    assert answer.partition(":")[0] in {"ok", "unusable_model", "context_full", "ended"}, f"{done}: {answer}"
    assert "\n" not in answer


def attack_as_hub(draw: random.Random, place: Path) -> None:
    """Pull from a hub that lies, breaks off, or lists names that lead elsewhere."""
    files = find("vrt-tiny-0")
    held = {path.name: path.read_bytes() for path in (files.text, files.projector)}
    name, other = draw.sample(list(held), 2)
    sibling = {"size": draw.choice((-1, 0, 2**63, "7", None, 1.5, [])), "blobId": draw.choice(("0" * 40, None, 3))}
    names = (
        "../x",
        "/x",
        "a/../../x",
        "..\\x",
        "C:\\x",
        "a\0b",
        "\x1b]0;x\x07.gguf",
        "x" * 300 + ".gguf",
        "",
        ".",
        "CON",
    )
    cut = draw.randrange(len(held[name]))
    lies: tuple[tuple[str, Any], ...] = (
        ("listed", {draw.choice(names): sibling, "a.gguf": {**sibling, "lfs": draw.choice(ODD[:15])}}),
        ("cuts", {name: [cut]}),
        # The client repeats what others answer, with pauses that grow to a minute in all.
        ("failing", {name: draw.choice((400, 401, 403, 404, 416))}),
        ("flips", {name: draw.choice((1, 100))}),
        ("short", {name: draw.choice((1, 1000))}),
        ("longer", {name: draw.choice((1, 10**6, 10**9))}),
        ("files", {**held, name: held[other] if draw.random() < 0.3 else held[name][:cut]}),
        ("commit", draw.choice(("", "../..", "\0", "x" * 1000))),
        ("licence", draw.choice(("\x1b[2J", "", "x" * 9999))),
    )
    hub = Hub(held)
    setattr(hub, *draw.choice(lies))
    with serving_hub(hub), patch.dict(os.environ, HF_ENDPOINT=hub.url, VRT_LITE_HOME=str(place / "home")):
        command("pull", hub.repository, "-q")
        command("models")
        command("rm", hub.repository)
    assert {path.name for path in place.iterdir()} <= {"home"}
    kept = {path.name for path in (place / "home").iterdir()} if (place / "home").is_dir() else set[str]()
    assert kept <= {"models", "partial", "trash", "locks", "speeds", "judges"}, kept


def attack_export(draw: random.Random, place: Path) -> None:
    """Export and report a run whose texts are hostile."""
    alphabet = "a =+-@\r\n\t\",;'\ufeff\uff1d\u200b1<>&\x1b\ud800\u202e\0{}%$"
    texts = ["".join(draw.choices(alphabet, k=draw.randrange(40))) for _ in range(6)]
    texts += ["</script><script>alert(1)</script>", "=HYPERLINK(1)"]
    with Store(place / "runs.sqlite") as store:
        run_ = store.begin("foxes", kind="rank", about={"clips": [{"sha256": "0", "name": draw.choice(texts)}]})
        count = draw.randrange(1, 4)
        for number in range(count):
            clips = tuple(replace(clip, path=draw.choice(texts).replace("\0", "")) for clip in JUDGED.inputs)
            run_.add(
                Question(f"first {number}", f"second {number}", draw.choice(texts), "judge"),
                replace(JUDGED, prompt=draw.choice(texts), inputs=clips),
            )
    for arguments in (
        "export foxes -o a.csv",
        "export foxes -o a.jsonl",
        "report foxes -o a.html",
        "show foxes",
        "runs",
    ):
        status = command(*arguments.split(), "--store", str(place / "runs.sqlite"))
        assert status == 0 or "export" not in arguments
    rows = list(csv.DictReader(io.StringIO((place / "a.csv").read_text("utf-8"), newline=""), strict=True))
    assert len(rows) == count
    for cell in (str(cell) for row in rows for key, cell in row.items() if key in ("prompt", "first", "second")):
        visible = [c for c in unicodedata.normalize("NFKC", cell) if unicodedata.category(c)[0] not in "CZM"]
        assert visible[:1] != ["="], repr(cell)
    assert len([json.loads(line) for line in (place / "a.jsonl").read_text("utf-8").splitlines()]) == count


def rank_arguments(place: Path) -> list[str]:
    """A command that ranks three good clips; 3 judgements."""
    place_clips(place / "clips", "a.mp4", "b.mp4", "e.mkv")
    options = ["--orders", "one", "-q", "--no-cache", "--name", "foxes", "--store", str(place / "runs.sqlite")]
    return ["rank", str(place / "clips"), "-p", "A fox.", *options]


def assert_whole(place: Path, arguments: list[str]) -> None:
    """Check that the same command, undisturbed, has all judgements and no failure."""
    assert command(*arguments) == 0, "the same command does not heal it"
    with Store(place / "runs.sqlite") as store:
        [info] = store.runs()
    assert (info.judgements, info.failures) == (3, 0), f"{info.judgements} judgements, {info.failures} failures"


def attack_with_limits(draw: random.Random, place: Path) -> None:
    """Rank with little memory, few open files or small files, and then without a limit."""
    if sys.platform == "win32":
        return
    arguments = rank_arguments(place)
    limits = [("RLIMIT_NOFILE", draw.randint(6, 40)), ("RLIMIT_FSIZE", draw.choice((0, 100, 10_000, 100_000)))]
    limits += [("RLIMIT_AS", draw.randint(100, 1500) * 2**20)] * 2 if sys.platform == "linux" else []
    kind, limit = draw.choice(limits)
    process = subprocess.run(
        [sys.executable, "-c", LIMITED, kind, str(limit), *arguments], check=False, capture_output=True, text=True
    )
    # Libraries may end a process that has no memory, and one that has no files cannot import.
    if process.returncode in {0, 2, 5, 7} or kind == "RLIMIT_FSIZE":
        check(process.returncode, process.stderr, (kind, limit))
    else:
        assert process.returncode not in {3, 6}, f"{kind} {limit}: {process.stderr[-500:]}"
        assert "Unexpected" not in process.stderr, f"{kind} {limit}: {process.stderr[-500:]}"
    assert_whole(place, arguments)


def attack_by_killing(draw: random.Random, place: Path) -> None:
    """Kill, end or interrupt a ranking at any time, and begin it again."""
    arguments = rank_arguments(place)
    for _ in range(draw.choice((1, 2))):
        with subprocess.Popen(
            [sys.executable, "-m", "vrt_lite", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            time.sleep(draw.uniform(0.2, 1.6))
            ways = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL] if sys.platform != "win32" else [signal.SIGTERM]
            process.send_signal(draw.choice(ways))
            _, err = process.communicate()
        assert process.returncode in {0, 130, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGINT, 1}, process.returncode
        assert "Unexpected" not in err, err[-500:]
    assert_whole(place, arguments)


ATTACKS: dict[str, tuple[int, Callable[[random.Random, Path], None]]] = {
    "clip": (30, attack_with_clip),
    "reply": (25, attack_with_reply),
    "gguf": (20, attack_with_gguf),
    "hub": (4, attack_as_hub),
    "export": (15, attack_export),
    "limits": (2, attack_with_limits),
    "kill": (2, attack_by_killing),
    "arguments": (15, attack_with_arguments),
    "variables": (6, attack_with_variables),
    "table": (10, attack_with_table),
    "store": (10, attack_with_store),
    "report": (10, attack_with_report),
    "profile": (5, attack_with_profile),
    "checkpoint": (8, attack_with_checkpoint),
}
"""How often each comes, quick ones often. Each attacks in a folder of its own, as the generator draws.

AssertionError if the program does what it must not do.
"""
