"""A full disk, closed streams, too few resources and pipes without a partner end in one plain line."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Collection
from itertools import product
from pathlib import Path

import pytest
from chat_server import says, serving
from judgements import FINAL, judgement, sure
from surroundings import LIMITED, small_disk

from vrt_lite.cli import run
from vrt_lite.embeddings import cache_folder
from vrt_lite.models import library
from vrt_lite.records.pairs import Question
from vrt_lite.runs.store import Store, users_store

resource = pytest.importorskip("resource")
ROOT = Path(__file__).parents[1]
CLIPS = [str(ROOT / "examples" / name) for name in ("star.mp4", "circle.mp4")]
COMPARE = ["compare", *CLIPS, "-p", "A blue star moves up.", "-q"]
RANK = ["rank", *CLIPS, "-p", "A blue star moves up.", "-q", "--orders", "one", "--name", "stars"]
KEY = "sk-secret-0123456789"
MB = 2**20
Limit = tuple[str, int]
NO_LIMIT: Limit = ("", 0)
ENOUGH: Limit = ("RLIMIT_AS", 4096 * MB) if sys.platform == "linux" else NO_LIMIT


def vrt_lite(arguments: list[str], shell: str = "", limit: Limit = NO_LIMIT) -> tuple[int, str, str]:
    """Run a command in a process with a redirection or variable of the shell, or a limit; its status and streams."""
    before, after = (shell, "") if "=" in shell else ("exec", shell)
    process = subprocess.run(
        ["sh", "-c", f'{before} "$@" {after}', "sh", sys.executable, "-c", LIMITED, *map(str, limit), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "GGML_NO_BACKTRACE": "1", "OMP_NUM_THREADS": "1"},
    )
    assert "Unexpected" not in process.stderr
    assert "Traceback" not in process.stderr
    return process.returncode, process.stdout, process.stderr


def line_of(stderr: str) -> str:
    """The one line in stderr."""
    [line] = stderr.splitlines()
    return line


FULL = "vrt-lite: Standard output cannot be written: No space left on device."
CLOSED = "vrt-lite: Standard output is closed. Send it to a file, or to /dev/null."
SHORT = ("vrt-lite: This machine has no more", "vrt-lite: Not enough mem")
UNLOADED = "vrt-lite: The engine cannot be loaded: Shared library with base name 'llama'"
KILLED = range(-64, 0)
BAD_SURROUNDINGS: dict[str, tuple[list[str], str | Limit, Collection[int], str | tuple[str, ...]]] = {
    "full stdout": (["compare", CLIPS[0], CLIPS[0]], ">/dev/full", {2}, FULL),
    "full stdout, long text": (["completion", "bash"], ">/dev/full", {2}, FULL),
    "closed stdout, before any work": ([*COMPARE, "--json"], ">&-", {2}, CLOSED),
    "full stderr, no clip": (["compare", "nothing.mp4", CLIPS[0]], "2>/dev/full", {3}, ""),
    "closed stderr, no option": (["compare", "--nothing"], "2>&-", {2}, ""),
    # Libraries may end a process that cannot even load them.
    "200 MB of addresses": (COMPARE, ("RLIMIT_AS", 200 * MB), {5, *KILLED}, SHORT),
    "500 MB of addresses": (COMPARE, ("RLIMIT_AS", 500 * MB), {5}, SHORT),
    "1000 MB of addresses": (COMPARE, ("RLIMIT_AS", 1000 * MB), {5}, SHORT),
    "ten descriptors": (COMPARE, ("RLIMIT_NOFILE", 9), {0, 5, 7}, "vrt-lite: "),
    "ten descriptors, found": (["doctor"], ("RLIMIT_NOFILE", 9), {0, 5, 7, 9}, ""),
    "no library": (COMPARE, "LLAMA_CPP_LIB_PATH=/nowhere", {4}, UNLOADED),
    "no library to rank with": (RANK, "LLAMA_CPP_LIB_PATH=/nowhere", {4}, UNLOADED),
    "no library to estimate with": (["estimate", "vrt-tiny-0"], "LLAMA_CPP_LIB_PATH=/nowhere", {4}, UNLOADED),
}


@pytest.mark.parametrize("name", BAD_SURROUNDINGS)
def test_bad_surroundings_get_a_status_and_a_line_where_one_can_be_read(name: str) -> None:
    arguments, surroundings, statuses, line = BAD_SURROUNDINGS[name]
    if (sys.platform != "linux" and "addresses" in name) or not Path("/dev/full").exists():
        pytest.skip("this system has no such limit of memory, or no full device")
    given = {"shell": surroundings} if isinstance(surroundings, str) else {"limit": surroundings}
    status, stdout, stderr = vrt_lite(arguments, **given)
    assert status in statuses, stderr
    if status == 0 and arguments == COMPARE:
        assert stdout.startswith("overall: video 1")
    elif line and status > 0:
        assert line_of(stderr).startswith(line)


def test_a_closed_stderr_is_not_the_number_of_the_next_file_and_4_gb_of_addresses_are_enough(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    status, stdout, _ = vrt_lite([*COMPARE, "-vv", "--trace", str(trace)], "2>&-", ENOUGH)
    assert status == 0
    assert stdout.startswith("overall: video 1")
    assert all(json.loads(line)["first"] for line in trace.read_text(encoding="utf-8").splitlines())


def test_a_trace_and_a_sheet_that_cannot_be_written_any_more_cost_no_verdict(tmp_path: Path) -> None:
    """A limit of a file's size stands for a full disk: the file can be made, and not be filled."""
    trace, sheet = tmp_path / "trace.jsonl", tmp_path / "sheet.png"
    files = ["--trace", str(trace), "--sheet", str(sheet)]
    status, stdout, _ = vrt_lite([*COMPARE, *files, "--no-cache"], limit=("RLIMIT_FSIZE", 100))
    assert status == 0
    assert stdout.startswith("overall: video 1")
    for kind, path in (("trace", trace), ("sheet", sheet)):
        assert f"warning: The {kind} {str(path)!r} cannot be written: {os.strerror(errno.EFBIG)}." in stdout
    assert trace.read_bytes() == b""
    assert list(tmp_path.iterdir()) == [trace]


def test_a_trace_does_not_follow_a_link_and_replaces_no_special_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    victim, link, fifo = tmp_path / "victim", tmp_path / "link", tmp_path / "fifo"
    victim.write_bytes(b"mine")
    link.symlink_to(victim)
    os.mkfifo(fifo)
    assert run([*COMPARE, "--trace", str(fifo)]) == 2
    assert "no regular file" in line_of(capfd.readouterr().err)
    assert run([*COMPARE, "--trace", str(link)]) == 0
    assert victim.read_bytes() == b"mine"
    assert json.loads(link.read_text(encoding="utf-8").splitlines()[0])["first"] == 1


@pytest.mark.parametrize("command", [["runs"], ["rm", "foxes"], ["pull", "vr-thinker-7b"]])
@pytest.mark.parametrize("home", ["x" * 300, "file"])
def test_a_home_that_cannot_be_used_gets_one_line(
    tmp_path: Path, command: list[str], home: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VRT_LITE_HOME", str(tmp_path / home))
    assert run(command) in {4, 7}
    assert line_of(capfd.readouterr().err).startswith("vrt-lite: ")


def test_a_manifest_of_wrong_types_is_no_model(capfd: pytest.CaptureFixture[str]) -> None:
    deep = b"[" * 50_000
    files = [{"name": f"../{role}.gguf", "role": role, "size": 1, "sha256": ""} for role in ("text", "projector")]
    facts = dict.fromkeys(("name", "repository", "revision", "quant", "licence"), "foxes-0")
    outside = json.dumps({**facts, "files": files}).encode()
    wrong = (b'{"files": ' + deep, deep, b'{"name": 1}', b'{"files": [{"name": ["a"]}]}', b"null", b"\xff")
    manifests = (outside, *wrong)
    names = [f"foxes-{number}" for number in range(len(manifests))]
    for name, manifest in zip(names, manifests, strict=True):
        library.model_folder(name).mkdir(parents=True)
        (library.model_folder(name) / library.MANIFEST_NAME).write_bytes(manifest)
    assert not library.stored_models()
    compared, removed = ([["compare", *CLIPS, "-m", name] for name in names], [["rm", name] for name in names])
    for command in (["models"], *compared, *removed):
        assert run(command) in {0, 4}, command
    assert "Unexpected" not in capfd.readouterr().err


def test_damaged_json_in_a_store_is_said_with_status_7(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    damaged = ("{", "[" * 50_000, "7", '{"TA": {"TA": []}}', "[1]", "null")
    of_a_run, of_a_judgement = "UPDATE runs SET about = ?", "UPDATE judgements SET light = ?"
    of_a_field = "UPDATE judgements SET light = json_set(light, '$.{}', json(?))"
    fields = [of_a_field.format(name) for name in ("verdict", "verdict.overall", "verdict.dimensions", "warnings")]
    export, report = ["export", "stars", "-o", "-"], ["report", "stars", "-o", str(tmp_path / "a.html")]
    with Store() as store:
        made = judgement([sure()])
        first, second = (clip.sha256 for clip in made.inputs)
        store.begin("stars", kind="rank", about={}).add(Question(first, second, "A fox.", "judge"), made)
    assert [run(command) for command in (["runs"], report, export)] == [0, 0, 0]
    whole = users_store().read_bytes()
    for update, value in (*product((of_a_run, of_a_judgement), damaged), *product(fields, damaged[2:-1])):
        users_store().write_bytes(whole)
        with contextlib.closing(sqlite3.connect(users_store())) as store, store:
            store.execute(update, (value,))
        for command in (["runs"], report, export):
            capfd.readouterr()
            status, err = run(command), capfd.readouterr().err
            read = value.startswith('{"') if update == of_a_run else command == ["runs"]
            assert status == 7 or (status == 0 and read), (command, update, value, err)
            assert status == 0 or ("The store " in err or "is not the run" in err)


def test_text_in_a_store_that_is_not_utf_8_is_said_with_status_7(capfd: pytest.CaptureFixture[str]) -> None:
    with Store() as store:
        store.begin("stars", kind="rank", about={"prompts": ["A blue star moves up."]})
    data = users_store().read_bytes().replace(b"A blue star", b"A \xcc\xfflue star")
    users_store().write_bytes(data.replace(b"CREATE TABLE runs", b"CR\xcc\xff"))
    assert run(["runs"]) == 7
    assert "is damaged" in line_of(capfd.readouterr().err)


@pytest.mark.parametrize(("place", "status"), [("prompt", 0), ("warnings", 2), ("schema_version", 2)])
def test_a_lone_surrogate_in_a_judgement_is_written_or_refused(
    tmp_path: Path, place: str, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**judgement([sure()]).to_json(), place: "\ud800"}), encoding="utf-8")
    assert run(["report", str(path), "-o", str(tmp_path / "a.html")]) == status
    assert "Unexpected" not in capfd.readouterr().err


def test_a_full_disk_takes_the_cache_before_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where room can be mounted, a disk of its own: 4 MB, filled by the cache."""
    with small_disk(tmp_path, megabytes=4):
        monkeypatch.setenv("VRT_LITE_HOME", str(tmp_path))
        cache_folder().mkdir()
        for number in range(100):
            with contextlib.suppress(OSError):
                (cache_folder() / f"{number:040x}.embedding").write_bytes(bytes(50_000))
        assert run(RANK) == 0
        assert users_store().is_file()
        with (tmp_path / "other").open("ab", buffering=0) as file:
            for size in (2**16, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)):
                        pass
        capfd.readouterr()
        assert run([*RANK[:-1], "again"]) == 7
        line = line_of(capfd.readouterr().err)
        assert "the disk is full" in line
        assert line.endswith("vrt-lite cache --clear")
        assert run(["compare", *CLIPS, "--rounds", "1"]) == 0
        assert "is not kept. The store" in "".join(capfd.readouterr())


PIPED = {
    "a prompt": ["compare", *CLIPS, "--prompt-file", "{}/prompt.txt"],
    "a table": ["rank", "{}/table.csv"],
    "a labelled table": ["eval", "{}/table.csv"],
    "a judgement": ["report", "{}/ab.json"],
    "a model": ["compare", *CLIPS, "-m", "{}/x.gguf"],
    "a projector": ["compare", *CLIPS, "-m", "{}", "--projector", "{}/x.gguf"],
    "a model's folder": ["compare", *CLIPS, "-m", "{}"],
    "a clip": ["compare", "{}/clip.mp4", CLIPS[0]],
    "an estimated model": ["estimate", "{}"],
    "a checkpoint": ["convert", "{}", "--out", "{}/out"],
    "a store": ["runs", "--store", "{}/ab.json"],
}


@pytest.mark.parametrize("name", PIPED)
def test_a_pipe_is_refused_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for file in ("prompt.txt", "table.csv", "ab.json", "x.gguf", "config.json", "clip.mp4"):
        os.mkfifo(tmp_path / file)
    began = time.monotonic()
    assert run([word.format(tmp_path) for word in PIPED[name]]) in {2, 3, 4, 7}
    assert time.monotonic() - began < 30
    assert line_of(capfd.readouterr().err).startswith(("vrt-lite: ", "Usage: "))


@pytest.mark.parametrize("end", ["", "sk-secret-0"])
def test_the_key_is_not_in_the_text_as_it_is_written(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], end: str
) -> None:
    monkeypatch.setenv("VRT_LITE_API_KEY", KEY)
    echo = FINAL.replace("Enough.", f"Your key is {KEY}, {KEY}.") + end
    with serving(says(echo)) as server:
        assert run([*COMPARE[:-1], "-v", "--backend", server.url]) == 0
    out, err = capfd.readouterr()
    assert f"Your key is {'*' * len(KEY)}, {'*' * len(KEY)}." in err
    assert KEY not in out + err


IMPORTED = """
import os
before = dict(os.environ)
from vrt_lite import Judge, Settings
import vrt_lite.backends, vrt_lite.api
assert dict(os.environ) == before
vrt_lite.backends.describe_machine()
assert dict(os.environ) == before
"""


@pytest.mark.parametrize("chosen", [None, "7"])
def test_importing_changes_no_variable_and_the_engine_spins_shortly(
    chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_DISPLAY_ENV", "VERBOSE")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    if chosen:
        monkeypatch.setenv("GOMP_SPINCOUNT", chosen)
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if "GOMP_" in done.stderr:  # another OpenMP knows no such variable
        assert f"GOMP_SPINCOUNT = '{chosen or 1000}'" in done.stderr
