"""The verb `quantize`: smaller files beside a pair that is not quantised yet.

The text model is quantised by llama.cpp (convert/quantizer_process.py, a process of its own), the projector by this
package's own writer.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from gguf import LlamaFileType

from vrt_lite.conversion import projector, text_tensors, vision_tensors
from vrt_lite.conversion.gguf_writer import write_gguf
from vrt_lite.conversion.whole_files import FinishedFile, check_space, describe, write_whole_files
from vrt_lite.errors import ModelError, OutOfMemoryError, UsageError, VrtError
from vrt_lite.models.gguf import Header, list_ggufs, read_header, whole_name

OnProgress = Callable[[int, int], None]
UNQUANTIZED = {0: "f32", 1: "f16", 32: "bf16"}  # by general.file_type
TYPE_IN_NAME = re.compile(r"-(F32|F16|BF16)$", re.IGNORECASE)
CHECKOUT = Path(__file__).resolve().parents[1]


def quantize_pair(
    source: Path,
    *,
    text_type: str | None = None,
    projector_type: str | None = None,
    imatrix: Path | None = None,
    progress: OnProgress = lambda done, total: None,
) -> list[FinishedFile]:
    """Write NAME-TYPE.gguf, mmproj-NAME-TYPE.gguf or both beside their sources, replacing files of those names.

    `source` is a folder, or a text or projector GGUF if a folder holds several that qualify. Raises ModelError
    for a source that cannot be used, UsageError for a full disk, OutOfMemoryError if the engine runs out.
    """
    if not (text_type or projector_type):
        raise UsageError("nothing to do: give --type, --projector-type or both")
    if imatrix and not text_type:
        raise UsageError("--imatrix is for the text model: give --type")
    # Both sources are checked before work on the first one starts.
    found = {kind: _find(source, kind) for kind, file_type in _requested_types(text_type, projector_type) if file_type}
    written = []
    if text_type:
        written.append(_quantize_text(found[text_tensors.ARCHITECTURE], text_type, imatrix, progress))
    if projector_type:
        written.append(_quantize_projector(found[vision_tensors.ARCHITECTURE], projector_type, progress))
    return written


def _requested_types(text_type: str | None, projector_type: str | None) -> list[tuple[str, str | None]]:
    return [(text_tensors.ARCHITECTURE, text_type), (vision_tensors.ARCHITECTURE, projector_type)]


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


def _target(source: Path, file_type: str) -> Path:
    return source.with_name(f"{TYPE_IN_NAME.sub('', whole_name(source.stem))}-{file_type.upper()}.gguf")


def _quantize_projector(source: Path, file_type: str, progress: OnProgress) -> FinishedFile:
    path = _target(source, file_type)
    if path == source:
        raise UsageError(f"{source} is {file_type} already")
    file = projector.convert_projector(source, path, file_type)
    total, done = sum(target.size for target in file.targets), 0
    check_space(path.parent, total)

    def advance(size: int) -> None:
        nonlocal done
        done += size
        progress(done, total)

    with write_whole_files([path]) as (part,):
        write_gguf(part, file, advance)
        read_header(part)
    return describe(path)


def _quantize_text(source: Path, file_type: str, imatrix: Path | None, progress: OnProgress) -> FinishedFile:
    path = _target(source, file_type)
    check_space(path.parent, 0)  # only the engine knows the size, and checks again
    number = LlamaFileType[f"MOSTLY_{file_type.upper()}"]
    with write_whole_files([path]) as (part,):
        _run_engine(
            source, [f"{part.resolve()}", str(int(number)), *([str(imatrix.resolve())] if imatrix else [])], progress
        )
    return describe(path)


def _run_engine(source: Path, arguments: list[str], progress: OnProgress) -> None:
    command = [sys.executable, "-m", "convert.quantizer_process", str(source.resolve()), *arguments]
    # An abort of the engine would start a debugger for a stack trace.
    environment = os.environ | {"GGML_NO_BACKTRACE": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=CHECKOUT, env=environment, text=True, errors="replace"
    ) as child:
        assert child.stdin
        assert child.stdout
        assert child.stderr
        try:
            for line in child.stdout:
                done, total = line.split()
                progress(int(done), int(total))
            lines = child.stderr.read().split("\n")
        except BaseException:
            child.kill()
            raise
        status = child.wait()
    if not status:
        return
    reason = next((line for line in reversed(lines) if line.strip()), "it gives no reason")
    for kind in (UsageError, ModelError, OutOfMemoryError, VrtError):
        if status == kind.status:
            raise kind(reason)
    if status == -9:
        raise OutOfMemoryError(f"the engine was killed while quantising {source}, probably for lack of memory")
    raise ModelError(f"the engine stopped with status {status} on {source}: {reason:.300}")
