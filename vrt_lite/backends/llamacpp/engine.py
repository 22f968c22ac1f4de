"""llama.cpp's text model through its C interface: load, tokenise, evaluate, read logits.

The one place that touches `llama_cpp`'s text functions. Knows positions of single tokens and of embedding
batches only as numbers given to it; refuses to know conversations, profiles and frames.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import unicodedata
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import llama_cpp.llama_cpp as _llama
import llama_cpp.mtmd_cpp as _mtmd
import numpy as np
import psutil
from numpy.typing import NDArray

from vrt_lite.errors import ModelError, OutOfMemoryError

# llama_cpp's ctypes wrappers are only partly typed; at this border they are Any and checked by what they return.
llama: Any = _llama
mtmd: Any = _mtmd

_TEXT_BATCH = 512
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


class Model:
    """A loaded text model and its vocabulary; a context manager."""

    def __init__(self, path: Path, *, gpu_layers: int | None) -> None:
        log = engine_log()
        log.lines.clear()
        self.on_gpu = offloads(gpu_layers)
        if not self.on_gpu:
            require_memory(path.stat().st_size, f"The text model {path.name}", "Use a smaller quantisation.")
        params = llama.llama_model_default_params()
        params.n_gpu_layers = gpu_layers if gpu_layers is not None else -1 if self.on_gpu else 0
        # Repacked weights are a second copy and slow prefill down; a judge is mostly prefill.
        params.use_extra_bufts = False
        self._free = contextlib.ExitStack()
        self.pointer = llama.llama_model_load_from_file(os.fsencode(path), params)
        if not self.pointer:
            raise failure("the text model", path, log)
        self._free.callback(llama.llama_model_free, self.pointer)
        self._vocab = llama.llama_model_get_vocab(self.pointer)
        self.vocabulary = int(llama.llama_vocab_n_tokens(self._vocab))
        self.bytes = int(llama.llama_model_size(self.pointer))
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


class Context:
    """The engine's working state: one sequence in the KV cache; a context manager.

    `size` is in tokens; `largest_block` is the most tokens that one temporal patch can have, which must fit
    one batch. `exact` keeps keys and values in F32 and does without flash attention, which rounds to F16 inside.
    """

    def __init__(
        self, model: Model, *, size: int, largest_block: int, threads: int | None, exact: bool = False
    ) -> None:
        log = engine_log()
        log.lines.clear()
        if not model.on_gpu:
            needed = size * model.cache_bytes * (2 if exact else 1)
            require_memory(needed, f"A context of {size} tokens", "Lower --ctx.")
        self._model = model
        self.size = size
        batch = max(_TEXT_BATCH, largest_block)
        params = llama.llama_context_default_params()
        params.n_ctx = size
        params.n_batch = params.n_ubatch = min(batch, max(size, 32))
        params.n_threads = params.n_threads_batch = threads or usable_cpus()
        if model.bytes < _SMALL_MODEL and not model.on_gpu:
            # Measured with the bundled judge. A token is less work than the threads' waiting for each other:
            # beside one busy process, two threads wrote 20 times as slowly. Flash attention saves memory that a small
            # model does not need, and made prefill 1.4 times and writing 1.3 times as slow.
            params.n_threads = threads or 1
            params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
        if exact:
            params.type_k = params.type_v = llama.GGML_TYPE_F32
            params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.n_seq_max = 1
        params.no_perf = True
        self._free = contextlib.ExitStack()
        self.pointer = llama.llama_init_from_model(model.pointer, params)
        if not self.pointer:
            raise OutOfMemoryError(
                f"Not enough memory for a context of {size} tokens: {log.explain('the engine gave no reason')}. "
                "Lower --ctx, --max-pixels or --gpu-layers."
            )
        self._free.callback(llama.llama_free, self.pointer)
        self._memory = llama.llama_get_memory(self.pointer)
        self._text = self._batch(_TEXT_BATCH, 0)
        self._frames = self._batch(batch, model.width)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the cache and the buffers."""
        self._free.close()

    def _batch(self, room: int, width: int) -> Any:
        # An embedding batch holds four position planes, but the engine allocates one: ask for four times the room.
        batch = llama.llama_batch_init(4 * room if width else room, width, 1)
        self._free.callback(llama.llama_batch_free, batch)
        return batch

    def cut(self, position: int) -> None:
        """Forget everything at `position` and after."""
        llama.llama_memory_seq_rm(self._memory, 0, position, -1)

    def feed(self, tokens: Sequence[int], position: int) -> Iterator[int]:
        """Evaluate text from `position` on, batch by batch; yields how many tokens are done."""
        for start in range(0, len(tokens), _TEXT_BATCH):
            part = tokens[start : start + _TEXT_BATCH]
            self._feed(part, position + start, logits_from=len(tokens) - 1 - start)
            yield start + len(part)

    def feed_for_logits(self, tokens: Sequence[int], position: int) -> NDArray[np.float32]:
        """Evaluate text from `position` on; the logits after each of its tokens, shape (n, vocabulary)."""
        rows: list[NDArray[np.float32]] = []
        for start in range(0, len(tokens), _TEXT_BATCH):
            part = tokens[start : start + _TEXT_BATCH]
            self._feed(part, position + start, logits_from=0)
            rows += [self._logits(i) for i in range(len(part))]
        return np.stack(rows)

    def _feed(self, part: Sequence[int], position: int, *, logits_from: int) -> None:
        """One batch of text, with logits from its token number `logits_from` on."""
        batch = self._text
        batch.n_tokens = len(part)
        for i, token in enumerate(part):
            batch.token[i] = token
            batch.pos[i] = position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = i >= logits_from
        self._decode(batch)

    def feed_patch(self, embeddings: NDArray[np.float32], positions: NDArray[np.int32]) -> None:
        """Evaluate one temporal patch: embeddings (n, width) at positions (4, n)."""
        count = len(embeddings)
        batch = self._frames
        batch.n_tokens = count
        ctypes.memmove(batch.embd, np.ascontiguousarray(embeddings).ctypes.data, embeddings.nbytes)
        ctypes.memmove(batch.pos, np.ascontiguousarray(positions).ctypes.data, positions.nbytes)
        for i in range(count):
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = 0
        self._decode(batch)

    def feed_patch_in_order(self, embeddings: NDArray[np.float32], positions: NDArray[np.int32]) -> None:
        """The same for a patch at the temporal position of the one before it (a clip under a second a patch).

        The engine masks by position, the reference by order; where temporal positions repeat, only one token at a
        time with the mask off sees exactly what was before it. Slow, exact, and rare.
        """
        llama.llama_set_causal_attn(self.pointer, False)
        try:
            for i in range(len(embeddings)):
                self.feed_patch(embeddings[i : i + 1], positions[:, i : i + 1])
        finally:
            llama.llama_set_causal_attn(self.pointer, True)

    def logits(self) -> NDArray[np.float32]:
        """Logits after the last token fed, shape (vocabulary,), as a copy."""
        return self._logits(-1)

    def _logits(self, row: int) -> NDArray[np.float32]:
        pointer = llama.llama_get_logits_ith(self.pointer, row)
        return cast("NDArray[np.float32]", np.ctypeslib.as_array(pointer, (self._model.vocabulary,)).copy())

    def _decode(self, batch: Any) -> None:
        status = llama.llama_decode(self.pointer, batch)
        if status != 0:
            log = engine_log()
            raise OutOfMemoryError(f"The engine failed to evaluate a batch ({status}): {log.explain('no reason')}.")
