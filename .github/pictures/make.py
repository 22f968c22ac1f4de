"""Draws the README's pictures from a real run on the example pair: the terminal (SVG) and the contact sheet (PNG).

.venv/bin/python .github/pictures/make.py
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.text import Text

from vrt_lite.api import Judge
from vrt_lite.display.panel import VerdictPanel

HERE = Path(__file__).parent
PROMPT = "A red square moving right."


def main() -> None:
    """Judge, draw, save."""
    os.chdir(HERE.parent.parent)
    with Judge() as judge:
        judgement = judge.compare("examples/a.mp4", "examples/b.mp4", prompt=PROMPT, sheet=HERE / "sheet.png")
    console = Console(record=True, width=92, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    command = f'$ vrt-lite compare examples/a.mp4 examples/b.mp4 --prompt "{PROMPT}"'
    console.print(Text(command, style="bold", no_wrap=True))
    console.print()
    console.print(VerdictPanel(judgement))
    with Image.open(HERE / "sheet.png") as drawn:
        # A README's picture: smaller, and a palette does for it.
        small = drawn.convert("RGB").resize((drawn.width * 3 // 4, drawn.height * 3 // 4), Image.Resampling.LANCZOS)
        small.quantize(160).save(HERE / "sheet.png", optimize=True)
    console.save_svg(str(HERE / "compare.svg"), title="vrt-lite")


if __name__ == "__main__":
    main()
