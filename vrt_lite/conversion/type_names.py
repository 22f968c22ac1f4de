"""The types in which a pair can be written. Nothing is imported here, so that a page of help stays fast."""

from __future__ import annotations

from typing import Final

TEXT_TYPES: Final = (
    *("q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_0", "q4_k_m", "q4_k_s", "q4_0", "iq4_nl", "iq4_xs"),
    *("q3_k_l", "q3_k_m", "q3_k_s", "q2_k"),
)
"""Of a quantised language model. Smaller ones need an importance matrix, and destroy a small judge."""
QUANTIZED_PROJECTOR_TYPES: Final = ("q8_0", "q6_k", "q5_k", "q4_k")
"""Of a projector that is quantised here; llama.cpp's converter knows the first alone."""
PROJECTOR_TYPES: Final = ("bf16", "f16", *QUANTIZED_PROJECTOR_TYPES)
PLAIN_TYPES: Final = ("f32", "f16", "bf16")
"""Those that are not quantised, of either file."""
TYPES: Final = (*PLAIN_TYPES, *TEXT_TYPES)
"""All that a language model can be written in."""
