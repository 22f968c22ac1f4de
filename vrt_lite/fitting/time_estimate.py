"""Estimates how long a judgement takes, from what it evaluates and the speed of the engine. Only sums.

Frames are as large as a profile allows: of smaller clips `fit_frames` gives the profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vrt_lite.fitting.memory_estimate import ModelShape, Part, count_text_tokens
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
Speed = tuple[float, float]
"""Of one of ggml's types: weights that are multiplied in a second, with one token and with each of many."""


def fit_frames(profile: Profile, size: tuple[int, int]) -> Profile:
    """The profile with frames as large as those of a clip of this (width, height)."""
    first, called = (profile.frame_size(*size, called=called) for called in (False, True))
    return profile.with_max_pixels(first[0] * first[1], tool_pixels=called[0] * called[1])


def count_work(profile: Profile) -> tuple[int, int, int]:
    """Tokens that a judgement of two new clips encodes, reads and writes."""
    rounds = min(_ROUNDS, profile.rounds)
    called = (rounds - 1) * profile.frames_per_call * profile.tool_cells
    called //= 2 if profile.tool_form == "video" else 1  # a frame alone fills a pair of frames
    encoded = profile.first_patches * profile.max_cells + called
    read = encoded + count_text_tokens(profile) + (rounds - 1) * _TURN_TOKENS
    heads = profile.answer is not None and bool(profile.answer.head)  # then nothing is written
    return encoded, read, 0 if heads else rounds * min(_WRITTEN, profile.max_new_tokens)


def estimate_seconds(shape: ModelShape, profile: Profile, speeds: Mapping[int, Speed]) -> float:
    """Seconds of a judgement of two new clips, by the speed of each of ggml's types."""

    def multiply(part: Part, *, many: bool = True) -> float:
        return _BESIDE * sum(weights / speeds[kind][many] for kind, weights in shape.matrices[part].items())

    encoded, read, written = count_work(profile)
    attention = _ATTENTION * 2 / speeds[F16][1]
    # Half of the conversation is read before a token, in the mean.
    attended = attention * shape.query_width * shape.layers * read / 2
    patches = _PATCHES_PER_TOKEN * profile.max_cells
    seen = _WINDOW_PATCHES + (patches - _WINDOW_PATCHES) / shape.vision_full_every
    patch = multiply("tower") + attention * shape.vision_width * shape.vision_layers * seen
    return (
        encoded * (_PATCHES_PER_TOKEN * patch + multiply("merger"))
        + read * (multiply("layers") + attended)
        + written * (multiply("layers", many=False) + multiply("output", many=False) + attended)
    )
