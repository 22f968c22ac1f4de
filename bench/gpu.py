"""Measures verdicts on a GPU: whether they equal those of the CPU, their time, and the memory they take on the card.

All layers and the projector are on the GPU, or half of the layers. The bundled judge must write the same as on the CPU.
The large model writes given replies, and must give its digits the same probabilities up to rounding. GPU memory is read
with `nvidia-smi`; where that is missing, a note says so.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from bench.judging_cost import read_ahead
from bench.measurements import Figure, Report
from bench.side import STAGES, Job, frame_size, run
from vrt_lite.models.gguf import read_gguf

NO_GPU = (
    "llama-cpp-python here has no GPU back end, so nothing was measured. Build it with one, e.g. "
    'CMAKE_ARGS="-DGGML_CUDA=on" pip install --force-reinstall --no-binary :all: llama-cpp-python'
)
ALL_LAYERS = 999
_EVERY_SECONDS = 0.1


class CardMemory:
    """A context manager that measures the largest increase of the memory in use on all cards.

    `peak_bytes` is None where nvidia-smi is missing or gives no number.
    """

    def __init__(self) -> None:
        self.peak_bytes: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> CardMemory:
        self._before = _card_bytes()
        if self._before is not None:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        while not self._stop.is_set():
            used = _card_bytes()
            if used is not None and self._before is not None:
                self.peak_bytes = max(self.peak_bytes or 0, used - self._before)
            self._stop.wait(_EVERY_SECONDS)


def measure(job: Job, *, cpu: bool, rounds: Sequence[int]) -> Report:
    """Measure verdicts with all layers on the GPU, with half of them and, with `cpu`, with none, in the same run."""
    if not has_gpu():
        raise click.ClickException(NO_GPU)
    read_ahead([job.text, job.projector])
    figures: list[Figure] = []
    notes = [f"card: {_card_name()}", *(_bundled_agrees() if cpu else ())]
    detail: dict[str, Any] = {}
    half = read_gguf(Path(job.text)).number("qwen2vl.block_count") // 2
    for count in rounds:
        on_gpu = replace(job, plan=((0, 1, count), (2, 3, count)), gpu_layers=ALL_LAYERS)
        with CardMemory() as memory:
            found = {"gpu": run(on_gpu)}
        found["half"] = run(replace(on_gpu, gpu_layers=half))
        if cpu:
            found["cpu"] = run(replace(on_gpu, gpu_layers=0))
        # The second verdict of two: the first also pays for loading kernels.
        last = {side: result["judgements"][1] for side, result in found.items()}
        figures += [
            Figure(f"{count} rounds, {stage}", "s", {side: one[stage] for side, one in last.items()})
            for stage in (*STAGES, "whole")
        ]
        if memory.peak_bytes is not None:
            figures.append(Figure(f"{count} rounds, peak GPU memory", "GB", {"gpu": memory.peak_bytes / 1e9}))
        notes += [f"{count} rounds: {line}" for line in _describe_costs(found, memory)]
        detail[f"{count} rounds"] = found
    width, height = frame_size(job.max_pixels)
    title = f"On a GPU: {Path(job.text).stem}, frames of {width}x{height}"
    return Report("gpu", title, {"text": Path(job.text).name, "max_pixels": job.max_pixels}, figures, notes, detail)


def has_gpu() -> bool:
    """Whether the engine was built with a GPU back end and finds a card."""
    import llama_cpp.llama_cpp as engine  # noqa: PLC0415

    return bool(engine.llama_supports_gpu_offload())


def _describe_costs(found: dict[str, dict[str, Any]], memory: CardMemory) -> Iterator[str]:
    one = found["gpu"]["judgements"][1]
    if one["prefill"] and one["generate"]:
        read, wrote = one["tokens_prefilled"] / one["prefill"], one["tokens_generated"] / one["generate"]
        yield f"{read:.0f} tokens a second read, {wrote:.1f} written"
    if memory.peak_bytes is None:
        yield "GPU memory not measured: nvidia-smi is not there or gives no number"
    if "cpu" in found:
        apart = max(
            abs(a - b)
            for mine, other in zip(found["gpu"]["judgements"], found["cpu"]["judgements"], strict=True)
            for key in mine["odds"]
            for a, b in zip(mine["odds"][key], other["odds"][key], strict=True)
        )
        yield f"the digits' probabilities differ from the CPU's by {apart:.1e} at most"


def _bundled_agrees() -> Iterator[str]:
    """Check whether the bundled judge writes the same and gives the same verdict on GPU and CPU. Yields notes."""
    from bench.overhead import EXAMPLE_JUDGE, EXAMPLE_PAIR, EXAMPLE_PROMPT  # noqa: PLC0415
    from vrt_lite.api import compare  # noqa: PLC0415
    from vrt_lite.settings import Settings  # noqa: PLC0415

    on_gpu, on_cpu = (
        compare(
            *EXAMPLE_PAIR, prompt=EXAMPLE_PROMPT, model=EXAMPLE_JUDGE, settings=Settings(gpu_layers=layers, cache=False)
        )
        for layers in (ALL_LAYERS, 0)
    )
    winners = [{k: p.winner for k, p in j.verdict.preferences.items()} for j in (on_gpu, on_cpu)]
    texts = [[r.text for order in j.orders for r in order.rounds] for j in (on_gpu, on_cpu)]
    yield f"bundled judge: {'the same verdict' if winners[0] == winners[1] else 'ANOTHER VERDICT'} as on the CPU"
    yield f"bundled judge: {'the same text' if texts[0] == texts[1] else 'another text'} as on the CPU"


def _smi(query: str) -> list[str]:
    tool = shutil.which("nvidia-smi")
    if not tool:
        return []
    command = [tool, f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return []


def _card_bytes() -> int | None:
    numbers = [line for line in _smi("memory.used") if line.isdigit()]
    return sum(map(int, numbers)) * 2**20 if numbers else None


def _card_name() -> str:
    return ", ".join(_smi("name")) or "unknown"
