"""Videos as ComfyUI has them, as bytes for a server; and the server's pictures as ComfyUI's images."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

_CELL_WIDTH: Final = 240
_GAP: Final = 4


def read_clip(video: Any, fps: float) -> tuple[bytes, str]:
    """Return a VIDEO's own bytes, or a batch of IMAGEs written without loss, with a name for it."""
    if hasattr(video, "get_stream_source"):
        source = video.get_stream_source()
        if isinstance(source, str):
            return Path(source).read_bytes(), Path(source).name
        return source.getvalue(), "clip.mp4"
    import av  # noqa: PLC0415 - ComfyUI has it

    images = np.asarray(video.cpu() if hasattr(video, "cpu") else video)
    pixels = np.clip(images[..., :3] * 255 + 0.5, 0, 255).astype(np.uint8)
    written = io.BytesIO()
    with av.open(written, "w", format="matroska") as out:
        stream: Any = out.add_stream("ffv1", rate=Fraction(fps).limit_denominator(1000))
        stream.height, stream.width, stream.pix_fmt = pixels.shape[1], pixels.shape[2], "bgr0"
        for picture in pixels:
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    return written.getvalue(), "images.mkv"


def draw_rows(rows: list[list[bytes]]) -> Any:
    """Draw rows of encoded pictures, one below the other, as an IMAGE: (1, height, width, 3), 0 to 1."""
    import torch  # noqa: PLC0415 - ComfyUI has it

    cells = [[_shrink(picture) for picture in row] for row in rows] or [[Image.new("RGB", (_CELL_WIDTH, _CELL_WIDTH))]]
    width = max(len(row) for row in cells) * (_CELL_WIDTH + _GAP) - _GAP
    heights = [max(cell.height for cell in row) for row in cells]
    sheet = Image.new("RGB", (width, sum(heights) + _GAP * (len(heights) - 1)), "white")
    top = 0
    for row, height in zip(cells, heights, strict=True):
        for place, cell in enumerate(row):
            sheet.paste(cell, (place * (_CELL_WIDTH + _GAP), top))
        top += height + _GAP
    return torch.from_numpy(np.asarray(sheet, np.float32) / 255)[None]


def _shrink(picture: bytes) -> Image.Image:
    with Image.open(io.BytesIO(picture)) as opened:
        return opened.convert("RGB").resize((_CELL_WIDTH, max(opened.height * _CELL_WIDTH // opened.width, 1)))
