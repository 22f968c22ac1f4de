"""llama.cpp's vision tower and projector through mtmd: a frame, or two, in; one temporal patch out.

Only this module uses the image functions of `llama_cpp.mtmd_cpp`. Only embeddings are taken from it: mtmd's own text
and positions are not those that Qwen2.5-VL was trained on. Encoded patches are found again by their content.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.engine import (
    Model,
    flash_attention_type,
    list_libraries,
    llama,
    load_error,
    mtmd,
    start_engine,
    usable_cpus,
)
from vrt_lite.embeddings import EmbeddingCache
from vrt_lite.errors import ModelError, OutOfMemoryError
from vrt_lite.machine import EngineSettings
from vrt_lite.models.gguf import read_gguf

_METHOD = 1
"""Version of the way in which `Vision` uses the engine. It changes when the values change."""


def content_key(frames: Sequence[NDArray[np.uint8]]) -> str:
    """A digest of a temporal patch: its frames' sizes and pixels."""
    digest = hashlib.blake2b(digest_size=16)
    for frame in frames:
        digest.update(repr(frame.shape).encode())
        digest.update(np.ascontiguousarray(frame).data)
    return digest.hexdigest()


def engine_key(*, on_gpu: bool, flash_attention: int) -> str:
    """A digest of what an embedding's exact bits depend on besides pixels and projector: the engine and its options.

    The number of threads does not count: each value is computed by one of them. The engine's Python interface does not
    name the GPU, so the machine's name is used instead.
    """
    features = llama.llama_print_system_info().decode(errors="replace")
    device = platform.node() if on_gpu else "CPU"
    engine = version("llama-cpp-python")
    return hashlib.blake2b(
        repr((_METHOD, engine, list_libraries(), features, device, flash_attention)).encode()
    ).hexdigest()[:16]


class Vision(contextlib.ExitStack):
    """A loaded projector; a context manager. The namespace of a `cache` with a disk is the projector's digest."""

    def __init__(
        self, path: Path, model: Model, *, settings: EngineSettings, cache: EmbeddingCache | None = None
    ) -> None:
        super().__init__()
        log = start_engine()
        log.lines.clear()
        self._model = model
        self._cache = cache or EmbeddingCache()
        self.cell = 2 * read_gguf(path).number("clip.vision.patch_size")
        """Pixels a side of one visual token."""
        params = mtmd.mtmd_context_params_default()
        params.use_gpu = model.on_gpu if settings.projector_on_gpu is None else settings.projector_on_gpu
        params.print_timings = False
        params.warmup = False
        params.n_threads = settings.threads or usable_cpus()
        params.flash_attn_type = flash_attention_type(False if settings.exact else settings.flash_attention)
        if model.abort_check and not params.use_gpu:
            params.cb_eval = model.abort_check.on_vision_node
        self._engine_key = engine_key(on_gpu=params.use_gpu, flash_attention=params.flash_attn_type)
        # Frames are resized to the model's range already: with these limits mtmd resizes nothing.
        params.image_min_tokens, params.image_max_tokens = 1, 16_384
        self._pointer = mtmd.mtmd_init_from_file(os.fsencode(path), model.pointer, params)
        if not self._pointer:
            raise load_error("the projector", path, log)
        self.callback(mtmd.mtmd_free, self._pointer)
        if not (mtmd.mtmd_support_vision(self._pointer) and mtmd.mtmd_decode_use_mrope(self._pointer)):
            self.close()
            raise ModelError(f"The projector {path} makes no vision tokens with M-RoPE positions.")

    def has(self, key: str) -> bool:
        """Whether a patch was encoded, in this run or in an earlier one."""
        return self._cache.get(self._cache_key(key)) is not None

    def embeddings(self, key: str) -> NDArray[np.float32]:
        """Embeddings of a patch that was encoded, shape (rows·columns, input width of the text model)."""
        array = self._cache.get(self._cache_key(key))
        if array is None:
            raise KeyError(key)
        return array

    def encode(self, key: str, frames: Sequence[NDArray[np.uint8]]) -> None:
        """Encode one temporal patch: one frame, or two consecutive ones of a video, RGB, sides multiples of `cell`.

        Patches are encoded one at a time: mtmd has a batch interface, but not for this architecture.
        """
        height, width = frames[0].shape[:2]
        self._cache.put(self._cache_key(key), self._run(frames, (height // self.cell) * (width // self.cell)))

    def trim(self, keep: frozenset[str]) -> None:
        """Drop the least recently used patches beyond the memory limit, never those in `keep`."""
        self._cache.trim(frozenset(map(self._cache_key, keep)))

    def _cache_key(self, key: str) -> str:
        return f"{key} {self._engine_key}"

    def clear(self) -> None:
        """Drop all patches in memory."""
        self._cache.forget()

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
                    f"into one patch of {tokens} tokens: this engine cannot use it."
                )
            failed = mtmd.mtmd_encode_chunk(self._pointer, images[0])
            if self._model.abort_check:
                self._model.abort_check.raise_error()
            if failed:
                raise OutOfMemoryError(
                    f"The engine failed to encode a frame pair of {tokens} tokens: "
                    f"{start_engine().explain('no reason given')}. Lower --max-pixels."
                )
            pointer = mtmd.mtmd_get_output_embd(self._pointer)
            return np.ctypeslib.as_array(pointer, (tokens, self._model.input_width)).copy()
