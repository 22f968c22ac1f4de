"""The models that were pulled: where they are, and which of them are complete.

    HOME/models/<folder>/    text GGUF, projector GGUF, profile.toml, manifest.json: a model that is here
    HOME/partial/<folder>/   the same while it arrives. While it is converted: checkpoint/<commits>/<repository>/, and
                             what the conversion has written so far
    HOME/locks/              a lock for each model, held while it is changed

A model is here only if its manifest is. The manifest is written last into the partial folder, which is then renamed.
It is the first to be deleted. If a process dies at any point, the old model is here, or none, or the new one, never a
part. Links are not followed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from vrt_lite.disk import file_sha256, home, is_plain_name, write_file
from vrt_lite.errors import ModelError
from vrt_lite.interfaces import TimeRange
from vrt_lite.reading import read_json, read_plain

MANIFEST_NAME: Final = "manifest.json"
Role = Literal["text", "projector", "profile"]
_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a pulled model, directly in the model's folder."""

    name: str
    role: Role
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a pulled model is and where it is from. `revision` is `Listing.commits`."""

    name: str
    repository: str
    revision: str
    quant: str
    licence: str
    files: tuple[StoredFile, ...]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model that is here: its folder and manifest."""

    folder: Path
    manifest: Manifest

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.manifest.files)

    @property
    def damage(self) -> str:
        """Why it is damaged, by the sizes of its files; "" if it is not."""
        odd = [file.name for file in self.manifest.files if not is_whole(self.folder / file.name, file.size)]
        return f"{', '.join(odd)} is missing or has another size" if odd else ""

    def path(self, role: Role) -> Path:
        """The path of its file with that role."""
        return next(self.folder / file.name for file in self.manifest.files if file.role == role)


def model_folder(name: str) -> Path:
    """Where a model of that name is, if it is here."""
    return home() / "models" / name.replace("/", "--")


def partial_folder(name: str) -> Path:
    """Where a model of that name is while it arrives."""
    return home() / "partial" / name.replace("/", "--")


def stored_models() -> list[StoredModel]:
    """Every model that is here, by name."""
    return [model for model in map(_read, sorted(model_folder("").glob("*"))) if model]


def find_stored(reference: str) -> StoredModel | None:
    """The pulled model NAME or NAME:QUANT; None if it is not here. ModelError if another quant is."""
    name, _, quant = reference.partition(":")
    model = _read(model_folder(name))
    if not model or model.manifest.name != name:
        return None
    if quant and quant.upper() != model.manifest.quant.upper():
        raise ModelError(
            f"{name} is here as {model.manifest.quant or 'an unnamed quant'}, not {quant}. "
            f"Use it as --model {name}, or run: vrt-lite pull {name}:{quant}"
        )
    return model


def partial_bytes(name: str) -> int:
    """Bytes on the disk that an unfinished pull of that name has left."""
    total = 0
    for at, _, files in os.walk(partial_folder(name)):
        for file in files:
            with contextlib.suppress(OSError):  # the pull may be at work
                status = Path(at, file).lstat()
                # A file that is being converted has holes; Windows does not tell them.
                total += min(status.st_size, 512 * getattr(status, "st_blocks", status.st_size))
    return total


def partial_names() -> list[str]:
    """Names of the models whose pull began and did not end."""
    return [folder.name.replace("--", "/", 1) for folder in sorted(partial_folder("").glob("*"))]


def is_whole(path: Path, size: int, sha256: str = "") -> bool:
    """Whether a regular file, not a link, is there with this size and this digest ("" for any)."""
    has_size = not path.is_symlink() and path.is_file() and path.stat().st_size == size
    return has_size and (not sha256 or file_sha256(path) == sha256)


def describe_file(path: Path, role: Role) -> StoredFile:
    """Describe a file that is whole. Raises OSError."""
    return StoredFile(path.name, role, path.stat().st_size, file_sha256(path))


def _read(folder: Path) -> StoredModel | None:
    """Read the model in a folder; None if it has no manifest of a model."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError):
        manifest = read_json((folder / MANIFEST_NAME).read_bytes(), Manifest)
        plain = all(is_plain_name(each.name) for each in (folder, *manifest.files)) and not folder.is_symlink()
        if plain and {"text", "projector"} <= {file.role for file in manifest.files}:
            return StoredModel(folder, manifest)
    return None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a model's manifest, with which it is here."""
    write_file(folder / MANIFEST_NAME, msgspec.json.format(msgspec.json.encode(manifest)))


def keep_only(folder: Path, names: Collection[str]) -> None:
    """Delete everything in a folder but what has one of these names."""
    for path in folder.iterdir():
        if path.name not in names:
            delete(path)


def keep_files(folder: Path, manifest: Manifest) -> None:
    """Delete everything in a model's folder but its manifest and the files that it names."""
    keep_only(folder, {MANIFEST_NAME, *(file.name for file in manifest.files)})


def remove_folder(folder: Path) -> None:
    """Delete a folder, or a link itself. A model in it is no longer here from the first step on."""
    if not folder.is_symlink():
        (folder / MANIFEST_NAME).unlink(missing_ok=True)
    delete(folder)


def delete(path: Path) -> None:
    """Delete a file, a link itself, or a folder; another process may be deleting it as well."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A model that is known by name.

    `repository` holds its GGUF files ("" for a bundled one). Where nobody publishes them, it holds the checkpoint, of
    about `checkpoint_size` bytes, which a pull converts.
    `config` is what the published config.json says about the model's shape. `quants` are those that are published as
    GGUF, as far as it is known. `published` is the name under which tables of published accuracy have the model.

    Where training left one pickle of weights, `state` is its path there, and `base` the repository of the model that
    was trained, which has the small files.
    """

    name: str
    licence: str = ""
    licence_url: str = ""
    verified: bool = False
    published: str = ""
    repository: str = ""
    revision: str = ""
    quant: str = ""
    checkpoint_size: int = 0
    state: str = ""
    base: str = ""
    profile: str = ""
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    quants: tuple[str, ...] = ()


@cache
def recipes() -> dict[str, Recipe]:
    """Every recipe by name."""
    inside = _PACKAGE / "recipes"  # in an installed package; a checkout has them outside of it
    folder = inside if inside.is_dir() else _PACKAGE.parent / "models"
    tables = (tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml")))
    return {table["name"]: read_plain({**table.get("pull", {}), **table}, Recipe) for table in tables}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """A model that is here, or can be. `memory_bytes` is an estimate, and so are the `seconds` of a judgement.

    That is one order of a pair, or one clip: `answers` says of what, and what it judges.

    Of what is not here, `quant` is the one that a pull takes on this machine, `disk_bytes` is what stays of it, and
    `fetched_bytes` is what the pull fetches: a checkpoint if the model is `converted` here, else the files that stay.
    """

    name: str
    state: str
    quant: str = ""
    disk_bytes: int
    fetched_bytes: int = 0
    memory_bytes: int = 0
    seconds: TimeRange | None = None
    answers: str = ""
    converted: bool = False
    verified: bool = False
    licence: str = ""
    licence_url: str = ""
    repository: str = ""
    revision: str = ""
    folder: str = ""
    note: str = ""
