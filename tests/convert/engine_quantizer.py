"""llama.cpp's own quantiser: the reference for the bytes of a quantised language model, and for the types it chooses.

Types are those of its dry run, over a file whose weights are a hole in the disk.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as engine
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, LlamaFileType
from numpy import dtype, float32, ones, uint8

from vrt_lite.conversion.quantization import read_importance
from vrt_lite.models.gguf import Gguf

STEP = re.compile(r"\[ *\d+/ *\d+\] (\S+) .* type = *(\w+), size = .*?(?:\((\w+)\))?$")


def quantize(source: Path, kind: str, imatrix: Path | None) -> bytes:
    """Return the file that the quantiser makes of a file that is not quantised."""
    path = source.with_suffix(f".{kind}")
    _run(source, path, kind, read_importance(imatrix) if imatrix else {})
    data = path.read_bytes()
    path.unlink()
    return data


def chosen_types(hole: Path, kind: str, *, with_importance: bool) -> list[tuple[str, str]]:
    """Return each tensor's name and type, in the order in which the quantiser would write them."""
    importance = {"a tensor": ones(1, float32)} if with_importance else {}
    log = _run(hole, Path("never written"), kind, importance, dry_run=True)
    steps = filter(None, map(STEP.match, map(str.strip, log.splitlines())))
    return [(step[1], (step[3] or step[2]).upper()) for step in steps]


def _run(source: Path, target: Path, kind: str, importance: Mapping[str, Any], *, dry_run: bool = False) -> str:
    """Run the quantiser; return its log."""
    log: list[str] = []

    @engine.llama_log_callback
    def listen(level: int, text: bytes, _: Any) -> None:
        log.append(text.decode(errors="replace"))

    parameters = engine.llama_model_quantize_default_params()
    parameters.ftype, parameters.dry_run = int(LlamaFileType[f"MOSTLY_{kind.upper()}"]), dry_run
    entries: Any = (engine.llama_model_imatrix_data * (len(importance) + 1))()  # ends with an empty one
    for entry, (name, values) in zip(entries, importance.items(), strict=False):
        entry.name, entry.size = name.encode(), values.size
        entry.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    if importance:
        parameters.imatrix = entries
    with _logging_to(listen):
        status = engine.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.pointer(parameters))
    assert not status, "".join(log)
    return "".join(log)


@contextmanager
def _logging_to(listen: Any) -> Generator[None]:
    """Send the engine's log to a callback, and to where it went before when the block ends."""
    before, data = engine.llama_log_callback(), ctypes.c_void_p()
    engine.llama_log_get(ctypes.pointer(before), ctypes.pointer(data))
    engine.llama_log_set(listen, ctypes.c_void_p(0))
    try:
        yield
    finally:
        engine.llama_log_set(before, data)


def write_hole(path: Path, text: Gguf) -> None:
    """Write a language model's file of this description: its header, and zeros that take no space."""
    writer = GGUFWriter(path, "qwen2vl")
    for key, value in text.values.items():
        if key.startswith("qwen2vl."):
            kind = GGUFValueType.FLOAT32 if isinstance(value, float) else GGUFValueType.UINT32
            writer.add_key_value(key, value, kind)
    writer.add_array("qwen2vl.rope.dimension_sections", [1, 1, 1, 0])
    for tensor in text.tensors:
        kind = GGMLQuantizationType(tensor.kind)
        width = {"BF16": 2, "F32": 4}[kind.name]
        shape = (*tensor.dimensions[:0:-1], tensor.dimensions[0] * width)
        writer.add_tensor_info(tensor.name, shape, dtype(uint8), tensor.size, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    header = -(-path.stat().st_size // 32) * 32
    os.truncate(path, header + sum(tensor.size for tensor in text.tensors))
