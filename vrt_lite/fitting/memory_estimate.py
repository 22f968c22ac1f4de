"""Estimates how much memory judging takes, from the headers of a model's two files, before anything is loaded.

The terms follow llama.cpp's own allocation (src/llama-context.cpp, src/llama-kv-cache.cpp), its graphs
(src/models/qwen2vl.cpp, tools/mtmd/models/qwen2vl.cpp) and ggml-alloc.c of the lowest version supported, and this
package's caches. Processor memory is what becomes resident: the engine reserves logits for some tokens of an evaluation
and touches one row. GPU memory is what is reserved; the sums are within a few percent of it (`make gpu`).
"""

from __future__ import annotations

import platform
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import prod
from typing import Final, Literal

from vrt_lite.judge import Pair, opening
from vrt_lite.machine import MOST_LOGITS, SMALL_MODEL_BYTES, EngineSettings
from vrt_lite.models import ModelFiles
from vrt_lite.models.gguf import Gguf, Tensor, read_gguf
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Text
from vrt_lite.protocol.report import EXAMPLE

_F16, _F32 = 2, 4
"""Bytes of a value."""
_KV_BYTES = {"f16": 2.0, "q8_0": 34 / 32}
_EMBEDDINGS_BYTES = 512 * 2**20
"""The most that embeddings take in memory (`EmbeddingCache`)."""
_CAPTION_TOKENS = 100
_LETTERS_PER_TOKEN = 4
"""In prompts like these. It is about the same with the bundled judge's small vocabulary (4.3) and a full one."""
SOURCE_PIXELS: Final = 1280 * 720
"""The size of a clip's frames where it is not known."""
_DECODER_BYTES = 55
"""Bytes that two decoders with two threads each keep for each pixel of a source frame. Measured with H.264."""
# ggml's types that have a packed layout: Q4_0, Q4_K, IQ4_NL, MXFP4; on ARM also Q8_0, Q5_K, Q6_K (ggml-cpu/repack.cpp).
_PACKED = frozenset({2, 12, 20, 39})
_PACKED_ARM = _PACKED | {8, 13, 14}
_PROCESS_BYTES: Final = 83_000_000
"""Python, NumPy, PyAV and the engine's libraries, measured on Linux: half of it is shared with other processes."""
_VOCABULARY_BYTES, _MERGE_BYTES = 130, 150
"""The engine's tables for one token, and for one merge: nodes of std::unordered_map with their strings."""
_GPU_BYTES: Final = 400 * 2**20
"""A GPU's own context and scratch memory, as reported by others; not measured here."""
_FULL_EVERY: Final = 8
"""In Qwen2.5-VL's tower one layer in so many attends to the whole frame, where the file does not say it."""
Multiplied = Literal["read", "written", "tower", "merger"]
"""What a matrix is multiplied with: each token read, or written, each patch of a frame, each visual token."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes from the two headers. Weights are in bytes: `layers` each layer's, `packed` those with a packed layout.

    `matrices` counts the weights that are multiplied, by ggml's type. `vision_full_every`: one layer in so many attends
    to the whole frame, the others to a window. `deep_layers` get something of a frame besides its embedding.
    """

    layers: tuple[int, ...]
    packed: tuple[int, ...]
    embedding: int
    output: int
    tied: bool
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    merges: int
    trained_context: int
    projector: int
    vision_layers: int
    vision_width: int
    vision_feed_forward: int
    vision_heads: int
    vision_full_every: int = _FULL_EVERY
    vision_patch: int = 14
    deep_layers: int = 0
    matrices: Mapping[Multiplied, Mapping[int, int]] = field(default_factory=dict[Multiplied, Mapping[int, int]])

    @property
    def text_bytes(self) -> int:
        """All weights of the text model."""
        return sum(self.layers) + self.embedding + self.output

    @property
    def is_small(self) -> bool:
        """Whether a judgement takes about a second."""
        return self.text_bytes < SMALL_MODEL_BYTES

    @property
    def input_width(self) -> int:
        """The width of what enters the text model."""
        return self.width * (1 + self.deep_layers)

    @property
    def query_width(self) -> int:
        """The width of the queries."""
        return self.heads * self.head_size

    @property
    def kv_width(self) -> int:
        """The width of the keys, and of the values."""
        return self.kv_heads * self.head_size

    def scaled(self, text_bytes: int) -> ModelShape:
        """This shape with so many bytes of text weights, in the same proportions."""
        ratio = text_bytes / self.text_bytes
        layers, packed = (tuple(int(size * ratio) for size in sizes) for sizes in (self.layers, self.packed))
        embedding, output = int(self.embedding * ratio), int(self.output * ratio)
        return replace(self, layers=layers, packed=packed, embedding=embedding, output=output)


@dataclass(frozen=True, slots=True)
class Term:
    """Memory for one purpose, in bytes: the processor's, and that of each GPU."""

    name: str
    cpu: int
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """The most memory that a judgement takes, and the settings that this is for. `context` is in tokens."""

    terms: tuple[Term, ...]
    context: int
    max_pixels: int
    settings: EngineSettings

    @property
    def cpu_bytes(self) -> int:
        """The processor's memory."""
        return sum(term.cpu for term in self.terms)

    @property
    def gpu_bytes(self) -> tuple[int, ...]:
        """Each GPU's memory."""
        return tuple(map(sum, zip(*(term.gpus for term in self.terms), strict=True)))


def read_shape(files: ModelFiles) -> ModelShape:
    """The sizes in a model's two files; ModelError if one is not a whole GGUF."""
    return shape_of(read_gguf(files.text), read_gguf(files.projector))


def shape_of(text: Gguf, projector: Gguf) -> ModelShape:
    """The sizes in two headers, whether they were read or described."""

    def number(name: str) -> int:
        return text.number(f"{text.values.get('general.architecture')}.{name}")

    def vision(name: str) -> int:
        return projector.number(f"clip.vision.{name}")

    heads, width = max(number("attention.head_count"), 1), number("embedding_length")
    tower = {tensor.name: tensor.dimensions for tensor in projector.tensors}
    # Only Qwen2.5-VL's tower has a gate, and windows.
    usual = _FULL_EVERY if "v.blk.0.ffn_gate.weight" in tower else 1
    named = {tensor.name: tensor for tensor in text.tensors}
    blocks = [[t for t in text.tensors if t.name.startswith(f"blk.{i}.")] for i in range(number("block_count"))]
    kinds = _PACKED_ARM if platform.machine().lower() in ("arm64", "aarch64") else _PACKED
    packed = [[t for t in block if t.kind in kinds and len(t.dimensions) == 2] for block in blocks]
    embedding, in_blocks = named["token_embd.weight"], [tensor for block in blocks for tensor in block]
    # Of the last layer only keys and values are needed of a token that is read.
    unread = tuple(f"blk.{len(blocks) - 1}.{part}" for part in ("ffn", "attn_output"))
    return ModelShape(
        layers=tuple(map(_bytes_of, blocks)),
        packed=tuple(map(_bytes_of, packed)),
        embedding=embedding.size,
        output=_bytes_of(text.tensors) - _bytes_of(in_blocks) - embedding.size,
        tied="output.weight" not in named,
        width=width,
        feed_forward=number("feed_forward_length"),
        heads=heads,
        kv_heads=number("attention.head_count_kv"),
        head_size=number("attention.key_length") or width // heads,
        vocabulary=embedding.dimensions[-1],
        merges=text.number("tokenizer.ggml.merges"),
        trained_context=number("context_length"),
        projector=_bytes_of(projector.tensors),
        vision_layers=vision("block_count"),
        vision_width=vision("embedding_length"),
        vision_feed_forward=tower.get("v.blk.0.ffn_up.weight", (0,))[-1],
        vision_heads=vision("attention.head_count"),
        vision_full_every=vision("n_wa_pattern") or usual,
        vision_patch=vision("patch_size"),
        deep_layers=number("n_deepstack_layers"),
        matrices={
            "read": _count_weights(t for t in in_blocks if not t.name.startswith(unread)),
            "written": _count_weights([*in_blocks, named.get("output.weight", embedding)]),
            "tower": _count_weights(t for t in projector.tensors if t.name.startswith("v.blk.")),
            "merger": _count_weights(t for t in projector.tensors if t.name.startswith("mm.")),
        },
    )


def _bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.size for tensor in tensors)


def _count_weights(tensors: Iterable[Tensor]) -> Mapping[int, int]:
    """Count the weights of matrices, by ggml's type."""
    counted: Counter[int] = Counter()
    for tensor in tensors:
        if len(tensor.dimensions) == 2:
            counted[tensor.kind] += prod(tensor.dimensions)
    return counted


def text_buffer(shape: ModelShape, settings: EngineSettings, context: int, *, on_gpu: bool) -> int:
    """The bytes of the processor's memory that evaluating text in a context of this length touches."""
    batch = min(settings.ubatch, context)
    small = shape.is_small and not on_gpu and settings.kv_type == "f16"
    flash = settings.text_flash_attention(on_gpu=on_gpu) is not False and not small
    row, mask = batch * _F32, batch * context * (_F16 if flash else _F32)
    if flash:
        attention = row * (2 * shape.width + shape.query_width + 2 * shape.kv_width)
    else:
        # The whole matrix of products of keys and queries, and values stored one by one, each with its index.
        attention = row * (3 * shape.width + shape.query_width + context * shape.heads + 2 * shape.kv_width)
    forward = row * (2 * shape.width + 3 * shape.feed_forward)
    # The matrix's other side is converted to the weights' own type first: about a byte a value.
    scratch = int(1.15 * batch * shape.feed_forward) + 3 * MOST_LOGITS * shape.vocabulary * _F32
    return row * shape.input_width + mask + max(attention, forward) + scratch


def gpu_text_buffer(shape: ModelShape, settings: EngineSettings, context: int, *, whole: bool) -> int:
    """The bytes that the engine reserves on a GPU to evaluate text, with flash attention as it chooses there.

    `whole` tells whether all layers are on GPUs. Where some are not, the engine copies their matrices to the GPU one
    after the other to evaluate many tokens.
    """
    batch = min(settings.ubatch, context)
    row, entering = batch * _F32, batch * _F32 * shape.input_width
    attention = row * (2 * shape.width + shape.query_width + 2 * shape.kv_width)
    forward = row * (shape.width + 3 * shape.feed_forward)
    if not whole:
        # The largest matrix is one of three as wide as the feed-forward part, beside those of the attention.
        sides = 3 * shape.feed_forward + 2 * shape.query_width + 2 * shape.kv_width
        attention += 6 * row * shape.width
        forward += max(max(shape.layers) * shape.feed_forward // sides, 4 * row * shape.width)
    output = row * shape.width + MOST_LOGITS * shape.vocabulary * _F32
    return entering + max(_F16 * batch * context + max(attention, forward), output)


def vision_inputs(shape: ModelShape, patches: int) -> int:
    """Bytes of what enters one evaluation of the vision tower: the pixels of a pair of frames, and the window mask."""
    return patches * shape.vision_patch**2 * 3 * 2 * _F32 + _F32 * patches**2


def vision_buffer(shape: ModelShape, patches: int, *, on_gpu: bool) -> int:
    """Bytes of one evaluation of the vision tower, with flash attention: a pair of frames with `patches` patches."""
    state, feed = patches * shape.vision_width * _F32, patches * shape.vision_feed_forward * _F32
    square = patches * patches
    pixels = vision_inputs(shape, patches) - _F32 * square
    # The window mask is there in F32 and, twice, in F16.
    graph = max(3 * feed + 4 * state + 4 * square, 5 * state + 6 * square)
    if on_gpu:
        # A GPU first holds the pixels and the mask as they came, with the patches or the mask in F16.
        return max(graph, pixels + pixels // 4 + 4 * square, pixels + 6 * square)
    # The same pixels on their way in, and the wider side of a matrix in the weights' own type.
    return graph + 3 * pixels + feed // 2


def context_tokens(shape: ModelShape, profile: Profile) -> int:
    """The context that the engine will choose for clips shown at the full size, before their text is tokenised."""
    cells = profile.max_pixels // profile.pixels_per_token
    bound = profile.context_bound(count_text_tokens(profile) + profile.first_patches * cells, profile.tool_cells)
    return min(bound, shape.trained_context)


def count_text_tokens(profile: Profile) -> int:
    """Count about how many tokens of text a judge reads before its first reply."""
    turns = opening(Pair("", (5.0, 5.0), measured=EXAMPLE), profile)
    letters = sum(len(part.text) for turn in turns for part in turn.parts if isinstance(part, Text))
    return letters // _LETTERS_PER_TOKEN + _CAPTION_TOKENS


def estimate_memory(
    shape: ModelShape,
    profile: Profile,
    settings: EngineSettings,
    *,
    gpu_shares: Sequence[float] = (),
    source_pixels: int = SOURCE_PIXELS,
    pairs: int = 1,
) -> Estimate:
    """Estimate the memory of judging with this profile and these settings.

    `gpu_shares` are the parts in which layers are divided among GPUs. If it is empty, nothing is on a GPU, whatever the
    settings are. `source_pixels` are those of a clip's own frame, `pairs` how many are judged at once.
    """
    places = _places(len(shape.layers), settings.gpu_layers, gpu_shares)
    used = {place for place in places if place is not None}
    on_gpu = settings.projector_on_gpu
    vision_place = 0 if gpu_shares and (bool(used) if on_gpu is None else on_gpu) else None
    # Evaluation touches only the conversation's part of a context that is larger than the conversation.
    conversation = context_tokens(shape, profile)
    context = -(-min(settings.context or conversation, 2**24) // 256) * 256
    touched = text_buffer(shape, settings, min(context, conversation), on_gpu=bool(used))
    if places[0] is not None:
        touched = 2 * min(settings.ubatch, context) * (shape.input_width * _F32 + context)
    reserved = gpu_text_buffer(shape, settings, context, whole=places[0] is not None)

    def term(name: str, at: Mapping[int | None, float]) -> Term:
        return Term(name, int(at.get(None, 0)), tuple(int(at.get(gpu, 0)) for gpu in range(len(gpu_shares))))

    def split(sizes: Iterable[float]) -> dict[int | None, float]:
        found: defaultdict[int | None, float] = defaultdict(float)
        for place, size in zip(places, sizes, strict=False):
            found[place] += size
        return found

    weights = split([*shape.layers, shape.output + (shape.embedding if shape.tied and places[-1] is not None else 0)])
    cells = profile.max_pixels // profile.pixels_per_token
    token = 2 * shape.kv_width * (2.0 * _F16 if settings.exact else _KV_BYTES[settings.kv_type])
    shown, layers = -(-profile.first_frames // 2) * cells, len(shape.layers)
    copied = count_text_tokens(profile) + 2 * shown if profile.first_frames > 2 else 0
    patches = 4 * max(cells, profile.tool_cells)
    vision = vision_buffer(shape, patches, on_gpu=vision_place is not None)
    program = _PROCESS_BYTES + shape.vocabulary * _VOCABULARY_BYTES + shape.merges * _MERGE_BYTES
    terms = (
        term("weights", {**weights, None: weights[None] + shape.embedding}),
        term("repacked weights", {None: split(shape.packed)[None] if settings.repack else 0}),
        term("projector", {vision_place: shape.projector}),
        term("keys and values", split([settings.sequences * token * context] * layers)),
        term("evaluation of text", {**dict.fromkeys(used, reserved), None: touched}),
        term("evaluation of frames", {None: vision_inputs(shape, patches), vision_place: vision}),
        # One pair keeps one: that of the order before. For a patch of under a second the whole state is copied once.
        term("states of the engine", {None: (min(settings.prefixes, 1) * (shown + 64) + copied) * token * layers}),
        term("frames and embeddings", {None: pairs * _frames(shape, profile, cells)}),
        term("decoding of clips", {None: pairs * _DECODER_BYTES * source_pixels}),
        term("program", {**dict.fromkeys({*used, vision_place}, _GPU_BYTES), None: program}),
    )
    return Estimate(terms, context, profile.max_pixels, settings)


def estimate_default_bytes(shape: ModelShape, profile: Profile) -> int:
    """Bytes that judging with default settings takes if all of it is in the processor's memory."""
    return estimate_memory(shape, profile, EngineSettings(gpu_layers=0)).cpu_bytes


def _places(layers: int, on_gpus: int | None, shares: Sequence[float]) -> list[int | None]:
    """The place of each layer, and at the end of the output: a GPU's number, or None. The last go to GPUs first."""
    moved = min(layers + 1 if on_gpus is None else on_gpus, layers + 1) if shares else 0
    reached = [moved * part / sum(shares) for part in accumulate(shares)][:-1]
    return [None] * (layers + 1 - moved) + [bisect(reached, number) for number in range(moved)]


def _frames(shape: ModelShape, profile: Profile, cells: int) -> int:
    """Bytes of the shown frames in RGB, and of their embeddings."""
    called = profile.frames_per_call * (profile.rounds - 1)
    patches = profile.first_patches * cells + called * profile.tool_cells
    embeddings = min(patches * shape.input_width * _F32, _EMBEDDINGS_BYTES)
    shown = profile.clips_at_once * profile.first_frames * cells + called * profile.tool_cells
    return shown * profile.pixels_per_token * 3 + embeddings
