"""Pulls a model from the hub: lists the repository, fetches what is needed, and checks digests and the pair.

A repository holds GGUF files, or a checkpoint that is converted here (`checkpoint_pull`). A text GGUF may be split into
parts (NAME-00001-of-00003.gguf): all are taken, and stay as they are. A pull may be killed at any time: files arrive in
a partial folder, which becomes the model when all is checked (see `library`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vrt_lite.disk import disk_errors, locked, write_file
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.machine import format_bytes, total_memory
from vrt_lite.models import find, library
from vrt_lite.models.gguf import normalise_quant, part_names, projector_rank, quant_of
from vrt_lite.models.hub import HubFile, Listing, Transfer, UnreachableError, download
from vrt_lite.models.library import Manifest, StoredFile, StoredModel, describe_file, is_whole, keep_only, remove_folder
from vrt_lite.profile import PROFILE_NAME, read_portable
from vrt_lite.pulling.pull_source import (
    PROJECTOR_TYPE,
    Pull,
    choose_quant,
    fetch_small_files,
    list_source,
    parse_reference,
)


def pull(
    reference: str, *, progress: Transfer, projector_type: str | None = None, profile: Path | None = None
) -> StoredModel:
    """Fetch a model, and convert it if it is a checkpoint. One that is here stays if it is whole and the newest.

    An older one is replaced when all of the newer one is here, and stays if the hub cannot be reached.
    `projector_type`, one of PROJECTOR_TYPES, is for a checkpoint. UsageError if GGUF files are published. `profile` is
    a file to give the model in place of its own.
    """
    source, given = parse_reference(reference), read_portable(profile) if profile else b""
    waiting = f"waiting for another process that is changing {source.name}"
    with disk_errors(), locked(source.name, lambda: progress.say(waiting)):
        same, kind = library.find_stored(source.name), projector_type
        if same:  # what is not asked for stays as it is here
            its_kind = quant_of(same.path("projector").name).lower()
            quant, kind = source.quant or same.manifest.quant, kind or its_kind
            source = replace(source, quant=quant)
            if (quant.upper(), kind) != (same.manifest.quant, its_kind):
                same = None
        try:
            listed = list_source(source)
        except UnreachableError as error:
            if not same or same.damage or given:
                raise
            progress.say(f"{source.name} is here already; whether there is a newer one is not known: {error}")
            return same
        begun = Pull(source, listed, kind or PROJECTOR_TYPE, progress)
        if same and same.manifest.revision == listed.commits:
            # A pull that was killed in its last step left what it had converted from, and its journal.
            library.keep_files(same.folder, same.manifest)
            if all(is_whole(same.folder / file.name, file.size, file.sha256) for file in same.manifest.files):
                progress.say(f"{source.name} is here already, sha256 of every file checked")
                if given:
                    progress.say(f"profile: {profile}")
                    _write_profile(same.folder, same.manifest, given)
                return same
            # Only what is damaged is fetched again.
            remove_folder(begun.folder)
            begun.folder.parent.mkdir(parents=True, exist_ok=True)
            same.folder.replace(begun.folder)
        licence = source.licence or listed.licence or "not stated; see the model's page"
        progress.say(f"licence: {licence}{source.licence_url and f' ({source.licence_url})'}")
        if any(file.path.lower().endswith(".gguf") for file in listed.files):
            if projector_type:
                raise UsageError(
                    f"{source.repository} publishes GGUF files, which are taken as they are. Leave out "
                    "--projector-type."
                )
            quant, files = _pull_gguf(begun)
        else:
            from vrt_lite.pulling.checkpoint_pull import pull_checkpoint  # noqa: PLC0415 - numpy

            quant, files = pull_checkpoint(begun)
        text, whose = (given, str(profile)) if given else _find_profile(begun)
        progress.say(f"profile: {whose}")
        manifest = Manifest(source.name, source.repository, listed.commits, quant, licence, tuple(files))
        return _install(begun, _write_profile(begun.folder, manifest, text))


def _pull_gguf(pull: Pull) -> tuple[str, list[StoredFile]]:
    """Put text model and projector into the partial folder. Returns the text's quant, and all files."""
    listed, folder, progress = pull.listed, pull.folder, pull.progress
    wanted = select_files(listed, quant=pull.source.quant, memory_bytes=total_memory())
    projector, text, *_ = wanted
    quant, size = quant_of(text.name), sum(file.size for file in wanted)
    told = f"{quant or 'an unnamed quant'}, {format_bytes(size)}"
    progress.say(f"{pull.source.name}: {listed.repository} at {listed.revision[:12]}, {told}")
    folder.mkdir(parents=True, exist_ok=True)
    keep_only(folder, {file.name for file in wanted})
    pull.check_room(size)
    progress.begin("fetching", size)
    for file in wanted:
        download(listed, file, folder / file.name, progress.advance)
        progress.say(f"{file.name}: {format_bytes(file.size)}, sha256 checked")
    return quant, [
        StoredFile(file.name, "projector" if file is projector else "text", file.size, file.sha256) for file in wanted
    ]


def select_files(listed: Listing, *, quant: str, memory_bytes: int) -> list[HubFile]:
    """The files to fetch: the projector, and the text in one file or in parts.

    ModelError if there are none, if not all of the quant is listed, or if none fits into memory.
    """
    repository, quant = listed.repository, normalise_quant(quant)
    ggufs = [f for f in listed.files if f.path.lower().endswith(".gguf") and "imatrix" not in f.path.lower()]
    projectors = [file for file in ggufs if "mmproj" in file.name.lower()]
    texts = {file.path: file for file in ggufs if file not in projectors}
    # Of two with one quant the last is taken, which is the one in fewer parts.
    ordered = sorted(set(map(part_names, texts)), key=lambda names: (len(names), names), reverse=True)
    whole = {quant_of(texts[names[0]].name): [texts[n] for n in names] for names in ordered if texts.keys() >= {*names}}
    for kind, found in (("GGUF text model with all its parts", whole), ("projector (*mmproj*.gguf)", projectors)):
        if not found:
            raise ModelError(f"{repository} publishes no {kind}: pull another.")
    projector = min(projectors, key=lambda file: (projector_rank(file.name), file.size))
    if not quant:
        sizes = {name: projector.size + sum(file.size for file in files) for name, files in whole.items()}
        quant = choose_quant(repository, sizes, memory_bytes=memory_bytes)
    if quant not in whole:
        raise ModelError(f"{repository} has no quant {quant!r} with all its parts; it has {', '.join(sorted(whole))}.")
    return [projector, *whole[quant]]


def _find_profile(pull: Pull) -> tuple[bytes, str]:
    """Return the profile of a model, b"" for none, and whose it is."""
    if pull.source.profile:
        return pull.source.profile.encode(), f"vrt-lite's for {pull.source.name}"
    fetch_small_files(pull.listed, pull.folder, (PROFILE_NAME,))
    own = pull.folder / PROFILE_NAME
    return (own.read_bytes(), "the repository's own") if own.is_file() else (b"", "VR-Thinker's, as none is published")


def _write_profile(folder: Path, manifest: Manifest, text: bytes) -> Manifest:
    """Give a model another profile, none with b"". Write its manifest, with which it is here, and return it."""
    files = [file for file in manifest.files if file.role != "profile"]
    if text:
        write_file(folder / PROFILE_NAME, text)
        files.append(describe_file(folder / PROFILE_NAME, "profile"))
    manifest = replace(manifest, files=tuple(files))
    library.write_manifest(folder, manifest)
    return manifest


def _install(pull: Pull, manifest: Manifest) -> StoredModel:
    """Check the pair, and make the partial folder the model."""
    model, final = StoredModel(pull.folder, manifest), library.model_folder(pull.source.name)
    with pull.keep_nothing_refused():
        find(model.path("text"), projector=model.path("projector"))
    remove_folder(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    pull.folder.replace(final)
    library.keep_files(final, manifest)
    return StoredModel(final, manifest)
