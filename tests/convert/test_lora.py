"""A merged adapter: what NumPy merges before the export, and nothing but plain LoRA."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_checkpoint as synthetic
from synthetic_checkpoint import FEED_FORWARD, ROWS, VISION_FEED_FORWARD, WIDTH

from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.disk import file_sha256
from vrt_lite.errors import ModelError
from vrt_lite.models import find

RANK = 4
# Module as PEFT names it in an adapter of either generation of transformers, its weight, out and in.
MODULES = (
    ("model.language_model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.q_proj.weight", WIDTH, WIDTH),
    ("model.layers.1.mlp.down_proj", "model.layers.1.mlp.down_proj.weight", WIDTH, FEED_FORWARD),
    ("visual.blocks.2.attn.qkv", "visual.blocks.2.attn.qkv.weight", 3 * WIDTH, WIDTH),
    ("model.visual.blocks.3.mlp.up_proj", "visual.blocks.3.mlp.up_proj.weight", VISION_FEED_FORWARD, WIDTH),
    ("lm_head", "lm_head.weight", ROWS, WIDTH),
    ("model.visual.merger.mlp.0", "visual.merger.mlp.0.weight", 4 * WIDTH, 4 * WIDTH),
)
Halves = dict[str, np.ndarray]


def config(**values: Any) -> dict[str, Any]:
    plain = {"peft_type": "LORA", "r": RANK, "lora_alpha": 8, "target_modules": "all-linear", "bias": "none"}
    return plain | {"use_dora": False, "modules_to_save": None, "rank_pattern": {}, "init_lora_weights": True} | values


def halves(dtype: type = np.float32) -> Halves:
    """Multiples of 1/16: their products and sums are exact in float32, in whatever order they are made."""
    random, found = np.random.default_rng(7), {}
    for module, _, rows, columns in MODULES:
        for half, shape in (("A", (RANK, columns)), ("B", (rows, RANK))):
            values = random.integers(-8, 9, shape).astype(dtype) / dtype(16)
            found[f"base_model.model.{module}.lora_{half}.weight"] = values
    return found


def write_adapter(folder: Path, tensors: Halves, dtype: str = "F32", **values: Any) -> Path:
    folder.mkdir()
    synthetic.write_json(folder / "adapter_config.json", config(**values))
    synthetic.write_safetensors(folder / "adapter_model.safetensors", tensors, dtype)
    return folder


def merge(folder: Path, adapter: Halves, scale: float) -> None:
    """Write the merged weights into a single F32 shard, by NumPy alone."""
    tensors = synthetic.read_safetensors(folder / "model.safetensors")
    for module, weight, *_ in MODULES:
        a, b = (adapter[f"base_model.model.{module}.lora_{half}.weight"].astype(np.float32) for half in "AB")
        tensors[weight] += np.float32(scale) * (b @ a)
    synthetic.write_safetensors(folder / "model.safetensors", tensors, "F32")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora") / "c"
    synthetic.make(folder, dtype="F32", tied=False)
    return folder


@pytest.mark.parametrize(("dtype", "rslora"), [("F32", False), ("F16", True)])
def test_equal_to_exporting_what_numpy_merged(tmp_path: Path, base: Path, dtype: str, rslora: bool) -> None:
    shutil.copytree(base, tmp_path / "merged" / "c")
    adapter = halves(np.float16 if dtype == "F16" else np.float32)
    folder = write_adapter(tmp_path / "judge", adapter, dtype, use_rslora=rslora)
    merge(tmp_path / "merged" / "c", adapter, 8 / (math.sqrt(RANK) if rslora else RANK))
    for kind in ("f32", "q8_0"):
        types = {"text_type": kind, "projector_type": kind, "name": "n"}
        mine = export_pair(base, tmp_path / "mine", adapter=folder, **types)
        want = export_pair(tmp_path / "merged" / "c", tmp_path / "want", **types)
        assert [file_sha256(file) for file in mine] == [file_sha256(file) for file in want]


def test_a_merged_model_has_a_name_of_its_own(tmp_path: Path, base: Path) -> None:
    folder = write_adapter(tmp_path / "judge", halves())
    plain, merged = (export_pair(base, tmp_path / "out", adapter=given) for given in (None, folder))
    assert [file.name for file in merged] == ["c-judge-Q8_0.gguf", "mmproj-c-judge-F16.gguf"]
    assert {file_sha256(file) for file in plain}.isdisjoint(file_sha256(file) for file in merged)
    with pytest.raises(ModelError, match=r"found c-Q8_0\.gguf, c-judge-Q8_0\.gguf"):
        find(tmp_path / "out")


def add(name: str, *shape: int) -> Callable[[Halves], None]:
    return lambda tensors: tensors.update({name: np.zeros(shape, np.float32)})


def add_pair(module: str, rows: int, columns: int) -> Callable[[Halves], None]:
    def change(tensors: Halves) -> None:
        add(f"base_model.model.{module}.lora_A.weight", RANK, columns)(tensors)
        add(f"base_model.model.{module}.lora_B.weight", rows, RANK)(tensors)

    return change


TENSORS: dict[str, tuple[Callable[[Halves], None], str]] = {
    "half a pair": (dict.popitem, r"is \(4, 256\), None of rank 4"),
    "no tensors": (dict.clear, "holds no tensor"),
    "a magnitude vector": (
        add("base_model.model.visual.blocks.2.attn.qkv.lora_magnitude_vector", WIDTH),
        "no half of a plain LoRA",
    ),
    "an embedding": (add("base_model.model.model.embed_tokens.lora_embedding_A", RANK, 320), "no half of a plain LoRA"),
    "a bias": (add("base_model.model.visual.blocks.2.attn.qkv.bias", 3 * WIDTH), "no half of a plain LoRA"),
    "a layer too many": (add_pair("model.layers.9.self_attn.q_proj", WIDTH, WIDTH), r"layers\.9\..*does not have"),
    "one layer twice": (add_pair("model.layers.0.self_attn.q_proj", WIDTH, WIDTH), "has a tensor twice"),
    "another shape": (add_pair("model.layers.1.self_attn.q_proj", WIDTH, 32), r"\(4, 32\).* of \(64, 64\)"),
    "a convolution": (add_pair("visual.patch_embed.proj", WIDTH, 14), r"\(64, 3, 2, 14, 14\)"),
}
VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "another method": ({"peft_type": "IA3"}, "'LORA'; no other"),
    "DoRA": ({"use_dora": True}, "use_dora is True"),
    "trained biases": ({"bias": "lora_only"}, "bias is 'lora_only'"),
    "modules saved whole": ({"modules_to_save": ["lm_head"]}, "modules_to_save is"),
    "ranks by layer": ({"rank_pattern": {"q_proj": 8}}, "rank_pattern is"),
    "a start that changes the base": ({"init_lora_weights": "pissa"}, "'pissa'.*leaves the base model"),
    "no rank": ({"r": None}, "r is None"),
    "another rank": ({"r": 8}, r"is \(4, 64\), \(320, 4\) of rank 8"),
}


@pytest.mark.parametrize("case", [*TENSORS, *VALUES])
def test_refused_by_name_with_nothing_written(tmp_path: Path, base: Path, case: str) -> None:
    tensors = halves()
    change, message = TENSORS.get(case, (lambda _: None, ""))
    change(tensors)
    values, message = VALUES.get(case, ({}, message))
    folder = write_adapter(tmp_path / "judge", tensors, **values)
    with pytest.raises(ModelError, match=message) as caught:
        export_pair(base, tmp_path / "out", adapter=folder)
    assert len(str(caught.value)) < 600
    assert not (tmp_path / "out").exists()


def test_an_output_that_a_tied_model_stores_and_does_not_use(tmp_path: Path, base: Path) -> None:
    shutil.copytree(base, tmp_path / "c")
    values = synthetic.read_json(base / "config.json")
    synthetic.write_json(tmp_path / "c" / "config.json", values | {"tie_word_embeddings": True})
    with pytest.raises(ModelError, match=r"adapts lm_head\.weight, which the checkpoint does not have"):
        export_pair(tmp_path / "c", tmp_path / "out", adapter=write_adapter(tmp_path / "judge", halves()))


def test_folders_that_are_no_adapter(tmp_path: Path, base: Path) -> None:
    folder = write_adapter(tmp_path / "judge", halves())
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        (folder / name).unlink()
        with pytest.raises(ModelError, match=rf"judge/{name} is missing"):
            export_pair(base, tmp_path / "out", adapter=folder)
