"""A GGUF file as a small JSON value, and the random checkpoints for which the golden file holds one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import gguf
import synthetic_checkpoint
import synthetic_families

VARIANTS: dict[str, dict[str, Any]] = {
    "new-bf16-tied": {"layout": "new", "dtype": "BF16", "shards": 1, "tied": True},
    "old-f32-untied": {"layout": "old", "dtype": "F32", "shards": 3, "tied": False},
    "qwen2-vl": {"family": "qwen2_vl", "dtype": "F32", "tied": False},
    "qwen3-vl": {"family": "qwen3_vl", "dtype": "BF16", "tied": True},
}
TYPES = {
    "new-bf16-tied": ("f32", "f16", "bf16", "q8_0"),
    "old-f32-untied": ("f16", "q8_0"),
    "qwen2-vl": ("f16", "q8_0"),
    "qwen3-vl": ("f32", "f16", "bf16", "q8_0"),
}
FOLDER = "random-checkpoint"  # the folder's name becomes metadata


def make_variant(folder: Path, variant: str) -> None:
    """Write the checkpoint of a variant."""
    settings = VARIANTS[variant]
    (synthetic_families if "family" in settings else synthetic_checkpoint).make(folder, **settings)


def describe(path: Path) -> dict[str, dict[str, str]]:
    """Fields with their types, and tensors, both in file order; data and long arrays as a digest."""
    reader = gguf.GGUFReader(path)
    fields = {}
    for key, field in reader.fields.items():
        if not key.startswith("GGUF."):
            value = field.contents()
            if isinstance(value, list) and len(value) > 8:
                value = f"{len(value)} items {digest(json.dumps(value).encode())}"
            fields[key] = " ".join([*(kind.name for kind in field.types[:2]), json.dumps(value)])
    tensors = {
        t.name: f"{t.tensor_type.name} {'x'.join(str(n) for n in t.shape)} {digest(t.data.tobytes())}"
        for t in reader.tensors
    }
    return {"fields": fields, "tensors": tensors}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
