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
from itertools import product
from pathlib import Path

import pytest
from chat_server import says, serving
from judgements import FINAL, judgement, sure
from surroundings import LIMITED, small_disk

from vrt_lite import disk
from vrt_lite.cli import run
from vrt_lite.embeddings import cache_folder
from vrt_lite.models import library
from vrt_lite.runs.store import Store, users_store

resource = pytest.importorskip("resource")
ROOT = Path(__file__).parents[1]
CLIPS = [str(ROOT / "examples" / name) for name in ("star.mp4", "circle.mp4")]
COMPARE = ["compare", *CLIPS, "-p", "A blue star moves up.", "-q"]
KEY = "sk-secret-0123456789"
EXPORT = ["export", "stars", "-o", "-", "--format", "csv"]
needs_full_device = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="macOS has no such limit of memory")


def vrt_lite(arguments: list[str], *, limit: tuple[str, int] = ("", 0), redirect: str = "") -> tuple[int, str, str]:
    """Run a command in a process of its own, with a limit or a redirection of the shell; its status, stdout, stderr."""
    command = [sys.executable, "-c", LIMITED, limit[0], str(limit[1]), *arguments]
    process = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirect}', "sh", *command],
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


@needs_full_device
@pytest.mark.parametrize("arguments", [COMPARE, ["models"]])
def test_a_full_standard_output_gets_one_line(arguments: list[str], own_home: Path) -> None:
    status, _, stderr = vrt_lite(arguments, redirect=">/dev/full")
    assert status == 2
    assert line_of(stderr).startswith("vrt-lite: Standard output cannot be written: No space left on device.")


@pytest.mark.parametrize("arguments", [[*COMPARE, "--json"]])
def test_a_closed_standard_output_is_said_before_any_work(arguments: list[str], own_home: Path) -> None:
    status, _, stderr = vrt_lite(arguments, redirect=">&-")
    assert (status, line_of(stderr)) == (
        2,
        "vrt-lite: Standard output is closed. Send it to a file, or to /dev/null.",
    )


@needs_full_device
@pytest.mark.parametrize("redirect", ["2>/dev/full", "2>&-"])
def test_the_status_is_right_where_no_message_can_be_read(redirect: str, own_home: Path) -> None:
    assert vrt_lite(["compare", "nothing.mp4", CLIPS[0]], redirect=redirect)[0] == 3
    assert vrt_lite(["compare", "--nothing"], redirect=redirect)[0] == 2


def test_a_closed_stderr_is_not_the_number_of_the_next_file(tmp_path: Path, own_home: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    assert vrt_lite([*COMPARE, "-vv", "--trace", str(trace)], redirect="2>&-")[0] == 0
    assert all(json.loads(line)["first"] for line in trace.read_text(encoding="utf-8").splitlines())


def test_a_trace_that_cannot_be_written_any_more_costs_no_verdict(tmp_path: Path, own_home: Path) -> None:
    """A limit of a file's size stands for a full disk: the file can be made, and not be filled."""
    trace = tmp_path / "trace.jsonl"
    arguments = [*COMPARE, "--trace", str(trace), "--no-cache"]
    status, stdout, _ = vrt_lite(arguments, limit=("RLIMIT_FSIZE", 100))
    assert status == 0
    assert stdout.startswith("overall: video 1")
    assert f"warning: The trace {str(trace)!r} cannot be written: {os.strerror(errno.EFBIG)}." in stdout
    assert trace.read_bytes() == b""
    assert list(tmp_path.iterdir()) == [trace]


def test_a_trace_does_not_follow_a_link_and_replaces_no_special_file(
    tmp_path: Path, own_home: Path, capfd: pytest.CaptureFixture[str]
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


@only_linux
@pytest.mark.parametrize("megabytes", [200, 500, 800, 1000])
def test_little_address_space_is_a_shortage(megabytes: int, own_home: Path) -> None:
    status, _, stderr = vrt_lite([*COMPARE, "--no-cache"], limit=("RLIMIT_AS", megabytes * 2**20))
    # Libraries may end a process that cannot even load them.
    assert status == 5 or (megabytes < 400 and status < 0), stderr
    assert status != 5 or line_of(stderr).startswith(("vrt-lite: This machine has no more", "vrt-lite: Not enough mem"))


@only_linux
def test_enough_address_space_gets_a_verdict(own_home: Path) -> None:
    status, stdout, stderr = vrt_lite([*COMPARE, "--no-cache"], limit=("RLIMIT_AS", 4 * 2**30))
    assert status == 0, stderr
    assert stdout.startswith("overall: video 1")


@pytest.mark.parametrize("command", [["doctor"], COMPARE])
def test_ten_descriptors_are_enough_or_a_shortage(command: list[str], own_home: Path) -> None:
    status, _, stderr = vrt_lite(command, limit=("RLIMIT_NOFILE", 9))
    assert status in ({0, 5, 7, 9} if command == ["doctor"] else {0, 5, 7}), stderr  # doctor finds it, and goes on


@pytest.mark.parametrize("command", [["runs"], ["rm", "foxes"], ["pull", "vr-thinker-7b"]])
@pytest.mark.parametrize("home", ["overlong", "file"])
def test_a_home_that_cannot_be_used_gets_one_line(
    tmp_path: Path, command: list[str], home: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VRT_LITE_HOME", str(tmp_path / (home if home == "file" else "x" * 300)))
    assert run(command) in {4, 7}
    assert line_of(capfd.readouterr().err).startswith("vrt-lite: ")


@pytest.mark.parametrize(
    "manifest",
    [b'{"files": ' + b"[" * 50_000, b"[" * 50_000, b'{"name": 1}', b'{"files": [{"name": ["a"]}]}', b"null", b"\xff"],
)
def test_a_manifest_of_wrong_types_is_no_model(
    own_home: Path, manifest: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = library.model_folder("foxes")
    folder.mkdir(parents=True)
    (folder / library.MANIFEST_NAME).write_bytes(manifest)
    for command in (["models"], ["rm", "foxes"], ["compare", *CLIPS, "-m", "foxes"]):
        assert run(command) in {0, 4}
    assert "Unexpected" not in capfd.readouterr().err


@pytest.fixture
def ranked(tmp_path: Path, own_home: Path, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """A command whose judgements are in the user's store."""
    folder = tmp_path / "clips"
    folder.mkdir()
    for clip in CLIPS:
        (folder / Path(clip).name).write_bytes(Path(clip).read_bytes())
    command = ["rank", str(folder), "-p", "A blue star moves up.", "-q", "--name", "stars"]
    assert run(command) == 0
    capfd.readouterr()
    return command


DAMAGED = ("{", "[" * 50_000, "7", '{"TA": {"TA": []}}', "[1]", "null")


@pytest.mark.usefixtures("ranked")
def test_damaged_json_in_a_store_is_said_with_status_7(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    of_a_run, of_a_judgement = "UPDATE runs SET about = ?", "UPDATE judgements SET light = ?"
    of_a_field = "UPDATE judgements SET light = json_set(light, '$.{}', json(?))"
    fields = [of_a_field.format(name) for name in ("verdict", "verdict.overall", "verdict.dimensions", "warnings")]
    whole = users_store().read_bytes()
    for update, value in (*product((of_a_run, of_a_judgement), DAMAGED), *product(fields, DAMAGED[2:-1])):
        users_store().write_bytes(whole)
        with contextlib.closing(sqlite3.connect(users_store())) as store, store:
            store.execute(update, (value,))
        for command in (["runs"], ["report", "stars", "-o", str(tmp_path / "a.html")], EXPORT):
            status = run(command)
            err = capfd.readouterr().err
            read = value.startswith('{"') if update == of_a_run else command == ["runs"]
            assert status == 7 or (status == 0 and read), (command, update, value, err)
            assert status == 0 or ("The store " in err or "is not the run" in err)


def test_text_in_a_store_that_is_not_utf_8_is_said_with_status_7(
    own_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Store() as store:
        store.begin("stars", kind="rank", about={"prompts": ["A blue star moves up."]})
    data = users_store().read_bytes()
    users_store().write_bytes(
        data.replace(b"A blue star", b"A \xcc\xfflue star").replace(b"CREATE TABLE runs", b"CR\xcc\xff")
    )
    assert run(["runs"]) == 7
    assert "is damaged" in line_of(capfd.readouterr().err)


@pytest.mark.parametrize("place", [("schema_version",), ("verdict", "source"), ("prompt",), ("warning_kinds",)])
def test_a_lone_surrogate_in_a_judgement_is_written_or_refused(
    tmp_path: Path, place: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    told = json.loads(json.dumps(judgement([sure()]).to_json()))
    within = told
    for name in place[:-1]:
        within = within[name]
    within[place[-1]] = "\ud800"
    (tmp_path / "a.json").write_text(json.dumps(told), encoding="utf-8")
    assert run(["report", str(tmp_path / "a.json"), "-o", str(tmp_path / "a.html")]) == (
        0 if place == ("prompt",) else 2
    )
    assert "Unexpected" not in capfd.readouterr().err


@pytest.mark.parametrize("command", [COMPARE, ["rank", *CLIPS, "-q"], ["estimate", "vrt-tiny-0"]])
def test_an_engine_without_its_library_is_said_in_one_line(
    command: list[str], own_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    status, _, stderr = vrt_lite(command)
    assert status == 4
    assert line_of(stderr).startswith("vrt-lite: The engine cannot be loaded: Shared library with base name 'llama'")


def test_a_full_disk_takes_the_cache_before_the_store(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, ranked: list[str]
) -> None:
    """Where room can be mounted, a disk of its own: 4 MB, filled by the cache."""
    place = own_home / "small"
    place.mkdir()
    with small_disk(place, megabytes=4):
        monkeypatch.setenv("VRT_LITE_HOME", str(place))
        cache_folder().mkdir()
        for number in range(100):
            with contextlib.suppress(OSError):
                (cache_folder() / f"{number:040x}.embedding").write_bytes(bytes(50_000))
        assert run(ranked) == 0
        assert users_store().is_file()
        (place / "other").touch()
        with contextlib.suppress(OSError):
            fill(place / "other")
        status, _, stderr = vrt_lite([*ranked[:-1], "again"])
        assert status == 7
        assert "the disk is full" in stderr
        assert line_of(stderr).endswith("vrt-lite cache --clear")
        status, stdout, stderr = vrt_lite(["compare", *CLIPS])
        assert (status, "is not kept. The store" in stdout + stderr) == (0, True)


def fill(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        for size in (2**16, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass


def test_a_pipe_without_a_partner_is_given_up(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(disk, "_WRITER_SECONDS", 0.2)
    for name in ("prompt.txt", "table.csv", "ab.json", "x.gguf", "config.json", "clip.mp4"):
        os.mkfifo(tmp_path / name)
    pipe = str(tmp_path) + "/"
    for command in (
        ["compare", *CLIPS, "--prompt-file", f"{pipe}prompt.txt"],
        ["rank", f"{pipe}table.csv"],
        ["eval", f"{pipe}table.csv"],
        ["report", f"{pipe}ab.json"],
        ["compare", *CLIPS, "-m", f"{pipe}x.gguf"],
        ["compare", *CLIPS, "-m", str(tmp_path), "--projector", f"{pipe}x.gguf"],
        ["compare", *CLIPS, "-m", str(tmp_path)],
        ["compare", f"{pipe}clip.mp4", CLIPS[0]],
        ["estimate", str(tmp_path)],
        ["convert", str(tmp_path), "--out", str(tmp_path / "out")],
        ["runs", "--store", f"{pipe}ab.json"],
    ):
        began = time.monotonic()
        assert run(command) in {2, 3, 4, 7}, command
        assert time.monotonic() - began < 5
        assert line_of(capfd.readouterr().err).startswith(("vrt-lite: ", "Usage: ")), command


def test_a_pipe_with_a_partner_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "prompt.txt")
    command = [sys.executable, "-c", WRITE, str(tmp_path / "prompt.txt")]
    with subprocess.Popen(command) as writer, disk.open_to_read(tmp_path / "prompt.txt") as file:
        assert file.read() == b"A blue star moves up."
    assert writer.returncode == 0


WRITE = "import pathlib, sys, time; time.sleep(0.3); pathlib.Path(sys.argv[1]).write_bytes(b'A blue star moves up.')"


@pytest.mark.parametrize("end", ["", "sk-secret-0"])
def test_the_key_is_not_in_the_text_as_it_is_written(
    monkeypatch: pytest.MonkeyPatch, own_home: Path, capfd: pytest.CaptureFixture[str], end: str
) -> None:
    monkeypatch.setenv("VRT_LITE_API_KEY", KEY)
    echo = FINAL.replace("Enough.", f"Your key is {KEY}, {KEY}.") + end
    with serving(says(echo)) as server:
        assert run([*COMPARE[:-1], "-v", "--backend", server.url]) == 0
    out, err = capfd.readouterr()
    assert f"Your key is {'*' * len(KEY)}, {'*' * len(KEY)}." in err
    assert KEY not in out + err
