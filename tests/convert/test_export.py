"""The exported pair: equal to llama.cpp's own, in every type, layout and number of shards."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import pytest
from convert_commands import run_convert
from gguf_description import FOLDER, TYPES, describe, make_variant
from synthetic_checkpoint import make, read_json, write_json

from vrt_lite.conversion.convert_folder import convert_folder, export_pair, plan_pair
from vrt_lite.disk import file_sha256
from vrt_lite.errors import ModelError, UsageError

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = json.loads((ROOT / "tests/golden/reference_gguf.json").read_text("utf-8"))


def export(source: Path, out: Path, text: str = "q8_0", projector: str = "f16") -> tuple[Path, Path]:
    first, second = export_pair(source, out, text_type=text, projector_type=projector)
    return first, second


def fields(path: Path) -> dict[str, Any]:
    return {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()}


@pytest.mark.parametrize(("variant", "kind"), [(v, kind) for v, kinds in TYPES.items() for kind in kinds])
def test_equal_to_llama_cpps_own_converter(tmp_path: Path, variant: str, kind: str) -> None:
    make_variant(tmp_path / FOLDER, variant)
    pair = export(tmp_path / FOLDER, tmp_path / "out", kind, kind)
    for role, path in zip(("text", "projector"), pair, strict=True):
        mine, golden = describe(path), GOLDEN[f"{variant} {kind} {role}"]
        own = [key for key in mine["fields"] if key.startswith("vrt_lite.")]
        for key in own:
            del mine["fields"][key]
        ticks = not variant.startswith("qwen")  # the others have no clock of their own
        assert len(own) == (ticks if role == "text" else 0)
        assert list(mine["tensors"].items()) == list(golden["tensors"].items())
        assert list(mine["fields"].items()) == list(golden["fields"].items())


def test_the_metadata_that_llama_cpp_does_not_write(tmp_path: Path) -> None:
    make(tmp_path / "c")
    card = "---\nlicense: apache-2.0\nmodel_name: Some Judge\n---\n# text"
    (tmp_path / "c" / "README.md").write_text(card, "utf-8")
    write_json(tmp_path / "c" / "generation_config.json", {"temperature": 0.5, "top_k": 7})
    text, projector = (fields(path) for path in export(tmp_path / "c", tmp_path / "out"))
    own = {key: value for key, value in text.items() if key.startswith("vrt_lite.")}
    assert own == {"vrt_lite.tokens_per_second": 2}
    for part in (text, projector):
        assert (part["general.license"], part["general.name"]) == ("apache-2.0", "Some Judge")
        assert (part["general.sampling.temp"], part["general.sampling.top_k"]) == (0.5, 7)


def test_a_tied_output_is_not_stored_even_if_the_checkpoint_does(tmp_path: Path) -> None:
    make(tmp_path / "c", tied=False)
    assert "output.weight" in describe(export(tmp_path / "c", tmp_path / "untied")[0])["tensors"]
    config = read_json(tmp_path / "c" / "config.json")
    write_json(tmp_path / "c" / "config.json", config | {"tie_word_embeddings": True})
    assert "output.weight" not in describe(export(tmp_path / "c", tmp_path / "tied")[0])["tensors"]


def test_the_rope_type_of_a_tower_changes_nothing(tmp_path: Path) -> None:
    """transformers 5.24 writes "axial" there; the engine rotates every tower in one way."""
    make(tmp_path / "c")
    plain = export_pair(tmp_path / "c", tmp_path / "plain")
    config = read_json(tmp_path / "c" / "config.json")
    config["vision_config"]["rope_parameters"] = {"rope_type": "axial", "rope_theta": 10_000.0}
    write_json(tmp_path / "c" / "config.json", config)
    axial = export_pair(tmp_path / "c", tmp_path / "axial")
    assert [file_sha256(file) for file in plain] == [file_sha256(file) for file in axial]


def test_a_profile_goes_with_its_model(tmp_path: Path) -> None:
    source, out = tmp_path / "c", tmp_path / "out"
    make(source)
    (source / "profile.toml").write_text('name = "mine"\n', encoding="utf-8")
    for _ in range(2):  # again over its own
        written = export_pair(source, out)
        assert [file.name for file in written][2:] == ["profile.toml"]
        assert (out / "profile.toml").read_bytes() == (source / "profile.toml").read_bytes()
    (out / "profile.toml").write_text('name = "other"\n', encoding="utf-8")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(UsageError, match="is another profile than"):
        export_pair(source, out, text_type="f16")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_shards_may_come_in_any_order_and_no_other_one(tmp_path: Path) -> None:
    folder, out = tmp_path / "c", tmp_path / "out"
    make(folder, shards=3, tied=False)
    whole = convert_folder(folder, tmp_path / "whole", text_type="q4_k_m", projector_type="q8_0")
    assert [file.name for file in whole] == ["c-Q4_K_M.gguf", "mmproj-c-Q8_0.gguf"]
    plan = plan_pair(folder, text_type="q4_k_m", projector_type="q8_0")
    assert [*plan.shards] == [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    advanced: list[int] = []
    plan.begin(out)
    for shard in reversed([*plan.shards]):
        plan.write_shard(out, folder / shard, advanced.append)
    assert sum(advanced) == sum(plan.shards.values())
    for file in whole:
        assert (out / file.name).read_bytes() == file.read_bytes()
    with pytest.raises(ModelError, match=r"model-00009.* is none that config\.json describes"):
        plan.write_shard(
            out, (folder / next(iter(plan.shards))).rename(folder / "model-00009-of-00003.safetensors"), print
        )


def test_memory_holds_blocks_of_rows_and_no_tensor(tmp_path: Path) -> None:
    make(tmp_path / "warm")
    export(tmp_path / "warm", tmp_path / "out")
    make(tmp_path / "c", rows=1 << 14, width=1024)  # an embedding of 64 MiB in float32
    tracemalloc.start()
    export(tmp_path / "c", tmp_path / "out", "f32")
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    # A few MiB for each of up to 8 threads, and the vocabulary as Python strings.
    assert peak < 48


def test_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "c")
    command = ["export", tmp_path / "c", "--out", tmp_path / "out", "--name", "n", "--projector-type", "q8_0"]
    status, out, err = run_convert(capfd, *command, "--license", "MIT", "--source-url", "https://example.org/c")
    assert (status, err) == (0, "")
    assert [line.split()[2] for line in out.splitlines()] == [
        str(tmp_path / "out" / name) for name in ("n-Q8_0.gguf", "mmproj-n-Q8_0.gguf")
    ]
    found = fields(tmp_path / "out" / "n-Q8_0.gguf")
    assert (found["general.name"], found["general.license"]) == ("n", "MIT")
    assert found["general.source.url"] == "https://example.org/c"
    (tmp_path / "c" / "tokenizer.json").unlink()
    status, out, err = run_convert(capfd, *command)
    assert (status, out, err.count("\n")) == (4, "", 1)
    assert "tokenizer.json is missing" in err
