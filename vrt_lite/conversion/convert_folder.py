"""Converts a checkpoint folder to a pair of GGUF files: describes both, all but the weights, then writes them.

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
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from gguf import GGML_QUANT_VERSION, GGUFValueType, GGUFWriter, Metadata, size_label

from vrt_lite.conversion.checkpoint import ONLY_SHARD, REWARD_TOKENS, Checkpoint, check_tensors, read_checkpoint
from vrt_lite.conversion.families import Half, add_fields, expected_shapes, list_targets, read_halves
from vrt_lite.conversion.gguf_writer import GgufFile, Type, aligned, encoded_blocks, seal
from vrt_lite.conversion.quantization import (
    file_type,
    quantize_projector,
    quantize_text,
    read_importance,
    storage_type,
)
from vrt_lite.conversion.tokenizer_fields import add_tokenizer
from vrt_lite.conversion.type_names import PLAIN_TYPES
from vrt_lite.conversion.weights import JsonObject, StoredTensor, read_weights, reading
from vrt_lite.disk import is_plain_name, locked, write_file
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.models.gguf import HEAD, Gguf, Tensor
from vrt_lite.models.hub import Transfer, Unseen
from vrt_lite.profile import PROFILE_NAME, read_portable

UNFINISHED: Final = ".vrt-unfinished"
"""The end of the name of the folder that holds what is not finished."""


@dataclass(frozen=True)
class PairPlan:
    """The sealed files, and the profile of the checkpoint, b"" if it has none."""

    files: tuple[GgufFile, ...]
    profile: bytes = b""

    @property
    def shards(self) -> dict[str, int]:
        """The files that have the weights, by name, with the bytes of the tensors that are made of each."""
        sizes = Counter[str]()
        for file in self.files:
            for target in file.targets:
                sizes[target.shard] += target.size
        return dict(sorted(sizes.items()))

    def read_table(self, shard: Path) -> dict[str, StoredTensor]:
        """Read where a shard has its tensors. Raises ModelError if it is not the shard that was planned."""
        table = {name: stored for name, stored in read_weights(shard).items() if ".lora_" not in name}
        wanted = {t.source: t.source_shape for file in self.files for t in file.targets if t.shard == shard.name}
        check_tensors(shard, table, wanted)
        for name, shape in wanted.items():
            if table[name].shape != shape:
                raise ModelError(f"{shard}: {name} is {table[name].shape!r:.80}, config.json says {shape}")
        return table

    def begin(self, folder: Path) -> None:
        """Begin the files: each has its header, and its final size."""
        folder.mkdir(parents=True, exist_ok=True)
        for planned in self.files:
            with (folder / planned.name).open("wb") as file:
                file.write(planned.header)
                file.truncate(len(planned.header) + sum(aligned(target.size) for target in planned.targets))

    def write_shard(self, folder: Path, shard: Path, advance: Callable[[int], None]) -> None:
        """Convert a shard. When it returns, all of it is on disk.

        `advance` is called with the bytes of each block. Raises ModelError if the file is not the shard that was
        planned, or has a weight that cannot be stored.
        """
        table = self.read_table(shard)
        for planned in self.files:
            with (folder / planned.name).open("r+b") as file:
                offset = len(planned.header)
                for target in planned.targets:
                    if target.shard == shard.name:
                        file.seek(offset)
                        for block in encoded_blocks(target, table[target.source]):
                            file.write(block.data)
                            advance(block.nbytes)
                    offset += aligned(target.size)
                file.flush()
                os.fsync(file.fileno())


def convert_folder(source: Path, out: Path, *, progress: Transfer | None = None, **options: Any) -> list[Path]:
    """Write the pair of `plan_pair`, which describes the options, to `out`, replacing files of those names.

    A profile.toml beside the checkpoint is copied as well. Without it the pair would get VR-Thinker's prompts. Returns
    what was written. Raises ModelError for a checkpoint that cannot be used, UsageError for a full disk, an unfit name,
    or another model's profile in `out`.
    """
    return write_planned(plan_pair(source, **options), out, source.resolve(), progress or Unseen())


export_pair = partial(convert_folder, exported=True)
"""Converts to the types that llama.cpp's converter knows with the converter's own bytes."""


def plan_pair(
    folder: Path,
    *,
    text_type: str = "q8_0",
    projector_type: str = "f16",
    name: str | None = None,
    authorship: Mapping[str, str] | None = None,
    imatrix: Path | None = None,
    adapter: Path | None = None,
    profile: Path | None = None,
    folder_name: str | None = None,
    exported: bool = False,
) -> PairPlan:
    """Plan the pair that llama.cpp's converter and quantiser make of a checkpoint folder.

    The shards need not be there. `text_type` is one of TYPES. `name` is that of both files, and `folder_name` is used
    in place of the folder's own. `authorship` sets fields of gguf.Metadata, and wins over the model card. `adapter` is
    a PEFT folder to merge; its name becomes part of the pair's. `profile` is a file to take in place of the folder's
    profile.toml. With `exported` q8_0 is that of the converter. Raises ModelError for a checkpoint that cannot be used,
    UsageError for an unfit name.
    """
    folder = folder.resolve()
    own_name = folder_name or folder.name
    stem = name or (f"{own_name}-{adapter.resolve().name}" if adapter else own_name)
    if not is_plain_name(stem) or stem.startswith((".", "-")):
        raise UsageError(f"name is {stem!r}, needs to be a plain file name: give another with --name")
    files = list[GgufFile]()
    with reading(folder):
        checkpoint = read_checkpoint(folder, own_name, adapter)
        importance = read_importance(imatrix) if imatrix else None
        # A merged model is another model, so its name must differ from the base model's.
        given = dict(authorship or {}) | ({"name": stem} if name or adapter else {})
        names = f"{stem}-{text_type.upper()}.gguf", f"mmproj-{stem}-{projector_type.upper()}.gguf"
        for half, kind, file in zip(read_halves(checkpoint.config), (text_type, projector_type), names, strict=True):
            described = describe_file(half, kind, checkpoint, given=given, importance=importance, exported=exported)
            files.append(seal(file, described))
    beside = folder / PROFILE_NAME
    return PairPlan(tuple(files), read_portable(profile or beside) if profile or beside.is_file() else b"")


def write_planned(plan: PairPlan, out: Path, source: Path, progress: Transfer) -> list[Path]:
    """Write the files of a plan whose shards are all in `source`.

    One process at a time writes files of this name; another waits. Raises ModelError for a shard that is not as planned
    or a weight that cannot be stored, UsageError for a full disk, and for another profile in `out`. Then, and after an
    interrupt, nothing is left; a killed run leaves a folder that the next one deletes.
    """
    for shard in plan.shards:
        plan.read_table(source / shard)  # raises for a damaged table before anything is written
    folder, profile = out / f"{plan.files[0].name}{UNFINISHED}", out / PROFILE_NAME
    progress.begin("converting", sum(plan.shards.values()))
    with locked(f"convert-{plan.files[0].name}"):
        try:
            if plan.profile and profile.is_file() and profile.read_bytes() != plan.profile:
                raise UsageError(f"{profile} is another profile than the checkpoint's: give another folder")
            plan.begin(folder)
            for shard in plan.shards:
                plan.write_shard(folder, source / shard, progress.advance)
            written = [(folder / file.name).replace(out / file.name) for file in plan.files]
            if plan.profile:
                write_file(profile, plan.profile)
                written.append(profile)
            return written
        except OSError as error:
            where = f"{error.filename or out}: {error.strerror or error}"
            raise UsageError(f"{where}. Mend this or give another folder, and run again") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)


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
