"""llama.cpp through its C interface: its log, its memory, a text model and its vocabulary.

The one place that imports `llama_cpp`. Refuses to know conversations, profiles and frames.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import unicodedata
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as _llama
import llama_cpp.mtmd_cpp as _mtmd
import psutil

from vrt_lite.backends.settings import EngineSettings
from vrt_lite.errors import ModelError, OutOfMemoryError

# llama_cpp's ctypes wrappers are only partly typed; at this border they are Any and checked by what they return.
llama: Any = _llama
mtmd: Any = _mtmd

_SMALL_MODEL = 64 * 2**20
_MEMORY_SIGNS = ("failed to allocate", "out of memory", "unable to allocate", "cannot allocate", "bad_alloc")


class EngineLog:
    """llama.cpp's log lines: silent, the last ones kept to explain a failure, echoed to stderr on request."""

    def __init__(self) -> None:
        self.echo = False
        self.lines: deque[str] = deque(maxlen=100)
        # The engine calls this object for as long as the process lives: it must never be collected.
        self._callback = llama.llama_log_callback(self._write)

    def install(self) -> None:
        """Route every log of the engine here. The engine has one process-wide log."""
        for route in (llama.llama_log_set, mtmd.mtmd_log_set, mtmd.mtmd_helper_log_set):
            route(self._callback, ctypes.c_void_p())

    def _write(self, level: int, text: bytes, data: object) -> None:
        line = text.decode(errors="replace")
        self.lines.append(line.strip())
        if self.echo:
            sys.stderr.write(line)

    def explain(self, fallback: str) -> str:
        """The likeliest reason among the last lines."""
        telling = [line for line in self.lines if "error" in line.lower() or "failed" in line.lower()]
        return telling[0] if telling else fallback

    def tells_of_memory(self) -> bool:
        """Whether an allocation failed."""
        return any(sign in line.lower() for line in self.lines for sign in _MEMORY_SIGNS)


@functools.cache
def engine_log() -> EngineLog:
    """The process's one engine log, installed at first use; starts the engine."""
    log = EngineLog()
    log.install()
    llama.llama_backend_init()
    return log


def libraries() -> list[tuple[str, int]]:
    """The engine's files by name, with their sizes, which tell one build from another."""
    return sorted((path.name, path.stat().st_size) for path in llama._base_path.iterdir())


def usable_cpus() -> int:
    """Processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def failure(what: str, path: Path, log: EngineLog) -> ModelError | OutOfMemoryError:
    """The error for something the engine could not load, by what it logged."""
    if log.tells_of_memory():
        return OutOfMemoryError(
            f"Not enough memory for {what} {path.name}: {log.explain('allocation failed')}. "
            "Use a smaller quantisation, --ctx, --max-pixels, or fewer --gpu-layers."
        )
    return ModelError(f"The engine cannot load {what} {path}: {log.explain('no reason given')}.")


def offloads(gpu_layers: int | None) -> bool:
    """Whether anything goes to a GPU."""
    return gpu_layers != 0 and bool(llama.llama_supports_gpu_offload())


def require_memory(needed: int, what: str, advice: str) -> None:
    """Refuse what this machine can never hold, before the system kills the process for trying."""
    total = psutil.virtual_memory().total + psutil.swap_memory().total
    if needed > total:
        gb = 2**30
        raise OutOfMemoryError(f"{what} needs {needed / gb:.1f} GB, this machine has {total / gb:.1f} GB. {advice}")


def flash_attention(wanted: bool | None) -> int:
    """The engine's constant; None is its own choice. Flash attention rounds keys and values to F16 inside."""
    if wanted is None:
        return llama.LLAMA_FLASH_ATTN_TYPE_AUTO
    return llama.LLAMA_FLASH_ATTN_TYPE_ENABLED if wanted else llama.LLAMA_FLASH_ATTN_TYPE_DISABLED


class Model:
    """A loaded text model and its vocabulary; a context manager."""

    def __init__(self, path: Path, *, settings: EngineSettings) -> None:
        log = engine_log()
        log.lines.clear()
        gpu_layers = settings.gpu_layers
        self.on_gpu = offloads(gpu_layers)
        if not self.on_gpu:
            require_memory(path.stat().st_size, f"The text model {path.name}", "Use a smaller quantisation.")
        params = llama.llama_model_default_params()
        params.n_gpu_layers = gpu_layers if gpu_layers is not None else -1 if self.on_gpu else 0
        # Repacked weights are a second copy and may slow prefill down; a judge is mostly prefill.
        params.use_extra_bufts = settings.repack
        self._free = contextlib.ExitStack()
        self.pointer = llama.llama_model_load_from_file(os.fsencode(path), params)
        if not self.pointer:
            raise failure("the text model", path, log)
        self._free.callback(llama.llama_model_free, self.pointer)
        self._vocab = llama.llama_model_get_vocab(self.pointer)
        self.vocabulary = int(llama.llama_vocab_n_tokens(self._vocab))
        self.bytes = int(llama.llama_model_size(self.pointer))
        self.is_small = self.bytes < _SMALL_MODEL and not self.on_gpu
        self.width = int(llama.llama_model_n_embd(self.pointer))
        # Keys and values of one token over all layers, two bytes each.
        heads, all_heads = llama.llama_model_n_head_kv(self.pointer), llama.llama_model_n_head(self.pointer)
        self.cache_bytes = 4 * int(llama.llama_model_n_layer(self.pointer) * heads * self.width // all_heads)
        self.trained_context = int(llama.llama_model_n_ctx_train(self.pointer))
        self.added = tuple(self._added())

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the weights."""
        self._free.close()

    def tokens(self, text: str, *, special: bool) -> list[int]:
        """Token ids of a text; with `special` off the text of a control token stays plain.

        Composed first (NFC), as the reference tokenizer does and llama.cpp does not.
        """
        data = unicodedata.normalize("NFC", text).encode(errors="replace")
        room = len(data) + 8
        buffer = (llama.llama_token * room)()
        count = llama.llama_tokenize(self._vocab, data, len(data), buffer, room, False, special)
        return list(buffer[:count])

    def control(self, name: str) -> int:
        """The id of a control token; ModelError if the vocabulary lacks it."""
        found = self.tokens(name, special=True)
        if len(found) != 1:
            raise ModelError(f"The text model's vocabulary has no token {name}: it is no Qwen2.5-VL model.")
        return found[0]

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for."""
        buffer = ctypes.create_string_buffer(256)
        count = llama.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, True)
        return buffer.raw[: max(count, 0)]

    def ends(self, token: int) -> bool:
        """Whether a token ends the turn."""
        return bool(llama.llama_vocab_is_eog(self._vocab, token))

    def _added(self) -> Iterator[str]:
        """Texts of user-defined tokens. Added tokens stand at the vocabulary's end, after the normal ones."""
        for token in range(self.vocabulary - 1, -1, -1):
            kind = llama.llama_vocab_get_attr(self._vocab, token)
            if kind & llama.LLAMA_TOKEN_ATTR_NORMAL:
                return
            if kind & llama.LLAMA_TOKEN_ATTR_USER_DEFINED:
                yield self.piece(token).decode(errors="replace")
