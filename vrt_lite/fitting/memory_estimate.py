"""Estimates how much memory judging takes, from the headers of a model's two files, before anything is loaded.

The terms follow llama.cpp's own allocation (src/llama-context.cpp, src/llama-kv-cache.cpp), its graphs
(src/models/qwen2vl.cpp, tools/mtmd/models/qwen2vl.cpp) and ggml-alloc.c of the lowest version supported, and this
package's caches. Processor memory is what becomes resident: the engine reserves logits for some tokens of an evaluation
and touches one row. On a GPU an evaluation is counted as on the processor, which is a little more than the engine
reserves there (`make gpu`).
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from vrt_lite.judge import Pair, opening
from vrt_lite.machine import MOST_LOGITS, EngineSettings
from vrt_lite.models import ModelFiles
from vrt_lite.models.gguf import Gguf, read_gguf
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Text
from vrt_lite.protocol.report import EXAMPLE

_F16, _F32 = 2, 4
"""Bytes of a value."""
_KV_BYTES = {"f16": 2.0, "q8_0": 34 / 32}
_EMBEDDINGS_BYTES = 512 * 2**20
"""The most that embeddings take in memory (`EmbeddingCache`)."""
_CAPTION_TOKENS = 100
_ROUNDS = 2
_WRITTEN = 250
"""Tokens that a judge writes in a round."""
_TURN_TOKENS = 60
"""Text between two replies: what comes with asked-for frames, and the marks of the turns."""
_LETTERS_PER_TOKEN = 4
"""In prompts like these. It is about the same with the bundled judge's small vocabulary (4.3) and a full one."""
SOURCE_PIXELS: Final = 1280 * 720
"""The size of a clip's frames where it is not known."""
_DECODER_BYTES = 55
"""Bytes that two decoders with two threads each keep for each pixel of a source frame. Measured with H.264."""
# ggml's types that have a packed layout: Q4_0, Q4_K, IQ4_NL, MXFP4; on ARM also Q8_0, Q5_K, Q6_K (ggml-cpu/repack.cpp).
_PACKED = {2, 12, 20, 39, *((8, 13, 14) if platform.machine().lower() in ("arm64", "aarch64") else ())}
_PROCESS_BYTES: Final = 83_000_000
"""Python, NumPy, PyAV and the engine's libraries, measured on Linux: half of it is shared with other processes."""
_TOKEN_BYTES = 130 + 150
"""The engine's tables for one token, and for the merge that makes it: nodes of std::unordered_map with strings."""
_GPU_BYTES: Final = 400 * 2**20
"""A GPU's own context and scratch memory, as reported by others; not measured here."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes from the two headers. Weights are in bytes: `packed` those of the layers that have a packed layout.

    `output` is what a GPU holds for the last layer's output, which a tied model has in its `embedding` too.
    `input_width` is the width of what enters the text model: some models add something of a frame to later layers.
    `matrices` counts the weights that are multiplied: "layers" with each token, "output" with one that is written,
    "tower" with each patch of a frame, "merger" with each visual token. `vision_full_every`: one layer in so many
    attends to the whole frame, the others to a window.
    """

    text_bytes: int
    layers: int
    layer_bytes: int
    packed: int
    embedding: int
    output: int
    width: int
    input_width: int
    query_width: int
    kv_width: int
    feed_forward: int
    heads: int
    vocabulary: int
    trained_context: int
    projector: int
    vision_layers: int
    vision_width: int
    vision_feed_forward: int
    vision_full_every: int
    matrices: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Estimate:
    """The most memory that a judgement takes, and the model, profile and settings that this is for.

    `terms` are bytes by purpose: the processor's, and the GPU's. `context` is in tokens.
    """

    terms: Mapping[str, tuple[int, int]]
    context: int
    shape: ModelShape
    profile: Profile
    settings: EngineSettings

    @property
    def cpu_bytes(self) -> int:
        """The processor's memory."""
        return sum(cpu for cpu, _ in self.terms.values())

    @property
    def gpu_bytes(self) -> int:
        """The GPU's memory."""
        return sum(gpu for _, gpu in self.terms.values())


def read_shape(files: ModelFiles) -> ModelShape:
    """The sizes in a model's two files; ModelError if one is not a whole GGUF."""
    return shape_of(read_gguf(files.text), read_gguf(files.projector))


def shape_of(text: Gguf, projector: Gguf) -> ModelShape:
    """The sizes in two headers, whether they were read or described."""

    def number(name: str) -> int:
        return text.number(f"{text.values.get('general.architecture')}.{name}")

    heads, width = number("attention.head_count"), number("embedding_length")
    head_size = number("attention.key_length") or width // heads
    named = {tensor.name: tensor for tensor in (*text.tensors, *projector.tensors)}
    layers = [tensor for tensor in text.tensors if tensor.name.startswith("blk.")]
    layer_bytes = sum(tensor.size for tensor in layers)
    embedding, rest = named["token_embd.weight"], text.size - layer_bytes
    output, forward = named.get("output.weight"), named.get("v.blk.0.ffn_up.weight")
    return ModelShape(
        text_bytes=text.size,
        layers=number("block_count"),
        layer_bytes=layer_bytes,
        packed=sum(tensor.size for tensor in layers if tensor.kind in _PACKED),
        embedding=embedding.size,
        output=rest - embedding.size if output else rest,
        width=width,
        input_width=width * (1 + number("n_deepstack_layers")),
        query_width=heads * head_size,
        kv_width=number("attention.head_count_kv") * head_size,
        feed_forward=number("feed_forward_length"),
        heads=heads,
        vocabulary=embedding.dimensions[-1],
        trained_context=number("context_length"),
        projector=projector.size,
        vision_layers=projector.number("clip.vision.block_count"),
        vision_width=projector.number("clip.vision.embedding_length"),
        vision_feed_forward=forward.dimensions[-1] if forward else 0,
        vision_full_every=projector.number("clip.vision.n_wa_pattern") or 1,
        matrices={
            "layers": _count_weights(text, "blk."),
            "output": _count_weights(text, "output.weight" if output else "token_embd.weight"),
            "tower": _count_weights(projector, "v.blk."),
            "merger": _count_weights(projector, "mm."),
        },
    )


def _count_weights(file: Gguf, prefix: str) -> int:
    """Count the weights of matrices whose names begin so."""
    matrices = (tensor.dimensions for tensor in file.tensors if tensor.name.startswith(prefix))
    return sum(prod(sides) for sides in matrices if len(sides) == 2)


def count_context_tokens(shape: ModelShape, profile: Profile) -> int:
    """The context that the engine will choose for clips shown at the full size, before their text is tokenised."""
    read = count_text_tokens(profile) + profile.first_patches * profile.max_cells
    return min(profile.context_bound(read, profile.tool_cells), shape.trained_context)


def count_text_tokens(profile: Profile) -> int:
    """Count about how many tokens of text a judge reads before its first reply."""
    turns = opening(Pair("", (5.0, 5.0), measured=EXAMPLE), profile)
    letters = sum(len(part.text) for turn in turns for part in turn.parts if isinstance(part, Text))
    return letters // _LETTERS_PER_TOKEN + _CAPTION_TOKENS


def count_work(profile: Profile) -> tuple[int, int, int]:
    """Tokens that a judgement of two new clips encodes, reads and writes."""
    rounds = min(_ROUNDS, profile.rounds)
    called = (rounds - 1) * profile.frames_per_call * profile.tool_cells
    called //= 2 if profile.tool_form == "video" else 1  # a frame alone fills a pair of frames
    encoded = profile.first_patches * profile.max_cells + called
    read = encoded + count_text_tokens(profile) + (rounds - 1) * _TURN_TOKENS
    heads = profile.answer is not None and bool(profile.answer.head)  # then nothing is written
    return encoded, read, 0 if heads else rounds * min(_WRITTEN, profile.max_new_tokens)


def estimate_memory(
    shape: ModelShape,
    profile: Profile,
    settings: EngineSettings,
    *,
    source_pixels: int = SOURCE_PIXELS,
    pairs: int = 1,
) -> Estimate:
    """Estimate the memory of judging with this profile and these settings.

    `source_pixels` are those of a clip's own frame, `pairs` how many are judged at once.
    """
    # The output counts as a layer, and is the first to be moved to the GPU.
    moved = shape.layers + 1 if settings.gpu_layers is None else min(settings.gpu_layers, shape.layers + 1)
    share = max(moved - 1, 0) / shape.layers
    vision_moved = moved > 0 if settings.projector_on_gpu is None else settings.projector_on_gpu
    conversation = count_context_tokens(shape, profile)
    context = -(-(settings.context or conversation) // 256) * 256
    # Evaluation touches only the conversation's part of a context that is larger than the conversation.
    evaluated = _count_text_bytes(shape, settings, min(context, conversation), on_gpu=moved > 0)
    vision = _count_vision_bytes(shape, profile)
    token = 2 * shape.layers * shape.kv_width * _KV_BYTES[settings.kv_type]
    shown = -(-profile.first_frames // 2) * profile.max_cells
    copied = count_text_tokens(profile) + 2 * shown if profile.first_frames > 2 else 0
    program = _PROCESS_BYTES + shape.vocabulary * _TOKEN_BYTES
    moved_bytes, kept_bytes = share * shape.layer_bytes, (1 - share) * shape.layer_bytes
    keys = settings.sequences * token * context
    table: dict[str, tuple[float, float]] = {
        "weights": (kept_bytes + shape.embedding, moved_bytes + shape.output) if moved else (shape.text_bytes, 0),
        "repacked weights": ((1 - share) * shape.packed if settings.repack else 0, 0),
        "projector": (0, shape.projector) if vision_moved else (shape.projector, 0),
        "keys and values": ((1 - share) * keys, share * keys),
        "evaluation of text": (evaluated, evaluated if moved else 0),
        "evaluation of frames": (0, vision) if vision_moved else (vision, 0),
        # One pair keeps one: that of the order before. For a patch of under a second the whole state is copied once.
        "states of the engine": ((shown + 64 + copied) * token, 0),
        "frames and embeddings": (pairs * _count_frame_bytes(shape, profile), 0),
        "decoding of clips": (pairs * _DECODER_BYTES * source_pixels, 0),
        "program": (program, _GPU_BYTES if moved or vision_moved else 0),
    }
    terms = {name: (int(cpu), int(gpu)) for name, (cpu, gpu) in table.items()}
    return Estimate(terms, context, shape, profile, settings)


def _count_text_bytes(shape: ModelShape, settings: EngineSettings, context: int, *, on_gpu: bool) -> int:
    """The bytes that evaluating text in a context of this length touches."""
    batch = min(settings.ubatch, context)
    flash = settings.text_flash_attention(on_gpu=on_gpu) is not False
    row, mask = batch * _F32, batch * context * (_F16 if flash else _F32)
    # Without flash attention: all products of keys and queries, and values stored one by one, each with its index.
    products = 0 if flash else shape.width + context * shape.heads
    attention = 2 * shape.width + shape.query_width + 2 * shape.kv_width + products
    forward = 2 * shape.width + 3 * shape.feed_forward
    # The matrix's other side is converted to the weights' own type first: about a byte a value.
    scratch = int(1.15 * batch * shape.feed_forward) + 3 * MOST_LOGITS * shape.vocabulary * _F32
    return row * (shape.input_width + max(attention, forward)) + mask + scratch


def _count_vision_bytes(shape: ModelShape, profile: Profile) -> int:
    """The bytes of one evaluation of the vision tower, with flash attention: the largest pair of frames."""
    pixels = max(profile.max_pixels, profile.tool_max_pixels)
    patches = 4 * (pixels // profile.pixels_per_token)
    state, feed = patches * shape.vision_width * _F32, patches * shape.vision_feed_forward * _F32
    # The window mask is there in F32 and, twice, in F16.
    graph = max(3 * feed + 4 * state + 4 * patches**2, 5 * state + 6 * patches**2)
    # The pixels of both frames, three times on their way in, and the wider side of a matrix in the weights' own type.
    return graph + 3 * 2 * 3 * _F32 * pixels + feed // 2


def _count_frame_bytes(shape: ModelShape, profile: Profile) -> int:
    """Bytes of the shown frames in RGB, and of their embeddings."""
    called = profile.frames_per_call * (profile.rounds - 1) * profile.tool_cells
    patches = profile.first_patches * profile.max_cells + called
    shown = profile.clips_at_once * profile.first_frames * profile.max_cells + called
    return shown * profile.pixels_per_token * 3 + min(patches * shape.input_width * _F32, _EMBEDDINGS_BYTES)
