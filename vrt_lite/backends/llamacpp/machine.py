"""What the engine says about this machine: the processor, the GPUs, and what the engine was built with.

The one place that asks ggml for its devices. Refuses to know what the answer is used for.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vrt_lite.backends.llamacpp.engine import engine_log, libraries, llama, usable_cpus
from vrt_lite.fitting.tuning import Machine

_CPU, GPUS = 0, (1, 2)
"""Of `enum ggml_backend_dev_type`: the processor; GPUs with memory of their own, and without."""


@functools.cache
def this_machine() -> Machine:
    """This machine, as far as it decides how fast a model runs."""
    engine_log()
    found = devices()
    processor = next((name for kind, name, _ in found if kind == _CPU), "") or platform.processor()
    gpus = tuple(name for kind, name, _ in found if kind in GPUS)
    features = llama.llama_print_system_info().decode(errors="replace")
    engine = f"llama-cpp-python {version('llama-cpp-python')}: {features}"
    build = hashlib.blake2b(repr((_instructions(), libraries())).encode(), digest_size=8).hexdigest()
    return Machine(processor, usable_cpus(), gpus, engine, build)


def _instructions() -> str:
    """What the first processor can do, as Linux lists it; elsewhere its family and model, as far as they are known."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return platform.processor()


def devices() -> list[tuple[int, str, int]]:
    """Kind, description and handle of every device that the engine can use; none where its libraries do not say."""
    try:
        count, get = ggml_function("ggml_backend_dev_count"), ggml_function("ggml_backend_dev_get")
        kind, about = ggml_function("ggml_backend_dev_type"), ggml_function("ggml_backend_dev_description")
    except AttributeError:
        return []
    count.restype, get.restype, about.restype = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
    get.argtypes, kind.argtypes, about.argtypes = [ctypes.c_size_t], [ctypes.c_void_p], [ctypes.c_void_p]
    handles = [get(i) for i in range(count())]
    return [(int(kind(handle)), about(handle).decode(errors="replace"), handle) for handle in handles]


def ggml_function(name: str) -> Any:
    """A function of ggml; AttributeError if it is not found.

    Where a library's symbols are not found through those that link to it (Windows), ggml's own are asked.
    """
    with contextlib.suppress(AttributeError):
        return llama._lib[name]
    for library in ("ggml", "ggml-base"):
        with contextlib.suppress(AttributeError, OSError, FileNotFoundError):
            return llama.load_shared_library(library, llama._base_path)[name]
    raise AttributeError(name)
