"""The verb `quantize`: smaller files beside a pair that is not quantised yet, through the writer of `export`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from convert.source import find_exact
from vrt_lite.conversion.convert_folder import write_planned
from vrt_lite.conversion.gguf_source import read_importance, read_source
from vrt_lite.conversion.gguf_writer import GgufFile
from vrt_lite.conversion.pair_plan import make_plan
from vrt_lite.conversion.pair_writer import FinishedFile
from vrt_lite.conversion.quantization import quantize_projector, quantize_text
from vrt_lite.conversion.type_names import PLAIN_TYPES
from vrt_lite.disk import file_sha256
from vrt_lite.errors import UsageError
from vrt_lite.models.gguf import whole_name

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
        text = find_exact(source, "text model")
        importance = read_importance(imatrix) if imatrix else None
        file = quantize_text(read_source(text, "f32"), text_type, importance=importance)
        files.append(replace(file, name=_name_for(text, text_type)))
    if projector_type:
        projector = find_exact(source, "projector")
        plain = projector_type in PLAIN_TYPES
        file = read_source(projector, projector_type if plain else "f32")
        file = file if plain else quantize_projector(file, projector_type)
        files.append(replace(file, name=_name_for(projector, projector_type)))
    folder = source if source.is_dir() else source.parent
    shards = sorted({target.shard for file in files for target in file.targets})
    states = [(shard, (folder / shard).stat()) for shard in shards]
    origin = [(shard, state.st_size, state.st_mtime_ns) for shard, state in states]
    origin += [file_sha256(imatrix)] if imatrix else []
    return write_planned(make_plan(files, origin=repr(origin)), folder, folder, progress)


def _name_for(source: Path, file_type: str) -> str:
    name = f"{TYPE_IN_NAME.sub('', whole_name(source.stem))}-{file_type.upper()}.gguf"
    if name == source.name:
        raise UsageError(f"{source} is {file_type} already")
    return name
