"""Pulls a model that is published as GGUF: selects text and projector, and downloads them, checked.

A text model may be split into parts (NAME-00001-of-00003.gguf). All parts are taken, and stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vrt_lite.errors import ModelError, UsageError
from vrt_lite.machine import format_bytes
from vrt_lite.models import PROJECTORS
from vrt_lite.models.gguf import normalise_quant, part_names, projector_rank, quant_of
from vrt_lite.models.hub import HubFile, Listing, check_free_space, download, is_whole
from vrt_lite.models.library import StoredFile, keep_only
from vrt_lite.models.quants import CONTEXT_BYTES, SHARE_OF_MEMORY, TextFile, best_quant
from vrt_lite.profile import PROFILE_NAME
from vrt_lite.pulling.pull_source import Pull, expected_sha256, fetch_small_files, join_paths


@dataclass(frozen=True, slots=True)
class SelectedFiles:
    """The files to fetch: the text model's parts in order (one if it is not split), and the projector.

    `quant` is the text's, "" if its name has none.
    """

    texts: tuple[HubFile, ...]
    projector: HubFile
    quant: str

    @property
    def size_bytes(self) -> int:
        """Bytes to fetch."""
        return sum(file.size for file in (*self.texts, self.projector))


def pull_gguf(pull: Pull) -> tuple[str, list[StoredFile]]:
    """Put text model and projector into the partial folder, and the profile if there is one. Returns their quant."""
    listed, folder, progress = pull.listed, pull.folder, pull.progress
    if pull.projector_type:
        raise UsageError(
            f"{listed.repository} publishes GGUF files, which are taken as they are. Leave out --projector-type."
        )
    if listed.architecture not in ("", *PROJECTORS):
        known = " or ".join(map(repr, PROJECTORS))
        raise ModelError(f"{listed.repository} is of architecture {listed.architecture!r}; a judge needs {known}.")
    # A quant that is here stays: the same command must not replace the model when another amount of memory is given.
    quant = pull.source.quant or (pull.here.manifest.quant if pull.here else "")
    selected = select_files(listed, quant=quant, memory_bytes=int(pull.memory_bytes * SHARE_OF_MEMORY))
    quant, size = selected.quant or "an unnamed quant", format_bytes(selected.size_bytes)
    progress.say(f"{pull.source.name}: {listed.repository} at {listed.revision[:12]}, {quant}, {size}")
    wanted = (selected.projector, *selected.texts)
    files = [
        StoredFile(
            file.name, "text" if file in selected.texts else "projector", file.size, expected_sha256(pull.source, file)
        )
        for file in wanted
    ]
    folder.mkdir(parents=True, exist_ok=True)
    keep_only(folder, {file.name for file in files})
    missing = [
        (listing, file)
        for listing, file in zip(wanted, files, strict=True)
        if not is_whole(folder / file.name, file.size, file.sha256)
    ]
    to_fetch = sum(file.size for _, file in missing)
    check_free_space(folder, to_fetch)
    progress.begin("fetching", to_fetch)
    fetch_small_files(listed, folder, (PROFILE_NAME,))
    for listing, file in missing:
        download(listed, listing, folder / file.name, sha256=file.sha256, advance=progress.advance)
        progress.say(f"{file.name}: {format_bytes(file.size)}, sha256 checked")
    return selected.quant, files


def select_files(listed: Listing, *, quant: str, memory_bytes: int) -> SelectedFiles:
    """The files to fetch; ModelError if there are none, if the quant is not listed, or if none fits into memory."""
    repository, quant = listed.repository, normalise_quant(quant)
    ggufs = [f for f in listed.files if f.path.lower().endswith(".gguf") and "imatrix" not in f.path.lower()]
    projectors = [file for file in ggufs if "mmproj" in file.name.lower()]
    texts = {file.path: file for file in ggufs if file not in projectors}
    for kind, found in (("GGUF text model", texts), ("projector (a file named mmproj*.gguf)", projectors)):
        if not found:
            raise ModelError(f"{repository} publishes no {kind} (it lists {join_paths(listed.files)}): pull another.")
    projector = min(projectors, key=lambda file: (projector_rank(file.name), file.size))
    named = [file for file in texts.values() if quant in ("", quant_of(file.name))]
    if not named:
        quants = sorted({quant_of(file.name) or file.name for file in texts.values()})
        raise ModelError(f"{repository} has no quant {quant!r}; it has {', '.join(quants)}.")
    models: dict[TextFile, Sequence[HubFile]] = {}
    for names in sorted({part_names(file.path) for file in named}):
        if texts.keys() >= set(names):
            parts = [texts[name] for name in names]
            models[TextFile(names[0], quant_of(names[0]), sum(part.size for part in parts))] = parts
    if not models:
        raise ModelError(
            f"{repository} lists only some parts of {quant or 'its text models'} ({join_paths(named)}). "
            "Choose another quant, or another repository."
        )
    if quant:  # one that is not split is preferred
        chosen = min(models, key=lambda file: (len(models[file]), file.path))
    elif not (chosen := best_quant(models, memory_bytes - projector.size)):
        raise does_not_fit(repository, min(models, key=lambda file: file.size), memory_bytes - projector.size)
    return SelectedFiles(tuple(models[chosen]), projector, chosen.quant)


def does_not_fit(repository: str, least: TextFile, memory_bytes: int) -> ModelError:
    """Return the error for a repository whose smallest text model takes more than `memory_bytes`."""
    return ModelError(
        f"No quant of {repository} fits: the smallest, {least.quant or least.path}, needs about "
        f"{format_bytes(least.size + CONTEXT_BYTES)} beside its projector, and this machine can give "
        f"{format_bytes(max(memory_bytes, 0))}. To pull it all the same, name it: {repository}:{least.quant or 'QUANT'}"
    )
