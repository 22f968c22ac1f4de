"""Pulls a model from the hub: lists the repository, fetches what is needed, and checks digests and the pair.

A repository holds GGUF files (`gguf_files`), or a checkpoint that is converted here (`checkpoint_pull`). A pull may be
killed at any time: files arrive in a partial folder, which becomes the model when all is checked (see `library`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

from vrt_lite.disk import disk_errors, file_sha256, locked, write_file
from vrt_lite.errors import ModelError
from vrt_lite.models import find, library
from vrt_lite.models.hub import Transfer, UnreachableError, is_whole
from vrt_lite.models.library import Manifest, StoredFile, StoredModel
from vrt_lite.profile import PROFILE_NAME, read_portable
from vrt_lite.pulling.gguf_files import pull_gguf, select_files
from vrt_lite.pulling.pull_source import (
    Pull,
    is_checkpoint,
    keep_nothing_refused,
    list_source,
    parse_reference,
)

__all__ = ["parse_reference", "pull", "select_files"]
_ENGINE: Final = "llama-cpp-python"


def pull(
    reference: str,
    *,
    memory_bytes: int,
    progress: Transfer,
    projector_type: str | None = None,
    profile: Path | None = None,
) -> StoredModel:
    """Fetch a model, and convert it if it is a checkpoint; or check that it is here and complete.

    `projector_type`, one of PROJECTOR_TYPES, is for a checkpoint. UsageError if GGUF files are published. `profile` is
    a file to give the model in place of its own.
    """
    source, given = parse_reference(reference), read_portable(profile) if profile else b""
    with disk_errors(), contextlib.ExitStack() as stack:
        if stack.enter_context(locked(source.name)):
            progress.say(f"waited for another process that was changing {source.name}")
        library.finish_install(source.name)
        here = library.find_stored(source.name)
        same = here and projector_type in (None, here.manifest.projector_type)
        kept = here if here and same and source.quant.upper() in ("", here.manifest.quant) else None
        try:
            listed = list_source(source)
        except UnreachableError as error:
            if not kept or kept.damage or given:
                where = f"{source.name} would be fetched from {source.repository}"
                raise UnreachableError(f"{where}, but {error}") from error
            progress.say(f"{source.name} is here already; the hub was not asked for a newer one: {error}")
            return kept
        licence = source.licence or listed.licence or "not stated; see the model's page"
        progress.say(f"licence: {licence}{source.licence_url and f' ({source.licence_url})'}")
        if kept and kept.manifest.revision == listed.commits:
            if _is_whole(kept):
                progress.say(f"{source.name} is here already, sha256 of every file checked")
                if given:
                    progress.say(f"profile: {profile}")
                    _replace_profile(kept, given)
                return kept
            library.reopen_model(source.name)
        begun = Pull(source, listed, here, memory_bytes, projector_type, progress)
        if from_checkpoint := bool(listed.base) or is_checkpoint(listed):
            from vrt_lite.pulling.checkpoint_pull import pull_checkpoint  # noqa: PLC0415 - numpy

            quant, files = pull_checkpoint(begun)
        else:
            quant, files = pull_gguf(begun)
        made_with = f"{_ENGINE} {version(_ENGINE)}" if from_checkpoint else ""
        manifest = Manifest(
            source.name, listed.repository, listed.commits, quant, licence, source.verified, tuple(files), made_with
        )
        _install(begun, manifest, given, profile)
    if (model := library.find_stored(source.name)) is None:
        raise ModelError(f"{source.name} was removed while it arrived. Pull it again.")
    return model


def _is_whole(model: StoredModel) -> bool:
    return all(is_whole(model.folder / file.name, file.size, file.sha256) for file in model.manifest.files)


def _replace_profile(kept: StoredModel, text: bytes) -> None:
    files = _add_profile(kept.folder, kept.manifest.files, text)
    library.write_manifest(kept.folder, replace(kept.manifest, files=files))


def _add_profile(folder: Path, files: Sequence[StoredFile], text: bytes) -> tuple[StoredFile, ...]:
    """Write a model's profile; returns its files with it."""
    path = folder / PROFILE_NAME
    write_file(path, text)
    added = StoredFile(PROFILE_NAME, "profile", len(text), file_sha256(path))
    return (*(file for file in files if file.role != "profile"), added)


def _install(pull: Pull, manifest: Manifest, given: bytes, given_name: Path | None) -> None:
    """Add the profile, check the pair, and make the partial folder the model. `given` is a profile, b"" for none."""
    source, folder = pull.source, pull.folder
    own = folder / PROFILE_NAME
    text, whose = b"", f"VR-Thinker's, as {manifest.repository} has none"
    if given:
        text, whose = given, str(given_name)
    elif source.profile:
        text, whose = source.profile.encode(), f"vrt-lite's for {source.name}"
    elif own.is_file():
        text, whose = own.read_bytes(), "the repository's own"
    pull.progress.say(f"profile: {whose}")
    if text:
        manifest = replace(manifest, files=_add_profile(folder, manifest.files, text))
    paths = {file.role: folder / file.name for file in reversed(manifest.files)}
    with keep_nothing_refused(source.name):
        find(paths["text"], projector=paths["projector"])
    library.write_manifest(folder, manifest)
    library.finish_install(source.name)
