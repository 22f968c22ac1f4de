"""Where pulled models lie, and which of them are whole. Standard library only; knows no network and no GGUF.

    HOME/models/<folder>/    text GGUF, projector GGUF, profile.toml, manifest.json: a model that is here
    HOME/partial/<folder>/   the same while it arrives; <sha256>.part is a file that is not whole yet
    HOME/trash/              what was replaced or removed, until it is deleted
    HOME/locks/              one lock a model, for whoever changes it
    HOME/tuning/             what was measured on this machine; see tuning

A model is here only if its manifest is. The manifest is written last into the partial folder, which is then renamed:
a process that dies at any point leaves the old model, none, or the new one, never a half. Links are never followed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import uuid
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from vrt_lite.errors import ModelError

HOME_VARIABLE: Final = "VRT_LITE_HOME"
MANIFEST_NAME: Final = "manifest.json"
_FORMAT = 1
_PLAIN = re.compile(r'[^\x00-\x1f\\/:*?"<>|]+')
Role = Literal["text", "projector", "profile"]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a pulled model; `name` lies directly in the model's folder."""

    name: str
    role: Role
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a pulled model is and where it is from. `verified`: this project checked its verdicts, its recipe says."""

    name: str
    repository: str
    revision: str
    quant: str
    licence: str
    verified: bool
    files: tuple[StoredFile, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """A model that is here: its folder and manifest, and why it is damaged ("" if every file has its size)."""

    folder: Path
    manifest: Manifest
    damage: str

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.manifest.files)

    def path(self, role: Role) -> Path:
        """Where its file of that role lies."""
        return self.folder / next(file.name for file in self.manifest.files if file.role == role)


def home() -> Path:
    """VRT_LITE_HOME, else the user's folder for what can be fetched again."""
    if own := os.environ.get(HOME_VARIABLE):
        return Path(own)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "vrt-lite"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vrt-lite"


def data_home() -> Path:
    """VRT_LITE_HOME, else the user's folder for what cannot be made again for nothing."""
    if os.environ.get(HOME_VARIABLE) or sys.platform == "win32":
        return home()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "vrt-lite"


def model_folder(name: str) -> Path:
    """Where a model of that name is, if it is here."""
    return home() / "models" / _folder_name(name)


def partial_folder(name: str) -> Path:
    """Where a model of that name lies while it arrives."""
    return home() / "partial" / _folder_name(name)


def _folder_name(name: str) -> str:
    return name.replace("/", "--")


def is_plain(name: str) -> bool:
    """A file name that stays inside its folder, on every system."""
    return _PLAIN.fullmatch(name) is not None and name not in (".", "..") and name == name.strip().rstrip(".")


def stored() -> list[Stored]:
    """Every model that is here, by name."""
    try:
        folders = sorted((home() / "models").iterdir())
    except OSError:
        return []
    return [model for model in map(_read, folders) if model]


def find_stored(reference: str) -> Stored | None:
    """The pulled model NAME or NAME:QUANT; None if it is not here. ModelError if another quant is."""
    name, _, quant = reference.partition(":")
    if not name or not is_plain(_folder_name(name)):
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


def begun(name: str) -> int:
    """Bytes that an unfinished pull of that name has left."""
    folder = partial_folder(name)
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) if folder.is_dir() else 0


def unfinished() -> list[str]:
    """Names of the models that a pull has begun and not ended."""
    try:
        return sorted(folder.name.replace("--", "/", 1) for folder in (home() / "partial").iterdir() if folder.is_dir())
    except OSError:
        return []


def _read(folder: Path) -> Stored | None:
    try:
        if folder.is_symlink():
            return None
        table = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
        manifest = _manifest(table)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return Stored(folder, manifest, _damage(folder, manifest))


def _manifest(table: dict[str, Any]) -> Manifest:
    if table.pop("format") != _FORMAT:
        raise ValueError("another format")
    files = tuple(StoredFile(**file) for file in cast("list[dict[str, Any]]", table.pop("files")))
    manifest = Manifest(**table, files=files)
    roles = [file.role for file in files]
    if not all(is_plain(file.name) for file in files) or not {"text", "projector"} <= set(roles):
        raise ValueError("not a model")
    return manifest


def _damage(folder: Path, manifest: Manifest) -> str:
    for file in manifest.files:
        path = folder / file.name
        if path.is_symlink() or not path.is_file():
            return f"{file.name} is missing"
        if (size := path.stat().st_size) != file.size:
            return f"{file.name} has {size} bytes, not {file.size}"
    return ""


def register(manifest: Manifest) -> Path:
    """Make the partial folder, with exactly the manifest's files in it, the model of that name; its folder."""
    partial, final = partial_folder(manifest.name), model_folder(manifest.name)
    wanted = {file.name for file in manifest.files}
    for path in partial.iterdir():
        if path.name not in wanted:
            _delete(path)
    write_whole(partial / MANIFEST_NAME, json.dumps({"format": _FORMAT, **asdict(manifest)}, indent=2).encode())
    final.parent.mkdir(parents=True, exist_ok=True)
    discard(final)
    partial.replace(final)
    return final


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all."""
    beside = path.with_name(f"{path.name}.new")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def discard(folder: Path) -> int:
    """Take a folder away in one step, then delete it, with what earlier ones left; the bytes it held."""
    size = 0
    trash = home() / "trash"
    if os.path.lexists(folder):
        if not folder.is_symlink():
            size = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
        trash.mkdir(parents=True, exist_ok=True)
        folder.replace(trash / uuid.uuid4().hex)
    if trash.is_dir():
        for left in trash.iterdir():
            _delete(left)
    return size


def _delete(path: Path) -> None:
    """A file, a link itself, or a folder; another process may be deleting it as well."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def disk_errors() -> Generator[None]:
    """An error of the file system becomes one line."""
    try:
        yield
    except OSError as error:
        what = error.filename or home()
        raise ModelError(
            f"{what}: {error.strerror or error}. Make it writable, or set {HOME_VARIABLE} to another folder."
        ) from error


@contextlib.contextmanager
def locked(name: str) -> Generator[bool]:
    """Hold the model's lock; another process waits. Yields whether it had to. Freed by the system if we die."""
    folder = home() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _folder_name(name)).open("ab") as file:
        yield _lock(file.fileno())


def _lock(descriptor: int) -> bool:
    """Lock until the file is closed; whether another process held it first."""
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415
        import time  # noqa: PLC0415

        waited = False
        while True:
            try:
                os.lseek(descriptor, 0, os.SEEK_SET)
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
                return waited
            except OSError:
                waited = True
                time.sleep(0.2)
    import fcntl  # noqa: PLC0415

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return True
    return False
