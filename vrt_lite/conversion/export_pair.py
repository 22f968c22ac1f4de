"""The verb `export`: a checkpoint folder becomes a GGUF pair, both files or none.

Bytes are equal to what llama.cpp's convert_hf_to_gguf.py (as shipped in llama-cpp-python 0.3.36) writes
with `--outtype` and with `--mmproj`: same tensors, order, shapes, types and data, and the same metadata,
save these, each on purpose:

- `vrt_lite.tokens_per_second`, `vrt_lite.vision.min_pixels`, `.max_pixels` are added to the text file:
  the position clock and the pixel bounds are in the checkpoint and have no GGUF key.
- `general.license` and `general.source.url` may be set from the command line.
- `tokenizer_fields.ggml.pre` comes from comparing the split pattern, not from hashing a tokenised test text.
- Only bos, eos and pad ids, and one chat template; the family has no other.
- `lm_head` of a tied checkpoint is not written: no reader of the checkpoint uses it.
- `general.sampling.penalty_repeat`: written only from the gguf release on that reads it; vrt-lite does not.
- Refused here and written there: infinite and NaN weights or such as overflow the type, rope scaling
  (yarn and so on), a vision tower that differs in what llama.cpp has built in.
- Accepted here only: vision tensors under `model.visual.`, as newer trainers save them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gguf import Metadata, size_label

from vrt_lite.conversion import lora, text_tensors, tokenizer_fields, vision_tensors
from vrt_lite.conversion.checkpoint import Checkpoint, read_checkpoint
from vrt_lite.conversion.gguf_writer import VERSION, GgufFile, Target, resolve, type_field, write_gguf
from vrt_lite.conversion.whole_files import FinishedFile, check_space, describe, write_whole_files
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.profile import PROFILE_NAME


def export_pair(
    source: Path,
    out: Path,
    *,
    name: str | None = None,
    text_type: str = "q8_0",
    projector_type: str = "f16",
    authorship: dict[str, str] | None = None,
    folder_name: str | None = None,
    adapter: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[FinishedFile]:
    """Write `out`/NAME-TYPE.gguf and `out`/mmproj-NAME-TYPE.gguf, replacing files of those names.

    A profile.toml beside the checkpoint is copied as well. Without it the pair would get VR-Thinker's prompts.
    `authorship` sets fields of gguf.Metadata, and wins over the model card. `folder_name` is used in place of the name
    of `source`. `adapter` is a PEFT folder to merge; its name becomes part of NAME. `progress` is called with the bytes
    done and the bytes in all.
    Raises ModelError for a checkpoint that cannot be exported, UsageError for an unfit name, a full disk, or another
    model's profile in `out`.
    """
    checkpoint = read_checkpoint(source.resolve(), name=folder_name)
    stem = name or checkpoint.name
    if adapter:
        checkpoint = lora.adapt(checkpoint, adapter)
        stem = name or f"{stem}-{adapter.resolve().name}"
    check_name(stem)
    profile = _profile(checkpoint.folder, out)
    # A merged model is another model, so its file name must differ from the base model's.
    given: dict[str, Any] = dict(authorship or {}) | ({"name": stem} if name or adapter else {})
    files = [
        text_file(checkpoint, out / f"{stem}-{text_type.upper()}.gguf", text_type, given),
        vision_file(checkpoint, out / f"mmproj-{stem}-{projector_type.upper()}.gguf", projector_type, given),
    ]
    lora.check_used(checkpoint, {target.source for file in files for target in file.targets})
    total, done = sum(target.size for file in files for target in file.targets), 0
    check_space(out, total)
    out.mkdir(parents=True, exist_ok=True)

    def advance(size: int) -> None:
        nonlocal done
        done += size
        progress(done, total)

    paths = [file.path for file in files] + [out / PROFILE_NAME] * bool(profile)
    with write_whole_files(paths) as parts:
        for file, part in zip(files, parts, strict=False):
            write_gguf(part, file, advance)
        if profile:
            parts[-1].write_bytes(profile)
    return [describe(path) for path in paths]


def _profile(folder: Path, out: Path) -> bytes:
    """Return the checkpoint's own profile, if it has one. Raises UsageError if `out` already has another profile."""
    own, there = folder / PROFILE_NAME, out / PROFILE_NAME
    profile = own.read_bytes() if own.is_file() else b""
    if profile and there.is_file() and there.read_bytes() != profile:
        raise UsageError(f"{there} is another profile than {own}: export to another folder, or remove one of the two.")
    return profile


def check_name(stem: str) -> None:
    """Raise UsageError for a name that cannot be a file's name."""
    if not stem or stem.startswith((".", "-")) or set(stem) & set('/\\:*?"<>|\n\r\t\0'):
        raise UsageError(f"name is {stem!r}, needs to be a plain file name: give another with --name")


def text_file(checkpoint: Checkpoint, path: Path, file_type: str, given: dict[str, Any]) -> GgufFile:
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


def vision_file(checkpoint: Checkpoint, path: Path, file_type: str, given: dict[str, Any]) -> GgufFile:
    """Describe the projector's file; its weights are not read yet."""
    config = vision_tensors.config(checkpoint.config)
    tensors = {n: stored for n, stored in checkpoint.tensors.items() if n.startswith(vision_tensors.PREFIX)}
    targets = resolve(vision_tensors.placements(config), tensors, checkpoint.folder, file_type)
    before = [type_field(file_type), *vision_tensors.fields(config, checkpoint.preprocessor)]
    metadata = _metadata(checkpoint, targets, given)
    return GgufFile(path, vision_tensors.ARCHITECTURE, ("mmproj", metadata), [*before, VERSION], targets)


def _metadata(checkpoint: Checkpoint, targets: Sequence[Target], given: dict[str, Any]) -> Metadata:
    """Read name, licence, authors and so on from the model card with the package gguf, like llama.cpp."""
    count, folder = sum(math.prod(target.shape) for target in targets), checkpoint.folder
    try:
        sampling = {k: v for k, v in vars(Metadata.load(None, folder)).items() if k.startswith("sampling_")}
        card, config = Metadata.load_model_card(folder), Metadata.load_hf_parameters(folder)
        metadata = Metadata.apply_metadata_heuristic(Metadata(), card, config, Path(checkpoint.name), count)
    except Exception as error:  # third-party heuristics over text that anyone may have typed
        raise ModelError(f"{folder}: README.md's header or generation_config.json: {error}") from error
    metadata.name = metadata.name or checkpoint.name
    metadata.size_label = metadata.size_label or size_label(count, count, 0, 0)
    return replace(metadata, **sampling, **given)
