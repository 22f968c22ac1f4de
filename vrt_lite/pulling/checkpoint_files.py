"""The files of a published checkpoint: which are taken, and the type to convert them to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from vrt_lite.conversion.checkpoint import INDEX, ONLY_SHARD, read_json
from vrt_lite.conversion.families import FAMILIES
from vrt_lite.conversion.pair_files import describe_pair
from vrt_lite.conversion.type_names import CONVERTER_TYPES, TEXT_TYPES
from vrt_lite.errors import ModelError
from vrt_lite.models.gguf import Gguf
from vrt_lite.models.hub import HubFile, Listing
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
    if (kind := config.values.get("model_type")) not in FAMILIES:
        known = " or ".join(map(repr, FAMILIES))
        raise ModelError(f"{listed.repository} is of architecture {kind!r:.60}; a judge needs {known}.")
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
    candidates = [TextFile(kind, kind.upper(), _weights_of(text)) for kind, (text, _) in pairs.items()]
    room = memory_bytes - _weights_of(pairs[CHOICES[0]][1])
    best = best_quant(candidates, room)
    if best is None:
        raise does_not_fit(repository, candidates[-1], room)
    return best.path


def weigh_pair(repository: str, config: Mapping[str, Any], quant: str, *, projector_type: str) -> int:
    """Return the bytes of a pair's tensors. ModelError if the conversion cannot make this quant."""
    pair = describe_pair(config, text_type=check_type(repository, quant), projector_type=projector_type)
    return sum(map(_weights_of, pair))


def _weights_of(file: Gguf) -> int:
    return sum(tensor.size for tensor in file.tensors)
