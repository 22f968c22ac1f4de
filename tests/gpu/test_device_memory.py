"""Memory on a device: the predicted bytes beside the engine's own, a card that is too small, allocations that fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.random_checkpoint import SHAPES
from bench.random_pair import write_pair
from vrt_lite.api import Judge
from vrt_lite.backends import open_backend, read_memory
from vrt_lite.backends.llamacpp import LlamaCppBackend
from vrt_lite.backends.llamacpp.engine import list_libraries
from vrt_lite.fitting import choose_plan
from vrt_lite.fitting.memory_estimate import estimate_memory, read_shape
from vrt_lite.machine import EngineSettings, Gpu, MachineMemory
from vrt_lite.models import ModelFiles, find
from vrt_lite.settings import Settings

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
PAIR = [str(ROOT / "examples" / name) for name in ("a.mp4", "b.mp4")]
PROMPT = "A red square moving right."
GB = 10**9
# The engine's log: a buffer's device and size, and the projector's weights, which are on the device named before.
BUFFER = re.compile(r"(\S+) +(?:model|KV|compute|output) buffer size += +([\d.]+) MiB")
PROJECTOR = re.compile(r"CLIP using (\S+) backend.*?model size: +([\d.]+) MiB", re.DOTALL)
SETTINGS = {
    "all": EngineSettings(),
    "layers alone, q8_0": EngineSettings(projector_on_gpu=False, kv_type="q8_0"),
    "three layers": EngineSettings(gpu_layers=3, projector_on_gpu=False),
    "one layer": EngineSettings(gpu_layers=1, projector_on_gpu=False),
    "none": EngineSettings(gpu_layers=0),
}


@pytest.fixture(scope="module", params=("vrt-tiny-0", "vrt-tiny-2", "3b", "7b"))
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelFiles]:
    """A bundled judge, or four layers of a published width with a fifth of its vocabulary.

    Software devices take no matrix above 128 MiB, such as the output of a full vocabulary.
    """
    if request.param not in SHAPES:
        yield find(request.param)
        return
    folder = tmp_path_factory.mktemp("cut")
    shape = SHAPES[request.param]
    tower = replace(shape.tower, depth=4, full_every=2)
    paths = write_pair(folder, request.param, replace(shape, layers=4, rows=32_768, tower=tower))
    yield find(folder)
    for path in paths:
        path.unlink()


class Opened(LlamaCppBackend):
    """The back end with all of its buffers: a context is opened, and a pair of frames encoded, before any reply."""

    def allocate(self, context: int, size: tuple[int, int], *, encode: bool) -> None:
        self._open_context(self.lanes[0], context)
        if encode:
            width, height = size
            self._vision.encode("black", [np.zeros((height, width, 3), np.uint8)] * 2)


@pytest.mark.parametrize("name", SETTINGS)
def test_predicted_bytes_are_the_engines(
    files: ModelFiles, name: str, capfd: pytest.CaptureFixture[str], write: Callable[[str], None]
) -> None:
    settings = replace(SETTINGS[name], context=4096)
    on_gpu = settings.projector_on_gpu is None and settings.gpu_layers is None
    # With few pixels encoding takes seconds. The whole size is measured only where nothing has to be encoded.
    profile = files.profile.with_max_pixels(60 * 784) if on_gpu else files.profile
    estimate = estimate_memory(read_shape(files), profile, settings)
    predicted = sum(gpu for name, (_, gpu) in estimate.terms.items() if name != "program")
    verbose = replace(settings, verbose=True)
    with Opened(files.text, files.projector, profile=profile, settings=verbose) as backend:
        backend.allocate(estimate.context, profile.frame_size(1280, 720, called=False), encode=on_gpu)
        log = capfd.readouterr().err
    found = [*BUFFER.findall(log), *PROJECTOR.findall(log)]
    on_devices = [float(size) for place, size in found if not place.startswith("CPU") and not place.endswith("_Host")]
    reserved = sum(on_devices) * 2**20
    write(f"{files.name}, {name}: predicted {predicted / 1e6:.1f} MB, reserved {reserved / 1e6:.1f} MB")
    assert len(found) >= 4
    # Never too little. What an evaluation takes is counted as on the processor, which is a little more.
    assert 0.97 * reserved <= predicted <= 1.1 * reserved + 128_000_000


def plan_at(free_bytes: int, files: ModelFiles) -> EngineSettings:
    memory = MachineMemory(64 * GB, 64 * GB, Gpu("card", free_bytes))
    plan = choose_plan(read_shape(files), files.profile, Settings(), memory)
    assert plan.estimate.gpu_bytes <= free_bytes
    return plan.settings


def test_a_compare_follows_where_the_card_is_too_small() -> None:
    """The plan gives up what it documents, in its order, and the judge runs with what is left on the device."""
    files = find("vrt-tiny-0")
    steps = [plan_at(free, files) for free in range(460_000_000, 400_000_000, -500_000)]
    kept = [(s.kv_type, s.projector_on_gpu, 7 if s.gpu_layers is None else s.gpu_layers) for s in steps]
    order = list(dict.fromkeys(kept))
    assert order[:4] == [("f16", True, 7), ("q8_0", True, 7), ("f16", False, 7), ("q8_0", False, 7)]
    assert order[-1] == ("f16", False, 0)
    layers = [count for _, _, count in order]
    assert layers == sorted(layers, reverse=True)
    some = next(s for s in steps if s.gpu_layers in (2, 3, 4))
    winners: list[dict[str, int]] = []
    for settings in (some, EngineSettings(gpu_layers=0, kv_type=some.kv_type)):
        with (
            open_backend(files, profile=files.profile, settings=settings) as backend,
            Judge("vrt-tiny-0", backend=backend) as judge,
        ):
            verdict = judge.compare(*PAIR, prompt=PROMPT).verdict
            winners.append({key: found.winner for key, found in verdict.preferences.items()})
    assert winners[0] == winners[1]


def compare(most_bytes: int, *options: str) -> subprocess.CompletedProcess[str]:
    """The command on a device that refuses every allocation above a size: a limit of the engine's Vulkan back end."""
    command = [sys.executable, "-m", "vrt_lite", "compare", *PAIR, "--prompt", PROMPT, "-m", "vrt-tiny-0", "--json"]
    limited = {**os.environ, "GGML_VK_FORCE_MAX_BUFFER_SIZE": str(most_bytes)}
    return subprocess.run([*command, *options], env=limited, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def vulkan() -> None:
    if not any("vulkan" in name for name, _ in list_libraries()):
        pytest.skip("only the engine's Vulkan back end can be told to refuse an allocation")


def test_an_allocation_that_fails_is_said(vulkan: None) -> None:
    done = compare(2_000_000)
    assert done.returncode == 5
    assert "fewer --gpu-layers" in done.stderr.splitlines()[-1]


def test_layers_that_the_user_set_stay(vulkan: None) -> None:
    done = compare(2_000_000, "--gpu-layers", "5")
    assert done.returncode == 5
    assert "fewer --gpu-layers" in done.stderr.splitlines()[-1]


def free_on_cards() -> list[int]:
    """The free bytes of every GPU, without software devices: theirs are those of the RAM, which every program takes."""
    gpu = read_memory().gpu
    return [gpu.free_bytes] if gpu and "llvmpipe" not in gpu.name else []


def test_no_layers_leave_the_device_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """Not even for large multiplications: without layers, the engine knows no device."""
    files, before = find("vrt-tiny-0"), free_on_cards()
    settings = EngineSettings(gpu_layers=0, verbose=True)
    with (
        open_backend(files, profile=files.profile, settings=settings) as backend,
        Judge("vrt-tiny-0", backend=backend) as judge,
    ):
        judge.compare(*PAIR, prompt=PROMPT)
        assert all(now >= then for now, then in zip(free_on_cards(), before, strict=True))
    places = {place for place, _ in BUFFER.findall(capfd.readouterr().err)}
    assert places
    assert all(place.startswith("CPU") for place in places)
