"""Copies winners to a folder, numbered. A file that exists is never replaced."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from vrt_lite.clip_files import find_files, split_rate
from vrt_lite.disk import draft_of
from vrt_lite.errors import UsageError, VideoError
from vrt_lite.records.ladders import RankedClip

LONGEST_BYTES = 200
_UNSAFE = re.compile(r'[\\/:*?"<>|]')


def copy_winners(chosen: Sequence[tuple[str, Sequence[RankedClip]]], folder: Path) -> list[Path]:
    """Copy the winners of each (group, clips) as 01-name.mp4, 02-…; each of several groups gets its own folder.

    Numbered pictures become a folder of that name. A file of that name with the same content stays. UsageError, before
    anything is copied, if a file of that name has another content, or a clip has changed since it was ranked.
    """
    folders = [folder]
    if len(chosen) > 1:
        folders = [folder / file_name(number, group[:60]) for number, (group, _) in enumerate(chosen, start=1)]
    plan = [
        (clip, into / file_name(place, _name(clip.path)))
        for into, (_, clips) in zip(folders, chosen, strict=True)
        for place, clip in enumerate(clips, start=1)
    ]
    missing = [(clip, target) for clip, target in plan if not _is_copied(target, clip)]
    for clip, target in missing:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(clip, target)
        except OSError as error:
            raise UsageError(f"{str(clip.path)!r} cannot be copied to {target}: {error.strerror or error}.") from error
    return [target for _, target in plan]


def file_name(place: int, name: str) -> str:
    """Return a numbered name that every system accepts and every terminal shows unchanged."""
    kept = "".join(c if c.isprintable() and not _UNSAFE.match(c) else "_" for c in name).strip(" .")
    stem, dot, suffix = kept.rpartition(".")
    if not dot or len(suffix.encode()) > 16:
        stem, suffix = kept, ""
    stem = stem.encode()[: LONGEST_BYTES - len(suffix.encode())].decode(errors="ignore").rstrip(" .")
    return f"{place:02d}-{stem or 'clip'}{'.' if suffix else ''}{suffix}"


def _name(clip: Path) -> str:
    """Return the name of a clip's copy; that of numbered pictures is their folder's."""
    place, _ = split_rate(clip)
    return place.parent.name if "%" in place.name and not place.exists() else place.name


def _is_copied(target: Path, clip: RankedClip) -> bool:
    """Return whether the copy exists; UsageError if something else has its name."""
    if not os.path.lexists(target):
        return False
    if target.exists() and _digest_copy(target, clip) == clip.sha256:
        return True
    raise UsageError(
        f"{target} is there already and is another file: nothing was copied. Move it, or --copy-to elsewhere."
    )


def _digest_copy(copy: Path, clip: RankedClip) -> str:
    """Return the digest of a copy, with the frame rate of its clip; "" if it is no clip."""
    try:
        found = find_files(copy)
    except VideoError:
        return ""
    return replace(found, fps=split_rate(clip.path)[1] or found.fps).digest()


def _copy(clip: RankedClip, target: Path) -> None:
    """Copy a clip whole or not at all; UsageError if it has changed, or if something has the name by now."""
    changed = UsageError(f"{str(clip.path)!r} has changed since it was ranked; rank again.")
    try:
        files = find_files(clip.path).files
    except VideoError:
        raise changed from None

    def fill(draft: Path) -> None:
        for file in files:
            shutil.copyfile(file, draft / file.name if draft.is_dir() else draft)
        if _digest_copy(draft, clip) != clip.sha256:
            raise changed

    if files != (clip.path,):
        with TemporaryDirectory(dir=target.parent, prefix=".") as draft:
            pictures = Path(draft) / target.name
            pictures.mkdir()
            fill(pictures)
            pictures.rename(target)
        return
    try:
        with draft_of(target, replace=False) as draft:
            fill(draft)
    except FileExistsError:
        _is_copied(target, clip)
