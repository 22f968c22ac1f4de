"""llama.cpp's own quantiser, the reference for the bytes of a quantised language model."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as engine

from vrt_lite.conversion.quantization import read_importance


def quantize(source: Path, path: Path, file_type: int, imatrix: Path | None) -> None:
    """Write `path` from a file that is not quantised."""

    @engine.llama_log_callback
    def listen(level: int, text: bytes, _: Any) -> None:
        log.append(text.decode(errors="replace"))

    log: list[str] = []
    parameters = engine.llama_model_quantize_default_params()
    parameters.ftype = file_type
    means = read_importance(imatrix) if imatrix else {}
    entries: Any = (engine.llama_model_imatrix_data * (len(means) + 1))()  # ends with an empty one
    for entry, (name, values) in zip(entries, means.items(), strict=False):
        entry.name, entry.size = name.encode(), values.size
        entry.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    if imatrix:
        parameters.imatrix = entries
    with logging_to(listen):
        status = engine.llama_model_quantize(os.fsencode(source), os.fsencode(path), ctypes.pointer(parameters))
    assert not status, "".join(log)


@contextmanager
def logging_to(listen: Any) -> Generator[None]:
    """Send the engine's log to a callback, and to where it went before when the block ends."""
    before, data = engine.llama_log_callback(), ctypes.c_void_p()
    engine.llama_log_get(ctypes.pointer(before), ctypes.pointer(data))
    engine.llama_log_set(listen, ctypes.c_void_p(0))
    try:
        yield
    finally:
        engine.llama_log_set(before, data)
