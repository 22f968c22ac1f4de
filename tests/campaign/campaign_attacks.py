"""The attacks of a campaign: each draws one at random, and checks that it ends in a result or in one plain line."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import broken_gguf
import mp4_boxes
from chat_server import Act, answers, delta, dies_after, pieces, sends
from chat_server import serving as serving_chat
from engine_worker import try_judge
from hub_server import Hub
from hub_server import serving as serving_hub
from input_attacks import (
    INPUT_ATTACKS,
    INPUT_WEIGHTS,
    JUDGED,
    ODD,
    Attack,
    change_value,
    check,
    command,
    good_clips,
    mutate_bytes,
    place_clips,
)  # fmt: skip
from judgements import FINAL
from surroundings import LIMITED

from vrt_lite import Remote, compare
from vrt_lite.errors import VrtError, WorkerEndedError
from vrt_lite.models import bundled_names, find
from vrt_lite.records.pairs import Question
from vrt_lite.runs.store import Store
from vrt_lite.worker import Worker

_LONGEST_TEXT = 100_000
SMALL = {"connect_seconds": 5.0, "silence_seconds": 2.0, "total_seconds": 4.0, "tries": 2, "pause_seconds": 0.01}


def mutate_boxes(data: bytes, draw: random.Random) -> bytes:
    """Change the boxes of an MP4 in one way."""
    boxes = mp4_boxes.take_apart(data)
    where, at = draw.choice([(level, i) for level in levels(boxes) for i in range(len(level))])
    kind, body = where[at]
    match draw.randrange(5):
        case 0:
            del where[at]
        case 1:
            where.insert(at, (kind, body))
        case 2:
            where[at] = (draw.choice((b"free", b"moov", b"trak", b"stsz", draw.randbytes(4))), body)
        case 3:
            draw.shuffle(where)
        case _:
            numbers = [draw.choice((0, 1, 2, 100, 2**31, 2**32 - 1)) for _ in range(draw.randrange(8))]
            mp4_boxes.put(where, kind, *numbers)
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
    with serving_chat(bad_reply(draw)) as server:
        try:
            judged = compare("a.mp4", "b.mp4", prompt="A fox.", backend=Remote(server.url, **SMALL))
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
        match draw.randrange(5):
            case 0:
                del parts[at:]
            case 1:
                parts[at:at] = parts[at : at + 3] * draw.choice((1, 50))
            case 2:
                draw.shuffle(parts)
            case 3:
                call = {"name": "select_frames", "arguments": {"target_frames": draw.choice(ODD[:12])}}
                parts.insert(at, f"tool_call>{json.dumps(call)}")
            case _:
                parts[at] = parts[at][: draw.randrange(len(parts[at]) + 1)] + str(draw.choice(ODD[:15]))
        parts = [part[:_LONGEST_TEXT] for part in parts[:1000]] or [""]
    return "<".join(parts)[:_LONGEST_TEXT].encode("utf-8", "replace").decode()


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


PLAIN = "import sys; from vrt_lite.cli import run; sys.exit(run(sys.argv[1:]))"


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
            [sys.executable, "-c", PLAIN, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            time.sleep(draw.uniform(0.2, 1.6))
            ways = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL] if sys.platform != "win32" else [signal.SIGTERM]
            process.send_signal(draw.choice(ways))
            _, err = process.communicate()
        assert process.returncode in {0, 130, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGINT, 1}, process.returncode
        assert "Unexpected" not in err, err[-500:]
    assert_whole(place, arguments)


ATTACKS: dict[str, Attack] = {
    "clip": attack_with_clip,
    "reply": attack_with_reply,
    "gguf": attack_with_gguf,
    "hub": attack_as_hub,
    "export": attack_export,
    "limits": attack_with_limits,
    "kill": attack_by_killing,
    **INPUT_ATTACKS,
}
WEIGHTS = {"clip": 30, "reply": 25, "gguf": 20, "hub": 4, "export": 15, "limits": 2, "kill": 2, **INPUT_WEIGHTS}
"""How often each comes: quick ones often."""
