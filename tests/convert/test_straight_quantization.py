"""A file that is quantised while it is converted has the bytes of an export and llama.cpp's quantiser after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_checkpoint import TextShape, make

from convert.quantize import quantize_pair
from vrt_lite.conversion.export_pair import export_pair
from vrt_lite.conversion.type_names import TEXT_TYPES

SHAPES = {
    "whole blocks": TextShape(width=256, feed_forward=512, heads=4, kv_heads=1, layers=8),
    "rows of 32": TextShape(width=224, feed_forward=96, heads=7, kv_heads=1, layers=3, rows=300),
    "odd rows": TextShape(width=120, feed_forward=50, heads=2, kv_heads=2, layers=9),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["BF16"])
def test_every_type(tmp_path: Path, shape: str, dtype: str) -> None:
    make(tmp_path / "c", shape=SHAPES[shape], dtype=dtype, tied=shape == "whole blocks")
    export_pair(tmp_path / "c", tmp_path / "two", text_type=dtype.lower(), projector_type=dtype.lower())
    for kind in TEXT_TYPES:
        if kind == "q8_0":
            continue
        (two,) = quantize_pair(tmp_path / "two", text_type=kind)
        one, _ = export_pair(tmp_path / "c", tmp_path / "one", text_type=kind)
        a, b = one.path.read_bytes(), two.path.read_bytes()
        assert len(a) == len(b), kind
        assert a == b, kind
