"""What a pull would bring, told before: the same bytes as the real files have, and offline for recipes."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import sharded_checkpoint
import vram_table
from hub_server import Hub, serving
from pull_commands import Commands, isolate_client

sys.path.insert(0, str(Path(__file__).resolve().parent / "parity"))

import bundled_checkpoint

from bench.random_checkpoint import SHAPES, write_documents
from vrt_lite.conversion.convert_folder import describe_pair
from vrt_lite.fitting import choose_plan
from vrt_lite.fitting.memory_estimate import estimate_memory, read_shape, shape_of
from vrt_lite.fitting.pull_options import QUANTS, list_pull_options
from vrt_lite.machine import EngineSettings, Gpu, MachineMemory
from vrt_lite.models import bundled_names, find, library
from vrt_lite.models.library import recipes
from vrt_lite.profile import default_profile
from vrt_lite.settings import Settings
from vrt_lite.show.estimates import Estimated, show_quants

MB, GB = 10**6, 10**9


@pytest.fixture(scope="module")
def speeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This machine's speeds, which are measured once for all tests."""
    return tmp_path_factory.mktemp("speeds")


@pytest.fixture(autouse=True)
def commands(
    capfd: pytest.CaptureFixture[str], speeds: Path, own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Commands:
    isolate_client(tmp_path / "hf", monkeypatch)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody answers there
    (own_home / "speeds").symlink_to(speeds, target_is_directory=True)
    return Commands(capfd)


def write_config(folder: Path, shape: str) -> bytes:
    """Write the small files of a checkpoint of this shape; returns its config.json."""
    folder.mkdir(exist_ok=True)
    write_documents(folder, SHAPES[shape])
    return (folder / "config.json").read_bytes()


@pytest.mark.parametrize("name", bundled_names())
def test_a_bundled_judge_is_estimated_from_its_config_alone(tmp_path: Path, name: str) -> None:
    files = find(name)
    bundled_checkpoint.make(tmp_path / name, (files.text, files.projector))
    values = json.loads((tmp_path / name / "config.json").read_bytes())
    described, real = shape_of(*describe_pair(values, text_type="q8_0", projector_type="f16")), read_shape(files)
    assert described == real


@pytest.mark.parametrize(("name", "shape"), [("vr-thinker-7b", "7b"), ("qwen2.5-vl-7b", "7b"), ("qwen2.5-vl-3b", "3b")])
def test_a_recipe_has_the_published_shape(tmp_path: Path, name: str, shape: str) -> None:
    published, config = json.loads(write_config(tmp_path, shape)), recipes()[name].config
    outer = {key: value for key, value in config.items() if key != "vision_config"}
    assert outer.items() <= published.items()
    assert config["vision_config"].items() <= published["vision_config"].items()
    ours, theirs = (describe_pair(of, text_type="q6_k", projector_type="f16") for of in (config, published))
    assert ours == theirs


def test_the_sizes_are_those_that_a_publisher_lists() -> None:
    path = Path(__file__).parent.parent / "models" / "qwen2.5-vl-3b.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    sizes = [file["size"] for file in table["files"]]
    for described, size in zip(
        describe_pair(table["config"], text_type="q4_k_m", projector_type="f16"), sizes, strict=True
    ):
        # What is missing is the header, of which the vocabulary is the largest part.
        assert 0 < size - sum(tensor.size for tensor in described.tensors) < 7 * MB
    [option] = list_pull_options("qwen2.5-vl-3b", "q4_k_m").options
    assert option.stays == pytest.approx(sum(sizes), rel=0.02)
    for name, recipe in recipes().items():
        assert bool(recipe.config) == (name not in bundled_names())


THINKER = ("estimate", "vr-thinker-7b", "--memory", "16", "--vram", "8")


def test_the_table_of_a_recipe_needs_no_network_and_says_what_the_plan_says(commands: Commands) -> None:
    status, out, err = commands.run(*THINKER[:-1], "24")
    assert (status, err) == (0, "")
    heading, *rows, fetched, pull = out.splitlines()
    assert heading.split("  ")[0] == "QUANT"
    assert [row.split()[0] for row in rows] == list(QUANTS)
    assert all(row.split()[1] == "16.60" and row.endswith("yes") for row in rows)
    assert max(map(len, (heading, *rows))) < 110
    assert fetched.startswith("fetched as a checkpoint and converted here; ")
    assert pull == "vrt-lite pull vr-thinker-7b takes q8_0; to choose one: vrt-lite pull vr-thinker-7b:QUANT"

    table = commands.read(*THINKER)
    assert (table["fits"], table["converted"], table["pull"]) == (True, True, "q8_0")
    memory = MachineMemory(16 * GB, 16 * GB, Gpu("GPU", 8 * GB))
    assert all(told["gpu_bytes"] <= 8 * GB for told in table["quants"])
    told, [option] = table["quants"][0], list_pull_options("vr-thinker-7b", "q8_0").options
    plan = choose_plan(option.shape, default_profile(), Settings(), memory)
    assert told["gpu_bytes"] == plan.estimate.gpu_bytes
    assert (told["bytes"], told["max_pixels"]) == (plan.estimate.cpu_bytes, plan.profile.max_pixels)
    assert told["engine"]["gpu_layers"] == plan.settings.gpu_layers
    alone = commands.read("estimate", "vr-thinker-7b:q6_k", *THINKER[2:])
    assert [effort["effort"] for effort in alone.pop("efforts")] == ["quick", "balanced", "full"]
    assert {**table["quants"][1], "machine": table["machine"]} == alone


def test_one_quant_is_told_by_part(commands: Commands) -> None:
    _, out, err = commands.run("estimate", "vr-thinker-7b:Q4_K_M", "--vram", "6", "--memory", "16")
    assert out.splitlines()[0].split() == ["MEMORY", "FOR", "PROCESSOR", "GPU"]
    assert re.search("^free here .* 6.00 GB$", out, re.MULTILINE)
    assert "keys and values f16, repacked weights off, on the GPU all layers\n" in out
    assert "disk: 16.60 GB fetched, 6.03 GB stay, at most 11.03 GB at once, " in out
    assert err == (
        "To fit the GPU's memory, all layers are on it, without the projector (--gpu-layers N sets how many).\n"
    )


@pytest.mark.parametrize(("memory", "status", "fits"), [("5", 0, ["memory", "yes"]), ("2", 5, ["memory", "memory"])])
def test_what_does_not_fit_is_said(commands: Commands, memory: str, status: int, fits: list[str]) -> None:
    got, out, err = commands.run("estimate", "qwen2.5-vl-3b", "--memory", memory, "--gpu-layers", "0")
    assert (got, err.count("\n")) == (status, bool(status))
    assert not status or "takes none of them" in out
    assert [row.split()[-1] for row in out.splitlines()[1:3]] == fits


def test_a_disk_that_is_too_small_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    """At most 12.6 GB at once for Q6_K, 11.03 GB for Q4_K_M, and some must stay free."""
    memory, offered = MachineMemory(10 * GB, 10 * GB), list_pull_options("vr-thinker-7b")
    found = []
    for option in offered.options[1:]:
        plan = choose_plan(option.shape, offered.profile, Settings(), memory)
        found.append(Estimated(offered.name, 28, plan, "", option))
    found.append(replace(found[0], refusal="It does not fit."))
    show_quants(found, free_disk_bytes=11_700_000_000)
    rows = [line.rpartition("  ")[2] for line in capfd.readouterr().out.splitlines()]
    assert rows == ["FITS", "no: disk", "no: disk", "yes", "yes", "no: memory, disk"]


def test_a_model_that_is_here_is_estimated_on_an_assumed_gpu(commands: Commands) -> None:
    told = commands.read("estimate", "vrt-tiny-0", "--vram", "8", "--gpu-layers", "3")
    assert told["machine"]["gpu"] == {"name": "GPU", "free_bytes": 8 * GB}
    weights = next(term for term in told["terms"] if term["name"] == "weights")
    assert weights["gpu_bytes"] > 0
    shape = read_shape(find("vrt-tiny-0"))
    # The output shares the embedding's weights, and is on the GPU: they are in both places.
    assert weights["gpu_bytes"] + weights["bytes"] == pytest.approx(shape.text_bytes + shape.embedding, abs=4096)


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("vr-thinker-7b", "--projector", "x.gguf"), 2, "--projector is for a model that is here"),
        (("vr-thinker-7b:q9_9",), 4, "vr-thinker-7b is not known as 'q9_9'; choose "),
        (("someone/judge-GGUF",), 4, "Model 'someone/judge-GGUF' is not here."),
        (("qwen2.5-vl-3b:q2_k",), 4, "qwen2.5-vl-3b is not known as 'q2_k'; choose q8_0, q4_k_m."),
        (("./no/folder",), 4, "is not here"),
        (("no/file.gguf",), 4, "Model .no/file.gguf. is not here"),
    ],
)
def test_what_cannot_be_told_is_one_line(commands: Commands, arguments: Sequence[str], status: int, says: str) -> None:
    commands.refuse(says, "estimate", *arguments, status=status)


def test_the_table_of_gpus_is_what_the_command_says() -> None:
    table = vram_table.BLOCK.search(vram_table.PAGE.read_text("utf-8"))
    assert table
    assert table[0] == vram_table.make_table()


def test_models_says_how_each_model_gets_here(commands: Commands, own_home: Path) -> None:
    out = commands.run("models")[1]
    entries = {entry["name"]: entry for entry in commands.read("models")}
    assert list((own_home / "judges").iterdir())  # for the line under a verdict
    assert entries.keys() == recipes().keys()
    seconds = entries["qwen3-vl-2b"]["seconds"]
    assert seconds["most"] == pytest.approx(4 * seconds["least"])
    judge = find("vrt-tiny-0")
    assert (
        entries[judge.name]["memory_bytes"]
        == estimate_memory(read_shape(judge), judge.profile, EngineSettings(gpu_layers=0)).cpu_bytes
    )
    for name, entry in entries.items():
        assert entry["state"] == ("bundled" if name in bundled_names() else "can be pulled")
        assert entry["converted"] == bool(recipes()[name].checkpoint_size)
        if name in bundled_names():
            assert f"vrt-lite pull {name}" not in out
            continue
        [option] = list_pull_options(name, entry["quant"]).options
        assert (entry["disk_bytes"], entry["fetched_bytes"]) == (option.stays, option.fetched)
        fetched, stay = (f"{entry[key] / 1e9:.2f} GB" for key in ("fetched_bytes", "disk_bytes"))
        way = f"as a checkpoint and converted here, {stay} stay" if entry["converted"] else "as GGUF"
        assert f"{name}: vrt-lite pull {name} ({fetched} fetched {way}" in out


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(Hub({})) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def test_what_is_told_before_a_pull_is_so_after_it(hub: Hub, tmp_path: Path, commands: Commands) -> None:
    folder = sharded_checkpoint.make(tmp_path / "judge", shards=3)
    hub.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    told = shape_of(*describe_pair(json.loads(hub.files["config.json"]), text_type="q4_k_m", projector_type="f16"))
    commands.refuse(f"Model '{hub.repository}' is not here", "estimate", hub.repository)
    commands.pull(f"{hub.repository}:q4_k_m")
    assert read_shape(find(hub.repository)) == told
    assert commands.read("estimate", hub.repository)["quant"] is None
    [model] = library.stored_models()
    assert 0 < model.size_bytes - told.text_bytes - told.projector < 100_000  # the headers
