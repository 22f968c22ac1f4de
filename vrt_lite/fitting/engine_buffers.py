"""The sizes of a model, and those of the buffers in which llama.cpp evaluates text and frames with it.

They follow the engine's graphs (src/models/qwen2vl.cpp, tools/mtmd/models/qwen2vl.cpp) and ggml-alloc.c of the lowest
version supported. On GPUs, the sums are within a few percent of what the engine reserves (`make gpu`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from vrt_lite.machine import MOST_LOGITS, SMALL_MODEL_BYTES, EngineSettings

F16: Final = 2
F32: Final = 4
"""Bytes of a value."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes from the two headers. Weights are in bytes: `layers` each layer's, `packed` those with a packed layout."""

    layers: tuple[int, ...]
    packed: tuple[int, ...]
    embedding: int
    output: int
    tied: bool
    width: int
    feed_forward: int
    heads: int
    kv_width: int
    vocabulary: int
    merges: int
    trained_context: int
    projector: int
    vision_width: int
    vision_feed_forward: int
    vision_heads: int

    @property
    def text_bytes(self) -> int:
        """All weights of the text model."""
        return sum(self.layers) + self.embedding + self.output

    def scaled(self, text_bytes: int) -> ModelShape:
        """This shape with so many bytes of text weights, in the same proportions."""
        ratio = text_bytes / self.text_bytes
        return replace(
            self,
            layers=tuple(int(size * ratio) for size in self.layers),
            packed=tuple(int(size * ratio) for size in self.packed),
            embedding=int(self.embedding * ratio),
            output=int(self.output * ratio),
        )


def text_buffer(shape: ModelShape, settings: EngineSettings, context: int, *, on_gpu: bool) -> int:
    """The bytes of the processor's memory that evaluating text in a context of this length touches."""
    batch = min(settings.ubatch, context)
    small = shape.text_bytes < SMALL_MODEL_BYTES and not on_gpu and settings.kv_type == "f16"
    flash = settings.text_flash_attention(on_gpu=on_gpu) is not False and not small
    row, mask = batch * F32, batch * context * (F16 if flash else F32)
    entering = row * shape.width
    if flash:
        attention = 3 * row * shape.width + 2 * row * shape.kv_width
    else:
        # The whole matrix of products of keys and queries, and values stored one by one, each with its index.
        attention = 4 * row * shape.width + row * context * shape.heads + 8 * batch * shape.kv_width
    forward = row * (2 * shape.width + 3 * shape.feed_forward)
    # The matrix's other side is converted to the weights' own type first: about a byte a value.
    scratch = int(1.15 * batch * shape.feed_forward)
    return entering + mask + max(attention, forward) + scratch + 3 * MOST_LOGITS * shape.vocabulary * F32


def gpu_text_buffer(shape: ModelShape, settings: EngineSettings, context: int, *, whole: bool) -> int:
    """The bytes that the engine reserves on a GPU to evaluate text; `whole` tells whether all layers are on GPUs.

    Where some are not, the engine copies their matrices to the GPU one after the other to evaluate many tokens.
    """
    batch = min(settings.ubatch, context)
    flash = settings.text_flash_attention(on_gpu=True) is not False
    row = batch * F32
    entering, mask = row * shape.width, batch * context * (F16 if flash else F32)
    if flash:
        attention = 3 * entering + 2 * row * shape.kv_width
    else:
        attention = entering + row * context * shape.heads + 8 * batch * shape.kv_width
    forward = entering + 3 * row * shape.feed_forward
    if not whole:
        # The largest matrix is one of three as wide as the feed-forward part, beside those of the attention.
        sides = 3 * shape.feed_forward + 2 * shape.width + 2 * shape.kv_width
        attention += 6 * entering
        forward += max(max(shape.layers) * shape.feed_forward // sides, 4 * entering)
    return max(entering + mask + max(attention, forward), 2 * entering + MOST_LOGITS * shape.vocabulary * F32)


def vision_inputs(patches: int) -> int:
    """Bytes of what enters one evaluation of the vision tower: the pixels of a pair of frames, and the window mask."""
    return patches * 196 * 3 * 2 * F32 + F32 * patches**2


def vision_buffer(shape: ModelShape, patches: int, *, flash: bool, on_gpu: bool) -> int:
    """Bytes of one evaluation of the vision tower: a pair of frames with `patches` patches of 14x14 pixels each."""
    state, feed = patches * shape.vision_width * F32, patches * shape.vision_feed_forward * F32
    square = patches * patches
    pixels = vision_inputs(patches) - F32 * square
    if flash:
        # The window mask is there in F32 and, twice, in F16.
        graph = max(3 * feed + 4 * state + 4 * square, 5 * state + 6 * square)
    else:
        graph = max(3 * feed + 4 * state, 5 * state + pixels + 4 * square * shape.vision_heads) + 4 * square
    if on_gpu:
        # A GPU first holds the pixels and the mask as they came, with the patches or the mask in F16.
        return max(graph, pixels + pixels // 4 + 4 * square, pixels + 6 * square)
    # The same pixels on their way in, and the wider side of a matrix in the weights' own type.
    return graph + 3 * pixels + feed // 2
