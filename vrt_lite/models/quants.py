"""Which of several quants of one model is the best here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vrt_lite.errors import ModelError
from vrt_lite.machine import format_bytes

CONTEXT_BYTES: Final = 2**30
"""Assumed size of context and compute buffers, where the model's own numbers are not known."""
SHARE_OF_MEMORY: Final = 0.7
"""The share of a machine's memory that a judge may take."""
_NOT_QUANTISED = ("F16", "BF16", "F32")


def total_memory() -> int:
    """All of this machine's memory, in bytes."""
    import psutil  # noqa: PLC0415

    return psutil.virtual_memory().total


def choose_quant(name: str, sizes: Mapping[str, int], projector_bytes: int, *, memory_bytes: int) -> str:
    """The best quant of a model's text, by the bytes of each, for a machine's memory. ModelError if none fits.

    It is the largest that is quantised: above Q8_0 a judge gains nothing that can be measured. One that is not
    quantised is taken if no other fits.
    """
    room = int(memory_bytes * SHARE_OF_MEMORY) - projector_bytes - CONTEXT_BYTES
    fits = [quant for quant in sizes if sizes[quant] <= room]
    quantised = [quant for quant in fits if quant not in _NOT_QUANTISED]
    if fits:
        return max(quantised or fits, key=sizes.__getitem__)
    least = min(sizes, key=sizes.__getitem__)
    raise ModelError(
        f"No quant of {name} fits: the smallest, {least}, needs about {format_bytes(sizes[least] + CONTEXT_BYTES)} "
        f"beside its projector, and this machine can give {format_bytes(max(room + CONTEXT_BYTES, 0))}. To pull it all "
        f"the same, name it: {name}:{least}"
    )
