"""Brings a published set from the hub: its table, and its clips. Only when asked to; resumed, checked, never half.

Files arrive as `<name>.part` and get their name once their size and digest are right; an archive is unpacked the same
way, member by member, and then deleted. Knows what to fetch; refuses to know how the hub is spoken to (`models.hub`).
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final

from vrt_lite.errors import ModelError, UsageError
from vrt_lite.evaluation.clips import parts_of
from vrt_lite.evaluation.layouts import LabelledPair, Layout, pair_of
from vrt_lite.evaluation.tables import rows
from vrt_lite.models import hub, store
from vrt_lite.models.files import sha256
from vrt_lite.models.hub import HubFile, Listing, UnreachableError

Say = Callable[[str], None]
_ADDRESS: Final = re.compile(
    r"https?://(?:huggingface\.co|hf\.co)/datasets/([^/]+/[^/]+)/(?:blob|resolve)/([^/]+)/([^?#]+)"
)
_SPARE_BYTES = 256 * 2**20


def set_folder(name: str) -> Path:
    """Where a set that was fetched by name lies, all of its splits; it need not be there."""
    return store.home() / "sets" / name


def bring(layout: Layout, *, say: Say) -> Path:
    """The folder of a set, brought here or completed; `say` gets a line a stage. ModelError if it cannot be had.

    If the hub cannot be reached and the table is here, what is here is used. UsageError for a split that is not on it.
    """
    if not layout.repository:
        raise UsageError(f"{layout.called} is not on the hub. Give a copy of its table as SET, its clips with --from.")
    folder = set_folder(layout.name)
    with store.disk_errors(), store.locked(f"set-{layout.name}"):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            listed = hub.listing(layout.repository, kind="dataset")
        except UnreachableError as error:
            if not any(table for pattern in layout.tables for table in folder.glob(pattern)):
                raise
            say(f"{layout.name} is here already; the hub was not asked for the rest: {error}")
            return folder
        wanted = [file for file in listed.files if any(fnmatchcase(file.path, like) for like in layout.files)]
        if not wanted:
            raise ModelError(
                f"{listed.repository} has no {' or '.join(layout.files)} any more. Fetch the set yourself and give it "
                f"with --from FOLDER; see {hub.endpoint()}/datasets/{listed.repository}"
            )
        say(f"{layout.called}: {listed.repository} at {listed.revision[:12]}, licence {listed.licence or 'not stated'}")
        _bring_all(listed, wanted, folder, say)
        for archive in wanted:
            if archive.name.endswith(".zip") and not _is_unpacked(folder / archive.name, archive):
                _unpack(folder / archive.name, archive, say)
        bring_addressed(layout, folder, say=say)
    return folder


def _bring_all(listed: Listing, wanted: list[HubFile], folder: Path, say: Say) -> None:
    """Files of one repository, each under its own path in `folder`; what is here is not asked for again."""
    missing = [(file, to) for file in wanted if (to := _place(folder, file.path)) and not _is_here(to, file)]
    folder.mkdir(parents=True, exist_ok=True)
    size = sum(file.size for file, _ in missing)
    if size + _SPARE_BYTES > shutil.disk_usage(folder).free:
        raise ModelError(
            f"{size / 1e9:.2f} GB are still to come and {folder} has {shutil.disk_usage(folder).free / 1e9:.2f} GB "
            f"free. Free some, or set {store.HOME_VARIABLE} to another disk."
        )
    if missing:
        say(f"fetching {len(missing)} of {len(wanted)} file(s), {size / 1e6:.1f} MB, from {listed.repository}")
    for number, (file, to) in enumerate(missing, start=1):
        _bring_one(listed, file, to)
        if number % 100 == 0 or file.size > 1e8:
            say(f"{number} of {len(missing)}: {file.path}")


def _bring_one(listed: Listing, file: HubFile, to: Path) -> None:
    """One file, whole and with its digest; twice at most."""
    part = to.with_name(f"{to.name}.part")
    to.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(2):
        if part.is_symlink() or (part.is_file() and part.stat().st_size > file.size):
            part.unlink()
        hub.fetch(listed, file, part)
        if part.stat().st_size == file.size and (not file.sha256 or sha256(part) == file.sha256):
            part.replace(to)
            return
        part.unlink()
    raise ModelError(f"{file.path} of {listed.repository} arrived damaged twice; it was deleted. Pull again later.")


def _place(folder: Path, path: str) -> Path:
    """Where a repository's file goes; ModelError for a path that would leave the folder."""
    parts = parts_of(path)
    plain = isinstance(parts, tuple) and not PurePosixPath(path).is_absolute() and all(map(store.is_plain, parts))
    if not plain:
        raise ModelError(f"The hub lists {path!r}, which is no path inside a folder; nothing more was fetched.")
    return folder.joinpath(*parts)


def _is_here(to: Path, file: HubFile) -> bool:
    # A file has its name only once its digest was right.
    return (to.is_file() and to.stat().st_size == file.size) or (to.suffix == ".zip" and _is_unpacked(to, file))


def _is_unpacked(archive: Path, file: HubFile) -> bool:
    try:
        return json.loads(_mark(archive).read_text(encoding="utf-8")) == [file.size, file.sha256]
    except (OSError, ValueError):
        return False


def _mark(archive: Path) -> Path:
    return archive.with_name(f"{archive.name}.unpacked.json")


def _unpack(archive: Path, file: HubFile, say: Say) -> None:
    """All members of an archive beside it, those that are there already passed over; then the archive is deleted."""
    say(f"unpacking {archive.name}")
    try:
        with zipfile.ZipFile(archive) as packed:
            members = [member for member in packed.infolist() if not member.is_dir()]
            places = [(member, _place(archive.parent, member.filename)) for member in members]
            missing = [(m, to) for m, to in places if not (to.is_file() and to.stat().st_size == m.file_size)]
            if sum(member.file_size for member, _ in missing) + _SPARE_BYTES > shutil.disk_usage(archive.parent).free:
                raise ModelError(f"There is no room in {archive.parent} to unpack {archive.name}. Free some.")
            for member, to in missing:
                to.parent.mkdir(parents=True, exist_ok=True)
                part = to.with_name(f"{to.name}.part")
                with packed.open(member) as source, part.open("wb") as target:
                    shutil.copyfileobj(source, target, 2**20)
                part.replace(to)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise ModelError(f"{archive} cannot be unpacked: {error}. Delete it and pull again.") from error
    store.write_whole(_mark(archive), json.dumps([file.size, file.sha256]).encode())
    archive.unlink()


def bring_addressed(layout: Layout, folder: Path, *, say: Say) -> None:
    """Clips that the table names by their address on the hub, as GenAI-Bench does; others stay where they are."""
    wanted: dict[tuple[str, str], set[str]] = {}
    for address in _addresses(layout, folder):
        if found := _ADDRESS.fullmatch(address):
            wanted.setdefault((found[1], found[2]), set()).add(found[3])
    for (repository, revision), paths in sorted(wanted.items()):
        missing = {path for path in paths if not _place(folder / "videos", path).is_file()}
        if missing:
            listed = hub.listing(repository, revision, kind="dataset")
            files = [file for file in listed.files if file.path in missing]
            _bring_all(listed, files, folder / "videos", say)
            if len(files) < len(missing):
                say(f"{len(missing) - len(files)} clip(s) are not in {repository} any more; they will count as missing")


def _addresses(layout: Layout, folder: Path) -> Iterator[str]:
    table = next((path for pattern in layout.tables for path in sorted(folder.glob(pattern))), None)
    for number, row in rows(table) if table else ():
        pair = pair_of(layout, number, row)
        if isinstance(pair, LabelledPair):
            yield from (clip for clip in (pair.a, pair.b) if _ADDRESS.fullmatch(clip))
