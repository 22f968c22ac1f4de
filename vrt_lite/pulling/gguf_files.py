"""Pulls a model that is published as GGUF: selects text and projector, and downloads them, checked.

A text model may be split into parts (NAME-00001-of-00003.gguf). All parts are taken, and stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from vrt_lite.errors import ModelError
from vrt_lite.machine import format_bytes
from vrt_lite.models import PROJECTORS
from vrt_lite.models.gguf import normalise_quant, part_names, projector_rank, quant_of
from vrt_lite.models.hub import HubFile, Listing, download
from vrt_lite.models.library import StoredFile, keep_only
from vrt_lite.models.quants import choose_quant, total_memory
from vrt_lite.pulling.pull_source import Pull, join_paths


@dataclass(frozen=True, slots=True)
class SelectedFiles:
    """The files to fetch: the text's parts in order, and the projector. `quant` is the text's, "" if not named."""

    texts: tuple[HubFile, ...]
    projector: HubFile
    quant: str

    @property
    def size_bytes(self) -> int:
        """Bytes to fetch."""
        return sum(file.size for file in (*self.texts, self.projector))


def pull_gguf(pull: Pull) -> tuple[str, list[StoredFile]]:
    """Put text model and projector into the partial folder. Returns the text's quant, and all files."""
    listed, folder, progress = pull.listed, pull.folder, pull.progress
    selected = select_files(listed, quant=pull.source.quant, memory_bytes=total_memory())
    quant, size = selected.quant or "an unnamed quant", format_bytes(selected.size_bytes)
    progress.say(f"{pull.source.name}: {listed.repository} at {listed.revision[:12]}, {quant}, {size}")
    wanted = (selected.projector, *selected.texts)
    folder.mkdir(parents=True, exist_ok=True)
    keep_only(folder, {file.name for file in wanted})
    pull.check_room(selected.size_bytes)
    progress.begin("fetching", selected.size_bytes)
    for file in wanted:
        download(listed, file, folder / file.name, progress.advance)
        progress.say(f"{file.name}: {format_bytes(file.size)}, sha256 checked")
    return selected.quant, [
        StoredFile(file.name, "text" if file in selected.texts else "projector", file.size, file.sha256)
        for file in wanted
    ]


def select_files(listed: Listing, *, quant: str, memory_bytes: int) -> SelectedFiles:
    """The files to fetch; ModelError if there are none, if the quant is not listed, or if none fits into memory."""
    if listed.architecture not in ("", *PROJECTORS):
        known = " or ".join(map(repr, PROJECTORS))
        raise ModelError(f"{listed.repository} is of architecture {listed.architecture!r}; a judge needs {known}.")
    repository, quant = listed.repository, normalise_quant(quant)
    ggufs = [f for f in listed.files if f.path.lower().endswith(".gguf") and "imatrix" not in f.path.lower()]
    projectors = [file for file in ggufs if "mmproj" in file.name.lower()]
    texts = {file.path: file for file in ggufs if file not in projectors}
    for kind, found in (("GGUF text model", texts), ("projector (a file named mmproj*.gguf)", projectors)):
        if not found:
            raise ModelError(f"{repository} publishes no {kind} (it lists {join_paths(listed.files)}): pull another.")
    projector = min(projectors, key=lambda file: (projector_rank(file.name), file.size))
    quants = {path: quant_of(file.name) for path, file in texts.items()}
    if quant and quant not in quants.values():
        raise ModelError(f"{repository} has no quant {quant!r}; it has {', '.join(sorted({*quants.values()}))}.")
    models = {part_names(path) for path in texts if quant in ("", quants[path])}
    # Of two with one quant the last is taken, which is the one in fewer parts.
    ordered = sorted(models, key=lambda names: (len(names), names), reverse=True)
    whole = {quants[names[0]]: [texts[name] for name in names] for names in ordered if texts.keys() >= {*names}}
    if not whole:
        raise ModelError(
            f"{repository} lists only some parts of {quant or 'its text models'} ({join_paths(texts.values())}). "
            "Choose another quant, or another repository."
        )
    if not quant:
        sizes = {name: sum(file.size for file in files) for name, files in whole.items()}
        quant = choose_quant(repository, sizes, projector.size, memory_bytes=memory_bytes)
    return SelectedFiles(tuple(whole[quant]), projector, quant)
