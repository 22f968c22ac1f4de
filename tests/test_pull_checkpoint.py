"""Pulling a checkpoint: fetched, converted, deleted, with the bytes of export and quantise.

One has its weights in shards. Another, a reward model, has them in one pickle, and its small files are the base's.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import sharded_checkpoint
from answering_checkpoint import WINNER
from hub_server import Hub, serving
from pull_commands import SMALL_BYTES, Commands, child, isolate_client, stop_pull, watched_disk
from sharded_checkpoint import INDEX
from surroundings import small_disk

sys.path.insert(0, str(Path(__file__).resolve().parent / "golden"))

import head_cases
import torch_archive as archive

from convert.quantize import quantize_pair
from vrt_lite.conversion.convert_folder import convert_folder, export_pair
from vrt_lite.errors import ModelError
from vrt_lite.fitting.pull_options import list_pull_options
from vrt_lite.models import library
from vrt_lite.models.gguf import quant_of
from vrt_lite.pulling.checkpoint_pull import CHOICES
from vrt_lite.pulling.pull_source import SHARE_OF_MEMORY, choose_quant
from vrt_lite.show import screen as screens

CLIPS = [str(Path(__file__).parent.parent / "examples" / name) for name in ("a.mp4", "b.mp4")]
REPO = "someone/judge"
Q4 = f"{REPO}:q4_k_m"
RECIPE = library.recipes()["videoreward-2b"]
OWN = ("model.pth", "model_config.json", "README.md")
NOTHING_KEPT = "is refused and nothing of it was kept: .*"
Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Published:
    """A checkpoint on a hub."""

    hub: Hub
    holder: Hub  # the repository of its small files
    name: str
    reference: str
    weights: list[str]
    expected: Files  # what must come of it, and nothing else

    def asked(self) -> list[str]:
        """The weights that were asked for since the last call."""
        names = [name for name, _ in self.hub.ranges if name in self.weights]
        self.hub.ranges.clear()
        return names

    def is_converted(self) -> bool:
        """Whether the journal names the last weights. The pull may rename a file while this looks for it."""
        last, partial = self.weights[-1].rpartition("/")[2].encode(), library.partial_folder(self.name)
        with contextlib.suppress(FileNotFoundError):
            kept = [journal.read_bytes() for journal in partial.glob("[!.]*.json")]
            return any(last in names or b"model.pth" in names for names in kept)
        return False


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(autouse=True)
def commands(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    isolate_client(tmp_path / "hf", monkeypatch)
    return Commands(capfd)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sharded_checkpoint.make(tmp_path_factory.mktemp("published") / "judge", shards=3)


@pytest.fixture(scope="module")
def two_steps(checkpoint: Path) -> Files:
    """What export and llama.cpp's quantiser make of the shards."""
    out = checkpoint.parent / "gguf"
    export_pair(checkpoint, out, text_type="bf16", projector_type="f16")
    for text_type in ("q8_0", "q4_k_m"):
        quantize_pair(out, text_type=text_type)
    return files_in(out)


@pytest.fixture
def shards(checkpoint: Path, two_steps: Files, monkeypatch: pytest.MonkeyPatch) -> Iterator[Published]:
    files = files_in(checkpoint)
    weights = [name for name in files if name.endswith(".safetensors")]
    expected = {name: two_steps[name] for name in ("judge-Q4_K_M.gguf", "mmproj-judge-F16.gguf")}
    with serving(Hub(files, repository=REPO, small=files.keys() - weights)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield Published(hub, hub, REPO, Q4, weights, expected)


@pytest.fixture(scope="module")
def reward(tmp_path_factory: pytest.TempPathFactory) -> tuple[Files, Files]:
    """What both repositories of the reward model have, and what converting it makes."""
    folder = tmp_path_factory.mktemp("made") / "VideoReward"
    head_cases.make_checkpoint(folder)
    (folder / "README.md").write_text(
        "---\nlicense: apache-2.0\nbase_model: Qwen/Qwen2-VL-2B-Instruct\n---\nA judge.\n"
    )
    convert_folder(folder, folder.parent / "out", text_type="q8_0")
    return files_in(folder), files_in(folder.parent / "out") | {"profile.toml": RECIPE.profile.encode()}


@pytest.fixture
def state(reward: tuple[Files, Files], monkeypatch: pytest.MonkeyPatch) -> Iterator[Published]:
    files, expected = reward
    # Its own config.json must not take the place of the base's.
    own = {RECIPE.state: files["model.pth"], **{name: files[name] for name in OWN[1:]}, "config.json": b"{}"}
    small = {name: data for name, data in files.items() if name not in OWN}
    base = Hub(small, repository=RECIPE.base, commit="b" * 40, small=set(small))
    with serving(Hub(own, repository=RECIPE.repository, small=own.keys() - {RECIPE.state}, base=base)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield Published(hub, base, RECIPE.name, RECIPE.name, [RECIPE.state], expected)


@pytest.fixture(params=["shards", "state"])
def published(request: pytest.FixtureRequest) -> Published:
    return request.getfixturevalue(request.param)


def assert_files(expected: Files, quant: str = "") -> None:
    """The model that is here has these bytes and the digests that it states, and nothing else."""
    if quant:
        expected = {name: expected[name] for name in (f"judge-{quant}.gguf", "mmproj-judge-F16.gguf")}
    [model] = library.stored_models()
    found = files_in(model.folder)
    del found["manifest.json"]
    assert {name: len(data) for name, data in found.items()} == {name: len(data) for name, data in expected.items()}
    assert found == expected
    digests = {file.name: file.sha256 for file in model.manifest.files}
    assert digests == {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}


def test_one_command_makes_a_judge_with_the_bytes_of_the_conversion(published: Published, commands: Commands) -> None:
    hub, base = published.hub, published.hub.base
    hub.seconds_per_chunk = 0.002
    with watched_disk(published.name) as taken:
        plan = commands.pull(published.reference)
    weights = sorted(len(hub.files[name]) for name in published.weights)
    result = sum(map(len, published.expected.values()))
    assert weights[-1] < max(taken) <= result + sum(weights[-2:]) + SMALL_BYTES
    assert f"{hub.repository} at {hub.commit[:12]}, a checkpoint" in plan
    assert_files(published.expected)
    [model] = library.stored_models()
    assert model.manifest.revision == (f"{hub.commit}+{base.commit}" if base else hub.commit)
    hub.ranges.clear()
    for reference in (published.name, published.reference):
        assert "is here already, sha256 of every file checked" in commands.pull(reference)
    assert hub.ranges == []
    if not base:
        fetched = f"fetched: {sum(weights) / 1e6:.1f} MB, shards: 3, each deleted as soon as it is converted"
        for line in ("licence: mit", "quant: Q4_K_M, as asked for", fetched):
            assert line in plan
        judged = commands.read("compare", *CLIPS, "-p", "Any.", "-m", REPO, "--threads", "1", "--no-cache")
        assert judged["verdict"]["overall"]["winner"] == WINNER
        assert "default_profile" in judged["warning_kinds"]
        assert f"{REPO} has no profile.toml" in " ".join(judged["warnings"])
        return
    base.commit = "c" * 40
    commands.pull(published.name)
    assert published.asked() == published.weights
    assert library.stored_models()[0].manifest.revision == f"{hub.commit}+{base.commit}"


def test_the_quant_is_the_largest_that_fits() -> None:
    first, *_ = options = list_pull_options("vr-thinker-7b").options
    sizes = {option.quant.upper(): option.stays for option in options if option.quant in CHOICES}

    def chosen(room_gb: float) -> str:
        usable = room_gb * 1e9 + first.shape.projector
        return choose_quant(REPO, sizes, memory_bytes=int(usable / SHARE_OF_MEMORY) + 1)

    assert [chosen(room) for room in (60, 8.2, 7, 6, 4.8)] == ["Q8_0", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M"]
    with pytest.raises(ModelError, match=rf"fits: the smallest, Q4_K_M, has 6.03 GB, .* name it: {REPO}:Q4_K_M"):
        chosen(4)


def begin(commands: Commands, shards: Published, reference: str = Q4) -> None:
    """Let a pull end at the last shard, which arrives damaged."""
    shards.hub.flips[shards.weights[-1]] = 1
    commands.refuse(f"{shards.weights[-1]} of {REPO} arrived damaged", "pull", reference)
    shards.hub.ranges.clear()


def test_what_is_converted_stays_until_it_is_deleted(shards: Published, commands: Commands) -> None:
    *_, last = shards.weights
    shards.hub.failing = {last: 503}
    commands.refuse(rf"nothing usable for {REPO} \(status 503\).* what has arrived whole is kept", "pull", Q4)
    assert library.partial_names() == [REPO]
    assert not list(library.home().rglob("model-*.safetensors"))
    shards.hub.failing = {}
    shards.hub.ranges.clear()
    messages = commands.pull(Q4)
    assert "going on: 2 of 3 shards are converted" in messages
    assert shards.asked() == [last]
    assert_files(shards.expected)
    assert commands.run("rm", REPO)[0] == 0
    begin(commands, shards)
    assert re.fullmatch(rf"{REPO} is deleted, \d\.\d MB\n", commands.run("rm", REPO)[1])
    assert not [path for path in library.home().rglob("*") if path.is_file() and path.parent.name != "locks"]


def test_another_revision_or_quant_begins_anew(shards: Published, two_steps: Files, commands: Commands) -> None:
    """Another revision even with the same plan: here only weights differ."""
    hub = shards.hub
    files, commit, one = dict(hub.files), hub.commit, shards.weights[0]
    hub.commit = "0" * 40
    hub.files[one] = files[one][:-2000] + bytes(2000)
    begin(commands, shards, f"{REPO}:bf16")
    hub.commit, hub.files = commit, files
    for reference in (f"{REPO}:bf16", f"{REPO}:q8_0"):
        quant = reference.rpartition(":")[2].upper()
        assert f"quant: {quant}, as asked for" in commands.pull(reference)
        assert shards.asked() == shards.weights
        assert_files(two_steps, quant)
        assert commands.run("rm", REPO)[0] == 0
        begin(commands, shards)


def test_the_projectors_type_is_chosen(shards: Published, checkpoint: Path, commands: Commands) -> None:
    begin(commands, shards)
    plan = commands.pull(Q4, "--projector-type", "q6_k")
    assert "quant: Q4_K_M, as asked for; projector: Q6_K" in plan
    [model] = library.stored_models()
    expected = convert_folder(checkpoint, library.home() / "converted", text_type="q4_k_m", projector_type="q6_k")[1]
    assert model.path("projector").read_bytes() == expected.read_bytes()
    shards.hub.ranges.clear()
    for options in ((), ("--projector-type", "q6_k")):
        assert "is here already" in commands.pull(REPO, *options)
    assert shards.hub.ranges == []
    assert "projector: F16" in commands.pull(REPO, "--projector-type", "f16")
    assert [quant_of(model.path("projector").name) for model in library.stored_models()] == ["F16"]


def refuse(published: Published, commands: Commands, says: str, changed: Mapping[str, bytes | None]) -> None:
    """Pull with these small files changed, or taken away: that leaves nothing, and asks for no weights."""
    files = dict(published.holder.files)
    published.holder.files = {name: data for name, data in {**files, **changed}.items() if data is not None}
    commands.refuse(says, "pull", published.reference)
    assert not list(library.home().glob("partial/*"))
    assert not list(library.home().rglob("*evil*"))
    assert published.asked() == []
    published.holder.files = files


def test_no_listing_is_trusted(published: Published, commands: Commands) -> None:
    holder, commit = published.holder, published.holder.commit
    for holder.commit in ("../../evil", "evil", ""):
        refuse(published, commands, f"gave no commit for {holder.repository}; it does not seem to be a hub", {})
    holder.commit = commit
    holder.listed = {"../../model-evil.safetensors": {"size": 1}}
    refuse(published, commands, f"{holder.repository} lists the unsafe file name", {})
    holder.listed = {"chat_template.json": {"size": 10**9}}
    refuse(published, commands, "lists chat_template.json with 1.00 GB; at most 67.1 MB are read", {})
    holder.listed = {}
    llama = json.dumps(json.loads(holder.files["config.json"]) | {"model_type": "llama"}).encode()
    says = f"{NOTHING_KEPT}model_type is 'llama', needs 'qwen2_vl' or"
    refuse(published, commands, says, {"config.json": llama})
    published.hub.small = {*published.hub.small, published.weights[0]}
    refuse(published, commands, "The hub gives no sha256", {})


def test_shards_that_cannot_become_a_judge_are_refused(shards: Published, commands: Commands) -> None:
    index = json.loads(shards.hub.files[INDEX])
    for name in ("../../evil.safetensors", "model-00009-of-00003.safetensors", "/etc/evil.safetensors"):
        index["weight_map"][next(iter(index["weight_map"]))] = name
        refuse(shards, commands, NOTHING_KEPT + re.escape(name), {INDEX: json.dumps(index).encode()})
    refuse(shards, commands, "kept: .*lists neither a GGUF file nor the shard .model.safetensors.", {INDEX: None})
    refuse(shards, commands, f"{NOTHING_KEPT}config.json", {"config.json": b"[" * 10**5})
    refuse(shards, commands, f"{NOTHING_KEPT}tokenizer.json", {"tokenizer.json": None})
    refuse(shards, commands, rf"{NOTHING_KEPT}config.json is missing", {"config.json": None})
    commands.refuse("cannot be converted to 'q1_z'; choose .*, q4_k_m", "pull", f"{REPO}:q1_z")
    shards.hub.failing = {"config.json": 403}
    commands.refuse(f"{REPO} is gated: accept its licence at ", "pull", Q4)
    shards.hub.failing = {}
    shards.hub.longer["config.json"] = 600 * 2**20
    commands.refuse("config.json of .* arrived damaged: it is not what", "pull", Q4)
    assert shards.hub.sent["config.json"] < 32 * 2**20


@dataclass
class Hostile:
    """A pickle that would end the test."""

    mark: Path

    def __reduce__(self) -> object:
        return exec, (f"open({str(self.mark)!r}, 'w')",)


def test_a_hostile_pickle_is_refused_and_leaves_nothing(state: Published, tmp_path: Path, commands: Commands) -> None:
    hub, path, mark = state.hub, tmp_path / "model.pth", tmp_path / "it was run"
    for pickled, says in (
        (pickle.dumps(Hostile(mark), protocol=2), "exec'?, which no table of weights needs"),
        (archive.pickle_of([("x", archive.number(7))]), "cannot be read"),
        (archive.pickle_of([("x", archive.piece("0", (5, 5), "F32"))]), "does not hold"),
        (b"", "cannot be read"),
    ):
        archive.write_archive(path, pickled, {"0": bytes(48)})
        hub.files[RECIPE.state] = path.read_bytes() if pickled else b"PK" + bytes(1000)
        commands.refuse(f"{RECIPE.name} {NOTHING_KEPT}{says}", "pull", RECIPE.name)
        assert not list(library.home().glob("partial/*"))
    assert not mark.exists()


def test_a_reward_model_without_a_file_is_refused(state: Published, commands: Commands) -> None:
    for name, says in (
        ("model_config.json", rf"{NOTHING_KEPT}model_config\.json is missing"),
        (RECIPE.state, f"lists neither a GGUF file nor the shard '{RECIPE.state}'"),
    ):
        del state.hub.files[name]
        commands.refuse(says, "pull", RECIPE.name)
        assert not list(library.home().glob("partial/*"))


@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.nightly)])
def test_killed_at_any_point_it_goes_on(published: Published, kills: int, commands: Commands) -> None:
    """At most the weights that were arriving are fetched again: the ones in hand are whole, or converted."""
    published.hub.seconds_per_chunk = 0.01
    dice, furthest, whole, finished = random.Random(17), 0, False, 0
    arrived = library.partial_folder(published.name)
    for kill in range(kills):
        stop_pull(published.reference, lambda: bool(published.hub.ranges), seconds=dice.uniform(0, 0.6))
        numbers = [published.weights.index(name) for name in published.asked()]
        assert all(number >= furthest for number in numbers), kill
        assert not (whole and numbers), kill
        furthest = max([furthest, *numbers])
        whole = bool(list(arrived.glob("checkpoint/*/*/model.pth")))
        if library.stored_models():
            assert_files(published.expected)
            assert commands.run("rm", published.name)[0] == 0
            furthest, whole, finished = 0, False, finished + 1
    published.hub.seconds_per_chunk = 0
    commands.pull(published.reference)
    assert_files(published.expected)
    assert finished < kills


def test_killed_at_its_end_it_fetches_nothing_again(published: Published, commands: Commands) -> None:
    stop_pull(published.reference, published.is_converted)
    published.hub.ranges.clear()
    commands.pull(published.reference)
    assert published.asked() == []
    assert_files(published.expected)


def test_killed_after_its_end_it_leaves_nothing_beside_the_model(
    shards: Published, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal of a conversion that is here must not vouch for a file that is damaged later."""
    with monkeypatch.context() as killed:
        killed.setattr(library, "keep_files", lambda folder, manifest: None)
        commands.pull(Q4)
    [model] = library.stored_models()
    assert (model.folder / "checkpoint").is_dir()
    assert list(model.folder.glob("*.json")) != [model.folder / library.MANIFEST_NAME]
    text = model.path("text")
    with text.open("r+b") as file:
        file.seek(-64, os.SEEK_END)
        file.write(bytes(range(64)))
    commands.pull(Q4)
    assert_files(shards.expected)
    (model.folder / "checkpoint").mkdir()
    assert "is here already" in commands.pull(Q4)
    assert_files(shards.expected)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for another process")
def test_an_interrupt_is_130_and_the_next_pull_goes_on(shards: Published, commands: Commands) -> None:
    shards.hub.seconds_per_chunk = 0.02
    second = shards.weights[1]
    status, err = stop_pull(Q4, lambda: any(name == second for name, _ in shards.hub.ranges), by="SIGINT")
    assert (status, err.splitlines()[-1]) == (130, "vrt-lite: Interrupted.")
    shards.hub.seconds_per_chunk = 0
    shards.hub.ranges.clear()
    commands.pull(Q4)
    assert len(shards.asked()) <= len(shards.weights)
    assert_files(shards.expected)


def fill(folder: Path) -> Path:
    """Take all that is free of a disk."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(2**16)):
            pass
    return filler


@pytest.mark.parametrize("fulls", [2, pytest.param(20, marks=pytest.mark.nightly)])
def test_a_full_disk_is_one_line_and_it_goes_on_when_there_is_room(
    shards: Published, fulls: int, tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system of its own, of 80 MB; a pull leaves 64 MB of any disk free."""
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setenv("VRT_LITE_HOME", str(disk / "home"))
    dice, hub = random.Random(23), shards.hub
    with small_disk(disk, megabytes=80):
        (disk / "ballast").write_bytes(bytes(20 * 2**20))
        commands.refuse(r"are still to come and .* has [\d.]+ MB free; 67.1 MB stay free. Free some", "pull", Q4)
        (disk / "ballast").unlink()
        hub.seconds_per_chunk = 0.2  # so that it is not done before the disk is full
        for _ in range(fulls):
            hub.ranges.clear()
            with child("pull", Q4) as process:
                while not hub.ranges and process.poll() is None:
                    time.sleep(0.005)
                time.sleep(dice.uniform(0.05, 0.4))
                filler = fill(disk)
                _, err = process.communicate(timeout=30)
            filler.unlink()
            assert process.returncode == 4, err
            assert re.match("vrt-lite: .*(No space left|disk is full|are still to come)", err.splitlines()[-1]), err
            assert "Traceback" not in err
            assert library.stored_models() == []
        hub.seconds_per_chunk = 0
        commands.pull(Q4)
        assert_files(shards.expected)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals of this kind")
def test_one_bar_shows_the_whole_and_the_disk_holds_at_most_two_shards(shards: Published, tmp_path: Path) -> None:
    hub = shards.hub
    hub.files = files_in(sharded_checkpoint.make(tmp_path / "judge", shards=8))
    hub.seconds_per_chunk = 0.01
    reader, terminal = os.openpty()
    program = [sys.executable, "-m", "vrt_lite", "pull", Q4]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with (
        watched_disk(REPO) as taken,
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
    shown = [int(share) for share in re.findall(r"fetching and converting (\d+)%", text)]
    assert len(set(shown)) > 2
    assert shown == sorted(shown)
    assert re.search(r"[\d.]+ s left", text)
    assert not re.search(r"B/s|it/s|\?", text), "the client drew a bar of its own"
    sizes = sorted(len(data) for name, data in hub.files.items() if name.endswith(".safetensors"))
    result, two = sum(map(len, shards.expected.values())), sum(sizes[-2:])
    assert sizes[-1] < max(taken) <= result + two + SMALL_BYTES
    assert sum(sizes) > two + SMALL_BYTES


def test_a_pipe_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screens, "LINE_EVERY_SECONDS", 0.0)
    stream = io.StringIO()
    with screens.CountedWork("asking the hub", stream=stream) as view:
        view.say("a line")
        view.begin("fetching", 200)
        view.advance(50)
        view.advance(-60)
    assert re.fullmatch(r"asking the hub\na line\nfetching 25%, [\d.]+ s left\nfetching 0%\n", stream.getvalue())
