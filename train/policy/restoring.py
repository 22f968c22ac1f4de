"""Makes a checkpoint of a GGUF pair again, so that training can go on from a judge of which only the pair is kept.

The checkpoint has the values that the pair stores: exported in the same types, it gives the same pair again.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, TokenType
from gguf.quants import dequantize

from train.policy.model import create_folder, new_model, save, write_documents
from train.policy.policy_tokenizer import TOKENIZER_FILE, PolicyTokenizer, write_tokenizer
from train.recipe import TrainingRecipe
from vrt_lite.conversion.checkpoint import Section
from vrt_lite.conversion.families import placements, read_halves
from vrt_lite.conversion.gguf_writer import Placement
from vrt_lite.conversion.shards import canonical
from vrt_lite.errors import ModelError
from vrt_lite.models import find

Tensors = dict[str, torch.Tensor]


def restore(recipe: TrainingRecipe, pair: str, out: Path) -> Path:
    """Write the checkpoint of a GGUF pair (a folder, or a model's name) that has the recipe's shape. Returns `out`.

    Its profile is the recipe's. Raises UsageError for a folder that is not empty, ModelError for a pair that is not
    there, broken, or of another shape.
    """
    files = find(pair)
    return create_folder(out, partial(_write, recipe, files.text, files.projector))


def _write(recipe: TrainingRecipe, text: Path, projector: Path, folder: Path) -> None:
    reader = GGUFReader(text)
    _write_vocabulary(reader, folder / TOKENIZER_FILE)
    write_documents(folder, recipe.profile)
    model = new_model(recipe.model.shape, PolicyTokenizer(folder / TOKENIZER_FILE))
    stored = {
        t.name: torch.tensor(dequantize(t.data, t.tensor_type))
        for t in (*reader.tensors, *GGUFReader(projector).tensors)
    }
    config = Section("config.json", json.loads(model.config.to_json_string()))
    pieces: dict[str, list[Placement]] = {}
    for half in read_halves(config):
        for piece in placements(half):
            pieces.setdefault(piece.source, []).append(piece)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            for piece in pieces[canonical(name)]:
                _fill(weight, piece, stored, text)
    save(model, folder, folder)


def _fill(weight: Any, piece: Placement, stored: Tensors, path: Path) -> None:
    """Copy a stored tensor to its part of a weight."""
    part = weight[piece.part] if piece.part else weight
    found = stored.get(piece.name)
    if found is None or found.shape != part.shape:
        shape = "missing" if found is None else tuple(found.shape)
        raise ModelError(f"{path}: {piece.name} is {shape}, the recipe's shape needs {tuple(part.shape)}.")
    part.copy_(found)


def _write_vocabulary(reader: GGUFReader, path: Path) -> None:
    """Write the tokenizer.json of a text model's file."""
    tokens, types, merges = (
        reader.fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type", "merges")
    )
    vocabulary = {
        token: i for i, (token, kind) in enumerate(zip(tokens, types, strict=True)) if kind == TokenType.NORMAL
    }
    kinds = (TokenType.CONTROL, TokenType.USER_DEFINED)
    added = {token: kind == TokenType.CONTROL for token, kind in zip(tokens, types, strict=True) if kind in kinds}
    write_tokenizer(vocabulary, merges, added, path)
