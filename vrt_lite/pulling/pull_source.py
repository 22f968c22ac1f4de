"""Reads what to pull, and checks what the hub lists for it before any of it is fetched."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Generator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from vrt_lite.conversion.checkpoint import INDEX
from vrt_lite.disk import is_plain_name
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.machine import format_bytes
from vrt_lite.models import bundled_names
from vrt_lite.models.hub import HubFile, Listing, Transfer, download, is_whole, list_repository
from vrt_lite.models.library import Recipe, StoredModel, partial_folder, recipes, remove_folder
from vrt_lite.profile import PROFILE_NAME

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_SHARD = re.compile(r"model[^/]*\.safetensors")
_MOST_SMALL_BYTES = 64 << 20  # a published tokenizer.json has 11 MB
MODEL_FILES: Final = (
    *("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json"),
)
"""What a model shares with the one that it was trained from; where a recipe names a base, these are the base's."""
OWN_FILES: Final = ("model_config.json", "README.md", PROFILE_NAME, INDEX)
SMALL_FILES: Final = (*MODEL_FILES, *OWN_FILES)
"""What is read of a checkpoint beside the shards. Weights in other formats lie in the same repositories."""


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull that has begun: what the hub lists, the model of that name that is here, and what the user asked for."""

    source: Recipe
    listed: Listing
    here: StoredModel | None
    memory_bytes: int
    projector_type: str | None
    progress: Transfer

    @property
    def folder(self) -> Path:
        """Where the model is while it arrives."""
        return partial_folder(self.source.name)


def parse_reference(reference: str) -> Recipe:
    """Read NAME[:quant] or owner/repo[:quant] as a recipe; `quant` is "" for the best that fits.

    UsageError or ModelError, with the known names, if it is neither.
    """
    text = re.sub(r"^(https?://)?(huggingface\.co|hf\.co)/", "", reference.strip())
    name, colon, quant = text.partition(":")
    if colon and not re.fullmatch(r"[\w.-]{1,40}", quant, re.ASCII):
        raise UsageError(f"{reference!r} names no quant after the colon; for example {name}:Q4_K_M.")
    if recipe := recipes().get(name):
        return replace(recipe, quant=quant or recipe.quant)
    if _REPOSITORY.fullmatch(name) and ".." not in name and "--" not in name:
        return Recipe(name, "", repository=name, quant=quant)
    if "/" in name:
        raise UsageError(f"{reference!r} is no owner/repo[:quant] of the hub.")
    known = ", ".join(n for n in recipes() if n not in bundled_names())
    raise ModelError(f"Model {name!r} is not known. Pull one of {known}, or owner/repo[:quant].")


def list_source(source: Recipe) -> Listing:
    """List the repository, and with it the base that the recipe names. ModelError if a path is not safe."""
    listed = list_repository(source.repository, source.revision)
    base = list_repository(source.base) if source.base else None
    for one in filter(None, (listed, base)):
        _check_paths(one)
    return replace(listed, base=base)


def _check_paths(listed: Listing) -> None:
    """Check that every listed path stays inside a folder, and that small files are small. Raises ModelError."""
    for file in listed.files:
        if not all(map(is_plain_name, file.path.split("/"))):
            raise ModelError(
                f"{listed.repository} lists the unsafe file name {file.path!r}; nothing was fetched from it."
            )
        if file.path in SMALL_FILES and file.size > _MOST_SMALL_BYTES:
            raise ModelError(
                f"{listed.repository} lists {file.path} with {format_bytes(file.size)}; at most "
                f"{format_bytes(_MOST_SMALL_BYTES)} are read, so nothing of it was fetched."
            )


def is_checkpoint(listed: Listing) -> bool:
    """Whether a repository holds a checkpoint as safetensors, and no GGUF."""
    paths = {file.path for file in listed.files}
    has_gguf = any(path.lower().endswith(".gguf") for path in paths)
    return "config.json" in paths and any(map(_SHARD.fullmatch, paths)) and not has_gguf


def fetch_small_files(listed: Listing, folder: Path, names: Collection[str] = SMALL_FILES) -> None:
    """Fetch those of these files that are listed and are not in the folder."""
    for file in listed.files:
        if file.path in names and not is_whole(folder / file.path, file.size, file.sha256):
            download(listed, file, folder / file.path, sha256=file.sha256, advance=lambda count: None)


@contextlib.contextmanager
def keep_nothing_refused(name: str) -> Generator[None]:
    """Delete what has arrived of a model that turns out to be none, and say so in the error."""
    try:
        yield
    except (ModelError, UsageError) as error:
        remove_folder(partial_folder(name))
        raise ModelError(f"{name} is refused and nothing of it was kept: {error}") from error


def expected_sha256(source: Recipe, file: HubFile) -> str:
    """Return the digest that a file must have: the recipe's and the hub's, which must be equal if both have one."""
    recipe = source.sums.get(file.name, "")
    if recipe and file.sha256 and recipe != file.sha256:
        raise ModelError(
            f"The hub lists {file.name} with sha256 {file.sha256[:12]}…, but the recipe of {source.name} says "
            f"{recipe[:12]}…: it is not the file that is known. To take it all the same: "
            f"vrt-lite pull {source.repository}"
        )
    if not re.fullmatch("[0-9a-f]{64}", recipe or file.sha256):
        raise ModelError(f"The hub gives no sha256 for {file.path}, so it cannot be checked; nothing was fetched.")
    return recipe or file.sha256


def join_paths(files: Iterable[HubFile]) -> str:
    """Return the first paths, for a message; "nothing" without files."""
    paths = [file.path for file in files]
    return ", ".join(paths[:6] + ["…"] * (len(paths) > 6)) or "nothing"
