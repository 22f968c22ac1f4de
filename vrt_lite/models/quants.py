"""Which of several quants of one model is the best here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

CONTEXT_BYTES: Final = 2**30
"""Assumed size of context and compute buffers, where the model's own numbers are not known."""
SHARE_OF_MEMORY: Final = 0.7
"""The share of a machine's memory that a judge may take."""
_GOOD = ("Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M")
_NOT_QUANTISED = ("F16", "BF16", "F32")


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text GGUF to choose from: its path, its quant ("" if that is not known), its bytes."""

    path: str
    quant: str
    size: int


def total_memory() -> int:
    """All of this machine's memory, in bytes."""
    import psutil  # noqa: PLC0415

    return psutil.virtual_memory().total


def best_quant(candidates: Iterable[TextFile], memory_bytes: int) -> TextFile | None:
    """The best of one model's files for `memory_bytes`, context included; None if none fits.

    It is the largest of the quants from Q4_K_M to Q8_0: above Q8_0 a judge gains nothing that can be measured. If none
    of them fits, the largest smaller quant is taken, else the largest file that is not quantised.
    """
    fits = [file for file in candidates if file.size + CONTEXT_BYTES <= memory_bytes]
    good = [file for file in fits if file.quant in _GOOD]
    small = [file for file in fits if file.quant not in _NOT_QUANTISED]
    return max(good or small or fits, key=lambda file: (file.size, file.path), default=None)
