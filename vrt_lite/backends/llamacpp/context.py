"""The engine's working state: sequences in the KV cache, evaluated batch by batch at the positions given."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.engine import (
    Model,
    flash_attention_type,
    llama,
    require_memory,
    start_engine,
    usable_cpus,
)
from vrt_lite.errors import OutOfMemoryError
from vrt_lite.machine import MOST_LOGITS, EngineSettings

_KV_TYPES = {"f32": llama.GGML_TYPE_F32, "f16": llama.GGML_TYPE_F16, "q8_0": llama.GGML_TYPE_Q8_0}


# What the engine's state of a sequence says of each of its cells.
_CELL = np.dtype([(name, np.int32) for name in ("t", "sequences", "x", "y", "token", "sequence")])


class Tokens(NamedTuple):
    """Text that is evaluated from `position` on in a sequence."""

    tokens: Sequence[int]
    position: int
    sequence: int = 0


class Context(contextlib.ExitStack):
    """The engine's working state: `settings.sequences` sequences in the KV cache; a context manager.

    `size` is that of each sequence, in tokens; `batch_size` the most tokens of one evaluation.
    """

    def __init__(self, model: Model, *, size: int, settings: EngineSettings) -> None:
        super().__init__()
        log = start_engine()
        log.lines.clear()
        if not model.on_gpu:
            needed = settings.sequences * size * model.cache_bytes * (2 if settings.exact else 1)
            require_memory(needed, f"A context of {size} tokens", "Lower --ctx.")
        self._model = model
        self._sequences = settings.sequences
        self.size = size
        params = llama.llama_context_default_params()
        params.n_ctx = settings.sequences * size
        params.n_seq_max = settings.sequences
        # Each sequence has cells of its own: with shared ones attention would go over those of all.
        params.kv_unified = False
        params.n_batch = params.n_ubatch = min(settings.ubatch, max(size, 32))
        # The engine reserves memory for this many rows of logits: 256 of a 7B's vocabulary would be 156 MB.
        params.n_outputs_max = min(MOST_LOGITS, params.n_batch)
        threads = settings.threads or usable_cpus()
        params.flash_attn_type = flash_attention_type(settings.text_flash_attention(on_gpu=model.on_gpu))
        self._min_tokens = 1
        if model.is_small and settings.kv_type == "f16":
            # Measured with the bundled judges. A batch takes less time than the threads wait for each other: two
            # threads read a prompt up to ten times as slowly and, next to one busy process, wrote 20 times as slowly.
            threads = settings.threads or 1
            # Off even if it was requested: the memory that it saves is not needed, and `_min_tokens` needs it off.
            params.flash_attn_type = flash_attention_type(False)
            # The engine's kernel for a single token rounds differently from the one for more. Two at a time cost little
            # more, and give the same bits however a text is cut into batches.
            self._min_tokens = 2
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = _KV_TYPES["f32" if settings.exact else settings.kv_type]
        params.no_perf = True
        if settings.on_eval:
            params.cb_eval = settings.on_eval
        if model.abort_check:
            params.abort_callback = model.abort_check.on_text_node
        self.pointer = llama.llama_init_from_model(model.pointer, params)
        if not self.pointer:
            raise OutOfMemoryError(
                f"Not enough memory for a context of {size} tokens: {log.explain('the engine gave no reason')}. "
                "Lower --ctx, --max-pixels or --gpu-layers."
            )
        self.callback(self._free)
        self._memory = llama.llama_get_memory(self.pointer)
        self.batch_size = int(params.n_batch)
        self._text = self._batch(self.batch_size, 0)
        self._frames = self._batch(self.batch_size, model.input_width)

    def _free(self) -> None:
        llama.llama_free(self.pointer)
        self.pointer = None

    def _batch(self, size: int, width: int) -> Any:
        # An embedding batch holds four position planes, but the engine allocates one: request four times the size.
        batch = llama.llama_batch_init(4 * size if width else size, width, 1)
        self.callback(llama.llama_batch_free, batch)
        return batch

    def cut(self, position: int, *, sequence: int = 0) -> None:
        """Forget everything at `position` and after."""
        if self.pointer:
            llama.llama_memory_seq_rm(self._memory, sequence, position, -1)

    def copy(self, source: int, target: int) -> None:
        """Make a sequence hold what another one holds. The engine copies the bytes when it next evaluates anything."""
        llama.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def state(self, *, sequence: int = 0) -> NDArray[np.uint8]:
        """The content of a sequence, as bytes for `restore`."""
        data = np.empty(llama.llama_state_seq_get_size(self.pointer, sequence), np.uint8)
        pointer = data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        used = llama.llama_state_seq_get_data(self.pointer, pointer, len(data), sequence)
        return data[:used]

    def restore(self, state: NDArray[np.uint8], *, sequence: int = 0) -> None:
        """Restore a state that was taken from a context with the same settings."""
        pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        if not llama.llama_state_seq_set_data(self.pointer, pointer, len(state), sequence):
            raise OutOfMemoryError(
                f"The engine failed to restore {len(state)} bytes: {start_engine().explain('no reason')}."
            )

    def feed(self, tokens: Sequence[int], position: int, *, sequence: int = 0) -> Iterator[int]:
        """Evaluate text from `position` on, batch by batch; yields how many tokens are done."""
        for start in range(0, len(tokens), self.batch_size):
            part = tokens[start : start + self.batch_size]
            self._feed([Tokens(part, position + start, sequence)], logits_from=len(tokens) - 1 - start)
            yield start + len(part)

    def feed_for_logits(self, parts: Sequence[Tokens]) -> list[list[NDArray[np.float32]]]:
        """Evaluate text, each part in a sequence of its own; for each, the logits (vocabulary,) after each token."""
        rows: list[list[NDArray[np.float32]]] = [[] for _ in parts]
        step = max(min(MOST_LOGITS, self.batch_size) // len(parts), 1)
        for start in range(0, max(len(part.tokens) for part in parts), step):
            cut = [Tokens(p.tokens[start : start + step], p.position + start, p.sequence) for p in parts]
            length = self._feed([part for part in cut if part.tokens], logits_from=0)
            row = 0
            for part, found in zip(cut, rows, strict=True):
                found += [self.logits(row + i) for i in range(len(part.tokens))]
                row += length if part.tokens else 0
        return rows

    def feed_for_state(self, token: int, position: int, *, sequence: int = 0) -> NDArray[np.float32]:
        """Evaluate one token; returns the state that the output layer would get there, shape (width,).

        States are switched on for it alone: then the engine outputs every token of a batch, and has no room for many.
        """
        self._check_open()
        llama.llama_set_embeddings(self.pointer, True)
        try:
            self._feed([Tokens([token], position, sequence)], logits_from=0)
            pointer = llama.llama_get_embeddings_ith(self.pointer, 0)
            return cast("NDArray[np.float32]", np.ctypeslib.as_array(pointer, (self._model.width,)).copy())
        finally:
            llama.llama_set_embeddings(self.pointer, False)

    def _feed(self, parts: Sequence[Tokens], *, logits_from: int) -> int:
        """One batch of text, with logits from each part's token number `logits_from` on; returns a part's rows in it.

        The engine evaluates sequences together as far as they are equally long, so shorter parts are filled up.
        """
        batch, at = self._text, 0
        length = max(*(len(part.tokens) for part in parts), self._min_tokens)
        for tokens, position, sequence in parts:
            for i, token in enumerate([*tokens, *[tokens[-1]] * (length - len(tokens))]):
                batch.token[at] = token
                batch.pos[at] = position + i
                batch.n_seq_id[at] = 1
                batch.seq_id[at][0] = sequence
                batch.logits[at] = logits_from <= i < len(tokens)
                at += 1
        batch.n_tokens = at
        self._decode(batch)
        for tokens, position, sequence in parts:
            if len(tokens) < length:
                self.cut(position + len(tokens), sequence=sequence)
        return length

    def feed_patch(self, embeddings: NDArray[np.float32], positions: NDArray[np.int32], *, sequence: int = 0) -> None:
        """Evaluate one temporal patch: embeddings (n, width) at positions (4, n).

        It is fed in parts of equal length that fit a batch. The result is the same: a token sees the earlier ones of
        its patch in the batch or in the cache.
        """
        parts = -(-len(embeddings) // self.batch_size)
        for part, at in zip(np.array_split(embeddings, parts), np.array_split(positions, parts, axis=1), strict=True):
            self._feed_embeddings(part, at, sequence)

    def _feed_embeddings(self, embeddings: NDArray[np.float32], positions: NDArray[np.int32], sequence: int) -> None:
        count = len(embeddings)
        batch = self._frames
        batch.n_tokens = count
        # A slice becomes a new array here, which must live until it is copied.
        values, planes = np.ascontiguousarray(embeddings), np.ascontiguousarray(positions)
        ctypes.memmove(batch.embd, values.ctypes.data, values.nbytes)
        ctypes.memmove(batch.pos, planes.ctypes.data, planes.nbytes)
        for i in range(count):
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = 0
        self._decode(batch)

    def feed_patch_in_order(
        self, embeddings: NDArray[np.float32], positions: NDArray[np.int32], *, sequence: int = 0
    ) -> None:
        """The same for a patch at the temporal position of the one before it (a patch of less than a second).

        The engine masks by position, the reference by order. A token would not see those of the earlier patch that are
        below it or to its right, unless the engine takes them for tokens of the frame's corner. Where that cannot be
        said, one token at a time with the mask off sees exactly what was before it.
        """
        if self._move_to_corner(int(positions[0, 0]), sequence):
            return self.feed_patch(embeddings, positions, sequence=sequence)
        llama.llama_set_causal_attn(self.pointer, False)
        try:
            for i in range(len(embeddings)):
                self._feed_embeddings(embeddings[i : i + 1], positions[:, i : i + 1], sequence)
        finally:
            llama.llama_set_causal_attn(self.pointer, True)
        return None

    def _move_to_corner(self, position: int, sequence: int) -> bool:
        """Say of all tokens at a temporal position that they are at row and column 0; whether that could be said.

        Their keys stay as they are: they were rotated by row and column when they were evaluated. The engine's state is
        a mark, the sequence, the number of streams, that of the cells in each up to this one, the cells, and the keys
        and values; another engine may have another layout.
        """
        state = self.state(sequence=sequence)
        begin = 4 * (sequence + 4)
        head = state[:begin].view(np.int32).tolist()
        if head[2:-1] != [self._sequences, *[0] * sequence] or not 0 < head[-1] <= self.size:
            return False
        cells = state[begin : begin + head[-1] * _CELL.itemsize].view(_CELL)
        if not ((cells["sequences"] == 1) & (cells["sequence"] == sequence)).all():
            return False
        here = cells["t"] == position
        cells["x"][here] = cells["y"][here] = 0
        self.restore(state, sequence=sequence)
        return True

    def logits(self, row: int = -1) -> NDArray[np.float32]:
        """Logits in one row of the last batch, by default after the last token, shape (vocabulary,), as a copy."""
        pointer = llama.llama_get_logits_ith(self.pointer, row)
        return cast("NDArray[np.float32]", np.ctypeslib.as_array(pointer, (self._model.vocabulary,)).copy())

    def _check_open(self) -> None:
        if not self.pointer:  # no larger one could be opened in its place
            raise OutOfMemoryError("The engine has no context any more. Lower --ctx, --max-pixels or --jobs.")

    def _decode(self, batch: Any) -> None:
        self._check_open()
        status = llama.llama_decode(self.pointer, batch)
        if self._model.abort_check:
            self._model.abort_check.raise_error()
        if status != 0:
            log = start_engine()
            raise OutOfMemoryError(f"The engine failed to evaluate a batch ({status}): {log.explain('no reason')}.")
