"""Plans what a writer writes: all about the files except their weights, and the shards that these are in.

A shard is a part of a checkpoint, which need not be there yet, or a GGUF file that is to be quantised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from vrt_lite.conversion import lora
from vrt_lite.conversion.checkpoint import read_checkpoint, read_json, refuse_others
from vrt_lite.conversion.families import expected_shapes
from vrt_lite.conversion.gguf_source import read_gguf_table, read_importance
from vrt_lite.conversion.gguf_writer import GgufFile, seal
from vrt_lite.conversion.pair_files import PairTypes, describe_files
from vrt_lite.conversion.reward_state import STATE, read_base_weights, read_reward_state
from vrt_lite.conversion.shards import StoredTensor, canonical, read_shard
from vrt_lite.conversion.type_names import CONVERTER_TYPES, PROJECTOR_TYPES, TEXT_TYPES
from vrt_lite.disk import file_sha256
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.profile import PROFILE_NAME, read_portable


@dataclass(frozen=True)
class PairPlan:
    """The sealed files, and the shards that they are made of. `profile` is that of the checkpoint, b"" if it has none.

    `origin` tells apart sources that differ in their weights alone.
    """

    files: tuple[GgufFile, ...]
    profile: bytes = b""
    origin: str = ""

    @cached_property
    def digest(self) -> str:
        """A text that only plans which lead to the same bytes share."""
        digest = hashlib.sha256(repr(self).encode())
        for file in self.files:
            digest.update(file.header)
        return digest.hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def shards(self) -> list[str]:
        """The names of the files that have the weights."""
        return sorted({target.shard for file in self.files for target in file.targets})

    def weight_bytes(self, shards: Collection[str]) -> int:
        """Bytes of the tensors that are made of these shards; those of all are the end of a progress bar."""
        return sum(target.size for file in self.files for target in file.targets if target.shard in shards)

    def read_table(self, shard: Path) -> dict[str, StoredTensor]:
        """Read where a shard has its tensors. Raises ModelError if it is not the shard that was planned."""
        read = {".gguf": read_gguf_table, ".pth": read_base_weights}.get(shard.suffix, read_shard)
        table = {canonical(name): stored for name, stored in read(shard).items()}
        wanted = {t.place.source: t.place.shape for file in self.files for t in file.targets if t.shard == shard.name}
        for name, shape in wanted.items():
            if name not in table:
                raise ModelError(f"{shard} has no tensor {name:.80}, which it should have: download again")
            if table[name].shape != shape:
                raise ModelError(f"{shard}: {name} is {table[name].shape}, config.json says {shape}")
        refuse_others(shard, table, wanted)
        return table


def plan_pair(
    folder: Path,
    *,
    text_type: str,
    projector_type: str,
    name: str | None = None,
    authorship: Mapping[str, str] | None = None,
    imatrix: Path | None = None,
    adapter: Path | None = None,
    profile: Path | None = None,
    folder_name: str | None = None,
    exported: bool = False,
    origin: str = "",
) -> PairPlan:
    """Plan the pair that llama.cpp's converter and quantiser make of a checkpoint folder.

    The shards need not be there. `text_type` is one of TEXT_TYPES or CONVERTER_TYPES. `name` is that of both files,
    `folder_name` is used in place of the folder's own. `authorship` sets fields of gguf.Metadata, and wins over the
    model card. `adapter` is a PEFT folder to merge; its name becomes part of the pair's. `profile` is a file to take in
    place of the folder's profile.toml. With `exported` q8_0 is that of the converter. `origin` is as in `PairPlan`.
    Raises ModelError for a checkpoint that cannot be used, UsageError for an unfit name or type.
    """
    if text_type not in (*TEXT_TYPES, *CONVERTER_TYPES) or projector_type not in ("f32", *PROJECTOR_TYPES):
        raise UsageError(f"types are {text_type!r} and {projector_type!r}, needs to be of {', '.join(TEXT_TYPES)}")
    folder = folder.resolve()
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder: give the checkpoint's own, with config.json and shards")
    config, own_name = read_json(folder / "config.json"), folder_name or folder.name
    if not (folder / STATE).is_file():
        shapes = expected_shapes(config)
        checkpoint = read_checkpoint(folder, own_name, config, shapes)
        if adapter:
            checkpoint = replace(checkpoint, corrections=lora.read_adapter(adapter, shapes))
    elif adapter:
        raise UsageError(f"{folder / STATE} has an adapter of its own: leave out --lora")
    else:
        checkpoint = read_reward_state(folder, own_name, config)
    stem = name or (f"{checkpoint.name}-{adapter.resolve().name}" if adapter else checkpoint.name)
    if not stem or stem.startswith((".", "-")) or set(stem) & set('/\\:*?"<>|\n\r\t\0'):
        raise UsageError(f"name is {stem!r}, needs to be a plain file name: give another with --name")
    # A merged model is another model, so its name must differ from the base model's.
    given = dict(authorship or {}) | ({"name": stem} if name or adapter else {})
    types = PairTypes(text_type, projector_type, exported)
    importance = read_importance(imatrix) if imatrix else None
    text, projector = describe_files(checkpoint, types, given=given, importance=importance)
    files = (
        replace(text, name=f"{stem}-{text_type.upper()}.gguf"),
        replace(projector, name=f"mmproj-{stem}-{projector_type.upper()}.gguf"),
    )
    beside = [path for path in (adapter and adapter / lora.WEIGHTS, imatrix) if path]
    own = profile or folder / PROFILE_NAME
    text_of_profile = read_portable(own) if profile or own.is_file() else b""
    return make_plan(files, text_of_profile, repr((origin, [file_sha256(path) for path in beside])))


def make_plan(files: Iterable[GgufFile], profile: bytes = b"", origin: str = "") -> PairPlan:
    """Plan to write files that are described."""
    return PairPlan(tuple(map(seal, files)), profile, origin)
