"""Pulls a model that is published as GGUF: selects text and projector, and downloads them, checked."""

from __future__ import annotations

from dataclasses import dataclass

from vrt_lite.errors import ModelError
from vrt_lite.machine import format_bytes
from vrt_lite.models import PROJECTORS
from vrt_lite.models.gguf import is_part, normalise_quant, projector_rank, quant_of
from vrt_lite.models.hub import HubFile, Listing, download
from vrt_lite.models.library import StoredFile, keep_only
from vrt_lite.models.quants import choose_quant, total_memory
from vrt_lite.pulling.pull_source import Pull, join_paths


@dataclass(frozen=True, slots=True)
class SelectedFiles:
    """The files to fetch. `quant` is the text's, "" if its name has none."""

    text: HubFile
    projector: HubFile
    quant: str

    @property
    def size_bytes(self) -> int:
        """Bytes to fetch."""
        return self.text.size + self.projector.size


def pull_gguf(pull: Pull) -> tuple[str, list[StoredFile]]:
    """Put text model and projector into the partial folder. Returns the text's quant, and both."""
    listed, folder, progress = pull.listed, pull.folder, pull.progress
    selected = select_files(listed, quant=pull.source.quant, memory_bytes=total_memory())
    quant, size = selected.quant or "an unnamed quant", format_bytes(selected.size_bytes)
    progress.say(f"{pull.source.name}: {listed.repository} at {listed.revision[:12]}, {quant}, {size}")
    text, projector = selected.text, selected.projector
    folder.mkdir(parents=True, exist_ok=True)
    keep_only(folder, (text.name, projector.name))
    pull.check_room(selected.size_bytes)
    progress.begin("fetching", selected.size_bytes)
    for file in (projector, text):
        download(listed, file, folder / file.name, progress.advance)
        progress.say(f"{file.name}: {format_bytes(file.size)}, sha256 checked")
    return selected.quant, [
        StoredFile(projector.name, "projector", projector.size, projector.sha256),
        StoredFile(text.name, "text", text.size, text.sha256),
    ]


def select_files(listed: Listing, *, quant: str, memory_bytes: int) -> SelectedFiles:
    """The files to fetch; ModelError if there are none, if the quant is not listed, or if none fits into memory."""
    if listed.architecture not in ("", *PROJECTORS):
        known = " or ".join(map(repr, PROJECTORS))
        raise ModelError(f"{listed.repository} is of architecture {listed.architecture!r}; a judge needs {known}.")
    repository, quant = listed.repository, normalise_quant(quant)
    ggufs = [f for f in listed.files if f.path.lower().endswith(".gguf") and "imatrix" not in f.path.lower()]
    projectors = [file for file in ggufs if "mmproj" in file.name.lower()]
    texts = [file for file in ggufs if file not in projectors and not is_part(file.name)]
    for kind, found in (("GGUF text model in one file", texts), ("projector (a file named mmproj*.gguf)", projectors)):
        if not found:
            raise ModelError(f"{repository} publishes no {kind} (it lists {join_paths(listed.files)}): pull another.")
    projector = min(projectors, key=lambda file: (projector_rank(file.name), file.size))
    of_quant = {quant_of(file.name): file for file in texts}
    if not quant:
        sizes = {name: file.size for name, file in of_quant.items()}
        quant = choose_quant(repository, sizes, projector.size, memory_bytes=memory_bytes)
    if quant not in of_quant:
        raise ModelError(f"{repository} has no quant {quant!r}; it has {', '.join(sorted(of_quant))}.")
    return SelectedFiles(of_quant[quant], projector, quant)
