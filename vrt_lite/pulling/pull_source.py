"""Reads what to pull, and checks what the hub lists for it before any of it is fetched."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from vrt_lite.conversion.checkpoint import INDEX
from vrt_lite.disk import is_plain_name
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.machine import format_bytes
from vrt_lite.models.hub import Listing, Transfer, check_free_space, download, list_repository
from vrt_lite.models.library import Recipe, partial_bytes, partial_folder, recipes, remove_folder
from vrt_lite.profile import PROFILE_NAME

PROJECTOR_TYPE: Final = "f16"
"""That of a checkpoint that is converted, if no other is asked for."""
SHARE_OF_MEMORY: Final = 0.6
"""The share of a machine's memory that a model's files may have. Context, frames and other programs have the rest."""
_NOT_QUANTISED = ("F16", "BF16", "F32")
_REPOSITORY = re.compile(r"(?!.*(?:--|\.\.))[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
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
    """A pull that has begun: what the user asked for, and what the hub lists. `projector_type` is a checkpoint's."""

    source: Recipe
    listed: Listing
    projector_type: str
    progress: Transfer

    @property
    def folder(self) -> Path:
        """Where the model is while it arrives."""
        return partial_folder(self.source.name)

    def check_room(self, needed_bytes: int) -> None:
        """Raise ModelError if the disk has no room for what is to come of so many bytes."""
        check_free_space(self.folder, needed_bytes - partial_bytes(self.source.name))

    @contextlib.contextmanager
    def keep_nothing_refused(self) -> Generator[None]:
        """Delete what has arrived of a model that turns out to be none, and say so in the error."""
        try:
            yield
        except (ModelError, UsageError) as error:
            remove_folder(self.folder)
            raise ModelError(f"{self.source.name} is refused and nothing of it was kept: {error}") from error


def parse_reference(reference: str) -> Recipe:
    """Read NAME[:quant] or owner/repo[:quant] as a recipe; `quant` is "" for the best that fits.

    ModelError, with the known names, if it is neither.
    """
    text = re.sub(r"^(https?://)?(huggingface\.co|hf\.co)/", "", reference.strip())
    name, _, quant = text.partition(":")
    if recipe := recipes().get(name):
        return replace(recipe, quant=quant)
    if _REPOSITORY.fullmatch(name):
        return Recipe(name, "", repository=name, quant=quant)
    known = ", ".join(name for name, recipe in recipes().items() if recipe.repository)
    raise ModelError(f"Model {name!r} is not known. Pull one of {known}, or owner/repo[:quant] of the hub.")


def list_source(source: Recipe) -> Listing:
    """List the repository, and with it the base that the recipe names. ModelError if it is not safe to fetch."""
    base = _list_checked(source.base) if source.base else None
    return replace(_list_checked(source.repository, source.revision), base=base)


def _list_checked(repository: str, revision: str = "") -> Listing:
    """List a repository: paths stay inside a folder, small files are small, and weights have a digest."""
    listed = list_repository(repository, revision)
    for file in listed.files:
        if not all(map(is_plain_name, file.path.split("/"))):
            raise ModelError(f"{repository} lists the unsafe file name {file.path!r}; nothing was fetched.")
        if file.path in SMALL_FILES and file.size > _MOST_SMALL_BYTES:
            raise ModelError(
                f"{repository} lists {file.path} with {format_bytes(file.size)}; at most "
                f"{format_bytes(_MOST_SMALL_BYTES)} are read, so nothing was fetched."
            )
        if file.path.endswith((".gguf", ".safetensors", ".pth")) and not file.sha256:
            raise ModelError(f"The hub gives no sha256 for {file.path}, so it cannot be checked; nothing was fetched.")
    return listed


def fetch_small_files(listed: Listing, folder: Path, names: Collection[str]) -> None:
    """Fetch those of these files that are listed and are not in the folder."""
    for file in listed.files:
        if file.path in names:
            download(listed, file, folder / file.path, lambda count: None)


def choose_quant(name: str, sizes: Mapping[str, int], *, memory_bytes: int) -> str:
    """The best quant of a model for a machine's memory, by the bytes of both files with each. ModelError if none fits.

    It is the largest that is quantised: above Q8_0 a judge gains nothing that can be measured. One that is not
    quantised is taken if no other fits.
    """
    room = int(memory_bytes * SHARE_OF_MEMORY)
    if fits := [quant for quant in sizes if sizes[quant] <= room]:
        return max(fits, key=lambda quant: (quant not in _NOT_QUANTISED, sizes[quant]))
    least = min(sizes, key=sizes.__getitem__)
    raise ModelError(
        f"No quant of {name} fits: the smallest, {least}, has {format_bytes(sizes[least])}, and {SHARE_OF_MEMORY:.0%} "
        f"of this machine's memory is {format_bytes(room)}. To pull it all the same, name it: {name}:{least}"
    )
