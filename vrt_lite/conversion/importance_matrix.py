"""Reads an importance matrix: the GGUF that llama-imatrix, or `python -m convert calibrate`, writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFReader

from vrt_lite.errors import ModelError
from vrt_lite.models.gguf import read_header


def read_importance(path: Path) -> dict[str, np.ndarray]:
    """Return the mean squared input of each column, by the name of the weight. Raises ModelError."""
    if read_header(path).get("general.type") != "imatrix":
        raise ModelError(f"{path} is no importance matrix: give the GGUF that llama-imatrix writes")
    try:
        found = {tensor.name: np.array(tensor.data, np.float32) for tensor in GGUFReader(path).tensors}
    except (ValueError, IndexError, OSError) as error:
        raise ModelError(f"{path} is not a whole GGUF file: {error}. Calibrate or copy it again") from error
    means: dict[str, np.ndarray] = {}
    for name, sums in found.items():
        weight, dot, kind = name.rpartition(".")
        if dot and kind == "in_sum2":
            counts = found.get(f"{weight}.counts", np.zeros(1, np.float32))
            if counts.size != 1:
                raise ModelError(f"{path}: {weight:.80} has {counts.size} counts, needs 1: no expert models here")
            count = float(counts.ravel()[0])
            # As in llama-quantize, all columns are equal for a weight that calibration never evaluated.
            mean = np.ascontiguousarray(sums.ravel() / count if count > 0 else np.ones_like(sums).ravel())
            if not np.isfinite(mean).all():
                raise ModelError(f"{path}: {name:.80} has values that are no numbers: calibrate again")
            means[weight] = mean
    return means
