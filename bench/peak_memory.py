"""Compares the memory of judging with the estimate of `vrt_lite.fitting.memory_estimate`, in one process each.

The measure is the largest resident set of that process (`bench.measurements.peak_resident_bytes`). It counts every page
in memory, also those of the mapped weights and of shared libraries. Real clips are decoded and judged by the whole of
`vrt_lite`, in two rounds with one call. Random weights write noise, so the replies are given (`bench.vrt_lite_side`).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import isqrt
from pathlib import Path
from typing import Any

import click

from bench.side import run_module
from vrt_lite.fitting.memory_estimate import Estimate, estimate_memory, read_shape
from vrt_lite.machine import EngineSettings, KvType
from vrt_lite.models import find
from vrt_lite.profile import CELL, PIXELS_PER_TOKEN, Profile
from vrt_lite.shortage import limit_heaps, multiply_in_one_thread

_ROUNDS = 2
_CLIP_FRAMES, _CLIP_RATE = 96, 16


@dataclass(frozen=True, slots=True)
class Configuration:
    """One run.

    `cells` is the number of visual tokens of a frame, a square number; `context` None leaves it to the engine.
    """

    cells: int
    context: int | None = None
    repack: bool = False
    kv_type: KvType = "f16"
    flash_attention: bool | None = None
    ubatch: int = 192

    @property
    def settings(self) -> EngineSettings:
        """The engine's settings, with everything on the CPU."""
        names = ("context", "repack", "kv_type", "flash_attention", "ubatch")
        return EngineSettings(gpu_layers=0, **{name: getattr(self, name) for name in names})

    def profile(self, of_model: Profile) -> Profile:
        """The model's own profile at this frame size, with room for the given replies."""
        pixels = self.cells * PIXELS_PER_TOKEN
        return replace(of_model.with_max_pixels(pixels), rounds=_ROUNDS, max_new_tokens=640)


GRID = (
    Configuration(100),
    Configuration(64, context=8192, kv_type="q8_0"),
    Configuration(256, kv_type="q8_0"),
    Configuration(100, context=8192, repack=True),
    Configuration(64, flash_attention=True),
    Configuration(729),
)
"""The configurations that are measured for each model."""


@click.command("memory")
@click.argument("models", nargs=-1)
@click.option("--json", "report_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures here.")
def memory(models: Sequence[str], report_file: Path | None) -> None:
    """Measure the peak memory of judging with MODELS (the bundled one if none is given) against the estimate.

    A model is a folder with a GGUF pair, as `model` writes it, or whatever `vrt-lite compare --model` takes.
    """
    rows: list[dict[str, Any]] = []
    click.echo(
        f"{'model':24} {'cells':>5} {'context':>7} {'repack':6} {'kv':4} {'flash':5} {'measured':>9} {'estimate':>9}"
    )
    for model in models or ("vrt-tiny-0",):
        for configuration in GRID:
            row = measure(model, configuration)
            rows.append(row)
            flash = "on" if configuration.flash_attention else "auto"
            click.echo(
                f"{Path(model).name:24} {configuration.cells:5} {row['context']:7} "
                f"{'yes' if configuration.repack else 'no':6} {configuration.kv_type:4} {flash:5} "
                f"{row['measured'] / 1e6:6.0f} MB {row['estimate'] / 1e6:6.0f} MB {100 * row['error']:+5.1f} %"
            )
    largest = max(abs(row["error"]) for row in rows)
    click.echo(f"{len(rows)} configurations, at most {100 * largest:.1f} % off")
    if report_file:
        report_file.write_text(json.dumps({"bench": "memory", "rows": rows}, indent=2), encoding="utf-8")


def measure(model: str, configuration: Configuration) -> dict[str, Any]:
    """Measure one configuration in its own process.

    Returns its peak and its estimate in bytes; `error` is the difference as a share of the measured peak.
    """
    side = isqrt(configuration.cells) * CELL
    with tempfile.TemporaryDirectory() as folder:
        # The clips are drawn here, so that the memory of the encoder does not count.
        clips = [_draw(Path(folder) / name, number, side) for number, name in enumerate(("a.mp4", "b.mp4"))]
        job = {"model": model, "configuration": asdict(configuration), "clips": [str(clip) for clip in clips]}
        result = run_module("bench.peak_memory", job, name=f"{model} at {configuration}")
    peak = result["peak_resident_bytes"]
    predicted = expected(model, configuration)
    terms = {name: cpu for name, (cpu, _) in predicted.terms.items()}
    error = predicted.cpu_bytes / peak - 1
    figures = {
        "context": predicted.context,
        "measured": peak,
        "estimate": predicted.cpu_bytes,
        "error": round(error, 4),
    }
    return {"model": Path(model).name, **asdict(configuration), **figures, "error": round(error, 4), "terms": terms}


def expected(model: str, configuration: Configuration) -> Estimate:
    """Estimate the memory of a configuration."""
    files, shown = find(model), configuration.cells * PIXELS_PER_TOKEN
    return estimate_memory(
        read_shape(files), configuration.profile(files.profile), configuration.settings, source_pixels=shown
    )


def work(model: str, configuration: Configuration, clips: Sequence[str]) -> int:
    """Judge a pair of clips in this process. Returns its peak memory in bytes."""
    from bench import reply_texts  # noqa: PLC0415 - only the child needs an engine
    from bench.measurements import peak_resident_bytes  # noqa: PLC0415
    from bench.vrt_lite_side import VrtLiteSide  # noqa: PLC0415
    from vrt_lite.api import Judge  # noqa: PLC0415

    files = find(model)
    profile = configuration.profile(files.profile)
    with (
        VrtLiteSide(files.text, files.projector, profile=profile, settings=configuration.settings) as side,
        Judge(model, backend=side) as judge,
    ):
        judge.mode.profile = profile
        side.set_replies(reply_texts.script(_ROUNDS))
        judge.compare(*clips, prompt=reply_texts.replies()["caption"])
        return peak_resident_bytes()


def _draw(path: Path, number: int, side: int) -> Path:
    """Write a square clip whose frames are shown without being resized."""
    import av  # noqa: PLC0415

    from bench.scenes import picture  # noqa: PLC0415

    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=_CLIP_RATE)
        stream.width = stream.height = side
        stream.pix_fmt = "yuv420p"
        for index in range(_CLIP_FRAMES):
            pixels = picture.__wrapped__(number, index, (side, side))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return path


def main() -> None:
    """Read a job from standard input, run it as a command does, and print its peak memory."""
    limit_heaps()
    multiply_in_one_thread()
    job = json.load(sys.stdin)
    peak = work(job["model"], Configuration(**job["configuration"]), job["clips"])
    print(json.dumps({"peak_resident_bytes": peak}))


if __name__ == "__main__":
    main()
