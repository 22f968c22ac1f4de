"""What a pull would bring, before it is pulled: each quant of a model, its shape, and the disk that it takes.

The shape follows from config.json: the recipe's copy of it, which needs no network, or that of the repository.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from vrt_lite.conversion.checkpoint import INDEX
from vrt_lite.conversion.pair_files import describe_pair
from vrt_lite.conversion.type_names import TYPES
from vrt_lite.conversion.weights import read_json
from vrt_lite.errors import ModelError
from vrt_lite.fitting.memory_estimate import ModelShape, shape_of
from vrt_lite.models.gguf import normalise_quant, quant_of
from vrt_lite.models.hub import Listing, list_repository
from vrt_lite.models.library import Recipe
from vrt_lite.models.quants import choose_quant
from vrt_lite.profile import Profile, parse_profile
from vrt_lite.pulling.checkpoint_pull import CHOICES, find_shards
from vrt_lite.pulling.gguf_files import select_files
from vrt_lite.pulling.pull_source import (
    PROJECTOR_TYPE,
    fetch_small_files,
    is_checkpoint,
    list_source,
    parse_reference,
)

QUANTS: Final = (*CHOICES, "q3_k_m")
"""The quants of a checkpoint that are listed; others can be named."""
_SHARD_BYTES = 5_000_000_000
"""The most that a shard has where its publisher has not chosen another size."""
_ANY_MEMORY = 2**62


@dataclass(frozen=True, slots=True)
class PullOption:
    """A quant of a model that is not here, and what a pull takes of the disk.

    In bytes: what it fetches, what stays when it is done, and the most that it has on the disk at once.
    """

    quant: str
    shape: ModelShape
    fetched: int
    stays: int
    most: int


@dataclass(frozen=True, slots=True)
class PullOptions:
    """A model that is not here: the profile that it would have, and its quants, the largest first.

    `converted` tells whether a checkpoint is fetched and converted, not a GGUF.
    """

    name: str
    profile: Profile
    converted: bool
    options: tuple[PullOption, ...]

    def choose(self, memory_bytes: int) -> str:
        """The quant that a pull takes by itself on a machine with this memory; "" if none fits."""
        texts = {o.quant: o.shape.text_bytes for o in self.options if o.quant in CHOICES or not self.converted}
        with contextlib.suppress(ModelError):
            return choose_quant(self.name, texts, self.options[0].shape.projector, memory_bytes=memory_bytes)
        return ""


def list_pull_options(reference: str, quant: str = "") -> PullOptions:
    """The quants of NAME or owner/repo that can be pulled, or the one that is named. Fetches no weights.

    A recipe needs no network. Of a repository, quants of a mixed name such as UD-Q4_K_XL are not known here, and the
    profile is the default. Raises UsageError or ModelError if there is no such model or quant.
    """
    source = parse_reference(reference)
    config, published, fetched = source.config, source.quants, source.checkpoint_size
    shard, listed = min(fetched, _SHARD_BYTES), None if config else list_source(source)
    if listed:
        config, shards = _read_repository(source, listed)
        texts = (file.name for file in listed.files if file.name.endswith(".gguf") and "mmproj" not in file.name)
        names = {quant_of(name).lower() for name in texts}
        published = tuple(kind for kind in TYPES if kind in names)
        fetched, shard = sum(shards), max(shards, default=0)
    if quant and (quant := normalise_quant(quant).lower()) not in (published or TYPES):
        raise ModelError(f"{source.name} is not known as {quant!r}; choose {', '.join(published or TYPES)}.")
    options: list[PullOption] = []
    for kind in [quant] if quant else published or QUANTS:
        shape = _describe_shape(json.dumps(config), kind)
        stays = shape.text_bytes + shape.projector
        if listed and not fetched:
            stays = sum(file.size for file in select_files(listed, quant=kind, memory_bytes=_ANY_MEMORY))
        # A shard is deleted once it is converted.
        options.append(PullOption(kind, shape, fetched or stays, stays, stays + shard))
    profile = parse_profile(source.profile, f"recipe {source.name}")
    return PullOptions(source.name, profile, fetched > 0, tuple(options))


def _read_repository(source: Recipe, listed: Listing) -> tuple[dict[str, Any], list[int]]:
    """The config.json of a repository or of the model it was made from, and the sizes of its shards; of GGUF none."""
    holder = listed
    if all(file.path != "config.json" for file in listed.files):
        if not listed.base_model:
            raise ModelError(
                f"{listed.repository} cannot be estimated before it is pulled: it does not say which model its files "
                "were made from."
            )
        holder = list_repository(listed.base_model)
    with TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        fetch_small_files(holder, folder, ("config.json", INDEX))
        shards = find_shards(source, listed, folder) if is_checkpoint(listed) else {}
        return dict(read_json(folder / "config.json").values), [shard.size for shard in shards.values()]


@lru_cache(maxsize=256)
def _describe_shape(config: str, text_type: str) -> ModelShape:
    """The shape by a config.json. Each list of models asks for some fifty."""
    return shape_of(*describe_pair(json.loads(config), text_type=text_type, projector_type=PROJECTOR_TYPE))
