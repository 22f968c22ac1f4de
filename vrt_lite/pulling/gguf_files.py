"""Pulls a model that is published as GGUF: selects text and projector, and downloads them, checked.

A text model may be split into parts (NAME-00001-of-00003.gguf). All parts are taken, and stay as they are.
"""

from __future__ import annotations

from vrt_lite.errors import ModelError
from vrt_lite.machine import format_bytes
from vrt_lite.models.gguf import normalise_quant, part_names, projector_rank, quant_of
from vrt_lite.models.hub import HubFile, Listing, download
from vrt_lite.models.library import StoredFile, keep_only
from vrt_lite.models.quants import choose_quant, total_memory
from vrt_lite.pulling.pull_source import Pull


def pull_gguf(pull: Pull) -> tuple[str, list[StoredFile]]:
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
        sizes = {name: sum(file.size for file in files) for name, files in whole.items()}
        quant = choose_quant(repository, sizes, projector.size, memory_bytes=memory_bytes)
    if quant not in whole:
        raise ModelError(f"{repository} has no quant {quant!r} with all its parts; it has {', '.join(sorted(whole))}.")
    return [projector, *whole[quant]]
