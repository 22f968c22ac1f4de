"""Writes a GGUF pair of a real shape with random weights, block by block: no checkpoint, no quantiser, little memory.

Metadata, vocabulary, tensor names and shapes are those that `convert export` gives for the checkpoint that
`bench.random_checkpoint` would write, and Q4_K_M's mix of types is llama.cpp's. Values are noise of the size that
trained weights have, so that nothing overflows.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type
from gguf.quants import quant_shape_to_byte_shape, quantize
from numpy.typing import NDArray

from bench.random_checkpoint import CheckpointShape, tensors, write_documents
from vrt_lite.conversion.checkpoint import Checkpoint
from vrt_lite.conversion.convert_folder import describe_file
from vrt_lite.conversion.families import read_halves
from vrt_lite.conversion.gguf_writer import Target, aligned, quantize_rows, seal
from vrt_lite.conversion.weights import canonical, read_json
from vrt_lite.disk import draft_of

TEXT_TYPES = ("q4_k_m", "f32", "f16", "bf16", "q8_0")
# A prime number of blocks, so that no tensor's rows repeat as the noise does.
_NOISE_BLOCKS = 29_989
Bytes = NDArray[np.uint8]


def write_pair(
    folder: Path,
    name: str,
    shape: CheckpointShape,
    *,
    text_type: str = "q4_k_m",
    projector_type: str = "q8_0",
    advance: Callable[[int], None] = lambda size: None,
) -> list[Path]:
    """Write `folder`/NAME-TYPE.gguf and `folder`/mmproj-NAME-TYPE.gguf. `advance` is called with bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        checkpoint = _described(Path(temporary), name, shape)
        kinds = {
            f"{name}-{text_type.upper()}.gguf": text_type,
            f"mmproj-{name}-{projector_type.upper()}.gguf": projector_type,
        }
        files = [
            seal(file, describe_file(half, kind, checkpoint, given={}))
            for half, (file, kind) in zip(read_halves(checkpoint.config), kinds.items(), strict=True)
        ]
    noise = Noise()
    for file in files:
        with draft_of(folder / file.name) as draft, draft.open("wb") as out:
            out.write(file.header)
            for target in file.targets:
                out.write(noise.tensor(target).data)
                out.write(bytes(aligned(target.size) - target.size))
                advance(target.size)
    return [folder / file.name for file in files]


def _described(folder: Path, name: str, shape: CheckpointShape) -> Checkpoint:
    """Describe a checkpoint of this shape without its weights, which are not needed."""
    write_documents(folder, shape)
    stored = dict.fromkeys((canonical(name) for name, _ in tensors(shape)), "no.safetensors")
    config, preprocessor = (read_json(folder / f) for f in ("config.json", "preprocessor_config.json"))
    return Checkpoint(folder, name, config, preprocessor, stored, {})


class Noise:
    """Random tensors in their storage type: independent values of mean 0 and variance 1/columns, norms about 1."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._blocks: dict[tuple[Type, int], Bytes] = {}

    def tensor(self, target: Target) -> Bytes:
        """Return a tensor's bytes, the last axis counts bytes of a row."""
        if len(target.shape) == 1:
            about, spread = (1.0, 0.1) if target.name.endswith("weight") else (0.0, 0.02)
            values = about + spread * self._random.standard_normal(target.shape)
            return np.ascontiguousarray(quantize(values.astype(np.float32), target.type)).view(np.uint8)
        noise = self._noise(target.type, math.prod(target.shape[1:])).ravel()
        # Each tensor starts at another place in the noise; blocks stay complete.
        size, block = target.size, noise.size // _NOISE_BLOCKS
        start = int(self._random.integers(_NOISE_BLOCKS)) * block
        out = np.empty(size, np.uint8)
        at = 0
        while at < size:
            part = min(noise.size - start, size - at)
            out[at : at + part] = noise[start : start + part]
            at, start = at + part, 0
        return out.reshape(quant_shape_to_byte_shape(target.shape, target.type))

    def _noise(self, kind: Type, columns: int) -> Bytes:
        if (kind, columns) not in self._blocks:
            self._blocks[kind, columns] = _random_blocks(kind, 1 / math.sqrt(columns), self._random)
        return self._blocks[kind, columns]


def _random_blocks(kind: Type, sigma: float, random: np.random.Generator) -> Bytes:
    """Draw `_NOISE_BLOCKS` blocks of a type, with mean 0 and standard deviation `sigma`; shape (n, bytes)."""
    if kind not in _SPREAD:
        elements = 32 if kind == Type.Q8_0 else 256
        values = sigma * random.standard_normal((_NOISE_BLOCKS, elements), np.float32)
        encode = quantize_rows if GGML_QUANT_SIZES[kind][0] > 1 else quantize
        return np.ascontiguousarray(encode(values, kind)).view(np.uint8)
    size = quant_shape_to_byte_shape((256,), kind)[0]
    blocks = random.integers(0, 256, (_NOISE_BLOCKS, size), np.uint8)
    scale = sigma / _SPREAD[kind]
    if kind == Type.Q4_K:  # d and min, both halves: a value is d·scale·q - min·m, with m as large as scale, q to 15
        blocks[:, :4] = np.array([scale, 7.5 * scale], np.float16).view(np.uint8)
    else:  # d stands last: a value is d·scale·(q - 32)
        blocks[:, -2:] = np.array([scale], np.float16).view(np.uint8)
    return blocks


# Standard deviation of a value whose d is 1, all else being uniform over its bits (ggml-common.h, block_q4_K, q6_K):
# Q4_K from scales and mins of 6 bits and quants of 4, Q6_K from scales of 8 signed bits and quants of 6.
_SPREAD = {Type.Q4_K: 259.5, Type.Q6_K: 1366.0}
