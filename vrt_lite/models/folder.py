"""Which text GGUF of a folder to judge with: one model may lie there in several types, as a conversion leaves it.

Goes by the files' headers: names are the user's. The rule itself is that of `choose`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from vrt_lite.errors import ModelError
from vrt_lite.models.choose import SHARE_OF_MEMORY, Candidate, best_quant, memory_here, quant_in, quant_of
from vrt_lite.models.gguf import Header, read_header

_MODEL_KEYS: Final = ("general.architecture", "general.name", "qwen2vl.block_count", "qwen2vl.embedding_length")
"""What all files of one model have in common."""
_NO_TEXT: Final = ("adapter", "imatrix", "mmproj")


def texts_in(folder: Path) -> dict[Path, str]:
    """The folder's text model in the types that lie there, each with its quant ("" if there is but one file).

    ModelError if there is none, or more than one model.
    """
    paths = sorted(path for path in folder.glob("*.gguf") if not re.search("mmproj|imatrix", path.name))
    if len(paths) == 1:
        return {paths[0]: ""}
    headers = {path: header for path in paths if _is_text(header := read_header(path))}
    if not headers:
        raise ModelError(f"Folder {folder} must hold one text GGUF; found none.")
    if len({tuple(header.get(key) for key in _MODEL_KEYS) for header in headers.values()}) > 1:
        found = ", ".join(_described(path, header) for path, header in headers.items())
        raise ModelError(
            f"Folder {folder} holds text GGUFs of different models: {found}. Give one of these files, not the folder."
        )
    return {path: quant_in(header, path.name) for path, header in headers.items()}


def best_text(texts: Mapping[Path, str], projector: Path, *, memory_bytes: int | None) -> Path:
    """The best of one model's types beside its projector, on this machine or one of so much memory.

    The smallest if none fits. ModelError if two files are of the type that was chosen.
    """
    if len(texts) == 1:
        return next(iter(texts))
    candidates = {Candidate(str(path), quant, path.stat().st_size): path for path, quant in texts.items()}
    memory_bytes = memory_here() if memory_bytes is None else memory_bytes
    room = int(memory_bytes * SHARE_OF_MEMORY) - projector.stat().st_size
    best = best_quant(candidates, room) or min(candidates, key=lambda file: file.size)
    same = [path for file, path in candidates.items() if file.quant == best.quant and _alike(path, candidates[best])]
    if len(same) > 1:
        raise ModelError(
            f"Folder {same[0].parent} may hold, of each type, one text GGUF; found {', '.join(p.name for p in same)} "
            f"of {best.quant}. Give one of these files, not the folder."
        )
    return candidates[best]


def _is_text(header: Header) -> bool:
    return header.get("general.architecture") != "clip" and header.get("general.type") not in _NO_TEXT


def _alike(a: Path, b: Path) -> bool:
    """Whether two names tell no types apart. Publishers give mixtures of types one number and names of their own."""
    one, other = quant_of(a.name), quant_of(b.name)
    return one == other or not (one and other)


def _described(path: Path, header: Header) -> str:
    architecture, name, layers, width = (header.get(key) for key in _MODEL_KEYS)
    return f"{path.name} ({name or architecture!r}, {layers} layers of width {width})"
