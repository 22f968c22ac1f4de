"""What a pull would bring, before it is pulled: each quant of a model, its shape, and the disk that it takes.

The shape follows from config.json: the recipe's copy of it, which needs no network, or that of the repository.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from vrt_lite.conversion.checkpoint import INDEX
from vrt_lite.conversion.pair_files import describe_pair
from vrt_lite.conversion.type_names import CONVERTER_TYPES, PROJECTOR_TYPES, TEXT_TYPES
from vrt_lite.errors import ModelError
from vrt_lite.fitting.memory_estimate import ModelShape, shape_of
from vrt_lite.models.gguf import quant_of
from vrt_lite.models.hub import Listing, list_repository
from vrt_lite.models.library import Recipe, recipes
from vrt_lite.models.quants import choose_quant
from vrt_lite.profile import PROFILE_NAME, Profile, default_profile, load_profile, parse_profile
from vrt_lite.pulling.checkpoint_pull import CHOICES, check_type, find_shards, read_config
from vrt_lite.pulling.gguf_files import SelectedFiles, select_files
from vrt_lite.pulling.pull_source import (
    PROJECTOR_TYPE,
    SMALL_FILES,
    fetch_small_files,
    is_checkpoint,
    list_source,
    parse_reference,
)

QUANTS: Final = (*CHOICES, "q3_k_m")
"""The quants of a checkpoint that are listed; others can be named."""
_KNOWN = (*TEXT_TYPES, *(kind for kind in CONVERTER_TYPES if kind not in TEXT_TYPES))
_SHARD_BYTES = 5_000_000_000
"""The most that a shard has where its publisher has not chosen another size."""
_ANY_MEMORY = 2**62
ShapeAs = Callable[[str, str], ModelShape]
"""Gives a model's shape for the types of its text and projector."""


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes that a pull fetches, that stay when it is done, and the most that it has on the disk at once."""

    fetched: int
    stays: int
    most: int


@dataclass(frozen=True, slots=True)
class PullOption:
    """A quant of a model that is not here."""

    quant: str
    shape: ModelShape
    disk: DiskUse


@dataclass(frozen=True, slots=True)
class PullOptions:
    """A model that is not here: the profile that it would have, and its quants, the largest first.

    `converted` tells whether a checkpoint is fetched and converted, not a GGUF; `preferred` is the quant that its
    recipe names, if it names one.
    """

    name: str
    profile: Profile
    converted: bool
    options: tuple[PullOption, ...]
    preferred: str = ""

    def choose(self, memory_bytes: int) -> str:
        """The quant that a pull takes by itself on a machine with this memory; "" if none fits."""
        if self.preferred:
            return self.preferred
        texts = {o.quant: o.shape.text_bytes for o in self.options if o.quant in CHOICES or not self.converted}
        projector = max(option.shape.projector for option in self.options)
        with contextlib.suppress(ModelError):
            return choose_quant(self.name, texts, projector, memory_bytes=memory_bytes)
        return ""


def list_pull_options(reference: str, quant: str = "", *, projector_type: str | None = None) -> PullOptions:
    """The quants of NAME or owner/repo that can be pulled, or the one that is named. Fetches no weights.

    `projector_type` is that of a checkpoint that is converted, F16 if it is None. A recipe needs no network for the
    quants that it knows. Raises UsageError or ModelError if there is no such model or quant.
    """
    source, projector_type = parse_reference(reference), projector_type or PROJECTOR_TYPE
    known = not quant or quant.lower() in source.quants
    if source.config and (source.checkpoint_size or known):
        profile, preferred = parse_profile(source.profile, f"recipe {source.name}"), recipes()[source.name].quant
        quants = _types(source.repository, quant) or source.quants or QUANTS
        shards = (_SHARD_BYTES,) * (source.checkpoint_size // _SHARD_BYTES)
        shape_as = partial(_shape_of_recipe, json.dumps(source.config))
        options = _convert(shape_as, quants, projector_type, fetched=source.checkpoint_size, shards=shards)
        return PullOptions(source.name, profile, bool(source.checkpoint_size), options, preferred.lower())
    listed = list_source(source)
    try:
        if is_checkpoint(listed):
            return _read_checkpoint(source, listed, quant, projector_type)
        found, config = _select(listed, quant), _config_of(listed)
        shape_as = cache(partial(_shape, config))
        options = tuple(_describe(shape_as, files) for files in found)
    except ModelError as error:
        raise ModelError(f"{listed.repository} cannot be estimated: {error}") from error
    options = tuple(sorted(options, key=lambda option: option.disk.stays, reverse=True))
    return PullOptions(source.name, default_profile(), False, options)


def _read_checkpoint(source: Recipe, listed: Listing, quant: str, projector_type: str) -> PullOptions:
    """What can be made of a repository that holds a checkpoint."""
    quants = _types(listed.repository, quant) or QUANTS
    with TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        fetch_small_files(listed, folder, ("config.json", INDEX, PROFILE_NAME))
        config, shards = read_config(folder), find_shards(source, listed, folder)
        own = folder / PROFILE_NAME
        profile = load_profile(own) if own.is_file() else default_profile()
    sizes = [shard.size for shard in shards.values()]
    fetched = sum(sizes) + sum(file.size for file in listed.files if file.path in SMALL_FILES)
    options = _convert(partial(_shape, config), quants, projector_type, fetched=fetched, shards=sizes)
    return PullOptions(source.name, profile, True, options)


def _types(repository: str, quant: str) -> tuple[str, ...]:
    """The type that a quant names; none for "". Raises ModelError."""
    return (check_type(repository, quant),) if quant else ()


def _convert(
    shape_as: ShapeAs, quants: Sequence[str], projector_type: str, *, fetched: int, shards: Sequence[int]
) -> tuple[PullOption, ...]:
    """What comes of a checkpoint with these sizes of shards; `fetched` is 0 if it is published as GGUF."""
    options: list[PullOption] = []
    for quant in quants:
        shape = shape_as(quant, projector_type)
        stays = shape.text_bytes + shape.projector
        most = stays + max(shards, default=0)  # a shard is deleted once it is converted
        options.append(PullOption(quant, shape, DiskUse(fetched or stays, stays, most)))
    return tuple(options)


def _select(listed: Listing, quant: str) -> list[SelectedFiles]:
    """The files of each quant of a GGUF repository, or of the one that is named. Raises ModelError."""
    quants = {quant_of(file.name) for file in listed.files if file.path.lower().endswith(".gguf")}
    found: list[SelectedFiles] = []
    for name in () if quant else filter(None, quants):
        with contextlib.suppress(ModelError):
            found.append(select_files(listed, quant=name, memory_bytes=_ANY_MEMORY))
    # Raises what is wrong with the repository if nothing was found.
    return found or [select_files(listed, quant=quant, memory_bytes=_ANY_MEMORY)]


def _describe(shape_as: ShapeAs, files: SelectedFiles) -> PullOption:
    """A GGUF pair by its listed quants and sizes."""
    quant, projector = files.quant.lower(), quant_of(files.projector.name).lower()
    projector = projector if projector in ("f32", *PROJECTOR_TYPES) else PROJECTOR_TYPE
    if quant in _KNOWN:
        shape = shape_as(quant, projector)
    else:
        # A mix of types that is not known here: of those that are, the nearest in size is scaled.
        text_bytes = files.size_bytes - files.projector.size
        shapes = [shape_as(kind, projector) for kind in _KNOWN]
        shape = min(shapes, key=lambda shape: abs(shape.text_bytes - text_bytes)).scaled(text_bytes)
    return PullOption(files.quant, shape, DiskUse(files.size_bytes, files.size_bytes, files.size_bytes))


def _shape(config: Mapping[str, Any], text_type: str, projector_type: str) -> ModelShape:
    return shape_of(*describe_pair(config, text_type=text_type, projector_type=projector_type))


@lru_cache(maxsize=256)
def _shape_of_recipe(config: str, text_type: str, projector_type: str) -> ModelShape:
    """The shape by a recipe's config.json. Each list of models asks for some fifty."""
    return _shape(json.loads(config), text_type, projector_type)


def _config_of(listed: Listing) -> Mapping[str, Any]:
    """The config.json of a GGUF repository: its own, a recipe's copy, or that of the model it was made from."""
    names = {file.path for file in listed.files}
    recipe = next((recipe for recipe in recipes().values() if recipe.repository == listed.repository), None)
    if "config.json" not in names and recipe and recipe.config:
        return recipe.config
    if "config.json" not in names and not listed.base_model:
        raise ModelError(
            "it does not say which model its GGUF files were made from, so their memory is known only once they are "
            "pulled."
        )
    holder = listed if "config.json" in names else list_repository(listed.base_model)
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        fetch_small_files(holder, Path(folder), ("config.json",))
        return read_config(Path(folder))
