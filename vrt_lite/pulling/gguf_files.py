"""Pulls a model that is published as GGUF: selects text and projector, and downloads them, checked.

A text model may be split into parts (NAME-00001-of-00003.gguf). All parts are taken, and stay as they are.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vrt_lite.errors import ModelError
from vrt_lite.machine import format_bytes
from vrt_lite.models.gguf import part_names
from vrt_lite.models.gguf_check import PROJECTORS
from vrt_lite.models.hub import HubFile, Listing, Progress, check_free_space, download, is_whole
from vrt_lite.models.library import Role, StoredFile, StoredModel, keep_only, partial_folder
from vrt_lite.models.quants import CONTEXT_BYTES, SHARE_OF_MEMORY, TextFile, best_quant, normalise_quant, quant_of
from vrt_lite.profile import PROFILE_NAME
from vrt_lite.pulling.pull_source import (
    Pulled,
    PullSource,
    expected_sha256,
    fetch_small_files,
    is_intact,
    join_paths,
    list_small_files,
)

_KNOWN = " or ".join(map(repr, PROJECTORS))
_PROJECTORS = ("F16", "BF16", "Q8_0", "F32")


@dataclass(frozen=True, slots=True)
class SelectedFiles:
    """The files to fetch: the text model's parts in order (one if it is not split), and the projector.

    `quant` is the text's, "" if its name has none.
    """

    texts: tuple[HubFile, ...]
    projector: HubFile
    quant: str

    @property
    def text(self) -> HubFile:
        """The text model's file, or its first part."""
        return self.texts[0]

    @property
    def size_bytes(self) -> int:
        """Bytes to fetch."""
        return _size(self.texts) + self.projector.size


def pull_gguf(
    source: PullSource, listed: Listing, here: StoredModel | None, memory_bytes: int, progress: Progress
) -> Pulled | None:
    """Put both files into the partial folder; returns them, None if they are here already."""
    selected = _select(source, listed, here, memory_bytes)
    quant = selected.quant or "an unnamed quant"
    size = format_bytes(selected.size_bytes)
    progress.say(f"{source.name}: {listed.repository} at {listed.revision[:12]}, {quant}, {size}")
    progress.say(source.describe_licence(listed))
    if here and _is_current(here, listed, selected):
        return None
    return Pulled(selected.quant, _fetch_files(source, listed, selected, here, progress))


def _select(source: PullSource, listed: Listing, here: StoredModel | None, memory_bytes: int) -> SelectedFiles:
    if listed.architecture not in ("", *PROJECTORS):
        raise ModelError(f"{listed.repository} is of architecture {listed.architecture!r}; a judge needs {_KNOWN}.")
    # A quant that is here stays: the same command must not replace the model when another amount of memory is given.
    quant = source.quant or (here.manifest.quant if here else "")
    return select_files(listed, quant=quant, memory_bytes=int(memory_bytes * SHARE_OF_MEMORY))


def _is_current(here: StoredModel, listed: Listing, selected: SelectedFiles) -> bool:
    """Whether all files that would be pulled are here and whole."""
    names = {file.name for file in here.manifest.files if file.role != "profile"}
    wanted = {file.name for file in (*selected.texts, selected.projector)}
    return here.manifest.revision == listed.revision and names == wanted and is_intact(here)


def _fetch_files(
    source: PullSource, listed: Listing, selected: SelectedFiles, here: StoredModel | None, progress: Progress
) -> tuple[StoredFile, ...]:
    """Download the files that are not here into the partial folder; returns all of them."""
    folder = partial_folder(source.name)
    folder.mkdir(parents=True, exist_ok=True)
    texts: list[tuple[Role, HubFile]] = [("text", text) for text in selected.texts]
    roles: list[tuple[Role, HubFile]] = [("projector", selected.projector), *texts]
    if len({file.name for _, file in roles}) < len(roles):
        raise ModelError(f"{listed.repository} gives two of its files one name, {selected.text.name}.")
    files = [StoredFile(file.name, role, file.size, expected_sha256(source, file)) for role, file in roles]
    keep_only(folder, {file.name for file in files})
    missing = [(f, listed) for f, (_, listed) in zip(files, roles, strict=True) if not _is_there(f, folder, here)]
    profile = list_small_files(listed, (PROFILE_NAME,))
    to_fetch = sum(file.size for _, file in missing)
    check_free_space(folder, to_fetch)
    progress.begin("fetching", to_fetch)
    fetch_small_files(listed, profile, folder)
    for stored, file in missing:
        path = folder / stored.name
        repaired = download(listed, file, path, sha256=stored.sha256, report=progress.say, advance=progress.advance)
        progress.say(f"{stored.name}: {format_bytes(stored.size)}, sha256 checked{', repaired' if repaired else ''}")
    return tuple(files)


def _is_there(file: StoredFile, folder: Path, here: StoredModel | None) -> bool:
    """Whether a file is whole in the folder, or now linked from the model that is here: a repair downloads less."""
    path = folder / file.name
    if is_whole(path, file.size, file.sha256):
        return True
    path.unlink(missing_ok=True)
    if here and is_whole(here.folder / file.name, file.size, file.sha256):
        with contextlib.suppress(OSError):  # a disk without links
            os.link(here.folder / file.name, path)
            return True
    return False


def select_files(listed: Listing, *, quant: str, memory_bytes: int) -> SelectedFiles:
    """The files to fetch; ModelError if there are none, if the quant is not listed, or if none fits into memory."""
    ggufs = [file for file in listed.files if file.path.lower().endswith(".gguf")]
    projectors = [file for file in ggufs if "mmproj" in file.name.lower() and "imatrix" not in file.path.lower()]
    texts = [file for file in ggufs if "mmproj" not in file.name.lower() and "imatrix" not in file.path.lower()]
    if not texts:
        raise ModelError(f"{listed.repository} publishes no GGUF text model (it lists {join_paths(listed.files)}).")
    if not projectors:
        raise ModelError(
            f"{listed.repository} publishes no projector (a file named mmproj*.gguf), so its model cannot see. "
            "Pull a repository that holds both."
        )
    projector = min(projectors, key=lambda file: (_projector_rank(file), file.size))
    text = _choose_text(listed.repository, texts, normalise_quant(quant), memory_bytes - projector.size)
    return SelectedFiles(text, projector, quant_of(text[0].name))


def _projector_rank(file: HubFile) -> int:
    quant = quant_of(file.name)
    return _PROJECTORS.index(quant) if quant in _PROJECTORS else len(_PROJECTORS)


def _choose_text(repository: str, texts: Sequence[HubFile], quant: str, memory_bytes: int) -> tuple[HubFile, ...]:
    """Return the parts of the text model of this quant, in order, or of the best that fits. ModelError without one."""
    named = [file for file in texts if quant in ("", quant_of(file.name))]
    if not named:
        quants = sorted({quant_of(file.name) or file.name for file in texts})
        raise ModelError(f"{repository} has no quant {quant!r}; it has {', '.join(quants)}.")
    by_path = {file.path: file for file in named}
    parts = [names for names in sorted({part_names(path) for path in by_path}) if by_path.keys() >= set(names)]
    whole = [tuple(by_path[name] for name in names) for names in parts]
    if not whole:
        raise ModelError(
            f"{repository} lists only some parts of {quant or 'its text models'} ({join_paths(named)}). "
            "Choose another quant, or another repository."
        )
    if not quant:
        models = {TextFile(text[0].path, quant_of(text[0].name), _size(text)): text for text in whole}
        if best := best_quant(models, memory_bytes):
            return models[best]
        raise does_not_fit(repository, min(models, key=lambda file: file.size), memory_bytes)
    # A file that is not split is preferred to the same quant in parts.
    best_whole = [text for text in whole if len(text) == 1] or whole
    if len(best_whole) > 1:
        names = join_paths(text[0] for text in best_whole)
        raise ModelError(
            f"{repository} has {len(best_whole)} files of quant {quant} ({names}). Download one and use --model FILE."
        )
    return best_whole[0]


def does_not_fit(repository: str, least: TextFile, memory_bytes: int) -> ModelError:
    """Return the error for a repository whose smallest text model takes more than `memory_bytes`."""
    return ModelError(
        f"No quant of {repository} fits: the smallest, {least.quant or least.path}, needs about "
        f"{format_bytes(least.size + CONTEXT_BYTES)} beside its projector, and this machine can give "
        f"{format_bytes(max(memory_bytes, 0))}. To pull it all the same, name it: {repository}:{least.quant or 'QUANT'}"
    )


def _size(files: Sequence[HubFile]) -> int:
    return sum(file.size for file in files)
