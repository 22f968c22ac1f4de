"""Estimates how much memory judging takes, from the headers of a model's two files, before anything is loaded.

The terms follow llama.cpp's own allocation (src/llama-context.cpp, src/llama-kv-cache.cpp of the lowest version
supported) and the sizes of this package's caches. Processor memory is what becomes resident: the engine reserves logits
for some tokens of an evaluation and touches one row. GPU memory is what is reserved.
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from vrt_lite.fitting.engine_buffers import (
    F16,
    F32,
    ModelShape,
    gpu_text_buffer,
    text_buffer,
    vision_buffer,
    vision_inputs,
)
from vrt_lite.judge import Pair, opening
from vrt_lite.machine import EngineSettings
from vrt_lite.models import ModelFiles
from vrt_lite.models.gguf import Gguf, read_gguf
from vrt_lite.profile import PIXELS_PER_TOKEN, Profile
from vrt_lite.protocol.messages import Text
from vrt_lite.protocol.report import EXAMPLE

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
    return ModelShape(
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
        projector=sum(tensor.size for tensor in projector.tensors),
        vision_width=projector.number("clip.vision.embedding_length"),
        vision_feed_forward=projector.number("clip.vision.feed_forward_length"),
        vision_heads=projector.number("clip.vision.attention.head_count"),
    )


def context_tokens(shape: ModelShape, profile: Profile) -> int:
    """The context that the engine will choose for clips shown at the full size, before their text is tokenised."""
    cells = profile.max_pixels // PIXELS_PER_TOKEN
    patches = 2 * -(-profile.first_frames // 2)
    bound = profile.context_bound(count_text_tokens(profile) + patches * cells, profile.tool_cells)
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
    gpus = len(gpu_shares)
    places = _places(len(shape.layers), settings.gpu_layers, gpu_shares)
    used = {place for place in places if place is not None}
    vision_on_gpu = bool(gpus) and (bool(used) if settings.projector_on_gpu is None else settings.projector_on_gpu)
    vision_place = 0 if vision_on_gpu else None
    context = min(settings.context or context_tokens(shape, profile), 2**24)
    context = -(-context // 256) * 256
    cells = profile.max_pixels // PIXELS_PER_TOKEN
    # Evaluation touches only the conversation's part of a context that is larger than the conversation.
    conversation = min(context, context_tokens(shape, profile))
    touched = text_buffer(shape, settings, conversation, on_gpu=bool(used))
    if places[0] is not None:
        touched = 2 * min(settings.ubatch, context) * (shape.width * F32 + context)
    reserved = gpu_text_buffer(shape, settings, context, whole=places[0] is not None)

    def split(name: str, sizes: Sequence[float], where: Sequence[int | None]) -> Term:
        return Term(name, _sum_at(None, sizes, where), tuple(_sum_at(gpu, sizes, where) for gpu in range(gpus)))

    def term(name: str, cpu: float, on_gpu: int = 0, where: Collection[int | None] = ()) -> Term:
        return Term(name, int(cpu), tuple(on_gpu if gpu in where else 0 for gpu in range(gpus)))

    weights = [*shape.layers, shape.output + (shape.embedding if shape.tied and places[-1] is not None else 0)]
    copied = zip(shape.packed, places, strict=False) if settings.repack else ()
    token = 2 * shape.kv_width * (2.0 * F16 if settings.exact else _KV_BYTES[settings.kv_type])
    state = (-(-profile.first_frames // 2) * cells + 64) * token * len(shape.layers)
    # The text model and the vision tower decide separately: see `Context` and `Vision` in backends/llamacpp.
    flash = settings.flash_attention is not False and not settings.exact
    patches = 4 * max(cells, profile.tool_cells)
    vision = vision_buffer(shape, patches, flash=flash, on_gpu=vision_on_gpu)
    program = _PROCESS_BYTES + shape.vocabulary * _VOCABULARY_BYTES + shape.merges * _MERGE_BYTES
    terms = (
        split("weights", [shape.embedding, *weights], [None, *places]),
        term("repacked weights", sum(size for size, place in copied if place is None)),
        split("projector", [shape.projector], [vision_place]),
        split("keys and values", [settings.sequences * token * context] * len(shape.layers), places[:-1]),
        term("evaluation of text", touched, reserved, used),
        term("evaluation of frames", vision_inputs(patches) if vision_on_gpu else vision, vision, {vision_place}),
        # One pair makes one: that of the order before.
        term("kept states", min(settings.prefixes, 1) * state),
        term("frames and embeddings", pairs * _frames(shape, profile, cells)),
        term("decoding of clips", pairs * _DECODER_BYTES * source_pixels),
        term("program", program, _GPU_BYTES, {*used, vision_place}),
    )
    return Estimate(terms, context, profile.max_pixels, settings)


def estimate_default_bytes(shape: ModelShape, profile: Profile) -> int:
    """Bytes that judging with default settings takes if all of it is in the processor's memory."""
    return estimate_memory(shape, profile, EngineSettings(gpu_layers=0)).cpu_bytes


def _sum_at(place: int | None, sizes: Sequence[float], places: Sequence[int | None]) -> int:
    return int(sum(size for size, at in zip(sizes, places, strict=True) if at == place))


def _places(layers: int, on_gpus: int | None, shares: Sequence[float]) -> list[int | None]:
    """The place of each layer, and at the end of the output: a GPU's number, or None. The last go to GPUs first."""
    total = sum(shares)
    moved = min(layers + 1 if on_gpus is None else on_gpus, layers + 1) if total > 0 else 0
    places: list[int | None] = [None] * (layers + 1 - moved)
    for i in range(moved):
        reached = 0.0
        for gpu, share in enumerate(shares):
            reached += share / total
            if i / moved < reached or gpu == len(shares) - 1:
                places.append(gpu)
                break
    return places


def _frames(shape: ModelShape, profile: Profile, cells: int) -> int:
    """Bytes of the shown frames in RGB, and of their embeddings."""
    called = profile.frames_per_call * (profile.rounds - 1)
    patches = 2 * -(-profile.first_frames // 2) * cells + called * profile.tool_cells
    embeddings = min(patches * shape.width * F32, _EMBEDDINGS_BYTES)
    shown = 2 * profile.first_frames * cells + called * profile.tool_cells
    return shown * PIXELS_PER_TOKEN * 3 + embeddings
