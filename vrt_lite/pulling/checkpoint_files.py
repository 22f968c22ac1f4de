"""The files of a published checkpoint: which are taken, the small ones fetched, and the type to convert them to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from vrt_lite.conversion.checkpoint import INDEX, MAX_TEXT_BYTES, ONLY_SHARD, read_json
from vrt_lite.conversion.pair_files import describe_pair
from vrt_lite.conversion.type_names import CONVERTER_TYPES, TEXT_TYPES
from vrt_lite.errors import ModelError
from vrt_lite.machine import format_bytes
from vrt_lite.models.gguf import Gguf
from vrt_lite.models.hub import HubFile, Listing, Progress, check_free_space, download, is_whole
from vrt_lite.models.quants import TextFile, best_quant
from vrt_lite.profile import PROFILE_NAME
from vrt_lite.pulling.gguf_files import does_not_fit
from vrt_lite.pulling.pull_source import PullSource, expected_sha256

SMALL_FILES: Final = (
    *("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json"),
    *("README.md", PROFILE_NAME, INDEX),
)
"""What the conversion reads beside the shards. Weights in other formats lie in the same repositories."""
PROJECTOR_TYPE: Final = "f16"
CHOICES: Final = ("q8_0", "q6_k", "q5_k_m", "q4_k_m")
"""The types among which a pull chooses by itself, the largest first."""


def list_small_files(listed: Listing) -> list[HubFile]:
    """Return all files that are taken but the shards. ModelError for one that is larger than any that is read."""
    files = [file for file in listed.files if file.path in SMALL_FILES]
    for file in files:
        if file.size > MAX_TEXT_BYTES:
            raise ModelError(
                f"{listed.repository} lists {file.path} with {format_bytes(file.size)}; at most "
                f"{format_bytes(MAX_TEXT_BYTES)} are read, so nothing of it was fetched."
            )
    return files


def fetch_small_files(listed: Listing, files: list[HubFile], folder: Path, progress: Progress) -> None:
    """Fetch those of the files that are not in the folder."""
    missing = [file for file in files if not is_whole(folder / file.path, file.size, file.sha256)]
    check_free_space(folder, sum(file.size for file in missing))
    for file in missing:
        (folder / file.path).unlink(missing_ok=True)
        download(listed, file, folder / file.path, sha256=file.sha256, report=progress.say, advance=lambda _: None)


def find_shards(source: PullSource, listed: Listing, folder: Path) -> dict[str, HubFile]:
    """Return the shards by name: those that the index names, or the only one. ModelError if one is not listed."""
    here = {file.path: file for file in listed.files}
    names = {ONLY_SHARD}
    if (folder / INDEX).is_file():
        values = read_json(folder / INDEX).section("weight_map").values.values()
        names = {name for name in values if isinstance(name, str)}
    elif ONLY_SHARD not in here:
        raise ModelError(f"{listed.repository} lists neither {INDEX} nor {ONLY_SHARD}.")
    if missing := sorted(names - here.keys()):
        raise ModelError(f"{listed.repository} names the shard {missing[0]!r:.80} in its index, but does not list it.")
    for name in names:
        expected_sha256(source, here[name])
    return {name: here[name] for name in names}


def read_config(listed: Listing, folder: Path) -> Mapping[str, Any]:
    """Read config.json. ModelError if it is of another architecture."""
    config = read_json(folder / "config.json")
    if (kind := config.values.get("model_type")) != "qwen2_5_vl":
        raise ModelError(f"{listed.repository} is of architecture {kind!r:.60}; a judge needs 'qwen2_5_vl'.")
    return config.values


def check_type(repository: str, quant: str) -> str:
    """Return the type of a quant that was asked for. ModelError if the conversion cannot make it."""
    types = tuple(dict.fromkeys((*CONVERTER_TYPES, *TEXT_TYPES)))
    if quant.lower() not in types:
        raise ModelError(
            f"{repository} is a checkpoint, which cannot be converted to {quant!r}; choose {', '.join(types)}."
        )
    return quant.lower()


def choose_type(
    repository: str, config: Mapping[str, Any], memory_bytes: int, *, projector_type: str = PROJECTOR_TYPE
) -> str:
    """Return the largest type from Q4_K_M to Q8_0 that fits `memory_bytes`. ModelError if none does."""
    pairs = {kind: describe_pair(config, text_type=kind, projector_type=projector_type) for kind in CHOICES}
    candidates = [TextFile(kind, kind.upper(), _size(text)) for kind, (text, _) in pairs.items()]
    room = memory_bytes - _size(pairs[CHOICES[0]][1])
    best = best_quant(candidates, room)
    if best is None:
        raise does_not_fit(repository, candidates[-1], room)
    return best.path


def _size(file: Gguf) -> int:
    return sum(tensor.size for tensor in file.tensors)
