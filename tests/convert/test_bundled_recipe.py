"""The bundled pair is what its recipe says, byte for byte."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import gguf
import pytest

from vrt_lite.models import find

ROOT = Path(__file__).resolve().parents[2]
RECIPES = {path.stem: tomllib.loads(path.read_text("utf-8")) for path in (ROOT / "models").glob("*.toml")}
BUNDLED = [
    file for recipe in RECIPES.values() for file in recipe["files"] if file["path"].startswith("vrt_lite/bundled/")
]


@pytest.mark.parametrize("file", BUNDLED, ids=lambda file: Path(file["path"]).name)
def test_size_checksum_and_type(file: dict[str, Any]) -> None:
    path = ROOT / file["path"]
    assert path.stat().st_size == file["size"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == file["sha256"]
    fields = gguf.GGUFReader(path).fields
    assert fields["general.architecture"].contents() == {"text": "qwen2vl", "projector": "clip"}[file["role"]]
    kind = gguf.LlamaFileType(fields["general.file_type"].contents()).name
    assert kind == f"MOSTLY_{file['type'].upper()}"


def test_every_bundled_gguf_has_a_recipe_and_the_default_judge_is_small() -> None:
    files = sorted((ROOT / "vrt_lite" / "bundled").rglob("*.gguf"))
    assert files == sorted(ROOT / file["path"] for file in BUNDLED)
    default = find()
    assert default.text.stat().st_size + default.projector.stat().st_size <= 12_000_000
    assert sum(path.stat().st_size for path in files) <= 17_000_000


def test_every_recipe_has_its_row_and_its_checksums() -> None:
    table = (ROOT / "models" / "README.md").read_text("utf-8")
    for name, recipe in RECIPES.items():
        assert recipe["name"] == name
        assert f"[{name}]({name}.toml)" in table
        assert recipe["licence"]
        if "source" not in recipe:
            continue  # not converted here: a place to pull from, no checksums of ours
        sums = recipe["source"]["sha256"]
        assert {"config.json", "tokenizer.json"} < sums.keys()
        assert any(shard.endswith(".safetensors") for shard in sums)
        assert all(len(sum_) == 64 for sum_ in sums.values())
