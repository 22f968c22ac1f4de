"""How much memory judging takes, worked out from the two files' headers before anything is loaded.

The terms follow llama.cpp's own allocation (src/llama-context.cpp, src/llama-kv-cache.cpp, tools/mtmd/clip.cpp and
ggml-alloc.c of the engine's floor version) and the lengths of this package's caches. Processor memory is what becomes
resident: the engine reserves logits for some tokens of an evaluation and touches one row. GPU memory is what is
reserved. Standard library only; refuses to know what a machine has (`fit` does) and how it is shown.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vrt_lite.backends.settings import EngineSettings
from vrt_lite.judge import Pair, opening
from vrt_lite.models.files import ModelFiles
from vrt_lite.models.gguf import Gguf, read_gguf
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Text
from vrt_lite.resize import PIXELS_PER_TOKEN

_F16, _F32 = 2, 4
_KV_BYTES = {"f16": 2.0, "q8_0": 34 / 32}
_SMALL_MODEL = 64 * 2**20
"""Below this flash attention is off, and evaluated by twos (`Context` in backends/llamacpp)."""
_EMBEDDINGS_BYTES = 512 * 2**20
"""The bound of the embeddings in memory (`EmbeddingCache`)."""
_KEPT_STATES = 2
"""States after the first video that one pair makes: one an order."""
_CAPTION_TOKENS = 100
_LETTERS_A_TOKEN = 4
"""Of prompts like these, with the bundled judge's small vocabulary (4.3) as with a full one."""
SOURCE_PIXELS: Final = 1280 * 720
"""A frame of the clips as they are on disk, if nothing is known of them."""
_DECODER_BYTES = 55
"""A pixel of the source, for both clips: the frames that two decoders of two threads keep. Measured with H.264."""
_FEW = 16
"""Rows of logits that one evaluation may ask for (`MOST_LOGITS` in backends/llamacpp)."""
# ggml's types that have a packed layout: Q4_0, Q4_K, IQ4_NL, MXFP4; on ARM also Q8_0, Q5_K, Q6_K (ggml-cpu/repack.cpp).
_PACKED = frozenset({2, 12, 20, 39})
_PACKED_ARM = _PACKED | {8, 13, 14}
_PROCESS_BYTES: Final = 83_000_000
"""Python, NumPy, PyAV and the engine's libraries, measured on Linux: half of it is shared with other processes."""
_VOCABULARY_BYTES, _MERGE_BYTES = 130, 150
"""The engine's tables for one token, and for one merge: nodes of std::unordered_map with their strings."""
_GPU_BYTES: Final = 400 * 2**20
"""A GPU's own context and scratch, as others report it; not measured here."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the two headers say. Weights are bytes: `layers` holds each layer's, `packed` those with a packed layout."""

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


@dataclass(frozen=True, slots=True)
class Term:
    """One use of memory, in bytes: the processor's, and each GPU's."""

    name: str
    cpu: int
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a judgement takes at most, and the settings that it was worked out for. `context` is in tokens."""

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


def shape_of(files: ModelFiles) -> Shape:
    """Read both headers; ModelError if one is no whole GGUF."""
    text, projector = read_gguf(files.text), read_gguf(files.projector)
    count = text.number("qwen2vl.block_count")
    kinds = _PACKED_ARM if platform.machine().lower() in ("arm64", "aarch64") else _PACKED
    layers, packed = [0] * count, [0] * count
    embedding = output = rows = 0
    for tensor in text.tensors:
        head, _, rest = tensor.name.partition(".")
        if head == "blk" and (number := rest.partition(".")[0]).isdecimal() and int(number) < count:
            layers[int(number)] += tensor.size
            packed[int(number)] += tensor.size if tensor.kind in kinds and len(tensor.dimensions) == 2 else 0
        elif head == "token_embd":
            embedding, rows = tensor.size, tensor.dimensions[-1]
        else:
            output += tensor.size
    heads = max(text.number("qwen2vl.attention.head_count"), 1)
    width = text.number("qwen2vl.embedding_length")
    return Shape(
        layers=tuple(layers),
        packed=tuple(packed),
        embedding=embedding,
        output=output,
        tied=all(tensor.name != "output.weight" for tensor in text.tensors),
        width=width,
        feed_forward=text.number("qwen2vl.feed_forward_length"),
        heads=heads,
        kv_width=width // heads * text.number("qwen2vl.attention.head_count_kv"),
        vocabulary=rows,
        merges=text.lengths.get("tokenizer.ggml.merges", 0),
        trained_context=text.number("qwen2vl.context_length"),
        projector=_tensor_bytes(projector),
        vision_width=projector.number("clip.vision.embedding_length"),
        vision_feed_forward=projector.number("clip.vision.feed_forward_length"),
        vision_heads=projector.number("clip.vision.attention.head_count"),
    )


def context_tokens(shape: Shape, profile: Profile) -> int:
    """The context that the engine will choose for clips shown at the full size, before their text is tokenised."""
    cells = profile.max_pixels // PIXELS_PER_TOKEN
    turns = opening(Pair("", (5.0, 5.0)), profile)
    letters = sum(len(part.text) for turn in turns for part in turn.parts if isinstance(part, Text))
    words = letters // _LETTERS_A_TOKEN + _CAPTION_TOKENS
    patches = 2 * -(-profile.first_frames // 2)
    return min(profile.context_bound(words + patches * cells, profile.tool_cells), shape.trained_context)


def estimate(
    shape: Shape,
    profile: Profile,
    settings: EngineSettings,
    *,
    gpu_shares: Sequence[float] = (),
    source_pixels: int = SOURCE_PIXELS,
) -> Estimate:
    """The memory of judging with this profile and these settings.

    `gpu_shares` says how the layers on GPUs are shared out: each GPU's part of all their free memory. With none,
    nothing is on a GPU whatever the settings say. `source_pixels` are those of a clip's own frame.
    """
    gpus = len(gpu_shares)
    places = _places(len(shape.layers), settings.gpu_layers, gpu_shares)
    context = min(settings.context or context_tokens(shape, profile), 2**24)
    context = -(-context // 256) * 256
    cells = profile.max_pixels // PIXELS_PER_TOKEN
    batch = min(settings.ubatch, context)
    on_gpu = any(place is not None for place in places)
    # Text and picture decide by themselves: see `Context` and `flash_attention` in backends/llamacpp.
    flash = settings.flash_attention is not False and not settings.exact
    text_flash = settings.text_flash_attention(on_gpu=on_gpu) is not False
    small = shape.text_bytes < _SMALL_MODEL and not on_gpu and settings.kv_type == "f16"
    largest = max(cells, profile.tool_cells)
    vision_on_gpu = bool(gpus) and (on_gpu if settings.projector_on_gpu is None else settings.projector_on_gpu)
    home = 0 if vision_on_gpu else None

    def spread(name: str, sizes: Sequence[float], where: Sequence[int | None]) -> Term:
        held = [sum(size for size, at in zip(sizes, where, strict=True) if at == place) for place in range(gpus)]
        cpu = sum(size for size, at in zip(sizes, where, strict=True) if at is None)
        return Term(name, int(cpu), tuple(map(int, held)))

    weights = [*shape.layers, shape.output + (shape.embedding if shape.tied and places[-1] is not None else 0)]
    copies = [
        size if place is None and settings.repack else 0 for size, place in zip(shape.packed, places, strict=False)
    ]
    token = 2 * shape.kv_width * (2.0 * _F16 if settings.exact else _KV_BYTES[settings.kv_type])
    # Of a context that is larger than the conversation only the conversation's part is ever touched in evaluation.
    spoken = min(context, context_tokens(shape, profile))
    working, _ = _text_buffers(shape, batch, spoken, flash=text_flash and not small)
    _, reserved = _text_buffers(shape, batch, context, flash=text_flash and not small)
    used = sorted({place for place in places if place is not None})
    terms = (
        spread("weights", [shape.embedding, *weights], [None, *places]),
        Term("repacked weights", sum(copies), (0,) * gpus),
        spread("projector", [shape.projector], [home]),
        spread("keys and values", [token * context] * len(shape.layers), places[:-1]),
        Term(
            "evaluation of text",
            working if not used or places[0] is None else 2 * batch * shape.width * _F32 + 2 * batch * context,
            tuple(reserved if gpu in used else 0 for gpu in range(gpus)),
        ),
        spread("evaluation of frames", [_vision_buffer(shape, 4 * largest, flash=flash)], [home]),
        Term("kept states", int(_kept(shape, profile, cells, token, settings)), (0,) * gpus),
        Term("frames and embeddings", _frames(shape, profile, cells), (0,) * gpus),
        Term("decoding of clips", _DECODER_BYTES * source_pixels, (0,) * gpus),
        Term("program", _program(shape), tuple(_GPU_BYTES if gpu in used or gpu == home else 0 for gpu in range(gpus))),
    )
    return Estimate(terms, context, profile.max_pixels, settings)


def memory_needed(files: ModelFiles) -> int:
    """Bytes that judging with the profile's and the engine's defaults takes, all of it in the processor's memory."""
    return estimate(shape_of(files), files.profile, EngineSettings(gpu_layers=0)).cpu_bytes


def _tensor_bytes(file: Gguf) -> int:
    return sum(tensor.size for tensor in file.tensors)


def _places(layers: int, wanted: int | None, shares: Sequence[float]) -> list[int | None]:
    """Where each layer and, behind them, the output lie: a GPU's number, or None. The last ones go to GPUs first."""
    total = sum(shares)
    moved = min(layers + 1 if wanted is None else wanted, layers + 1) if total > 0 else 0
    places: list[int | None] = [None] * (layers + 1 - moved)
    for i in range(moved):
        reached = 0.0
        for gpu, share in enumerate(shares):
            reached += share / total
            if i / moved < reached or gpu == len(shares) - 1:
                places.append(gpu)
                break
    return places


def _text_buffers(shape: Shape, batch: int, context: int, *, flash: bool) -> tuple[int, int]:
    """What one evaluation of the text model touches, and what the engine reserves for it."""
    row, mask = batch * _F32, batch * context * (_F16 if flash else _F32)
    entering = row * shape.width
    if flash:
        attention = 3 * row * shape.width + 2 * row * shape.kv_width
    else:
        # The whole matrix of products of keys and queries, and values written one by one, each with its index.
        attention = 4 * row * shape.width + row * context * shape.heads + 8 * batch * shape.kv_width
    forward = row * (2 * shape.width + 3 * shape.feed_forward)
    layer = entering + mask + max(attention, forward)
    # The matrix's other side is converted to the weights' own type first: about a byte a value.
    scratch = int(1.15 * batch * shape.feed_forward)
    logits = shape.vocabulary * _F32
    touched = layer + scratch + 3 * _FEW * logits
    return touched, max(layer, 2 * entering + _FEW * logits) + _FEW * logits


def _vision_buffer(shape: Shape, patches: int, *, flash: bool) -> int:
    """One evaluation of the vision tower: a pair of frames of so many patches of 14x14 pixels each."""
    state, feed = patches * shape.vision_width * _F32, patches * shape.vision_feed_forward * _F32
    square = patches * patches
    pixels = patches * 196 * 3 * 2 * _F32
    if flash:
        # The window mask is there in F32 and, twice, in F16.
        graph = max(3 * feed + 4 * state + 4 * square, 5 * state + 6 * square)
    else:
        graph = max(3 * feed + 4 * state, 5 * state + pixels + 4 * square * shape.vision_heads) + 4 * square
    # The same pixels on their way in, and the wider side of a matrix in the weights' own type.
    return graph + 3 * pixels + feed // 2


def _kept(shape: Shape, profile: Profile, cells: int, token: float, settings: EngineSettings) -> float:
    shown = -(-profile.first_frames // 2) * cells
    return min(settings.prefixes, _KEPT_STATES) * (shown + 64) * token * len(shape.layers)


def _frames(shape: Shape, profile: Profile, cells: int) -> int:
    """Shown frames in RGB, and what the vision tower made of each patch."""
    called = profile.frames_per_call * (profile.rounds - 1)
    patches = 2 * -(-profile.first_frames // 2) * cells + called * profile.tool_cells
    embeddings = min(patches * shape.width * _F32, _EMBEDDINGS_BYTES)
    shown = 2 * profile.first_frames * cells + called * profile.tool_cells
    return shown * PIXELS_PER_TOKEN * 3 + embeddings


def _program(shape: Shape) -> int:
    return _PROCESS_BYTES + shape.vocabulary * _VOCABULARY_BYTES + shape.merges * _MERGE_BYTES
