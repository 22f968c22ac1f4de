"""llama.cpp's own choice of types: its quantiser's dry run, over a file whose weights are a hole in the disk."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as engine
from engine_quantizer import logging_to
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, LlamaFileType
from numpy import dtype, uint8

from vrt_lite.models.gguf import Gguf

STEP = re.compile(r"\[ *\d+/ *\d+\] (\S+) .* type = *(\w+), size = .*?(?:\((\w+)\))?$")


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


def chosen_types(source: Path, file_type: str, *, with_importance: bool) -> list[tuple[str, str]]:
    """Return each tensor's name and type, in the order in which the quantiser would write them."""
    found: list[tuple[str, str]] = []

    pending: list[str] = []

    @engine.llama_log_callback
    def listen(level: int, text: bytes, _: Any) -> None:
        pending.append(text.decode())
        if text.endswith(b"\n"):
            if step := STEP.match("".join(pending).strip()):
                found.append((step[1], (step[3] or step[2]).upper()))
            pending.clear()

    parameters = engine.llama_model_quantize_default_params()
    parameters.ftype, parameters.dry_run = int(LlamaFileType[f"MOSTLY_{file_type.upper()}"]), True
    if with_importance:
        entries: Any = (engine.llama_model_imatrix_data * 2)()
        values = (ctypes.c_float * 1)(1.0)
        entries[0].name, entries[0].size, entries[0].data = b"a tensor", 1, values
        parameters.imatrix = entries
    with logging_to(listen):
        assert not engine.llama_model_quantize(os.fsencode(source), b"never written", ctypes.pointer(parameters))
    return found
