"""Pulling a checkpoint: fetched shard by shard, converted, deleted, with the bytes of export and quantise."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pull_commands
import pytest
import sharded_checkpoint
from answering_checkpoint import WINNER
from hub_server import Hub, serving
from pull_commands import SMALL_BYTES, child, command, isolate_client
from surroundings import small_disk

from convert.quantize import quantize_pair
from vrt_lite.conversion.convert_folder import convert_folder, export_pair
from vrt_lite.errors import ModelError
from vrt_lite.models import library
from vrt_lite.models.quants import CONTEXT_BYTES
from vrt_lite.pulling.checkpoint_pull import JOURNAL, choose_type
from vrt_lite.show import screen as screens

ROOT = Path(__file__).parent.parent
CLIPS = [str(ROOT / "examples" / name) for name in ("a.mp4", "b.mp4")]
REPO = "someone/judge"
SHARDS = 3


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sharded_checkpoint.make(tmp_path_factory.mktemp("published") / "judge", shards=SHARDS)


@pytest.fixture(scope="module")
def two_steps(checkpoint: Path) -> dict[str, bytes]:
    """What export and llama.cpp's quantiser make of it, by file name."""
    out = checkpoint.parent / "gguf"
    export_pair(checkpoint, out, text_type="bf16", projector_type="f16")
    for text_type in ("q8_0", "q4_k_m"):
        quantize_pair(out, text_type=text_type)
    return {path.name: path.read_bytes() for path in out.glob("*.gguf")}


@pytest.fixture(autouse=True)
def home(own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate_client(tmp_path / "hf", monkeypatch)
    return own_home


@pytest.fixture
def hub(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = {path.name: path.read_bytes() for path in sorted(checkpoint.iterdir())}
    small = {name for name in files if not name.endswith(".safetensors")}
    with serving(Hub(files, repository=REPO, small=small)) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def pulled(capfd: pytest.CaptureFixture[str], reference: str = f"{REPO}:q4_k_m", *options: str) -> str:
    """Pull, which must succeed; its messages."""
    status, _, err = command(capfd, "pull", reference, *options)
    assert status == 0, err
    assert not list(library.home().glob("partial/*"))
    return err


def refused(capfd: pytest.CaptureFixture[str], says: str, reference: str = f"{REPO}:q4_k_m", status: int = 4) -> str:
    """A pull that must end with one line and list nothing."""
    return pull_commands.refused(capfd, says, "pull", reference, status=status)


def shards_of(hub: Hub) -> list[str]:
    return sorted(name for name in hub.files if name.endswith(".safetensors"))


def asked_shards(hub: Hub) -> list[str]:
    """The shards that were asked for, in that order."""
    return [name for name, _ in hub.ranges if name.endswith(".safetensors")]


def assert_files(two_steps: dict[str, bytes], text_type: str = "Q4_K_M") -> None:
    """The model that is here has the bytes of the two steps, and the digests that it states."""
    [model] = library.stored_models()
    assert model.damage == ""
    names = {f"judge-{text_type}.gguf", "mmproj-judge-F16.gguf"}
    assert {path.name for path in model.folder.iterdir()} == {*names, "manifest.json"}
    for file in model.manifest.files:
        data = (model.folder / file.name).read_bytes()
        assert data == two_steps[file.name], file.name
        assert file.sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("text_type", ["q8_0", "q4_k_m"])
def test_one_command_leads_from_a_checkpoint_to_the_references_verdict(
    hub: Hub, text_type: str, two_steps: dict[str, bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    plan = pulled(capfd, f"{REPO}:{text_type}")
    assert f"{REPO} at {hub.commit[:12]}, a checkpoint" in plan
    assert "licence: mit" in plan
    assert f"quant: {text_type.upper()}, as asked for" in plan
    size = sum(len(hub.files[name]) for name in shards_of(hub))
    assert f"fetched: {size / 1e6:.1f} MB in 3 shards" in plan
    assert_files(two_steps, text_type.upper())
    [model] = library.stored_models()
    assert model.manifest.revision == hub.commit
    assert re.fullmatch(r"llama-cpp-python [\d.]+", model.manifest.converted_with)
    asked = len(hub.ranges)
    for reference in (REPO, f"{REPO}:{text_type}"):
        assert "is here already, sha256 of every file checked" in pulled(capfd, reference)
    assert len(hub.ranges) == asked
    if text_type == "q4_k_m":
        arguments = ["--prompt", "Any.", "--model", REPO, "--json", "--threads", "1", "--no-cache"]
        status, out, _ = command(capfd, "compare", *CLIPS, *arguments)
        assert status == 0
        judged = json.loads(out)
        assert judged["verdict"]["overall"]["winner"] == WINNER
        assert "default_profile" in judged["warning_kinds"]
        assert f"{REPO} has no profile.toml" in " ".join(judged["warnings"])
        said = "".join(command(capfd, "compare", *CLIPS, *arguments[:-4], "--no-cache")[1:])
        assert f"warning: {REPO} has no profile.toml" in said


def test_the_quant_is_the_largest_that_fits() -> None:
    recipe = tomllib.loads((ROOT / "models" / "vr-thinker-7b.toml").read_text("utf-8"))
    projector = 1.35e9

    def chosen(room_gb: float) -> str:
        return choose_type(REPO, recipe["config"], int(room_gb * 1e9 + projector) + CONTEXT_BYTES)

    assert [chosen(room) for room in (60, 8.2, 7, 6, 4.8)] == ["q8_0", "q8_0", "q6_k", "q5_k_m", "q4_k_m"]
    with pytest.raises(ModelError, match=rf"fits: the smallest, Q4_K_M, needs .* name it: {REPO}:Q4_K_M"):
        chosen(4)


def test_a_checkpoint_in_one_file_is_pulled(
    hub: Hub, checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its bytes are those of one conversion of a folder with the repository's name."""
    single = sharded_checkpoint.make(tmp_path / "judge", shards=1)
    hub.files = {path.name: path.read_bytes() for path in sorted(single.iterdir())}
    pulled(capfd, f"{REPO}:bf16")
    export_pair(single, tmp_path / "out", text_type="bf16", projector_type="f16")
    assert_files({path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}, "BF16")


def test_what_is_converted_stays_when_the_network_is_lost(
    hub: Hub, home: Path, two_steps: dict[str, bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    *_, last = shards_of(hub)
    hub.failing = {last: 503}
    refused(capfd, rf"answered 503 for {REPO}. Pull again later; what has arrived whole is kept")
    assert re.search(rf"{REPO} +begun", command(capfd, "models")[1])
    assert not list(home.rglob("model-*.safetensors"))
    hub.failing = {}
    hub.ranges.clear()
    messages = pulled(capfd, REPO)
    assert "quant: Q4_K_M, as begun" in messages
    assert "going on: 2 of 3 shards are converted" in messages
    assert asked_shards(hub) == [last]
    assert_files(two_steps)


def stop_at(shard: str, hub: Hub, capfd: pytest.CaptureFixture[str], reference: str = f"{REPO}:q4_k_m") -> None:
    """Let a pull end at this shard, which arrives damaged."""
    hub.flips[shard] = 1
    refused(capfd, f"{shard} of {REPO} arrived damaged", reference)
    hub.ranges.clear()


def test_rm_deletes_what_an_unfinished_pull_left(hub: Hub, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stop_at(shards_of(hub)[1], hub, capfd)
    assert re.fullmatch(rf"{REPO} is deleted, \d\.\d MB\n", command(capfd, "rm", REPO)[1])
    assert not [path for path in home.rglob("*") if path.is_file() and path.parent.name != "locks"]
    assert REPO not in command(capfd, "models")[1]


def test_another_revision_begins_anew(hub: Hub, two_steps: dict[str, bytes], capfd: pytest.CaptureFixture[str]) -> None:
    """Even with the same plan: here only weights differ."""
    one, *_, last = shards_of(hub)
    files, commit = dict(hub.files), hub.commit
    hub.commit = "0" * 40
    hub.files[one] = files[one][:-2000] + bytes(2000)
    stop_at(last, hub, capfd)
    hub.commit, hub.files = commit, files
    assert "as asked for" in pulled(capfd)
    assert asked_shards(hub) == shards_of(hub)
    assert_files(two_steps)


def test_another_quant_begins_anew(hub: Hub, two_steps: dict[str, bytes], capfd: pytest.CaptureFixture[str]) -> None:
    stop_at(shards_of(hub)[-1], hub, capfd, f"{REPO}:q8_0")
    pulled(capfd)
    assert asked_shards(hub) == shards_of(hub)
    assert_files(two_steps)


def test_the_projectors_type_is_chosen_and_stays(
    hub: Hub, checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stop_at(shards_of(hub)[-1], hub, capfd, f"{REPO}:q4_k_m")
    plan = pulled(capfd, f"{REPO}:q4_k_m", "--projector-type", "q6_k")
    assert "quant: Q4_K_M, as asked for; projector: Q6_K" in plan
    [model] = library.stored_models()
    expected = convert_folder(checkpoint, tmp_path / "converted", text_type="q4_k_m", projector_type="q6_k")[1]
    assert model.path("projector").read_bytes() == expected.path.read_bytes()
    asked = len(hub.ranges)
    for options in ((), ("--projector-type", "q6_k")):
        assert "is here already" in pulled(capfd, REPO, *options)
    assert len(hub.ranges) == asked
    assert "projector: F16" in pulled(capfd, REPO, "--projector-type", "f16")
    assert [model.manifest.projector_type for model in library.stored_models()] == ["f16"]


def test_a_checkpoint_that_cannot_be_a_judge_is_refused_and_leaves_nothing(
    hub: Hub, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = dict(hub.files)

    def leaves_nothing(says: str, **changed: bytes | None) -> None:
        hub.files = {name: data for name, data in {**files, **changed}.items() if data is not None}
        refused(capfd, says)
        assert not list(home.glob("partial/*"))
        assert asked_shards(hub) == []

    config = json.loads(files["config.json"])
    other = json.dumps(config | {"model_type": "llama"}).encode()
    leaves_nothing("nothing of it was kept: .* model_type is 'llama', needs 'qwen2_vl' or", **{"config.json": other})
    leaves_nothing("nothing of it was kept: .*config.json", **{"config.json": b"[" * 10**5})
    index = json.loads(files[sharded_checkpoint.INDEX])
    tensor = next(iter(index["weight_map"]))
    for name in ("../../evil.safetensors", "model-00009-of-00003.safetensors", "/etc/evil.safetensors"):
        index["weight_map"][tensor] = name
        changed = {sharded_checkpoint.INDEX: json.dumps(index).encode()}
        leaves_nothing(f"nothing of it was kept: .*{re.escape(name)}", **changed)
    leaves_nothing("kept: .*not list the shard .model.safetensors., nor one in", **{sharded_checkpoint.INDEX: None})
    leaves_nothing("nothing of it was kept: .*tokenizer.json", **{"tokenizer.json": None})
    hub.small = {*hub.small, shards_of(hub)[0]}
    leaves_nothing("nothing of it was kept: The hub gives no sha256")
    leaves_nothing(r"publishes no GGUF text model .it lists ", **{"config.json": None})


def test_a_listing_is_not_trusted(hub: Hub, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    commit = hub.commit
    for hub.commit in ("../../evil", "evil", ""):
        refused(capfd, f"gave no commit for {REPO}; it does not seem to be a hub")
    hub.commit = commit
    hub.listed = {"../../model-evil.safetensors": {"size": 1}}
    refused(capfd, "lists the unsafe file name")
    hub.listed = {"processor_config.json": {"size": 10**9}}
    refused(capfd, "lists processor_config.json with 1.00 GB; at most 67.1 MB are read")
    assert hub.ranges == []
    assert not list(home.glob("partial/*"))
    hub.listed = {}
    hub.failing = {"config.json": 403}
    refused(capfd, f"{REPO} is gated: accept its licence at ")
    hub.failing = {}
    hub.longer["config.json"] = 600 * 2**20
    refused(capfd, "config.json of .* arrived damaged: it is not what")
    assert hub.sent["config.json"] < 32 * 2**20
    refused(capfd, "cannot be converted to 'q1_z'; choose .*, q4_k_m", f"{REPO}:q1_z")
    assert library.stored_models() == []
    assert not list(home.rglob("*evil*"))


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.nightly)])
def test_killed_at_any_point_it_goes_on(
    hub: Hub, kills: int, two_steps: dict[str, bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    """At most the shard that was arriving is fetched again: the one in hand is whole, those before are converted."""
    hub.seconds_per_chunk = 0.01
    dice = random.Random(17)
    names, furthest, finished = shards_of(hub), 0, 0
    for kill in range(kills):
        asked = len(hub.ranges)
        process = child("pull", f"{REPO}:q4_k_m")
        while len(hub.ranges) == asked and process.poll() is None:
            time.sleep(0.005)
        time.sleep(dice.uniform(0, 0.6))
        process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
        process.communicate(timeout=30)
        numbers = [names.index(name) for name, _ in hub.ranges[asked:] if name in names]
        assert all(number >= furthest for number in numbers), kill
        furthest = max([furthest, *numbers])
        if library.stored_models():
            assert_files(two_steps)
            assert command(capfd, "rm", REPO)[0] == 0
            furthest, finished = 0, finished + 1
    hub.seconds_per_chunk = 0
    pulled(capfd)
    assert_files(two_steps)
    assert finished < kills


def test_killed_at_its_end_it_fetches_nothing_again(
    hub: Hub, two_steps: dict[str, bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    text, last = library.partial_folder(REPO) / "judge-Q4_K_M.gguf", shards_of(hub)[-1].encode()
    journal = text.with_name(JOURNAL)
    with child("pull", f"{REPO}:q4_k_m") as process:
        while not (journal.exists() and last in journal.read_bytes()) and process.poll() is None:
            pass
        process.kill()
    hub.ranges.clear()
    pulled(capfd)
    assert asked_shards(hub) == []
    assert_files(two_steps)
    # Killed when the manifest was written, but nothing renamed yet:
    [model] = library.stored_models()
    text.parent.parent.mkdir(exist_ok=True)
    model.folder.rename(text.parent)
    journal.write_text("{}")
    assert library.stored_models() == []
    pulled(capfd)
    assert asked_shards(hub) == []
    assert_files(two_steps)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for another process")
def test_an_interrupt_is_130_and_the_next_pull_goes_on(
    hub: Hub, two_steps: dict[str, bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    hub.seconds_per_chunk = 0.02
    with child("pull", f"{REPO}:q4_k_m") as process:
        while len(asked_shards(hub)) < 2 and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "vrt-lite: Interrupted."
    hub.seconds_per_chunk = 0
    hub.ranges.clear()
    pulled(capfd)
    assert len(asked_shards(hub)) <= SHARDS
    assert_files(two_steps)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 80 MB; a pull leaves 64 MB of any disk free."""
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", megabytes=80):
        yield tmp_path / "disk"


def fill(folder: Path) -> Path:
    """Take all that is free of a disk."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(2**16)):
            pass
    return filler


@pytest.mark.parametrize("fulls", [2, pytest.param(20, marks=pytest.mark.nightly)])
def test_a_full_disk_is_one_line_and_it_goes_on_when_there_is_room(
    hub: Hub,
    fulls: int,
    disk: Path,
    two_steps: dict[str, bytes],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VRT_LITE_HOME", str(disk / "home"))
    (disk / "ballast").write_bytes(bytes(20 * 2**20))
    refused(capfd, r"are still to come and .* has [\d.]+ MB free; 67.1 MB stay free. Free some")
    (disk / "ballast").unlink()
    hub.seconds_per_chunk = 0.2  # so that it is not done before the disk is full
    dice = random.Random(23)
    for _ in range(fulls):
        asked = len(hub.ranges)
        with child("pull", f"{REPO}:q4_k_m") as process:
            while len(hub.ranges) == asked and process.poll() is None:
                time.sleep(0.005)
            time.sleep(dice.uniform(0.05, 0.4))
            filler = fill(disk)
            _, err = process.communicate(timeout=30)
        filler.unlink()
        assert process.returncode == 4, err
        assert re.match("vrt-lite: .*(No space left on device|disk is full|are still to come)", err.splitlines()[-1]), (
            err
        )
        assert "Traceback" not in err
        assert library.stored_models() == []
    hub.seconds_per_chunk = 0
    pulled(capfd)
    assert_files(two_steps)


@contextlib.contextmanager
def watched_disk() -> Iterator[list[int]]:
    """The bytes that the partial folder takes, measured again and again while the block runs."""
    sizes, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.003):
            sizes.append(library.partial_bytes(REPO))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield sizes
    finally:
        ended.set()
        watcher.join()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals of this kind")
def test_one_bar_shows_the_whole_and_the_disk_holds_at_most_two_shards(
    hub: Hub, tmp_path: Path, two_steps: dict[str, bytes]
) -> None:
    many = sharded_checkpoint.make(tmp_path / "judge", shards=8)
    hub.files = {path.name: path.read_bytes() for path in sorted(many.iterdir())}
    hub.seconds_per_chunk = 0.01
    reader, terminal = os.openpty()
    program = [sys.executable, "-m", "vrt_lite", "pull", f"{REPO}:q4_k_m"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with (
        watched_disk() as taken,
        subprocess.Popen(program, stdout=subprocess.PIPE, stderr=terminal, env=environment) as process,
    ):
        os.close(terminal)
        drawn = b""
        with contextlib.suppress(OSError):  # so Linux says that nobody writes any more
            while piece := os.read(reader, 2**16):
                drawn += piece
    os.close(reader)
    assert process.returncode == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode())
    shares = [int(share) for share in re.findall(r"fetching and converting (\d+)%", text)]
    assert len(set(shares)) > 2
    assert shares == sorted(shares)
    assert re.search(r"\d+ s left", text)
    assert "quant: Q4_K_M, as asked for" in text
    assert not re.search(r"B/s|it/s|\?", text), "the client drew a bar of its own"
    sizes = sorted(len(hub.files[name]) for name in shards_of(hub))
    result = sum(len(two_steps[name]) for name in ("judge-Q4_K_M.gguf", "mmproj-judge-F16.gguf"))
    assert sizes[-1] < max(taken) <= result + sizes[-1] + sizes[-2] + SMALL_BYTES
    assert sum(sizes) > sizes[-1] + sizes[-2] + SMALL_BYTES


def test_a_pipe_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screens, "LINE_EVERY_SECONDS", 0.0)
    stream = io.StringIO()
    with screens.Screen(stream) as screen:
        view = screens.CountedWork(screen)
        view.say("a line")
        view.begin("fetching", 200)
        view.advance(50)
        view.advance(-60)
    assert re.fullmatch(r"asking the hub\na line\nfetching 25%, \d+ s left\nfetching 0%\n", stream.getvalue())
