"""Plans what a writer writes: all about the files except their weights, and the shards that these are in.

A shard is a part of a checkpoint, which need not be there yet, or a GGUF file that is to be quantised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gguf import GGUF_DEFAULT_ALIGNMENT

from vrt_lite.conversion import lora
from vrt_lite.conversion.checkpoint import read_checkpoint
from vrt_lite.conversion.families import expected_shapes
from vrt_lite.conversion.gguf_writer import GgufFile, Target, header_bytes
from vrt_lite.conversion.importance_matrix import read_importance
from vrt_lite.conversion.pair_files import projector_file, text_file
from vrt_lite.conversion.shards import StoredTensor, canonical, read_shard
from vrt_lite.conversion.type_names import CONVERTER_TYPES, PROJECTOR_TYPES, TEXT_TYPES
from vrt_lite.disk import file_sha256
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.profile import PROFILE_NAME


@dataclass(frozen=True)
class PlannedFile:
    """One file: its name, its header, each tensor with the byte at which it begins, and its size."""

    name: str
    header: bytes
    tensors: tuple[tuple[int, Target], ...]
    size: int


@dataclass(frozen=True)
class PairPlan:
    """The files, and the shards that they are made of: the tensors of each, with their shapes.

    Two plans with one digest lead to the same bytes. `profile` is that of the checkpoint, b"" if it has none.
    """

    files: tuple[PlannedFile, ...]
    shards: Mapping[str, Mapping[str, tuple[int, ...]]]
    profile: bytes
    digest: str

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def weight_bytes(self, shards: Iterable[str]) -> int:
        """Bytes of the tensors that are made of these shards; those of all are the end of a progress bar."""
        names = set(shards)
        tensors = (target for file in self.files for _, target in file.tensors)
        return sum(target.size for target in tensors if target.stored.path.name in names)

    def tensors_from(self, shard: Path) -> list[list[tuple[int, Target]]]:
        """Return the tensors of each file that are made from a shard which is here, and where they begin.

        Raises ModelError if it is not the shard that was planned.
        """
        if shard.name not in self.shards:
            raise ModelError(f"{shard} is none of the shards that are needed: {', '.join(self.shards)}")
        made = [[(at, t) for at, t in file.tensors if t.stored.path.name == shard.name] for file in self.files]
        if all(t.stored.dtype for tensors in made for _, t in tensors):
            return made  # a GGUF, whose table is read
        found = self._read_table(shard)
        return [[(at, replace(t, stored=t.stored.moved_to(found[t.source]))) for at, t in tensors] for tensors in made]

    def _read_table(self, shard: Path) -> dict[str, StoredTensor]:
        """Read a shard's table, by canonical name. Raises ModelError if it is not the shard that was planned."""
        planned = self.shards[shard.name]
        found = {canonical(name): stored for name, stored in read_shard(shard).items()}
        for name, shape in planned.items():
            if name not in found:
                raise ModelError(f"{shard} has no tensor {name:.80}, which the checkpoint has there: download again")
            if shape and found[name].shape != shape:
                raise ModelError(f"{shard}: {name} is {found[name].shape}, config.json says {shape}")
        # A checkpoint without an index may hold the output of a tied model, which no file needs.
        if odd := [name for name in found if name not in planned and not name.startswith("lm_head.")]:
            raise ModelError(f"{shard}: tensor {odd[0]:.80} is none that config.json describes")
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
    exported: bool = False,
    origin: str = "",
) -> PairPlan:
    """Plan the pair that llama.cpp's converter and quantiser make of a checkpoint folder.

    The shards need not be there. `text_type` is one of TEXT_TYPES or
    CONVERTER_TYPES. `name` is that of both files, `folder_name` is used in place of the folder's own. `authorship` sets
    fields of gguf.Metadata, and wins over the model card. `adapter` is a PEFT folder to merge; its name becomes part of
    the pair's. With `exported` q8_0 is that of the converter. `origin` tells apart checkpoints that differ in their
    weights alone: a revision, for example.
    Raises ModelError for a checkpoint that cannot be used, UsageError for an unfit name or type.
    """
    if text_type not in (*TEXT_TYPES, *CONVERTER_TYPES) or projector_type not in ("f32", *PROJECTOR_TYPES):
        raise UsageError(f"types are {text_type!r} and {projector_type!r}, needs to be of {', '.join(TEXT_TYPES)}")
    folder = folder.resolve()
    checkpoint = read_checkpoint(folder, expected_shapes, name=folder_name)
    stem = name or checkpoint.name
    if adapter:
        checkpoint = lora.adapt(checkpoint, adapter)
        stem = name or f"{stem}-{adapter.resolve().name}"
    if not stem or stem.startswith((".", "-")) or set(stem) & set('/\\:*?"<>|\n\r\t\0'):
        raise UsageError(f"name is {stem!r}, needs to be a plain file name: give another with --name")
    # A merged model is another model, so its name must differ from the base model's.
    given = dict(authorship or {}) | ({"name": stem} if name or adapter else {})
    importance = read_importance(imatrix) if imatrix else None
    text = text_file(checkpoint, text_type, given, importance=importance, exported=exported)
    projector = projector_file(checkpoint, projector_type, given, exported=exported)
    files = (
        replace(text, name=f"{stem}-{text_type.upper()}.gguf"),
        replace(projector, name=f"mmproj-{stem}-{projector_type.upper()}.gguf"),
    )
    shards: dict[str, dict[str, tuple[int, ...]]] = {}
    for stored_name, stored in checkpoint.tensors.items():
        shards.setdefault(stored.path.name, {})[stored_name] = stored.shape
    profile = path.read_bytes() if (path := folder / PROFILE_NAME).is_file() else b""
    weights = [file_sha256(adapter / part) for part in (lora.CONFIG, lora.WEIGHTS)] if adapter else []
    return make_plan(files, shards, profile=profile, origin=repr((origin, weights)))


def make_plan(
    files: Sequence[GgufFile],
    shards: Mapping[str, Mapping[str, tuple[int, ...]]],
    *,
    profile: bytes = b"",
    origin: str,
) -> PairPlan:
    """Place each tensor in its file. Of the shards those stay that hold one of them."""
    planned = tuple(map(_place, files))
    needed = {target.stored.path.name for file in files for target in file.targets}
    digest = hashlib.sha256(repr((origin, profile)).encode())
    for file in planned:
        digest.update(file.header)
        for _, target in file.tensors:
            digest.update(repr((target.stored.path.name, target.source, target.part)).encode())
            digest.update(b"" if target.importance is None else target.importance.tobytes())
    return PairPlan(planned, {k: v for k, v in shards.items() if k in needed}, profile, digest.hexdigest())


def _place(file: GgufFile) -> PlannedFile:
    header = header_bytes(file)
    tensors, end = list[tuple[int, Target]](), len(header)
    for target in file.targets:
        tensors.append((end, target))
        end += -(-target.size // GGUF_DEFAULT_ALIGNMENT) * GGUF_DEFAULT_ALIGNMENT
    return PlannedFile(file.name, header, tuple(tensors), end)
