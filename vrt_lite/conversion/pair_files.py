"""Describes the two files that a checkpoint becomes, in any type: all but the weights.

Bytes are equal to what llama.cpp's convert_hf_to_gguf.py and its quantiser (as shipped in llama-cpp-python 0.3.36)
write: same tensors, order, shapes, types and data, and the same metadata, save these, each on purpose:

- `vrt_lite.tokens_per_second` is added to the text file: the position clock is in the checkpoint and has no GGUF key.
- `vrt_lite.head.weight` is added where a checkpoint has heads (rm_head.weight), and their tokens are user-defined.
- `general.license` and `general.source.url` may be set from the command line.
- `tokenizer.ggml.pre` comes from comparing the split pattern, not from hashing a tokenised test text.
- Only bos, eos and pad ids; the family has no other.
- `lm_head` of a tied checkpoint is not written: no reader of the checkpoint uses it.
- `general.sampling.penalty_repeat`: written only from the gguf release on that reads it; vrt-lite does not.
- Refused here and written there: infinite and NaN weights or such as overflow the type, rope scaling
  (yarn and so on), a vision tower that differs in what llama.cpp has built in.
- Accepted here only: vision tensors under `model.visual.`, as newer trainers save them.
- A projector of QUANTIZED_PROJECTOR_TYPES is padded to whole blocks (`quantization`).
"""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from gguf import GGML_QUANT_VERSION, GGUFValueType, GGUFWriter, Metadata, size_label

from vrt_lite.conversion.checkpoint import ONLY_SHARD, REWARD_TOKENS, Checkpoint
from vrt_lite.conversion.families import Half, add_fields, expected_shapes, list_targets, read_halves
from vrt_lite.conversion.gguf_writer import GgufFile, Type, aligned
from vrt_lite.conversion.quantization import file_type, quantize_projector, quantize_text, storage_type
from vrt_lite.conversion.tokenizer_fields import add_tokenizer
from vrt_lite.conversion.type_names import PLAIN_TYPES
from vrt_lite.conversion.weights import JsonObject, reading
from vrt_lite.models.gguf import HEAD, Gguf, Tensor


def describe_pair(
    config: Mapping[str, Any], *, text_type: str, projector_type: str, with_importance: bool = False
) -> tuple[Gguf, Gguf]:
    """Describe the text model and the projector of a checkpoint from its config.json alone.

    Returns what `read_gguf` would give for the two files that a conversion leads to: tensors, sizes, and the metadata
    that follows from config.json. Vocabulary, names and authorship are left out. Raises ModelError for a config that
    cannot be exported.
    """
    whole = JsonObject("config.json", config)
    with reading(whole.where):
        text, tower = read_halves(whole)
        grey = JsonObject("", dict.fromkeys(("image_mean", "image_std"), [0.5] * 3))
        checkpoint = Checkpoint(Path(), "", whole, grey, dict.fromkeys(expected_shapes(whole), ONLY_SHARD), {})
        described = describe_file(text, text_type, checkpoint, importance={} if with_importance else None)
        return _header(described), _header(describe_file(tower, projector_type, checkpoint))


def describe_file(
    half: Half,
    kind: str,
    checkpoint: Checkpoint,
    *,
    given: Mapping[str, Any] | None = None,
    importance: Mapping[str, np.ndarray] | None = None,
    exported: bool = False,
) -> GgufFile:
    """Describe the text model's file or the projector's, in a type.

    `given` is metadata that wins over the model card; without it there is only what follows from config.json. With
    `exported` q8_0 is what llama.cpp's converter writes, else what its quantiser does.
    """
    is_tower = half.table["architecture"] == "clip"
    # What is quantised is described in F32 before.
    plain = kind if kind in PLAIN_TYPES or (exported and kind == "q8_0") else "f32"
    order = {source: i for i, source in enumerate(checkpoint.tensors)}
    targets = [
        replace(
            target,
            shard=checkpoint.tensors[target.source],
            type=storage_type(target.name, target.shape, Type[plain.upper()]),
            correction=checkpoint.corrections.get(target.source),
        )
        for target in sorted(list_targets(half), key=lambda target: order[target.source])
    ]
    writer = GGUFWriter(None, half.table["architecture"])
    if given is not None:
        writer.add_type("mmproj" if is_tower else "model")
        _read_authorship(checkpoint, sum(math.prod(t.shape) for t in targets), given).set_gguf_meta_model(writer)
    add_fields(half, writer, file_type(plain), checkpoint.preprocessor)
    writer.add_quantization_version(GGML_QUANT_VERSION)
    if given is not None and not is_tower:
        head = checkpoint.head
        # A head's token is in the run of text that has the caption, where control tokens are not recognised.
        add_tokenizer(writer, checkpoint.folder, half.size("vocab_size"), plain=REWARD_TOKENS if head else ())
        # What a profile needs and GGUF does not define. mtmd does not show the projector's metadata.
        if clock := checkpoint.config.section("vision_config").values.get("tokens_per_second"):
            writer.add_float32("vrt_lite.tokens_per_second", float(clock))
        if head:  # the engine knows no such tensor
            writer.add_array(HEAD, head.rows().ravel().tolist())
    file = GgufFile(writer.kv_data[0], targets)
    if plain == kind:
        return file
    return quantize_projector(file, kind) if is_tower else quantize_text(file, kind, importance=importance)


def _header(file: GgufFile) -> Gguf:
    values = {key: len(f.value) if f.type is GGUFValueType.ARRAY else f.value for key, f in file.fields.items()}
    tensors = (Tensor(t.name, t.shape[::-1], t.type, aligned(t.size)) for t in file.targets)
    return Gguf(values, tuple(tensors))


def _read_authorship(checkpoint: Checkpoint, count: int, given: Mapping[str, Any]) -> Metadata:
    """Read name, licence, authors and so on from the model card with the package gguf, like llama.cpp."""
    logging.getLogger("gguf").setLevel(logging.CRITICAL)  # it logs its guesses; what matters here is raised
    what = f"{checkpoint.folder}: README.md's header or generation_config.json"
    read = {"README.md", "config.json", "generation_config.json"}
    # It guesses from the folder's name as well, which in the hub's cache is another one.
    with TemporaryDirectory() as place, reading(what):  # third-party heuristics over any text
        named = Path(place, checkpoint.name)
        shutil.copytree(checkpoint.folder, named, ignore=lambda _, names: {*names} - read)
        metadata = Metadata.load(None, named, total_params=count)
    label = metadata.size_label or size_label(count, count, 0, 0)
    return replace(metadata, **{"name": metadata.name or checkpoint.name, "size_label": label, **given})
