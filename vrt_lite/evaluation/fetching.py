"""Fetches a published set from the hub when a user asks for it: its table, and its clips.

A file gets its name once its size and digest are right. An archive is unpacked, and then deleted; a mark beside it
tells which one that was.
"""

from __future__ import annotations

import re
import zipfile
from collections import defaultdict
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final

from vrt_lite.disk import disk_errors, home, is_plain_name, locked
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.evaluation.clips import parts_of
from vrt_lite.evaluation.sets import Layout, Place, find_set_name, layouts_of, locate_set, read_set
from vrt_lite.machine import format_bytes
from vrt_lite.models import hub
from vrt_lite.models.hub import HubFile, Listing, Transfer, UnreachableError, check_free_space, download

_ADDRESS: Final = re.compile(
    r"https?://(?:huggingface\.co|hf\.co)/datasets/([^/]+/[^/]+)/(?:blob|resolve)/([^/]+)/([^?#]+)"
)


def set_folder(name: str) -> Path:
    """Return the folder of a set that is fetched by name, with all of its splits; it may not exist."""
    return home() / "sets" / name


def find_set(labelled: str, *, split: str | None = None, folder: Path | None = None) -> Place:
    """Find a set on this machine: a published one by its name, a folder that has one, or a table of pairs.

    A published set lies in `folder`, or where `fetch_set` puts it. Of a table `folder` has the clips. UsageError, which
    says how to get it, if it is not here.
    """
    name = find_set_name(labelled)
    if name is None:
        return locate_set(Path(labelled), split=split, clips=folder)
    where = folder or set_folder(name)
    if folder is None and not where.is_dir():
        layout = layouts_of(name, split)[0]
        size = f" ({layout.megabytes / 1000:g} GB)" if layout.megabytes else ""
        named = f"{name} --split {split}" if split else name
        fetch = f", or fetch it{size}: vrt-lite eval {named} --pull" if layout.repository else "."
        raise UsageError(f"{name} is not here. Give a copy with --from FOLDER{fetch}")
    return locate_set(where, name=name, split=split)


def fetch_set(layout: Layout, *, progress: Transfer) -> Path:
    """Fetch what is missing of a set; returns its folder. ModelError if that fails.

    If the hub cannot be reached and the table is here, what is here is used. UsageError for a split that is not on it.
    """
    if not layout.repository:
        raise UsageError(
            f"{layout.full_name} is not on the hub. Give a copy of its table as SET, its clips with --from."
        )
    folder = set_folder(layout.name)
    with disk_errors(), locked(f"set-{layout.name}"):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            listed = hub.list_repository(layout.repository, kind="dataset")
        except UnreachableError as error:
            if not any(layout.list_tables(folder)):
                raise
            progress.say(f"{layout.name} is here already; the hub was not asked for the rest: {error}")
            return folder
        files = [file for file in listed.files if any(fnmatchcase(file.path, like) for like in layout.files)]
        if not files:
            raise ModelError(
                f"{listed.repository} has no {' or '.join(layout.files)} any more. Fetch the set yourself and give it "
                f"with --from FOLDER; see {hub.endpoint()}/datasets/{listed.repository}"
            )
        licence = listed.licence or "not stated"
        progress.say(f"{layout.full_name}: {listed.repository} at {listed.revision[:12]}, licence {licence}")
        _fetch_all(listed, files, folder, progress)
        fetch_named_clips(layout, folder, progress=progress)
    return folder


def _fetch_all(listed: Listing, files: list[HubFile], folder: Path, progress: Transfer) -> None:
    """Fetch files of one repository, each to its own path in `folder`, and unpack archives; what is here is kept."""
    missing = [(file, to) for file in files if not _is_here(to := _place(folder, file.path), file)]
    size = sum(file.size for file, _ in missing)
    folder.mkdir(parents=True, exist_ok=True)
    check_free_space(folder, size)
    if missing:
        progress.say(f"fetching {len(missing)} of {len(files)} file(s), {format_bytes(size)}, from {listed.repository}")
    progress.begin("fetching", size)
    for file, to in missing:
        to.parent.mkdir(parents=True, exist_ok=True)
        download(listed, file, to, progress.advance)
        if to.suffix == ".zip":
            progress.say(f"unpacking {to.name}")
            _unpack(to, _mark(to, file))


def _place(folder: Path, path: str) -> Path:
    """Return where to write a repository's file; ModelError for a path that would leave the folder."""
    parts = parts_of(path)
    if isinstance(parts, str) or PurePosixPath(path).is_absolute() or not all(map(is_plain_name, parts)):
        raise ModelError(f"The hub lists {path!r}, which is no path inside a folder; nothing more was fetched.")
    return folder.joinpath(*parts)


def _is_here(to: Path, file: HubFile) -> bool:
    if to.suffix == ".zip":
        return _mark(to, file).exists()
    # A file has its name only once its digest was right.
    return to.is_file() and to.stat().st_size == file.size


def _mark(archive: Path, file: HubFile) -> Path:
    return archive.with_name(f"{archive.name}.{(file.sha256 or str(file.size))[:12]}.unpacked")


def _unpack(archive: Path, mark: Path) -> None:
    """Unpack an archive beside itself, leave the mark, and delete the archive."""
    try:
        with zipfile.ZipFile(archive) as packed:
            for member in packed.infolist():
                _place(archive.parent, member.filename)
            check_free_space(archive.parent, sum(member.file_size for member in packed.infolist()))
            packed.extractall(archive.parent)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise ModelError(f"{archive} cannot be unpacked: {error}. Delete it and pull again.") from error
    mark.touch()
    archive.unlink()


def fetch_named_clips(layout: Layout, folder: Path, *, progress: Transfer) -> None:
    """Fetch the clips that the table names by their address on the hub, as GenAI-Bench does."""
    addressed: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for pair in read_set(locate_set(folder, name=layout.name, split=layout.split)).pairs:
        for found in filter(None, map(_ADDRESS.fullmatch, (pair.a, pair.b))):
            addressed[found[1], found[2]].add(found[3])
    for (repository, revision), paths in sorted(addressed.items()):
        missing = {path for path in paths if not _place(folder / "videos", path).is_file()}
        if missing:
            listed = hub.list_repository(repository, revision, kind="dataset")
            files = [file for file in listed.files if file.path in missing]
            _fetch_all(listed, files, folder / "videos", progress)
            if len(files) < len(missing):
                gone = len(missing) - len(files)
                progress.say(f"{gone} clip(s) are not in {repository} any more; they will count as missing")
