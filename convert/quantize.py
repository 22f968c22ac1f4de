"""The verb `quantize`: smaller files beside a pair that is not quantised yet, through the writer of `export`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gguf import LlamaFileType

from vrt_lite.conversion import text_tensors, vision_tensors
from vrt_lite.conversion.gguf_source import read_source
from vrt_lite.conversion.gguf_writer import GgufFile
from vrt_lite.conversion.importance_matrix import read_importance
from vrt_lite.conversion.pair_plan import make_plan
from vrt_lite.conversion.pair_writer import FinishedFile, write_planned
from vrt_lite.conversion.projector import quantize_projector
from vrt_lite.conversion.quantization_types import quantize_file
from vrt_lite.conversion.type_names import PLAIN_TYPES
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.models.gguf import Header, list_ggufs, read_header, whole_name

UNQUANTIZED = {0: "f32", 1: "f16", 32: "bf16"}  # by general.file_type
TYPE_IN_NAME = re.compile(r"-(F32|F16|BF16)$", re.IGNORECASE)


def quantize_pair(
    source: Path,
    *,
    text_type: str | None = None,
    projector_type: str | None = None,
    imatrix: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[FinishedFile]:
    """Write NAME-TYPE.gguf, mmproj-NAME-TYPE.gguf or both beside their sources, replacing files of those names.

    `source` is a folder, or a text or projector GGUF if a folder holds several that qualify. Raises ModelError
    for a source that cannot be used, UsageError for a full disk.
    """
    if not (text_type or projector_type):
        raise UsageError("nothing to do: give --type, --projector-type or both")
    if imatrix and not text_type:
        raise UsageError("--imatrix is for the text model: give --type")
    files = list[GgufFile]()
    if text_type:
        text = _find(source, text_tensors.ARCHITECTURE)
        importance = read_importance(imatrix) if imatrix else None
        file = quantize_file(read_source(text, "f32"), text_type, importance=importance)
        files.append(replace(file, name=_name_for(text, text_type)))
    if projector_type:
        projector = _find(source, vision_tensors.ARCHITECTURE)
        plain = projector_type in PLAIN_TYPES
        file = read_source(projector, projector_type if plain else "f32")
        file = file if plain else quantize_projector(file, projector_type)
        files.append(replace(file, name=_name_for(projector, projector_type)))
    stored = [target.stored for file in files for target in file.targets]
    states = {s.path.name: s.path.stat() for s in stored}
    origin = repr(sorted((name, state.st_size, state.st_mtime_ns) for name, state in states.items()))
    folder = stored[0].path.parent
    return write_planned(make_plan(files, {name: {} for name in states}, origin=origin), folder, folder, progress)


def _find(source: Path, architecture: str) -> Path:
    """Find the one file of this architecture that is not quantised."""
    role = "text model" if architecture == text_tensors.ARCHITECTURE else "projector"
    if source.is_file():
        paths = [source]
    elif source.is_dir():
        is_projector = architecture == vision_tensors.ARCHITECTURE
        paths = [p for p in list_ggufs(source) if p.name.startswith("mmproj") == is_projector]
    else:
        raise ModelError(f"{source} is neither a folder nor a file: give the folder that `export` wrote")
    headers = {path: read_header(path) for path in paths}
    headers = {path: header for path, header in headers.items() if header.get("general.architecture") == architecture}
    whole = [path for path, header in headers.items() if header.get("general.file_type") in UNQUANTIZED]
    if len(whole) == 1:
        return whole[0]
    if whole:
        raise ModelError(f"{source} holds {', '.join(p.name for p in whole)}: give one of these files, not the folder")
    if headers:
        raise ModelError(
            f"{source} holds the {role} only as {_list(headers)}: a file quantised twice is worse than one quantised"
            " once; export with --type f16, bf16 or f32 and quantise that"
        )
    raise ModelError(f"{source} holds no {role} ({architecture}) as GGUF: make one with `python -m convert export`")


def _list(headers: dict[Path, Header]) -> str:
    return ", ".join(f"{path.name} ({_type_name(header)})" for path, header in headers.items())


def _type_name(header: Header) -> str:
    try:
        return LlamaFileType(header.get("general.file_type")).name.removeprefix("MOSTLY_")
    except ValueError:
        return "of no known type"


def _name_for(source: Path, file_type: str) -> str:
    name = f"{TYPE_IN_NAME.sub('', whole_name(source.stem))}-{file_type.upper()}.gguf"
    if name == source.name:
        raise UsageError(f"{source} is {file_type} already")
    return name
