"""Describes the two files that a checkpoint becomes: all but the weights."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from gguf import Metadata, size_label

from vrt_lite.conversion import lora, text_tensors, tokenizer_fields, vision_tensors
from vrt_lite.conversion.checkpoint import Checkpoint
from vrt_lite.conversion.gguf_writer import VERSION, GgufFile, Target, resolve, type_field
from vrt_lite.conversion.projector import quantize_projector
from vrt_lite.conversion.quantization_types import quantize_file
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.profile import PROFILE_NAME


@dataclass(frozen=True)
class PairSource:
    """A checkpoint with its adapter, the name of both files, and metadata that wins over the model card."""

    checkpoint: Checkpoint
    stem: str
    given: Mapping[str, Any]

    def text_file(self, file_type: str) -> GgufFile:
        """Describe the text model as llama.cpp's converter writes it, in a type of FILE_TYPES."""
        return text_file(self.checkpoint, self._path("", file_type), file_type, self.given)

    def quantized_text_file(self, file_type: str, importance: Mapping[str, np.ndarray] | None) -> GgufFile:
        """Describe the text model as llama.cpp's quantiser writes it, in a type of TEXT_TYPES."""
        return quantize_file(self.text_file("f32"), self._path("", file_type), file_type, importance=importance)

    def projector_file(self, file_type: str) -> GgufFile:
        """Describe the projector as llama.cpp's converter writes it, in a type of FILE_TYPES."""
        return vision_file(self.checkpoint, self._path("mmproj-", file_type), file_type, self.given)

    def quantized_projector_file(self, file_type: str) -> GgufFile:
        """Describe the projector in a type of QUANTIZED_PROJECTOR_TYPES, with a width of whole blocks."""
        plain = replace(self.projector_file("f32"), path=self._path("mmproj-", file_type))
        return quantize_projector(plain, file_type)

    def _path(self, start: str, file_type: str) -> Path:
        return Path(f"{start}{self.stem}-{file_type.upper()}.gguf")

    @property
    def profile(self) -> bytes:
        """The checkpoint's own profile, if it has one. Without it the pair would get VR-Thinker's prompts."""
        path = self.checkpoint.folder / PROFILE_NAME
        return path.read_bytes() if path.is_file() else b""

    def check_used(self, files: Sequence[GgufFile]) -> None:
        """Raise ModelError if a part of the adapter is in none of these files."""
        lora.check_used(self.checkpoint, {target.source for file in files for target in file.targets})


def make_source(
    checkpoint: Checkpoint, *, name: str | None, authorship: Mapping[str, str] | None, adapter: Path | None
) -> PairSource:
    """Merge the adapter, if there is one, and name the result.

    The adapter's name becomes part of the name. `authorship` sets fields of gguf.Metadata. Raises ModelError for an
    adapter that does not fit, UsageError for a name that cannot be a file's name.
    """
    stem = name or checkpoint.name
    if adapter:
        checkpoint = lora.adapt(checkpoint, adapter)
        stem = name or f"{stem}-{adapter.resolve().name}"
    if not stem or stem.startswith((".", "-")) or set(stem) & set('/\\:*?"<>|\n\r\t\0'):
        raise UsageError(f"name is {stem!r}, needs to be a plain file name: give another with --name")
    # A merged model is another model, so its file name must differ from the base model's.
    return PairSource(checkpoint, stem, dict(authorship or {}) | ({"name": stem} if name or adapter else {}))


def check_profile(profile: bytes, out: Path) -> None:
    """Raise UsageError if `out` already has another profile than this one."""
    there = out / PROFILE_NAME
    if profile and there.is_file() and there.read_bytes() != profile:
        raise UsageError(f"{there} is another profile than the checkpoint's: give another folder, or remove one")


def text_file(checkpoint: Checkpoint, path: Path, file_type: str, given: Mapping[str, Any]) -> GgufFile:
    """Describe the text model's file; its weights are not read yet."""
    whole, folder = checkpoint.config, checkpoint.folder
    config, tied = text_tensors.config(whole), text_tensors.is_tied(whole)
    elsewhere = (vision_tensors.PREFIX, "lm_head.") if tied else vision_tensors.PREFIX
    tensors = {name: stored for name, stored in checkpoint.tensors.items() if not name.startswith(elsewhere)}
    targets = resolve(text_tensors.placements(config, tied=tied), tensors, folder, file_type)
    before = [*text_tensors.fields(config), type_field(file_type)]
    after = [*tokenizer_fields.fields(folder, config), *text_tensors.vrt_lite_fields(checkpoint)]
    metadata = _metadata(checkpoint, targets, given)
    return GgufFile(path, text_tensors.ARCHITECTURE, ("model", metadata), [*before, VERSION, *after], targets)


def vision_file(checkpoint: Checkpoint, path: Path, file_type: str, given: Mapping[str, Any]) -> GgufFile:
    """Describe the projector's file; its weights are not read yet."""
    config = vision_tensors.config(checkpoint.config)
    tensors = {n: stored for n, stored in checkpoint.tensors.items() if n.startswith(vision_tensors.PREFIX)}
    targets = resolve(vision_tensors.placements(config), tensors, checkpoint.folder, file_type)
    before = [type_field(file_type), *vision_tensors.fields(config, checkpoint.preprocessor)]
    metadata = _metadata(checkpoint, targets, given)
    return GgufFile(path, vision_tensors.ARCHITECTURE, ("mmproj", metadata), [*before, VERSION], targets)


def _metadata(checkpoint: Checkpoint, targets: Sequence[Target], given: Mapping[str, Any]) -> Metadata:
    """Read name, licence, authors and so on from the model card with the package gguf, like llama.cpp."""
    logging.getLogger("gguf").setLevel(logging.CRITICAL)  # it logs its guesses; what matters here is raised
    count, folder = sum(math.prod(target.shape) for target in targets), checkpoint.folder
    try:
        sampling = {k: v for k, v in vars(Metadata.load(None, folder)).items() if k.startswith("sampling_")}
        card, config = Metadata.load_model_card(folder), Metadata.load_hf_parameters(folder)
        guess = cast("Any", Metadata).apply_metadata_heuristic
        metadata: Metadata = guess(Metadata(), card, config, Path(checkpoint.name), count)
    except Exception as error:  # third-party heuristics over text that anyone may have typed
        raise ModelError(f"{folder}: README.md's header or generation_config.json: {error}") from error
    metadata.name = metadata.name or checkpoint.name
    metadata.size_label = metadata.size_label or size_label(count, count, 0, 0)
    return replace(metadata, **sampling, **given)
