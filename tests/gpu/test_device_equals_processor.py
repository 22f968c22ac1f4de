"""On a device as on the processor: verdicts, embeddings, logits, and what is kept, on every way to divide a judge."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_worker import DeviceBackend, Noise

from convert.verify import distances
from vrt_lite.backends import read_memory
from vrt_lite.embeddings import EmbeddingCache
from vrt_lite.judge import Pair, opening
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
JUDGES = ("vrt-tiny-0", "vrt-tiny-2")
DEVICE: Mapping[str, dict[str, Any]] = {
    # The first two share no shader, so two processes do not compile the same ones.
    "projector alone": {"gpu_layers": 0, "projector_on_gpu": True},
    "three layers alone": {"gpu_layers": 3, "projector_on_gpu": False, "flash_attention": True},
    "all": {},
    "all layers alone, q8_0": {"projector_on_gpu": False, "kv_type": "q8_0"},
    "all, no flash attention": {"flash_attention": False},
}
Found = dict[str, Any]
Judged = tuple[Found, Path]
"""What a judge found, and the file of its embeddings and logits."""


@dataclass(frozen=True)
class Divided:
    """What a judge found with its parts divided in one way, and what it found on the processor."""

    mine: Found
    processor: Found
    apart: dict[str, float]


def kv_type_of(name: str) -> str:
    return DEVICE[name].get("kv_type", "f16")


def run(model: str, name: str, outputs: Path) -> Judged:
    """Judge in a process of its own: if a driver ends it, the others still run."""
    settings = DEVICE.get(name, {"gpu_layers": 0, "kv_type": name})
    task = json.dumps({"model": model, "settings": settings, "keep": name in DEVICE})
    command = [sys.executable, str(Path(__file__).with_name("device_worker.py")), task, str(outputs)]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert child.returncode == 0, f"exit status {child.returncode}: {child.stderr[-2000:]}"
    return json.loads(child.stdout), outputs


@pytest.fixture(scope="module")
def judged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, str], Judged]]:
    """What a judge finds with a key of DEVICE, or on the processor alone with a type of keys and values.

    All that the chosen tests need runs from the start: two at a time on a software device, which compiles shaders in
    one thread.
    """
    chosen = [item.callspec.params["divided"] for item in request.session.items if "divided" in item.fixturenames]
    wanted = dict.fromkeys((model, kv_type_of(name)) for model, name in chosen) | dict.fromkeys(chosen)
    at_once = 2 if any("llvmpipe" in gpu.name for gpu in read_memory().gpus) else 1
    with ThreadPoolExecutor(at_once) as pool:
        running = {
            (model, name): pool.submit(run, model, name, tmp_path_factory.mktemp("judged") / "outputs.npz")
            for model, name in wanted
        }
        yield lambda model, name: running[model, name].result()


@pytest.fixture(scope="module", params=list(product(JUDGES, DEVICE)), ids=", ".join)
def divided(
    request: pytest.FixtureRequest, judged: Callable[[str, str], Judged], write: Callable[[str], None]
) -> Divided:
    model, name = request.param
    processor, theirs = judged(model, kv_type_of(name))
    mine, ours = judged(model, name)
    with np.load(ours) as here, np.load(theirs) as there:
        apart = {key: distances(here[key], there[key]) for key in there}
    probabilities = max(
        abs(a - b)
        for one, other in zip(mine["orders"], processor["orders"], strict=True)
        for key, odds in other["odds"].items()
        for a, b in zip(one["odds"][key], odds, strict=True)
    )
    figures = {"probabilities": probabilities, **apart, "kept": max(mine["kept"]["apart"])}
    measured = ", ".join(f"{key} {value:.1e}" for key, value in figures.items())
    took = f"{mine['seconds']:.0f} s, {mine['processor']:.0f} s of the processor"
    write(f"{model}, {name}: apart from the processor {measured}; {took}")
    return Divided(mine, processor, apart)


def test_the_verdict_is_the_processors(divided: Divided) -> None:
    """Both orders, two rounds with the window."""
    assert len(divided.mine["orders"]) == 2
    for mine, theirs in zip(divided.mine["orders"], divided.processor["orders"], strict=True):
        assert mine["rounds"] == theirs["rounds"] == 2
        assert mine["winners"] == theirs["winners"]
        # Neither judge calls everything a tie here: its winners say something.
        assert set(theirs["winners"].values()) >= {1, 2}
        for key, odds in theirs["odds"].items():
            assert mine["odds"][key] == pytest.approx(odds, abs=0.02)


def test_embeddings_and_logits_are_the_processors(divided: Divided) -> None:
    assert set(divided.apart) == {"embeddings", "logits"}
    assert max(divided.apart.values()) < 0.02


def test_what_is_kept_equals_what_is_computed_anew(divided: Divided) -> None:
    """States kept and restored, frames found again, and a context that has grown."""
    kept = divided.mine["kept"]
    # Of the second pair, the first clip's two frame pairs are found; of a longer conversation, all but the new frames.
    assert kept["encoded"] == [8, 4, 8, 3, 11]
    assert kept["reused"][2] == kept["reused"][4] == 0
    assert kept["reused"][3] > kept["reused"][1] > 0
    assert kept["sizes"][1] > kept["sizes"][0]
    assert kept["same tokens"] == [True, True]
    assert max(kept["apart"]) < 0.02


def test_frames_are_found_on_disk_by_the_device_that_encoded_them(tmp_path: Path) -> None:
    """Never by another: the bits of their embeddings differ."""
    files = find("vrt-tiny-2")
    conversation = opening(Pair("A red circle moving down.", (3.0, 3.0)), files.profile)
    encoded: list[int] = []
    for on_gpu in (True, True, False, False):
        settings, cache = EngineSettings(projector_on_gpu=on_gpu), EmbeddingCache(tmp_path)
        with DeviceBackend(
            files.text, files.projector, profile=files.profile, settings=settings, cache=cache
        ) as backend:
            reply, _ = backend.reply_heard(conversation, Noise(1, 2))
        encoded.append(reply.usage.frames_encoded)
    assert encoded == [8, 0, 8, 0]
