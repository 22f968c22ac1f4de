"""llama.cpp through its C interface: its log, this machine's devices, a text model and its vocabulary.

Only this module imports `llama_cpp`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import sys
import threading
import unicodedata
from collections import deque
from collections.abc import Generator, Iterator
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from vrt_lite.errors import ASK_DOCTOR, ModelError, OutOfMemoryError
from vrt_lite.machine import SMALL_MODEL_BYTES, EngineSettings, Gpu, Machine, MachineMemory
from vrt_lite.models.gguf import gguf_bytes, read_gguf
from vrt_lite.shortage import explain_shortage

if TYPE_CHECKING:
    from vrt_lite.backends.llamacpp.abort_check import AbortCheck


def _import_bindings() -> Iterator[Any]:
    """Import the two modules of C functions, but not their package: its server and chat formats take .1 s more.

    They are only partly typed, so they are Any, and what they return is checked. A later import of the package loads
    all of it, with modules of its own. Raises OSError or RuntimeError if its libraries are missing, or do not fit.
    """
    if alone := None if "llama_cpp" in sys.modules else find_spec("llama_cpp"):
        sys.modules[alone.name] = module_from_spec(alone)
    try:
        yield import_module("llama_cpp.llama_cpp")
        yield import_module("llama_cpp.mtmd_cpp")
    finally:
        # Another thread may import meanwhile: the names are copied at once.
        for name in list(sys.modules) if alone else ():
            if name.partition(".")[0] == "llama_cpp":
                del sys.modules[name]


# GNU's OpenMP reads this once, when it is loaded with the engine. By default a thread that waits for another spins for
# milliseconds: next to one busy program, prefill was 10 to 60 times as slow. With short spins it is not. A value that
# the user has set is kept, and the environment is the same afterwards.
_spins_by_default = "GOMP_SPINCOUNT" not in os.environ
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
try:
    llama, mtmd = _import_bindings()
except (OSError, RuntimeError) as error:
    raise explain_shortage(error) or ModelError(f"The engine cannot be loaded: {error}.{ASK_DOCTOR}") from error
finally:
    if _spins_by_default:
        del os.environ["GOMP_SPINCOUNT"]

_CPU, _GPUS = 0, (1, 2)
"""Of `enum ggml_backend_dev_type`: the processor; GPUs with memory of their own, and without."""
_UNEVEN_BYTES = 2 * 2**30
_starting = threading.Lock()
"""Without it two threads could make two logs: one is collected, and the engine may go on calling that one."""
_OUT_OF_MEMORY_WORDS = ("failed to allocate", "out of memory", "unable to allocate", "cannot allocate", "bad_alloc")


class EngineLog:
    """llama.cpp's log: silent unless echoed to stderr. The last lines are kept to explain a failure."""

    def __init__(self) -> None:
        self._echoes = 0
        self.lines: deque[str] = deque(maxlen=100)
        # The engine calls this object until the process ends: it must never be collected.
        self._callback = llama.llama_log_callback(self._write)

    def install(self) -> None:
        """Route every log of the engine here. Each is one for the whole process."""
        for route in (llama.llama_log_set, mtmd.mtmd_log_set, mtmd.mtmd_helper_log_set):
            route(self._callback, ctypes.c_void_p())

    @contextlib.contextmanager
    def echo(self, wanted: bool) -> Generator[None]:
        """Echo while this is open, if it is wanted. Others that are open at the same time decide for themselves."""
        self._echoes += wanted
        try:
            yield
        finally:
            self._echoes -= wanted

    def _write(self, level: int, text: bytes, data: object) -> None:
        line = text.decode(errors="replace")
        self.lines += map(str.strip, line.splitlines())
        if self._echoes:
            sys.stderr.write(line)

    def explain(self, fallback: str) -> str:
        """The most likely reason among the last lines."""
        errors = [line for line in list(self.lines) if "error" in line.lower() or "failed" in line.lower()]
        return errors[0] if errors else fallback

    def shows_out_of_memory(self) -> bool:
        """Whether an allocation failed."""
        return any(words in line.lower() for line in list(self.lines) for words in _OUT_OF_MEMORY_WORDS)


def start_engine() -> EngineLog:
    """Start the engine, once in a process, whichever thread comes first; returns its log."""
    with _starting:
        return _start_once()


@functools.cache
def _start_once() -> EngineLog:
    log = EngineLog()
    log.install()
    llama.llama_backend_init()
    return log


def list_libraries() -> list[tuple[str, int]]:
    """The engine's files by name, with their sizes, which differ between builds."""
    return sorted((path.name, path.stat().st_size) for path in llama._base_path.iterdir())


def usable_cpus() -> int:
    """Processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def describe_machine() -> Machine:
    """This machine, as far as it decides how fast a model runs."""
    start_engine()
    devices = _list_devices()
    processor = next((name for kind, name, _ in devices if kind == _CPU), "") or platform.processor()
    gpus = tuple(name for kind, name, _ in devices if kind in _GPUS)
    features = llama.llama_print_system_info().decode(errors="replace")
    engine = f"llama-cpp-python {version('llama-cpp-python')}: {features}"
    build = hashlib.blake2b(repr((_read_instructions(), list_libraries())).encode(), digest_size=8).hexdigest()
    return Machine(processor, usable_cpus(), gpus, engine, build)


def read_memory() -> MachineMemory:
    """The memory that is free now, and the total."""
    start_engine()
    memory = psutil.virtual_memory()
    return MachineMemory(memory.available, memory.total + psutil.swap_memory().total, _read_gpu())


def _read_instructions() -> str:
    """The features of the first processor on Linux; elsewhere its family and model, if known."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return platform.processor()


def _list_devices() -> list[tuple[int, str, int]]:
    """Kind, description and handle of every device that the engine can use; none if its libraries cannot list them."""
    try:
        count, get = find_function("ggml_backend_dev_count"), find_function("ggml_backend_dev_get")
        kind, about = find_function("ggml_backend_dev_type"), find_function("ggml_backend_dev_description")
    except AttributeError:
        return []
    count.restype, get.restype, about.restype = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
    get.argtypes, kind.argtypes, about.argtypes = [ctypes.c_size_t], [ctypes.c_void_p], [ctypes.c_void_p]
    handles = [get(i) for i in range(count())]
    return [(int(kind(handle)), about(handle).decode(errors="replace"), handle) for handle in handles]


def _read_gpu() -> Gpu | None:
    """The GPU that the engine would use; None if it was built without.

    Several are one with the memory of all. The engine divides the layers by their free memory, but not the buffers of
    an evaluation and the projector: so much is left free on each GPU but the first.
    """
    handles = [(name, handle) for kind, name, handle in _list_devices() if kind in _GPUS]
    if not handles or not llama.llama_supports_gpu_offload():
        return None
    read = find_function("ggml_backend_dev_memory")
    size = ctypes.POINTER(ctypes.c_size_t)
    read.argtypes, read.restype = [ctypes.c_void_p, size, size], None
    free_bytes = -_UNEVEN_BYTES * (len(handles) - 1)
    for _, handle in handles:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        read(handle, ctypes.byref(free), ctypes.byref(total))
        free_bytes += free.value
    return Gpu(" + ".join(name for name, _ in handles), max(free_bytes, 0))


def find_function(name: str) -> Any:
    """A function of ggml; AttributeError if it is not found.

    On Windows a library's symbols are not found through the libraries that link to it: there ggml's own are searched.
    """
    with contextlib.suppress(AttributeError):
        return llama._lib[name]
    for library in ("ggml", "ggml-base", "ggml-cpu"):
        with contextlib.suppress(AttributeError, OSError, FileNotFoundError):
            return llama.load_shared_library(library, llama._base_path)[name]
    raise AttributeError(name)


def load_error(what: str, path: Path, log: EngineLog) -> ModelError | OutOfMemoryError:
    """The error for a file that the engine could not load, by what it logged."""
    if log.shows_out_of_memory():
        return OutOfMemoryError(
            f"Not enough memory for {what} {path.name}: {log.explain('allocation failed')}. "
            "Use a smaller quantisation, --ctx, --max-pixels, or fewer --gpu-layers."
        )
    return ModelError(f"The engine cannot load {what} {path}: {log.explain('no reason given')}.")


def uses_gpu(gpu_layers: int | None) -> bool:
    """Whether anything goes to a GPU."""
    return gpu_layers != 0 and bool(llama.llama_supports_gpu_offload())


def require_memory(needed: int, what: str, advice: str) -> None:
    """OutOfMemoryError for more memory than this machine has. Otherwise the system would kill the process later."""
    total = psutil.virtual_memory().total + psutil.swap_memory().total
    if needed > total:
        gb = 2**30
        raise OutOfMemoryError(f"{what} needs {needed / gb:.1f} GB, this machine has {total / gb:.1f} GB. {advice}")


def flash_attention_type(enabled: bool | None) -> int:
    """The engine's constant; None lets it choose. Flash attention rounds keys and values to F16 inside."""
    if enabled is None:
        return llama.LLAMA_FLASH_ATTN_TYPE_AUTO
    return llama.LLAMA_FLASH_ATTN_TYPE_ENABLED if enabled else llama.LLAMA_FLASH_ATTN_TYPE_DISABLED


class Model(contextlib.ExitStack):
    """A loaded text model and its vocabulary; a context manager."""

    def __init__(self, path: Path, *, settings: EngineSettings) -> None:
        super().__init__()
        log = start_engine()
        log.lines.clear()
        gpu_layers = settings.gpu_layers
        self.on_gpu = uses_gpu(gpu_layers)
        if not self.on_gpu:
            require_memory(gguf_bytes(path), f"The text model {path.name}", "Use a smaller quantisation.")
        params = llama.llama_model_default_params()
        params.n_gpu_layers = gpu_layers if gpu_layers is not None else -1 if self.on_gpu else 0
        # Without layers on a GPU the engine still sends large multiplications to it, with buffers of their own. An
        # empty list of devices, which ends with a null pointer, keeps everything on the processor.
        no_devices = ctypes.c_void_p()
        params.devices = None if self.on_gpu else ctypes.addressof(no_devices)
        # Repacked weights are a second copy and may slow prefill down; a judge is mostly prefill.
        params.use_extra_bufts = settings.repack
        self.pointer = llama.llama_model_load_from_file(os.fsencode(path), params)
        if not self.pointer:
            raise load_error("the text model", path, log)
        self.callback(llama.llama_model_free, self.pointer)
        self._vocab = llama.llama_model_get_vocab(self.pointer)
        self.vocabulary = int(llama.llama_vocab_n_tokens(self._vocab))
        self.bytes = int(llama.llama_model_size(self.pointer))
        self.is_small = self.bytes < SMALL_MODEL_BYTES and not self.on_gpu
        self.abort_check: AbortCheck | None = None
        if not self.is_small:  # each step of a small model is short
            from vrt_lite.backends.llamacpp.abort_check import AbortCheck  # noqa: PLC0415

            self.abort_check = AbortCheck(llama)
        self.width = int(llama.llama_model_n_embd(self.pointer))
        # Behind an embedding stands what is added to the outputs of the first layers, where a model has that.
        self.input_width = int(llama.llama_model_n_embd_inp(self.pointer))
        # Keys and values of one token over all layers, two bytes each.
        header = read_gguf(path)
        head = header.number(f"{header.values.get('general.architecture')}.attention.key_length")
        head = head or self.width // llama.llama_model_n_head(self.pointer)
        layers, heads = llama.llama_model_n_layer(self.pointer), llama.llama_model_n_head_kv(self.pointer)
        self.cache_bytes = 4 * int(layers * heads * head)
        self.trained_context = int(llama.llama_model_n_ctx_train(self.pointer))
        self.added = tuple(self._added())

    def tokens(self, text: str, *, special: bool) -> list[int]:
        """Token ids of a text; with `special` off, the text of a control token stays plain.

        Composed first (NFC), as the reference tokenizer does and llama.cpp does not.
        """
        data = unicodedata.normalize("NFC", text).encode(errors="replace")
        size = len(data) + 8
        buffer = (llama.llama_token * size)()
        count = llama.llama_tokenize(self._vocab, data, len(data), buffer, size, False, special)
        return list(buffer[:count])

    def control(self, name: str) -> int:
        """The id of a control token; ModelError if the vocabulary lacks it."""
        tokens = self.tokens(name, special=True)
        if len(tokens) != 1:
            raise ModelError(f"The text model's vocabulary has no token {name}: it is not a Qwen-VL model.")
        return tokens[0]

    def piece(self, token: int) -> bytes:
        """The bytes of a token."""
        buffer = ctypes.create_string_buffer(256)
        count = llama.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, True)
        return buffer.raw[: max(count, 0)]

    def ends(self, token: int) -> bool:
        """Whether a token ends the turn."""
        return bool(llama.llama_vocab_is_eog(self._vocab, token))

    def _added(self) -> Iterator[str]:
        """Texts of user-defined tokens. They are at the vocabulary's end, after the normal ones."""
        for token in range(self.vocabulary - 1, -1, -1):
            kind = llama.llama_vocab_get_attr(self._vocab, token)
            if kind & llama.LLAMA_TOKEN_ATTR_NORMAL:
                return
            if kind & llama.LLAMA_TOKEN_ATTR_USER_DEFINED:
                yield self.piece(token).decode(errors="replace")
