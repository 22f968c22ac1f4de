"""Plans a conversion that goes shard by shard: all about both files except the weights, before a shard is there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUF_DEFAULT_ALIGNMENT

from vrt_lite.conversion import lora
from vrt_lite.conversion.checkpoint import has_all_shards, planned_shards, read_checkpoint, read_documents
from vrt_lite.conversion.gguf_writer import GgufFile, header_bytes
from vrt_lite.conversion.importance_matrix import read_importance
from vrt_lite.conversion.pair_description import expected_tensors
from vrt_lite.conversion.pair_files import make_source
from vrt_lite.conversion.shards import StoredTensor, canonical, read_shard
from vrt_lite.conversion.type_names import CONVERTER_TYPES, PROJECTOR_TYPES, QUANTIZED_PROJECTOR_TYPES, TEXT_TYPES
from vrt_lite.disk import file_sha256
from vrt_lite.errors import ModelError, UsageError

Place = tuple[int, int]
"""A tensor of the pair: the number of its file, and its number in that file."""


@dataclass(frozen=True)
class PlannedFile:
    """One file: its header, the byte at which each tensor begins, and its size."""

    file: GgufFile
    header: bytes
    offsets: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class PairPlan:
    """Both files, and the shards that they are made of: the tensors of each, with their shapes.

    Two plans with one digest lead to the same bytes.
    """

    files: tuple[PlannedFile, ...]
    shards: Mapping[str, Mapping[str, tuple[int, ...]]]
    profile: bytes
    digest: str

    @property
    def size(self) -> int:
        """Bytes of both files."""
        return sum(file.size for file in self.files)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors in both files, the end of a progress bar."""
        return sum(target.size for planned in self.files for target in planned.file.targets)

    def places(self, shard: str) -> list[Place]:
        """Return the tensors of the pair that are made from this shard."""
        return [
            (i, j)
            for i, planned in enumerate(self.files)
            for j, target in enumerate(planned.file.targets)
            if target.stored.path.name == shard
        ]

    def read_shard(self, path: Path) -> dict[str, StoredTensor]:
        """Read a shard's table, by canonical name. Raises ModelError if it is not the shard that was planned."""
        planned = self.shards.get(path.name)
        if planned is None:
            raise ModelError(f"{path} is none of the shards that are needed: {', '.join(self.shards)}")
        found = {canonical(name): stored for name, stored in read_shard(path).items()}
        for name, shape in planned.items():
            if name not in found:
                raise ModelError(f"{path} has no tensor {name:.80}, which the checkpoint has there: download again")
            if shape and found[name].shape != shape:
                raise ModelError(f"{path}: {name} is {found[name].shape}, config.json says {shape}")
        # A checkpoint without an index may hold the output of a tied model, which no file needs.
        if odd := [name for name in found if name not in planned and not name.startswith("lm_head.")]:
            raise ModelError(f"{path}: tensor {odd[0]:.80} is none that config.json describes")
        return found


def plan_pair(
    folder: Path,
    *,
    text_type: str,
    projector_type: str,
    name: str | None = None,
    authorship: Mapping[str, str] | None = None,
    imatrix: Path | None = None,
    adapter: Path | None = None,
    folder_name: str | None = None,
    origin: str = "",
) -> PairPlan:
    """Plan the pair that llama.cpp's converter and quantiser make of a checkpoint folder.

    The shards need not be there; if they are, their tables are checked. `text_type` is one of TEXT_TYPES or FILE_TYPES.
    The other options are those of `export_pair`. `origin` tells apart checkpoints that differ in their weights alone:
    a revision, for example. Raises ModelError and UsageError as `export_pair` does.
    """
    if text_type not in (*TEXT_TYPES, *CONVERTER_TYPES) or projector_type not in ("f32", *PROJECTOR_TYPES):
        raise UsageError(f"types are {text_type!r} and {projector_type!r}, needs to be of {', '.join(TEXT_TYPES)}")
    folder = folder.resolve()
    if has_all_shards(folder):
        checkpoint = read_checkpoint(folder, name=folder_name)
    else:
        checkpoint = read_documents(folder, name=folder_name)
        checkpoint = checkpoint.with_tensors(planned_shards(folder, expected_tensors(checkpoint.config)))
    source = make_source(checkpoint, name=name, authorship=authorship, adapter=adapter)
    importance = read_importance(imatrix) if imatrix else None
    quantized = text_type in TEXT_TYPES
    text = source.quantized_text_file(text_type, importance) if quantized else source.text_file(text_type)
    quantized = projector_type in QUANTIZED_PROJECTOR_TYPES
    projector = source.quantized_projector_file(projector_type) if quantized else source.projector_file(projector_type)
    files = (text, projector)
    source.check_used(files)
    planned = tuple(map(_place, files))
    shards: dict[str, dict[str, tuple[int, ...]]] = {}
    for stored_name, stored in source.checkpoint.tensors.items():
        shards.setdefault(stored.path.name, {})[stored_name] = stored.shape
    needed = {target.stored.path.name for file in files for target in file.targets}
    digest = _digest(planned, importance, adapter, origin.encode(), source.profile)
    return PairPlan(planned, {k: v for k, v in shards.items() if k in needed}, source.profile, digest)


def _place(file: GgufFile) -> PlannedFile:
    header = header_bytes(file)
    offsets, end = list[int](), len(header)
    for target in file.targets:
        offsets.append(end)
        end += -(-target.size // GGUF_DEFAULT_ALIGNMENT) * GGUF_DEFAULT_ALIGNMENT
    return PlannedFile(file, header, tuple(offsets), end)


def _digest(
    files: tuple[PlannedFile, ...], importance: Mapping[str, np.ndarray] | None, adapter: Path | None, *others: bytes
) -> str:
    digest = hashlib.sha256()

    def add(data: bytes) -> None:
        digest.update(len(data).to_bytes(8, "little") + data)

    for planned in files:
        add(planned.header)
        for target in planned.file.targets:
            add(repr((target.stored.path.name, target.source, target.part)).encode())
    for weight, values in sorted((importance or {}).items(), key=lambda entry: entry[0]):
        add(weight.encode() + values.tobytes())
    for name in (lora.CONFIG, lora.WEIGHTS) if adapter else ():
        add(file_sha256(Path(adapter or "") / name).encode())
    for data in others:
        add(data)
    return digest.hexdigest()
