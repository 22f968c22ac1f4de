"""What the fidelity golden is about: a random checkpoint that is no toy in its structure, and conversations.

Shared by the script that asks the reference and the test that asks the engine. NumPy alone.

Weights have unit gain, so that every part matters to the logits and no part blows rounding up: with queries and keys
at twice that, what llama.cpp's vision tower rounds (4e-4 of an embedding) grows to 2.5e-3 over six blocks. The
output is not tied, and its rows of control tokens are zero, so that no turn ends by itself.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "convert"))

import synthetic_checkpoint as synthetic  # noqa: E402

from vrt_lite.profile import (  # noqa: E402
    PIXELS_PER_TOKEN,
    Clock,
    Profile,
)
from vrt_lite.protocol.messages import (  # noqa: E402
    Conversation,
    FrameRef,
    Image,
    Message,
    Text,
    Video,
    apply_window,
)

WIDTH, FEED_FORWARD, HEADS, KV_HEADS, LAYERS = 128, 192, 4, 2, 4
VISION_WIDTH, VISION_FEED_FORWARD, VISION_HEADS, DEPTH = 96, 160, 3, 6
FULL_ATTENTION = [2, 5]
ROWS = 320
ADDED = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
FIRST_ADDED = synthetic.FIRST_ADDED
GREEDY_TOKENS = 128

PROFILE = Profile(
    min_pixels=4 * PIXELS_PER_TOKEN,
    max_pixels=24 * PIXELS_PER_TOKEN,
    tool_min_pixels=4 * PIXELS_PER_TOKEN,
    tool_max_pixels=24 * PIXELS_PER_TOKEN,
    clock=Clock("truncate", 2.0),
    max_new_tokens=GREEDY_TOKENS,
    rounds=1,
)
OWN_RANGES = ("min_pixels", "max_pixels", "tool_min_pixels", "tool_max_pixels")
TRAINED = replace(PROFILE, **{name: getattr(Profile(), name) for name in OWN_RANGES}, max_new_tokens=32)
"""The same within VR-Thinker's own pixel ranges."""
MOST_VALUES = 500_000
"""Of a larger picture every eighth row is compared."""


def make_checkpoint(folder: Path) -> None:
    """Write the folder, in the old layout and F32."""
    folder.mkdir(parents=True)
    weights = {name: _scaled(name, shape) for name, shape in _shapes()}
    synthetic.write_safetensors(folder / "model.safetensors", weights, "F32")
    synthetic.write_json(folder / "config.json", _config())
    synthetic.write_json(folder / "tokenizer.json", _tokenizer())
    synthetic.write_json(folder / "tokenizer_config.json", {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})
    synthetic.write_json(folder / "preprocessor_config.json", synthetic.preprocessor("old"))


def _config() -> dict[str, Any]:
    config = synthetic.config("old", tied=False, shape=synthetic.TextShape(rows=ROWS, width=WIDTH))
    config |= {"intermediate_size": FEED_FORWARD, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS}
    config |= {"num_hidden_layers": LAYERS, "bos_token_id": FIRST_ADDED, "eos_token_id": FIRST_ADDED + 2}
    # Published: 16, 24, 24 of 64. Here of 16, half of a head.
    config["rope_scaling"] = {"type": "mrope", "mrope_section": [4, 6, 6]}
    config["vision_config"] |= {
        "depth": DEPTH,
        "fullatt_block_indexes": FULL_ATTENTION,
        "hidden_size": VISION_WIDTH,
        "intermediate_size": VISION_FEED_FORWARD,
        "num_heads": VISION_HEADS,
    }
    return config


def _tokenizer() -> dict[str, Any]:
    tokenizer = synthetic.tokenizer("old")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer["added_tokens"] = [
        {"id": FIRST_ADDED + i, "content": word, "special": True, **flags} for i, word in enumerate(ADDED)
    ]
    return tokenizer


def _shapes() -> list[tuple[str, tuple[int, ...]]]:
    kv, wide, merged = WIDTH // HEADS * KV_HEADS, VISION_WIDTH, 4 * VISION_WIDTH
    shapes: list[tuple[str, tuple[int, ...]]] = [
        ("model.embed_tokens.weight", (ROWS, WIDTH)),
        ("model.norm.weight", (WIDTH,)),
        ("lm_head.weight", (ROWS, WIDTH)),
        ("visual.patch_embed.proj.weight", (wide, 3, 2, synthetic.PATCH, synthetic.PATCH)),
        ("visual.merger.ln_q.weight", (wide,)),
        ("visual.merger.mlp.0.weight", (merged, merged)),
        ("visual.merger.mlp.0.bias", (merged,)),
        ("visual.merger.mlp.2.weight", (WIDTH, merged)),
        ("visual.merger.mlp.2.bias", (WIDTH,)),
    ]
    for i in range(LAYERS):
        block = f"model.layers.{i}"
        shapes += [(f"{block}.{norm}_layernorm.weight", (WIDTH,)) for norm in ("input", "post_attention")]
        for part, n in (("q", WIDTH), ("k", kv), ("v", kv)):
            shapes += [
                (f"{block}.self_attn.{part}_proj.weight", (n, WIDTH)),
                (f"{block}.self_attn.{part}_proj.bias", (n,)),
            ]
        shapes += [(f"{block}.self_attn.o_proj.weight", (WIDTH, WIDTH))]
        shapes += [(f"{block}.mlp.{part}_proj.weight", (FEED_FORWARD, WIDTH)) for part in ("gate", "up")]
        shapes += [(f"{block}.mlp.down_proj.weight", (WIDTH, FEED_FORWARD))]
    for i in range(DEPTH):
        block = f"visual.blocks.{i}"
        shapes += [(f"{block}.norm{n}.weight", (wide,)) for n in (1, 2)]
        for part, n, m in (
            ("attn.qkv", 3 * wide, wide),
            ("attn.proj", wide, wide),
            ("mlp.gate_proj", VISION_FEED_FORWARD, wide),
            ("mlp.up_proj", VISION_FEED_FORWARD, wide),
            ("mlp.down_proj", wide, VISION_FEED_FORWARD),
        ):
            shapes += [(f"{block}.{part}.weight", (n, m)), (f"{block}.{part}.bias", (n,))]
    return shapes


def _scaled(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Uniform values of unit gain, norms around 1, small biases."""
    drawn = synthetic.random_weights(f"fidelity {name}", shape)
    if len(shape) == 1:
        return np.float32(1) + drawn / 4 if "norm" in name or "ln_q" in name else drawn / 4
    if name == "model.embed_tokens.weight":
        return drawn
    weights = (drawn * np.float32(np.sqrt(3 / np.prod(shape[1:])))).astype(np.float32)
    if name == "lm_head.weight":
        weights[FIRST_ADDED:] = 0
    return weights


@dataclass(frozen=True)
class Case:
    """One conversation; `sizes` are the displayed (width, height) of each clip."""

    name: str
    conversation: Conversation
    sizes: tuple[tuple[int, int], tuple[int, int]]
    profile: Profile = PROFILE


@dataclass(frozen=True)
class Displayed:
    """Frames before any resize: moving bars and a disc over a gradient, by clip and index."""

    sizes: tuple[tuple[int, int], tuple[int, int]]

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        return [draw(frame, self.sizes[frame.clip]) for frame in frames]


@functools.lru_cache(maxsize=64)
def draw(frame: FrameRef, size: tuple[int, int]) -> NDArray[np.uint8]:
    """One frame, (height, width, 3), in integers only: the same on every machine."""
    width, height = size
    y, x = np.ogrid[:height, :width]
    shift = 7 * frame.index + 31 * frame.clip
    picture = np.empty((height, width, 3), np.uint8)
    picture[..., 0], picture[..., 1] = x * 255 // width, y * 255 // height
    picture[..., 2] = (x + y + shift) * 5 % 256
    picture[(x // 9 + y // 13 + frame.index) % 5 == 0] = (240, 230, 20 + shift % 200)
    centre = (width * ((frame.index * 3) % 10 + 1) // 11, height // 2)
    picture[(x - centre[0]) ** 2 + (y - centre[1]) ** 2 < (min(size) // 4) ** 2] = (220, 30 + 90 * frame.clip, 60)
    picture.flags.writeable = False
    return picture


def _video(clip: int, count: int, seconds: float) -> Video:
    return Video(tuple(FrameRef(clip, 5 * i) for i in range(count)), seconds)


def _user(*parts: Text | Video | Image, tool: bool = False) -> Message:
    return Message("user", parts, tool_outcome=tool)


def _images(*indices: int) -> tuple[Image, ...]:
    return tuple(Image(FrameRef(i % 2, i, called=True)) for i in indices)


def _two(counts: tuple[int, int], seconds: tuple[float, float]) -> tuple[Message, Message]:
    videos = (_video(clip, counts[clip], seconds[clip]) for clip in (0, 1))
    return (Message("system", (Text("the judge"),)), _user(*videos, Text("hello, which is the lower?")))


def cases(seeds: Mapping[str, int]) -> list[Case]:
    """All conversations; the seed, by name, is a last word in the text by which the greedy turn varies."""
    wide, tall, square = (160, 90), (90, 160), (117, 117)
    said = Message("assistant", (Text("the second clip"),))
    tools = (
        *_two((4, 4), (1.5, 1.5)),
        *(said, _user(Text("frames:"), *_images(3, 8), tool=True)),
        *(said, _user(Text("frames:"), *_images(1, 4, 11), tool=True)),
    )
    found = [
        ("two videos of four frames", _two((4, 4), (2.0, 2.0)), (wide, wide)),
        ("two sizes, two clocks", _two((4, 6), (2.5, 1.7)), (wide, tall)),
        ("odd sides, two and eight frames", _two((2, 8), (3.0, 1.0)), ((131, 97), (75, 211))),
        ("an odd number of frames", _two((3, 5), (1.0, 2.0)), (square, wide)),
        ("a strip and a tower", _two((2, 2), (1.0, 1.0)), ((640, 36), (30, 500))),
        ("long clips: t exceeds rows and columns", _two((4, 6), (75.0, 31.5)), (wide, tall)),
        ("under a second a patch: t repeats", _two((6, 4), (0.6, 0.9)), (wide, square)),
        ("tool frames as images", tools[:4], (wide, tall)),
        ("all tool frames seen", tools, (wide, square)),
        ("the window forgot the first tool frames", apply_window(tools, window=1, stand_in="(gone)"), (wide, square)),
        ("larger and smaller than the range", _two((2, 4), (1.0, 4.0)), ((900, 506), (40, 28))),
        ("text alone", (_user(Text("hello, the lower owl. " * 12)),), (wide, wide)),
    ]
    large = ((1920, 1080), (848, 480))  # 720 and 510 visual tokens a frame
    return [
        *(Case(name, _seeded(conversation, seeds.get(name, 0)), sizes) for name, conversation, sizes in found),
        *(
            Case(name, _seeded(conversation, seeds.get(name, 0)), large, TRAINED)
            for name, conversation in (("VR-Thinker's own sizes, with tool frames", tools[:4]),)
        ),
    ]


def compared_rows(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The rows of a picture that are stored and compared."""
    return pixels if pixels.size <= MOST_VALUES else pixels[::8]


def _seeded(conversation: Conversation, seed: int) -> Conversation:
    last = conversation[-1]
    return (*conversation[:-1], replace(last, parts=(*last.parts, Text(f" {seed}"))))


def projected(embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    """Twelve fixed random directions of each token's embedding: small enough to store, and no token is left out."""
    directions = synthetic.random_weights("fidelity projection", (embeddings.shape[1], 12))
    return (embeddings.astype(np.float64) @ directions).astype(np.float32)
