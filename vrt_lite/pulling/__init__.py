"""Pulls a model from the hub: lists the repository, fetches what is needed, and checks digests and the pair.

A repository holds GGUF files (`gguf_files`), or a checkpoint that is converted here (`checkpoint_pull`). A pull may be
killed at any time: files arrive in a partial folder, which becomes the model when all is checked (see `library`).
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from vrt_lite.disk import disk_errors, file_sha256, locked, write_file
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.models import find, hub, library
from vrt_lite.models.hub import Progress, UnreachableError, is_whole
from vrt_lite.models.library import Manifest, StoredFile, StoredModel
from vrt_lite.profile import PROFILE_NAME, read_portable
from vrt_lite.pulling.gguf_files import pull_gguf, select_files
from vrt_lite.pulling.pull_source import (
    Pulled,
    PullSource,
    check_paths,
    is_checkpoint,
    keep_nothing_refused,
    list_source,
    parse_reference,
)

__all__ = ["parse_reference", "pull", "select_files"]


def pull(
    reference: str,
    *,
    memory_bytes: int,
    progress: Progress,
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
        kept = here if here and source.quant.upper() in ("", here.manifest.quant) else None
        if kept and projector_type not in (None, kept.manifest.projector_type):
            kept = None
        try:
            listed = list_source(source)
        except UnreachableError as error:
            if not kept or kept.damage or given:
                text = f"{source.name} would be fetched from {source.repository}, but {error}"
                raise UnreachableError(text) from error
            progress.say(f"{source.name} is here already; the hub was not asked for a newer one: {error}")
            return kept
        check_paths(listed)
        progress.say(f"licence: {source.licence(listed)}{f' ({source.recipe.licence_url})' if source.recipe else ''}")
        if kept and kept.manifest.revision == listed.commits:
            if _is_intact(kept):
                progress.say(f"{source.name} is here already, sha256 of every file checked")
                if given:
                    progress.say(f"profile: {profile}")
                    files = _add_profile(kept.folder, kept.manifest.files, given)
                    library.write_manifest(kept.folder, replace(kept.manifest, files=files))
                return kept
            library.reopen_model(source.name)
        if listed.base or is_checkpoint(listed):
            from vrt_lite.pulling.checkpoint_pull import pull_checkpoint  # noqa: PLC0415 - numpy

            pulled = pull_checkpoint(source, listed, here, memory_bytes, progress, projector_type)
        elif projector_type:
            raise UsageError(
                f"{listed.repository} publishes GGUF files, which are taken as they are. Leave out --projector-type."
            )
        else:
            pulled = pull_gguf(source, listed, here, memory_bytes, progress)
        _install(source, listed, pulled, (given, str(profile)), progress)
    model = library.find_stored(source.name)
    if model is None:
        raise ModelError(f"{source.name} was removed while it arrived. Pull it again.")
    return model


def _is_intact(here: StoredModel) -> bool:
    return all(is_whole(here.folder / file.name, file.size, file.sha256) for file in here.manifest.files)


def _add_profile(folder: Path, files: tuple[StoredFile, ...], text: bytes) -> tuple[StoredFile, ...]:
    """Write a model's profile; returns its files with it."""
    path = folder / PROFILE_NAME
    write_file(path, text)
    added = StoredFile(PROFILE_NAME, "profile", len(text), file_sha256(path))
    return (*(file for file in files if file.role != "profile"), added)


def _install(
    source: PullSource, listed: hub.Listing, pulled: Pulled, given: tuple[bytes, str], progress: Progress
) -> None:
    """Add the profile, check the pair, and make the partial folder the model. `given` is a profile, and its name."""
    folder, files = library.partial_folder(source.name), pulled.files
    text, whose = given
    if not text and source.recipe and source.recipe.profile:
        text, whose = source.recipe.profile.encode(), f"vrt-lite's for {source.name}"
    elif not text and pulled.profile.is_file():
        text, whose = pulled.profile.read_bytes(), "the repository's own"
    elif not text:
        whose = f"VR-Thinker's, as {listed.repository} has none"
    if text:
        files = _add_profile(folder, files, text)
    progress.say(f"profile: {whose}")
    paths = {file.role: folder / file.name for file in reversed(files)}
    with keep_nothing_refused(source.name):
        find(paths["text"], projector=paths["projector"])
    library.install_model(
        Manifest(
            name=source.name,
            repository=listed.repository,
            revision=listed.commits,
            quant=pulled.quant,
            licence=source.licence(listed),
            verified=bool(source.recipe and source.recipe.verified),
            files=files,
            converted_with=pulled.converted_with,
            projector_type=pulled.projector_type,
        )
    )
