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

from collections.abc import Callable
from pathlib import Path

from vrt_lite.conversion.checkpoint import read_checkpoint
from vrt_lite.conversion.gguf_writer import FILE_TYPES, write_gguf
from vrt_lite.conversion.pair_files import check_profile, make_source
from vrt_lite.conversion.whole_files import FinishedFile, check_space, describe, write_whole_files
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
    made = make_source(checkpoint, name=name, authorship=authorship, adapter=adapter)
    profile = made.profile
    check_profile(profile, out)
    plain = text_type in FILE_TYPES
    text = made.text_file(text_type) if plain else made.quantized_text_file(text_type, None)
    converted = projector_type in FILE_TYPES
    projector = made.projector_file(projector_type) if converted else made.quantized_projector_file(projector_type)
    files = [text, projector]
    made.check_used(files)
    total, done = sum(target.size for file in files for target in file.targets), 0
    check_space(out, total)
    out.mkdir(parents=True, exist_ok=True)

    def advance(size: int) -> None:
        nonlocal done
        done += size
        progress(done, total)

    paths = [out / file.path for file in files] + [out / PROFILE_NAME] * bool(profile)
    with write_whole_files(paths) as parts:
        for file, part in zip(files, parts, strict=False):
            write_gguf(part, file, advance)
        if profile:
            parts[-1].write_bytes(profile)
    return [describe(path) for path in paths]
