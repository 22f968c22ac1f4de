"""Estimates how long a judgement takes, from what it evaluates and the speed of the engine. Only sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from vrt_lite.fitting.memory_estimate import ModelShape, Multiplied, count_text_tokens
from vrt_lite.profile import Profile

F16: Final = 1
"""ggml's type in which attention is computed."""
_ROUNDS = 2
_WRITTEN = 250
"""Tokens that a judge writes in a round."""
_TURN_TOKENS = 60
"""Text between two replies: what comes with asked-for frames, and the marks of the turns."""
_PATCHES_PER_TOKEN = 4
_WINDOW_PATCHES = 64
_BESIDE = 1.15
"""What a layer takes beside its multiplications by weights: norms, positions, copies. Measured with the 7B's widths."""
_ATTENTION = 2.5
"""What attention takes beside its own multiplications: masks, softmax and copies. Measured with the 7B's widths."""


@dataclass(frozen=True, slots=True)
class MatrixSpeeds:
    """By ggml's type: weights that are multiplied in a second, with one token and with each of many."""

    one: Mapping[int, float]
    many: Mapping[int, float]


def count_cells(profile: Profile, size: tuple[int, int] | None, *, called: bool = False) -> int:
    """The visual tokens of a frame of a clip of this (width, height); without it, of the largest."""
    if size is None:
        return profile.tool_cells if called else profile.max_pixels // profile.pixels_per_token
    width, height = profile.frame_size(*size, called=called)
    return width * height // profile.pixels_per_token


def count_work(profile: Profile, size: tuple[int, int] | None = None) -> tuple[int, int, int]:
    """Tokens that a judgement of two new clips of this size encodes, reads and writes."""
    rounds, cells = min(_ROUNDS, profile.rounds), count_cells(profile, size)
    called = (rounds - 1) * profile.frames_per_call * count_cells(profile, size, called=True)
    called //= 2 if profile.tool_form == "video" else 1  # a frame alone fills a pair of frames
    encoded = profile.first_patches * cells + called
    read = encoded + count_text_tokens(profile) + (rounds - 1) * _TURN_TOKENS
    heads = profile.answer is not None and bool(profile.answer.head)  # then nothing is written
    return encoded, read, 0 if heads else rounds * min(_WRITTEN, profile.max_new_tokens)


def estimate_seconds(
    shape: ModelShape, profile: Profile, speeds: MatrixSpeeds, size: tuple[int, int] | None = None
) -> float:
    """Seconds of a judgement of two new clips of this (width, height); without it, of the largest frames."""

    def multiply(what: Multiplied, speed: Mapping[int, float]) -> float:
        return _BESIDE * sum(weights / speed[kind] for kind, weights in shape.matrices[what].items())

    encoded, read, written = count_work(profile, size)
    attention = _ATTENTION * 2 / speeds.many[F16]
    # Half of the conversation is read before a token, in the mean.
    attended = attention * shape.heads * shape.head_size * len(shape.layers) * read / 2
    patches = _PATCHES_PER_TOKEN * count_cells(profile, size)
    seen = _WINDOW_PATCHES + (patches - _WINDOW_PATCHES) / shape.vision_full_every
    patch = multiply("tower", speeds.many) + attention * shape.vision_width * shape.vision_layers * seen
    return (
        encoded * (_PATCHES_PER_TOKEN * patch + multiply("merger", speeds.many))
        + read * (multiply("read", speeds.many) + attended)
        + written * (multiply("written", speeds.one) + attended)
    )
