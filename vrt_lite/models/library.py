"""The models that were pulled: where they are, and which of them are complete.

    HOME/models/<folder>/    text GGUF, projector GGUF, profile.toml, manifest.json: a model that is here
    HOME/partial/<folder>/   the same while it arrives; <sha256>.part is a file that is not complete yet. While it is
                             converted: checkpoint/<repository>/, and what the conversion has written so far
    HOME/trash/              what was replaced or removed, until it is deleted
    HOME/locks/              a lock for each model, held while it is changed

A model is here only if its manifest is. The manifest is written last into the partial folder, which is then renamed; if
the process dies between, the next pull renames it.
If a process dies at any point, the old model is here, or none, or the new one, never a part. Links are not followed.
"""

from __future__ import annotations

import os
import shutil
import tomllib
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from vrt_lite.disk import allocated_bytes, home, is_plain_name, write_file
from vrt_lite.errors import ModelError
from vrt_lite.models.gguf import quant_of

MANIFEST_NAME: Final = "manifest.json"
_FORMAT = 1
_MOST_MANIFEST_BYTES = 2**20
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
    """What a pulled model is and where it is from. `verified`: its recipe says that its verdicts were checked.

    Files of one role are the parts of a split GGUF, in order. `revision` is `Listing.commits`. `converted_with` is the
    engine with which the files were made here from the repository's checkpoint, "" if they are the repository's own.
    """

    name: str
    repository: str
    revision: str
    quant: str
    licence: str
    verified: bool
    files: tuple[StoredFile, ...]
    converted_with: str = ""
    format: int = _FORMAT

    @property
    def projector_type(self) -> str:
        """The type of the projector, by its name."""
        return next(quant_of(file.name).lower() for file in self.files if file.role == "projector")


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model that is here: its folder and manifest, and why it is damaged ("" if every file has its size)."""

    folder: Path
    manifest: Manifest
    damage: str

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.manifest.files)

    def path(self, role: Role) -> Path:
        """The path of its file with that role, the first part of a split one."""
        return self.folder / next(file.name for file in self.manifest.files if file.role == role)


def model_folder(name: str) -> Path:
    """Where a model of that name is, if it is here."""
    return home() / "models" / name.replace("/", "--")


def partial_folder(name: str) -> Path:
    """Where a model of that name is while it arrives."""
    return home() / "partial" / name.replace("/", "--")


def stored_models() -> list[StoredModel]:
    """Every model that is here, by name."""
    return [model for model in map(_read, _entries(home() / "models")) if model]


def list_unreadable() -> list[str]:
    """Names of the folders of models whose manifest is missing or cannot be read."""
    return [_name_of(folder) for folder in _entries(home() / "models") if _read(folder) is None]


def find_stored(reference: str) -> StoredModel | None:
    """The pulled model NAME or NAME:QUANT; None if it is not here. ModelError if another quant is."""
    name, _, quant = reference.partition(":")
    if not name or not is_plain_name(model_folder(name).name):
        return None
    model = _read(model_folder(name))
    if model is None or model.manifest.name != name:
        return None
    if quant and quant.upper() != model.manifest.quant.upper():
        raise ModelError(
            f"{name} is here as {model.manifest.quant or 'an unnamed quant'}, not {quant}. "
            f"Use it as --model {name}, or run: vrt-lite pull {name}:{quant}"
        )
    return model


def partial_bytes(name: str) -> int:
    """Bytes on the disk that an unfinished pull of that name has left."""
    # The pull may be at work: os.walk passes over a folder that is gone.
    return sum(allocated_bytes(Path(at, file)) for at, _, files in os.walk(partial_folder(name)) for file in files)


def partial_names() -> list[str]:
    """Names of the models whose pull began and did not end."""
    return [_name_of(folder) for folder in _entries(home() / "partial")]


def _name_of(folder: Path) -> str:
    return folder.name.replace("--", "/", 1)


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*"))


def _read(folder: Path) -> StoredModel | None:
    try:
        path = folder / MANIFEST_NAME
        if folder.is_symlink() or path.stat().st_size > _MOST_MANIFEST_BYTES:
            return None
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    plain = all(is_plain_name(file.name) for file in manifest.files)
    if manifest.format != _FORMAT or not plain or not {"text", "projector"} <= {file.role for file in manifest.files}:
        return None
    return StoredModel(folder, manifest, "; ".join(filter(None, (_damage(folder, file) for file in manifest.files))))


def _damage(folder: Path, file: StoredFile) -> str:
    path = folder / file.name
    if path.is_symlink() or not path.is_file():
        return f"{file.name} is missing"
    size = path.stat().st_size
    return f"{file.name} has {size} bytes, not {file.size}" if size != file.size else ""


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a model's manifest, with which it is here."""
    write_file(folder / MANIFEST_NAME, msgspec.json.format(msgspec.json.encode(manifest)))


def finish_install(name: str) -> None:
    """Install what is in the partial folder if it has its manifest; so an install that was stopped goes on."""
    partial, final = partial_folder(name), model_folder(name)
    arrived = _read(partial)
    if arrived is None or arrived.damage or arrived.manifest.name != name:
        return
    keep_only(partial, {MANIFEST_NAME, *(file.name for file in arrived.manifest.files)})
    final.parent.mkdir(parents=True, exist_ok=True)
    remove_folder(final)
    partial.replace(final)


def reopen_model(name: str) -> None:
    """Make a model that is here one that arrives, so that a pull fetches only what is damaged."""
    remove_folder(partial_folder(name))
    partial_folder(name).parent.mkdir(parents=True, exist_ok=True)
    model_folder(name).replace(partial_folder(name))


def keep_only(folder: Path, names: Collection[str]) -> None:
    """Delete everything in a folder but what has one of these names."""
    for path in folder.iterdir():
        if path.name not in names:
            delete(path)


def remove_folder(folder: Path) -> int:
    """Move a folder away in one step, then delete it and what earlier removals left. Returns its bytes."""
    size, trash = 0, home() / "trash"
    if os.path.lexists(folder):
        size = 0 if folder.is_symlink() else sum(p.lstat().st_size for p in folder.rglob("*") if p.is_file())
        trash.mkdir(parents=True, exist_ok=True)
        folder.replace(trash / uuid.uuid4().hex)
    for path in _entries(trash):
        delete(path)
    return size


def delete(path: Path) -> None:
    """Delete a file, a link itself, or a folder; another process may be deleting it as well."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class RecipeFile:
    """A file of a model at its publisher."""

    path: str
    size: int
    sha256: str


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
    licence: str
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
    files: tuple[RecipeFile, ...] = ()

    @property
    def sums(self) -> dict[str, str]:
        """SHA-256 by file name."""
        return {Path(file.path).name: file.sha256 for file in self.files}


@cache
def recipes() -> dict[str, Recipe]:
    """Every recipe by name."""
    inside = _PACKAGE / "recipes"  # in an installed package; a checkout has them outside of it
    folder = inside if inside.is_dir() else _PACKAGE.parent / "models"
    tables = (tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml")))
    return {table["name"]: msgspec.convert({**table.get("pull", {}), **table}, Recipe) for table in tables}
