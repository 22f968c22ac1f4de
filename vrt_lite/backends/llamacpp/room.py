"""The memory of this machine and of its GPUs, now. Refuses to know what it is needed for."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import psutil

from vrt_lite.backends.llamacpp.engine import engine_log, llama
from vrt_lite.backends.llamacpp.machine import GPUS, devices, ggml_function
from vrt_lite.fitting.fit import Gpu, Room


def this_room() -> Room:
    """What can be had now and what there is. Loads the engine."""
    engine_log()
    memory = psutil.virtual_memory()
    return Room(memory.available, memory.total + psutil.swap_memory().total, tuple(_gpus()))


def _gpus() -> Iterator[Gpu]:
    """The GPUs that the engine would use; none where it was built without."""
    handles = [(name, handle) for kind, name, handle in devices() if kind in GPUS]
    if not handles or not llama.llama_supports_gpu_offload():
        return
    ask = ggml_function("ggml_backend_dev_memory")
    size = ctypes.POINTER(ctypes.c_size_t)
    ask.argtypes, ask.restype = [ctypes.c_void_p, size, size], None
    for name, handle in handles:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        ask(handle, ctypes.byref(free), ctypes.byref(total))
        yield Gpu(name, free.value)
