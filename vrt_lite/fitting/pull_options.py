"""What a pull would bring, before it is pulled: each quant of a model, its shape, and the disk that it takes.

The shape follows from config.json: the recipe's copy of it, which needs no network, or that of the repository.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from vrt_lite.conversion.checkpoint import read_json
from vrt_lite.conversion.gguf_writer import FILE_TYPES
from vrt_lite.conversion.pair_description import describe_pair
from vrt_lite.conversion.quantization_types import TEXT_TYPES
from vrt_lite.errors import ModelError
from vrt_lite.fitting.memory_estimate import ModelShape, shape_of
from vrt_lite.models.hub import Listing, fetch, list_repository
from vrt_lite.models.library import recipes
from vrt_lite.models.quants import SHARE_OF_MEMORY, TextFile, best_quant, normalise_quant, quant_of
from vrt_lite.profile import Profile, default_profile, parse_profile
from vrt_lite.pulling.gguf_files import SelectedFiles, select_files
from vrt_lite.pulling.pull_source import SHARDS, check_paths, is_checkpoint, parse_reference

QUANTS: Final = ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m")
"""The quants of a checkpoint that are listed; others can be named."""
_KNOWN = (*TEXT_TYPES, *(kind for kind in FILE_TYPES if kind not in TEXT_TYPES))
_PROJECTOR_TYPE = "f16"
_SHARD_BYTES = 5_000_000_000
"""The most that a shard has where its publisher has not chosen another size."""
_MOST_CONFIG_BYTES = 2**20
_ANY_MEMORY = 2**62


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

    `converted` tells whether a checkpoint is fetched and converted, not a GGUF.
    """

    name: str
    profile: Profile
    converted: bool
    options: tuple[PullOption, ...]

    def choose(self, memory_bytes: int) -> str:
        """The quant that a pull takes by itself on a machine with this memory; "" if none fits."""
        files = [TextFile(o.quant, normalise_quant(o.quant), o.shape.text_bytes) for o in self.options]
        projector = max(option.shape.projector for option in self.options)
        best = best_quant(files, int(memory_bytes * SHARE_OF_MEMORY) - projector)
        return best.path if best else ""


def list_pull_options(reference: str, quant: str = "") -> PullOptions:
    """The quants of NAME or owner/repo that can be pulled, or the one that is named. Fetches no weights.

    A recipe needs no network. Raises UsageError or ModelError if there is no such model or quant.
    """
    source = parse_reference(reference)
    recipe, quants = source.recipe, (quant.lower(),) if quant else QUANTS
    if recipe and recipe.config:
        if recipe.quants and not quant:
            quants = recipe.quants
        shards = (_SHARD_BYTES,) * (recipe.checkpoint_size // _SHARD_BYTES)
        profile = parse_profile(recipe.profile, f"recipe {recipe.name}")
        options = _convert(recipe.config, quants, fetched=recipe.checkpoint_size, shards=shards)
        return PullOptions(source.name, profile, bool(recipe.checkpoint_size), options)
    listed = list_repository(source.repository, source.revision)
    check_paths(listed)
    if is_checkpoint(listed):
        sizes = [file.size for file in listed.files if fnmatchcase(file.path, SHARDS)]
        with _naming(listed):
            options = _convert(_fetch_config(listed), quants, fetched=sum(sizes), shards=sizes)
        return PullOptions(source.name, default_profile(), True, options)
    selected = _select(listed, quant)
    with _naming(listed):
        config = _config_of(listed)
        described = [_describe(config, files) for files in selected]
    options = tuple(sorted(described, key=lambda option: option.disk.stays, reverse=True))
    return PullOptions(source.name, default_profile(), False, options)


def _convert(
    config: Mapping[str, Any], quants: Iterable[str], *, fetched: int, shards: Sequence[int]
) -> tuple[PullOption, ...]:
    """What comes of a checkpoint with these sizes of shards; `fetched` is 0 if it is published as GGUF."""
    options: list[PullOption] = []
    for quant in quants:
        if quant not in _KNOWN:
            raise ModelError(f"There is no quant {quant!r}; choose one of {', '.join(_KNOWN)}.")
        shape = _shape(config, quant, _PROJECTOR_TYPE)
        stays = shape.text_bytes + shape.projector
        # Two shards are on the disk at once: one is converted while the next arrives.
        options.append(PullOption(quant, shape, DiskUse(fetched or stays, stays, stays + sum(sorted(shards)[-2:]))))
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


def _describe(config: Mapping[str, Any], files: SelectedFiles) -> PullOption:
    """A GGUF pair by its listed quants and sizes."""
    quant, projector = files.quant.lower(), quant_of(files.projector.name).lower()
    projector = projector if projector in FILE_TYPES else _PROJECTOR_TYPE
    if quant in _KNOWN:
        shape = _shape(config, quant, projector)
    else:
        # A mix of types that is not known here: of those that are, the nearest in size is scaled.
        text_bytes = files.size_bytes - files.projector.size
        shapes = [_shape(config, kind, projector) for kind in _KNOWN]
        shape = min(shapes, key=lambda shape: abs(shape.text_bytes - text_bytes)).scaled(text_bytes)
    return PullOption(files.quant, shape, DiskUse(files.size_bytes, files.size_bytes, files.size_bytes))


def _shape(config: Mapping[str, Any], text_type: str, projector_type: str) -> ModelShape:
    return shape_of(*describe_pair(config, text_type=text_type, projector_type=projector_type))


def _config_of(listed: Listing) -> Mapping[str, Any]:
    """The config.json of a GGUF repository: its own, that of the model it was made from, or a recipe's copy."""
    if any(file.path == "config.json" for file in listed.files):
        return _fetch_config(listed)
    for recipe in recipes().values():
        if recipe.repository == listed.repository and recipe.config:
            return recipe.config
    if listed.base_model:
        return _fetch_config(list_repository(listed.base_model))
    raise ModelError("it does not say which model it was made from, so its memory is known only once it is pulled.")


def _fetch_config(listed: Listing) -> Mapping[str, Any]:
    """Fetch a repository's config.json. Raises ModelError."""
    file = next((file for file in listed.files if file.path == "config.json"), None)
    if file is None or not 0 < file.size <= _MOST_CONFIG_BYTES:
        raise ModelError(f"{listed.repository} has no config.json of at most {_MOST_CONFIG_BYTES} bytes.")
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / file.path
        fetch(listed, file, path, advance=lambda _: None)
        return read_json(path).values


@contextlib.contextmanager
def _naming(listed: Listing) -> Generator[None]:
    """Name the repository in an error about its config.json."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{listed.repository} cannot be estimated: {error}") from error
