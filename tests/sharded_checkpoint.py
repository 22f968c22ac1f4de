"""Writes the checkpoint whose verdict is known (tests/convert/answering_checkpoint.py) in BF16, in several shards."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "convert"))

import answering_checkpoint
import synthetic_checkpoint as synthetic

INDEX = "model.safetensors.index.json"


def make(folder: Path, *, shards: int) -> Path:
    """Write the folder, with an index; returns it."""
    answering_checkpoint.make(folder)
    whole = folder / "model.safetensors"
    tensors = synthetic.read_safetensors(whole)
    whole.unlink()
    names = sorted(tensors, key=lambda name: (-tensors[name].size, name))
    weight_map: dict[str, str] = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        group = sorted(names[number::shards])
        words = {name: synthetic.stored(tensors[name], "BF16") for name in group}
        synthetic.write_safetensors(folder / file, words, "BF16")
        weight_map |= dict.fromkeys(group, file)
    synthetic.write_json(folder / INDEX, {"metadata": {}, "weight_map": weight_map})
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# A judge that always gives the same verdict\n", "utf-8")
    return folder
