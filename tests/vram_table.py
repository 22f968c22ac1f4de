"""What fits a GPU, the table of docs/gpu.md: `python -m tests.vram_table` lets `vrt-lite estimate` write it anew."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

from vrt_lite.cli import run

PAGE = Path(__file__).parent.parent / "docs" / "gpu.md"
BLOCK = re.compile(r"(?<=<!-- vram:start -->\n).*?(?=<!-- vram:end -->)", re.DOTALL)
SIZES_GB, PIXELS = (4, 6, 8, 12), (602_112, 200_704)


def make_table() -> str:
    """Return the table: a row for each size of a GPU and of frames, a column for each quant."""
    found = {(size, pixels): estimate(size, pixels) for size in SIZES_GB for pixels in PIXELS}
    headings = ("VRAM", "`--max-pixels`", *(quant["quant"] for quant in found[SIZES_GB[0], PIXELS[0]]))
    rows = [(f"{size} GB", str(pixels), *map(describe, quants)) for (size, pixels), quants in found.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in (headings, ["---"] * len(headings), *rows))


def estimate(size_gb: int, pixels: int) -> list[dict[str, Any]]:
    """Return what the command says of each quant for a machine with 16 GB and one GPU."""
    assumed = ("--memory", "16", "--vram", str(size_gb), "--max-pixels", str(pixels), "--json")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run(["estimate", "vr-thinker-7b", *assumed]) == 0
    return json.loads(out.getvalue())["quants"]


def describe(quant: dict[str, Any]) -> str:
    """Return what is on the GPU: layers, projector, and * where keys and values are Q8_0."""
    engine = quant["engine"]
    assert quant["fits"]
    layers = "all" if engine["gpu_layers"] is None else str(engine["gpu_layers"])
    return f"{layers}{' + P' * bool(engine['projector_on_gpu'])}{'*' * (engine['kv_type'] == 'q8_0')}"


if __name__ == "__main__":
    PAGE.write_text(BLOCK.sub(lambda _: make_table(), PAGE.read_text("utf-8")), "utf-8")
