"""llama.cpp's vision tower and projector through mtmd: a frame, or two, in; one temporal patch out.

The one place that touches `llama_cpp.mtmd_cpp`'s image functions. Only embeddings are taken from it: mtmd's own
text and positions are not what Qwen2.5-VL was trained on. Remembers what it encoded, by content.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.engine import Model, engine_log, failure, llama, mtmd, usable_cpus
from vrt_lite.errors import ModelError, OutOfMemoryError
from vrt_lite.profile import CELL

_CACHE_BYTES = 512 * 2**20


def content_key(frames: Sequence[NDArray[np.uint8]]) -> str:
    """What a temporal patch is known by: its frames' size and pixels."""
    digest = hashlib.blake2b(digest_size=16)
    for frame in frames:
        digest.update(repr(frame.shape).encode())
        digest.update(np.ascontiguousarray(frame).data)
    return digest.hexdigest()


class Vision:
    """A loaded projector; a context manager."""

    def __init__(self, path: Path, model: Model, *, threads: int | None, exact: bool = False) -> None:
        log = engine_log()
        log.lines.clear()
        self._model = model
        self._cache: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._cached_bytes = 0
        params = mtmd.mtmd_context_params_default()
        params.use_gpu = model.on_gpu
        params.print_timings = False
        params.warmup = False
        params.n_threads = threads or usable_cpus()
        if exact:  # flash attention rounds keys and values to F16
            params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
        # Frames come resized to the model's range: with these bounds mtmd resizes nothing.
        params.image_min_tokens, params.image_max_tokens = 1, 16_384
        self._free = contextlib.ExitStack()
        self._pointer = mtmd.mtmd_init_from_file(os.fsencode(path), model.pointer, params)
        if not self._pointer:
            raise failure("the projector", path, log)
        self._free.callback(mtmd.mtmd_free, self._pointer)
        if not (mtmd.mtmd_support_vision(self._pointer) and mtmd.mtmd_decode_use_mrope(self._pointer)):
            self.close()
            raise ModelError(f"The projector {path} is not one of Qwen2.5-VL's: it gives no M-RoPE vision tokens.")

    def __enter__(self) -> Vision:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the projector."""
        self._free.close()

    def holds(self, key: str) -> bool:
        """Whether a patch's embeddings are at hand."""
        return key in self._cache

    def embeddings(self, key: str) -> NDArray[np.float32]:
        """Embeddings of a patch that `encode` was given, shape (rows·columns, width)."""
        self._cache.move_to_end(key)
        return self._cache[key]

    def encode(self, key: str, frames: Sequence[NDArray[np.uint8]]) -> None:
        """Encode one temporal patch: one frame, or two consecutive ones of a video, RGB, sides multiples of 28."""
        height, width = frames[0].shape[:2]
        found = self._run(frames, (height // CELL) * (width // CELL))
        self._cache[key] = found
        self._cached_bytes += found.nbytes

    def trim(self, keep: frozenset[str]) -> None:
        """Drop the least recently used patches beyond the cache's bound, never those in `keep`."""
        for key in list(self._cache):
            if self._cached_bytes <= _CACHE_BYTES:
                return
            if key not in keep:
                self._cached_bytes -= self._cache.pop(key).nbytes

    def _run(self, frames: Sequence[NDArray[np.uint8]], tokens: int) -> NDArray[np.float32]:
        with contextlib.ExitStack() as stack:
            parts = cast(Any, ctypes.POINTER(mtmd.mtmd_input_part) * len(frames))()
            for i, frame in enumerate(frames):
                height, width = frame.shape[:2]
                data = np.ascontiguousarray(frame).ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
                bitmap = mtmd.mtmd_bitmap_init(width, height, data)
                stack.callback(mtmd.mtmd_bitmap_free, bitmap)
                # Two mergeable bitmaps side by side become one temporal patch.
                mtmd.mtmd_bitmap_set_mergeable(bitmap, len(frames) == 2)
                parts[i] = ctypes.pointer(mtmd.mtmd_input_part(None, bitmap))
            chunks = mtmd.mtmd_input_chunks_init()
            stack.callback(mtmd.mtmd_input_chunks_free, chunks)
            status = mtmd.mtmd_tokenize_from_parts(self._pointer, chunks, parts, len(frames), False)
            images = [
                chunk
                for chunk in (mtmd.mtmd_input_chunks_get(chunks, i) for i in range(mtmd.mtmd_input_chunks_size(chunks)))
                if mtmd.mtmd_input_chunk_get_type(chunk) == mtmd.MTMD_INPUT_CHUNK_TYPE_IMAGE
            ]
            if status or len(images) != 1 or mtmd.mtmd_input_chunk_get_n_tokens(images[0]) != tokens:
                raise ModelError(
                    f"The projector does not turn {len(frames)} frame(s) of {frames[0].shape[1]}x{frames[0].shape[0]} "
                    f"into one patch of {tokens} tokens: it is no Qwen2.5-VL projector of this engine's kind."
                )
            if mtmd.mtmd_encode_chunk(self._pointer, images[0]):
                raise OutOfMemoryError(
                    f"The engine failed to encode a frame pair of {tokens} tokens: "
                    f"{engine_log().explain('no reason given')}. Lower --max-pixels."
                )
            pointer = mtmd.mtmd_get_output_embd(self._pointer)
            return np.ctypeslib.as_array(pointer, (tokens, self._model.width)).copy()
