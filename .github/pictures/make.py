"""Draws the README's pictures from a real run on the example pair: terminal (SVG), contact sheet, report, server.

.venv/bin/python .github/pictures/make.py
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console
from rich.text import Text

from vrt_lite.api import Judge
from vrt_lite.show.panel import draw_verdict
from vrt_lite.show.sheet import draw_sheet
from vrt_lite.viewer import write_report

HERE = Path(__file__).parent
PROMPT = "A blue star moves up."
CLIPS = ("examples/star.mp4", "examples/circle.mp4")


def main() -> None:
    """Judge, draw, save."""
    os.chdir(HERE.parent.parent)
    with Judge() as judge:
        judgement = judge.compare(*CLIPS, prompt=PROMPT, finish=partial(draw_sheet, path=HERE / "sheet.png"))
    console = Console(record=True, width=92, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    command = f'$ vrt-lite compare {CLIPS[0]} {CLIPS[1]} --prompt "{PROMPT}"'
    console.print(Text(command, style="bold", no_wrap=True))
    console.print()
    console.print(draw_verdict(judgement, console))
    with Image.open(HERE / "sheet.png") as drawn:
        # A README's picture: smaller, and a palette does for it.
        small = drawn.convert("RGB").resize((drawn.width * 3 // 4, drawn.height * 3 // 4), Image.Resampling.LANCZOS)
        small.quantize(160, method=Image.Quantize.MAXCOVERAGE).save(HERE / "sheet.png", optimize=True)
    console.save_svg(str(HERE / "compare.svg"), title="vrt-lite")
    draw_report(judgement.to_json(), HERE / "report.png")
    draw_served(HERE / "serve.png")


def draw_report(judgement: dict[str, Any], picture: Path) -> None:
    """The top of a report as a browser shows it; needs playwright and a Chromium."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - not needed for the others

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page_file = Path(folder) / "report.html"
        write_report(judgement, page_file)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 1500})
        page.goto(page_file.as_uri())
        page.wait_for_timeout(1000)
        page.screenshot(path=picture)
        browser.close()
    shrink(picture)


def draw_served(picture: Path) -> None:
    """The server's page while the judge works; as above, and the extra `web`."""
    import httpx  # noqa: PLC0415
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as home, sync_playwright() as driver:
        command = [sys.executable, "-m", "vrt_lite", "serve", "--port", "0", "--allow", "examples"]
        environment = os.environ | {"VRT_LITE_HOME": home}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
            try:
                assert server.stdout
                address = server.stdout.readline().split()[3]
                browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1100, "height": 1240}, bypass_csp=True)
                page.goto(address)  # so that the next page comes before the judge has ended
                body = {"a": str(Path(CLIPS[0]).resolve()), "b": str(Path(CLIPS[1]).resolve()), "prompt": PROMPT}
                job = httpx.post(f"{address}v1/compare", json={**body, "wait": False}).json()
                page.goto(f"{address}jobs/{job['id']}")
                page.get_by_role("heading", name="Round 2").wait_for()
                page.wait_for_function("[...document.images].every((image) => image.complete)")
                page.screenshot(path=picture)
                browser.close()
            finally:
                server.terminate()
    shrink(picture)


def shrink(picture: Path) -> None:
    """Make a screenshot as small as a README's picture may be."""
    with Image.open(picture) as drawn:
        small = drawn.convert("RGB").resize((drawn.width * 4 // 5, drawn.height * 4 // 5), Image.Resampling.LANCZOS)
        small.quantize(256, method=Image.Quantize.MEDIANCUT).save(picture, optimize=True)


if __name__ == "__main__":
    main()
