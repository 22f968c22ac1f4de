"""Pulling a reward model whose weights are one pickle, and whose small files are the base model's."""

from __future__ import annotations

import json
import pickle
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pull_commands
import pytest
from hub_server import Hub, serving
from pull_commands import SMALL_BYTES, child, command, isolate_client

sys.path.insert(0, str(Path(__file__).resolve().parent / "golden"))

import head_cases
import torch_archive as archive

from vrt_lite.cli import run
from vrt_lite.conversion.convert_folder import convert_folder
from vrt_lite.models import library
from vrt_lite.pulling.checkpoint_pull import JOURNAL

NAME = "videoreward-2b"
RECIPE = library.recipes()[NAME]
OWN = ("model.pth", "model_config.json", "README.md")
BASE_COMMIT = "b" * 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds what both repositories have."""
    made = tmp_path_factory.mktemp("made") / "VideoReward"
    head_cases.make_checkpoint(made)
    (made / "README.md").write_text("---\nlicense: apache-2.0\nbase_model: Qwen/Qwen2-VL-2B-Instruct\n---\nA judge.\n")
    return made


@pytest.fixture(scope="module")
def converted(folder: Path) -> dict[str, bytes]:
    """What converting that folder makes of it, by file name."""
    paths = [file.path for file in convert_folder(folder, folder.parent / "out", text_type="q8_0")]
    return {path.name: path.read_bytes() for path in paths} | {"profile.toml": RECIPE.profile.encode()}


@pytest.fixture(autouse=True)
def home(own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate_client(tmp_path / "hf", monkeypatch)
    return own_home


@pytest.fixture
def hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    small = set(files) - {"model.pth"}
    base = {name: data for name, data in files.items() if name not in OWN}
    own = {RECIPE.state if name == "model.pth" else name: files[name] for name in OWN}
    # Its own config.json must not take the place of the base's.
    own["config.json"] = b"{}"
    holder = Hub(base, repository=RECIPE.base, commit=BASE_COMMIT, small=small)
    with serving(Hub(own, repository=RECIPE.repository, small=small, base=holder)) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def base_of(hub: Hub) -> Hub:
    assert hub.base
    return hub.base


def pulled(capfd: pytest.CaptureFixture[str], reference: str = NAME) -> str:
    """Pull, which must succeed; its messages."""
    status, _, err = command(capfd, "pull", reference)
    assert status == 0, err
    assert not list(library.home().glob("partial/*"))
    return err


def refused(capfd: pytest.CaptureFixture[str], says: str, *, keeps: bool = False) -> None:
    """A pull that must end with one line and list nothing."""
    pull_commands.refused(capfd, says, "pull", NAME)
    assert bool(list(library.home().glob("partial/*"))) == keeps


def asked_states(hub: Hub) -> int:
    """How often the weights were asked for."""
    return sum(name == RECIPE.state for name, _ in hub.ranges)


def assert_files(converted: dict[str, bytes]) -> None:
    """The model that is here has the bytes of the conversion, and nothing else."""
    [model] = library.stored_models()
    assert model.damage == ""
    found = {path.name: path.read_bytes() for path in model.folder.iterdir()}
    del found["manifest.json"]
    assert {name: len(data) for name, data in found.items()} == {name: len(data) for name, data in converted.items()}
    assert found == converted


def test_one_command_makes_the_bytes_of_the_conversion(
    hub: Hub, converted: dict[str, bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    sizes, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.003):
            sizes.append(library.partial_bytes(NAME))

    hub.seconds_per_chunk = 0.005
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        plan = pulled(capfd)
    finally:
        ended.set()
        watcher.join()
    assert f"{RECIPE.repository} at {hub.commit[:12]}, a checkpoint" in plan
    assert_files(converted)
    state = len(hub.files[RECIPE.state])
    assert state < max(sizes) <= state + sum(map(len, converted.values())) + SMALL_BYTES
    [model] = library.stored_models()
    assert model.manifest.revision == f"{hub.commit}+{BASE_COMMIT}"
    hub.ranges.clear()
    assert "is here already, sha256 of every file checked" in pulled(capfd)
    assert hub.ranges == []
    base_of(hub).commit = "c" * 40
    pulled(capfd)
    assert asked_states(hub) == 1
    assert library.stored_models()[0].manifest.revision == f"{hub.commit}+{'c' * 40}"


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.nightly)])
def test_killed_at_any_point_it_goes_on(
    hub: Hub, kills: int, converted: dict[str, bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    """The weights are fetched again only if they had not arrived."""
    hub.seconds_per_chunk = 0.01
    dice, whole = random.Random(7), False
    for kill in range(kills):
        asked = asked_states(hub)
        with child("pull", NAME) as process:
            time.sleep(dice.uniform(0.5, 2))
            process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
            process.communicate(timeout=30)
        assert not (whole and asked_states(hub) > asked), kill
        whole = bool(list(library.partial_folder(NAME).glob("checkpoint/*/*/model.pth")))
        if library.stored_models():
            assert_files(converted)
            assert run(["rm", NAME]) == 0
            whole = False
    hub.seconds_per_chunk = 0
    pulled(capfd)
    assert_files(converted)


def test_killed_when_all_is_converted_it_fetches_nothing_again(
    hub: Hub, converted: dict[str, bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    journals = library.partial_folder(NAME)
    with child("pull", NAME) as process:
        while process.poll() is None:
            if any(b"model.pth" in path.read_bytes() for path in journals.glob(f"checkpoint/*/{JOURNAL}")):
                break
        process.kill()
    hub.ranges.clear()
    pulled(capfd)
    assert asked_states(hub) == 0
    assert_files(converted)


class Hostile:
    """A pickle that would end the test."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> object:
        return exec, (f"open({str(self.mark)!r}, 'w')",)


def test_a_hostile_pickle_is_refused_and_leaves_nothing(
    hub: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, mark = tmp_path / "model.pth", tmp_path / "it was run"
    for pickled, says in (
        (pickle.dumps(Hostile(mark), protocol=2), "exec'?, which no table of weights needs"),
        (archive.pickle_of([("x", archive.number(7))]), "cannot be read"),
        (archive.pickle_of([("x", archive.piece("0", (5, 5), "F32"))]), "does not hold"),
    ):
        archive.write_archive(path, pickled, {"0": bytes(48)})
        hub.files[RECIPE.state] = path.read_bytes()
        refused(capfd, f"{NAME} is refused and nothing of it was kept: .*{says}")
    hub.files[RECIPE.state] = b"PK" + bytes(1000)
    refused(capfd, rf"{NAME} is refused and nothing of it was kept: .*cannot be read")
    assert not mark.exists()


def test_neither_listing_is_trusted(hub: Hub, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    base, files = base_of(hub), dict(hub.files)
    base.listed = {"../../evil.json": {"size": 1}}
    refused(capfd, f"{base.repository} lists the unsafe file name")
    base.listed = {"chat_template.json": {"size": 10**9}}
    refused(capfd, f"{base.repository} lists chat_template.json with 1.00 GB")
    base.listed, base.commit = {}, "../evil"
    refused(capfd, f"gave no commit for {base.repository}")
    base.commit = BASE_COMMIT
    config = json.loads(base.files["config.json"])
    base.files["config.json"] = json.dumps(config | {"model_type": "llama"}).encode()
    refused(capfd, "model_type is 'llama', needs 'qwen2_vl' or")
    base.files["config.json"] = json.dumps(config).encode()
    hub.small = {*hub.small, RECIPE.state}
    refused(capfd, "nothing of it was kept: The hub gives no sha256")
    del hub.files[RECIPE.state]
    refused(capfd, f"does not list the shard '{RECIPE.state}'")
    hub.files = {name: data for name, data in files.items() if name != "model_config.json"}
    hub.small.remove(RECIPE.state)
    refused(capfd, r"nothing of it was kept: .*model_config\.json is missing")
    assert not list(home.rglob("*evil*"))
