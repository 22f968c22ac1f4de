"""Pulls a model from the hub: lists the repository, selects files, downloads them, and checks digests and the pair.

A pull may be killed at any time: files arrive in a partial folder, each under its digest until it is right, and the
folder becomes the model when all is checked (see `library`).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vrt_lite.disk import disk_errors, file_sha256, is_plain_name, locked, write_file
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.machine import format_bytes
from vrt_lite.models import bundled_names, find, hub, library
from vrt_lite.models.gguf import (
    CONTEXT_BYTES,
    SHARE_OF_MEMORY,
    TextFile,
    best_quant,
    is_split,
    normalise_quant,
    quant_of,
)
from vrt_lite.models.hub import (
    HubFile,
    Listing,
    Report,
    UnreachableError,
    check_free_space,
    download,
    held_bytes,
    is_whole,
    part_of,
)
from vrt_lite.models.library import Manifest, Recipe, Role, StoredFile, StoredModel, recipes
from vrt_lite.profile import PROFILE_NAME

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_ARCHITECTURES = ("", "qwen2vl")
_PROJECTORS = ("F16", "BF16", "Q8_0", "F32")


@dataclass(frozen=True, slots=True)
class PullSource:
    """What to pull: the name it will have here, where it is from, and a quant ("" for the best that fits)."""

    name: str
    repository: str
    revision: str
    quant: str
    recipe: Recipe | None


def parse_reference(reference: str) -> PullSource:
    """Read NAME[:quant] or owner/repo[:quant]. UsageError or ModelError, with the known names, if it is neither."""
    text = re.sub(r"^(https?://)?(huggingface\.co|hf\.co)/", "", reference.strip())
    name, colon, quant = text.partition(":")
    if colon and not re.fullmatch(r"[\w.-]{1,40}", quant, re.ASCII):
        raise UsageError(f"{reference!r} names no quant after the colon; for example {name}:Q4_K_M.")
    if recipe := recipes().get(name):
        return PullSource(name, recipe.repository, recipe.revision, quant or recipe.quant, recipe)
    if _REPOSITORY.fullmatch(name) and ".." not in name and "--" not in name:
        return PullSource(name, name, "", quant, None)
    if "/" in name:
        raise UsageError(f"{reference!r} is no owner/repo[:quant] of the hub.")
    known = ", ".join(n for n in recipes() if n not in bundled_names())
    raise ModelError(f"Model {name!r} is not known. Pull one of {known}, or owner/repo[:quant].")


def pull(reference: str, *, memory_bytes: int, report: Report) -> StoredModel:
    """Download a model, or check that it is here and complete."""
    source = parse_reference(reference)
    with disk_errors(), contextlib.ExitStack() as stack:
        if stack.enter_context(locked(source.name)):
            report(f"waited for another process that was changing {source.name}")
        here = library.find_stored(source.name)
        try:
            listed = hub.list_repository(source.repository, source.revision)
        except UnreachableError as error:
            if not here or here.damage or source.quant.upper() not in ("", here.manifest.quant):
                raise
            report(f"{source.name} is here already; the hub was not asked for a newer one: {error}")
            return here
        selected = _select(source, listed, here, memory_bytes)
        licence = source.recipe.licence if source.recipe else listed.licence or "not stated; see the model's page"
        quant = selected.quant or "an unnamed quant"
        size = format_bytes(selected.size_bytes)
        report(f"{source.name}: {listed.repository} at {listed.revision[:12]}, {quant}, {size}")
        report(f"licence: {licence}{f' ({source.recipe.licence_url})' if source.recipe else ''}")
        if here and _is_current(here, listed, selected):
            report(f"{source.name} is here already, sha256 of every file checked")
            return here
        files = _fetch_files(source, listed, selected, here, report)
        verified = bool(source.recipe and source.recipe.verified)
        library.install_model(
            Manifest(source.name, listed.repository, listed.revision, selected.quant, licence, verified, files)
        )
    model = library.find_stored(source.name)
    if model is None:
        raise ModelError(f"{source.name} was removed while it arrived. Pull it again.")
    return model


def _select(source: PullSource, listed: Listing, here: StoredModel | None, memory_bytes: int) -> SelectedFiles:
    if listed.architecture not in _ARCHITECTURES:
        raise ModelError(f"{listed.repository} is of architecture {listed.architecture!r}; a judge needs 'qwen2vl'.")
    # A quant that is here stays: the same command must not replace the model when another amount of memory is given.
    quant = source.quant or (here.manifest.quant if here else "")
    try:
        return select_files(listed, quant=quant, memory_bytes=int(memory_bytes * SHARE_OF_MEMORY))
    except ModelError as error:
        convert = source.recipe.convert if source.recipe else ""
        if not convert or any(file.name.lower().endswith(".gguf") for file in listed.files):
            raise
        raise ModelError(
            f"{source.repository} publishes no GGUF, so {source.name} cannot be pulled. Convert it in a checkout of "
            f"vrt-lite (pip install -e .): {convert}  Then: "
            f"vrt-lite compare a.mp4 b.mp4 --model ./{source.name}"
        ) from error


def _is_current(here: StoredModel, listed: Listing, selected: SelectedFiles) -> bool:
    """Whether all files that would be pulled are here and whole."""
    names = {file.name for file in here.manifest.files if file.role != "profile"}
    same = here.manifest.revision == listed.revision and names == {selected.text.name, selected.projector.name}
    return same and all(is_whole(here.folder / file.name, file.size, file.sha256) for file in here.manifest.files)


def _fetch_files(
    source: PullSource, listed: Listing, selected: SelectedFiles, here: StoredModel | None, report: Report
) -> tuple[StoredFile, ...]:
    """Put both files and the profile into the partial folder, checked. Nothing stays there if they are no judge."""
    folder = library.partial_folder(source.name)
    folder.mkdir(parents=True, exist_ok=True)
    if selected.text.name == selected.projector.name:
        raise ModelError(f"{listed.repository} gives text and projector one name, {selected.text.name}.")
    roles: tuple[tuple[Role, HubFile], ...] = (("projector", selected.projector), ("text", selected.text))
    files = [StoredFile(file.name, role, file.size, _expected_sha256(source, file)) for role, file in roles]
    held = sum(held_bytes(path) for f in files for path in (folder / f.name, part_of(folder / f.name, f.sha256)))
    check_free_space(folder, selected.size_bytes - held)
    for stored, (_, file) in zip(files, roles, strict=True):
        path = folder / stored.name
        if is_whole(path, stored.size, stored.sha256) or _copy_stored(here, stored, path):
            report(f"{stored.name}: here, sha256 checked")
            continue
        path.unlink(missing_ok=True)
        repaired = download(listed, file, path, sha256=stored.sha256, report=report)
        report(f"{stored.name}: {format_bytes(stored.size)}, sha256 checked{', repaired' if repaired else ''}")
    profile = folder / PROFILE_NAME
    profile.unlink(missing_ok=True)
    if source.recipe and source.recipe.profile:
        write_file(profile, source.recipe.profile.encode())
        files.append(StoredFile(PROFILE_NAME, "profile", profile.stat().st_size, file_sha256(profile)))
    try:
        find(folder / selected.text.name, projector=folder / selected.projector.name)
    except ModelError as error:
        library.remove_folder(folder)
        raise ModelError(f"{source.name} is refused and nothing of it was kept: {error}") from error
    return tuple(files)


def _expected_sha256(source: PullSource, file: HubFile) -> str:
    """The digest that a file must have: the recipe's and the hub's, which must be equal if both have one."""
    recipe = source.recipe.sums.get(file.name, "") if source.recipe else ""
    if recipe and file.sha256 and recipe != file.sha256:
        raise ModelError(
            f"The hub lists {file.name} with sha256 {file.sha256[:12]}…, but the recipe of {source.name} says "
            f"{recipe[:12]}…: it is not the file that is known. To take it all the same: "
            f"vrt-lite pull {source.repository}"
        )
    if not re.fullmatch("[0-9a-f]{64}", recipe or file.sha256):
        raise ModelError(f"The hub gives no sha256 for {file.path}, so it cannot be checked; nothing was fetched.")
    return recipe or file.sha256


def _copy_stored(here: StoredModel | None, file: StoredFile, to: Path) -> bool:
    """Take a file from the model that is here if it is right; returns whether it was. A repair then downloads less."""
    if here is None or not is_whole(here.folder / file.name, file.size, file.sha256):
        return False
    to.unlink(missing_ok=True)
    try:
        os.link(here.folder / file.name, to)
    except OSError:
        shutil.copyfile(here.folder / file.name, to)
        return is_whole(to, file.size, file.sha256)
    return True


@dataclass(frozen=True, slots=True)
class SelectedFiles:
    """The two files to fetch, and the text's quant ("" if its name has none)."""

    text: HubFile
    projector: HubFile
    quant: str

    @property
    def size_bytes(self) -> int:
        """Bytes to fetch."""
        return self.text.size + self.projector.size


def select_files(listed: Listing, *, quant: str, memory_bytes: int) -> SelectedFiles:
    """The files to fetch; ModelError if there are none, if the quant is not listed, or if none fits into memory."""
    for file in listed.files:
        if not all(is_plain_name(part) for part in file.path.split("/")):
            raise ModelError(
                f"{listed.repository} lists the unsafe file name {file.path!r}; nothing was fetched from it."
            )
    ggufs = [file for file in listed.files if file.path.lower().endswith(".gguf")]
    projectors = [file for file in ggufs if "mmproj" in file.name.lower() and "imatrix" not in file.path.lower()]
    texts = [file for file in ggufs if "mmproj" not in file.name.lower() and "imatrix" not in file.path.lower()]
    if not texts:
        raise ModelError(f"{listed.repository} publishes no GGUF text model (it lists {_names(listed.files)}).")
    if not projectors:
        raise ModelError(
            f"{listed.repository} publishes no projector (a file named mmproj*.gguf), so its model cannot see. "
            "Pull a repository that holds both."
        )
    projector = min(projectors, key=lambda file: (_projector_rank(file), file.size))
    if quant:
        text = _text_of_quant(listed.repository, texts, normalise_quant(quant))
    else:
        text = _best_text(listed.repository, texts, memory_bytes - projector.size)
    return SelectedFiles(text, projector, quant_of(text.name))


def _projector_rank(file: HubFile) -> int:
    quant = quant_of(file.name)
    return _PROJECTORS.index(quant) if quant in _PROJECTORS else len(_PROJECTORS)


def _text_of_quant(repository: str, texts: Sequence[HubFile], quant: str) -> HubFile:
    matching = [file for file in texts if quant_of(file.name) == quant]
    whole = [file for file in matching if not is_split(file.name)]
    if len(whole) == 1:
        return whole[0]
    if not matching:
        quants = sorted({quant_of(file.name) or file.name for file in texts})
        raise ModelError(f"{repository} has no quant {quant!r}; it has {', '.join(quants)}.")
    if not whole:
        raise ModelError(
            f"{repository} has {quant} only in {len(matching)} split parts ({matching[0].name}, …), which are not "
            "joined here. Choose another quant, or join them with llama-gguf-split --merge and use --model FILE."
        )
    raise ModelError(
        f"{repository} has {len(whole)} files of quant {quant} ({_names(whole)}). Download one and use --model FILE."
    )


def _best_text(repository: str, texts: Sequence[HubFile], memory_bytes: int) -> HubFile:
    whole = {TextFile(file.path, quant_of(file.name), file.size): file for file in texts if not is_split(file.name)}
    if not whole:
        raise ModelError(f"{repository} has split GGUFs alone ({_names(texts)}), which are not joined here.")
    if best := best_quant(whole, memory_bytes):
        return whole[best]
    least = min(whole, key=lambda file: file.size)
    raise ModelError(
        f"No quant of {repository} fits: the smallest, {least.quant or whole[least].name}, needs about "
        f"{format_bytes(least.size + CONTEXT_BYTES)} beside its projector, and this machine can give "
        f"{format_bytes(max(memory_bytes, 0))}. To pull it all the same, name it: {repository}:{least.quant or 'QUANT'}"
    )


def _names(files: Iterable[HubFile]) -> str:
    names = [file.path for file in files]
    return (", ".join(names[:6]) + (", …" if len(names) > 6 else "")) or "nothing"
