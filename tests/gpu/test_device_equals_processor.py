"""On a device as on the processor: verdicts, embeddings, logits, and what is kept, on every way to divide a judge."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_worker import DeviceBackend, Noise

from convert.verify import distances
from vrt_lite.embeddings import Disk, EmbeddingCache
from vrt_lite.judge import Pair, opening
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
JUDGES = ("vrt-tiny-0", "vrt-tiny-1")
DEVICE: Mapping[str, dict[str, Any]] = {
    "all": {},
    "all layers alone, q8_0": {"projector_on_gpu": False, "kv_type": "q8_0"},
    "all, no flash attention": {"flash_attention": False},
    "three layers alone": {"gpu_layers": 3, "projector_on_gpu": False, "flash_attention": True},
    "projector alone": {"gpu_layers": 0, "projector_on_gpu": True},
}
Found = dict[str, Any]


@dataclass(frozen=True)
class Divided:
    """What a judge found with its parts divided in one way, and what it found on the processor."""

    mine: Found
    processor: Found
    apart: dict[str, float]


def run(model: str, settings: dict[str, Any], outputs: Path, *, keep: bool) -> Found:
    """Judge with these settings in a process of its own: if a driver ends it, the others still run."""
    task = json.dumps({"model": model, "settings": settings, "keep": keep})
    command = [sys.executable, str(Path(__file__).with_name("device_worker.py")), task, str(outputs)]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert child.returncode == 0, f"exit status {child.returncode}: {child.stderr[-2000:]}"
    return json.loads(child.stdout)


@pytest.fixture(scope="module")
def on_processor(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], tuple[Found, Path]]:
    """What a judge finds on the processor with a type of keys and values, and the file of its outputs."""
    folder, runs = tmp_path_factory.mktemp("processor"), dict[str, Found]()

    def find(model: str, kv_type: str) -> tuple[Found, Path]:
        outputs = folder / f"{model} {kv_type}.npz"
        if outputs.name not in runs:
            runs[outputs.name] = run(model, {"gpu_layers": 0, "kv_type": kv_type}, outputs, keep=False)
        return runs[outputs.name], outputs

    return find


@pytest.fixture(scope="module", params=[f"{model}, {name}" for model in JUDGES for name in DEVICE])
def divided(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    on_processor: Callable[[str, str], tuple[Found, Path]],
    write: Callable[[str], None],
) -> Divided:
    model, name = request.param.split(", ", 1)
    outputs = tmp_path_factory.mktemp("device") / "outputs.npz"
    processor, theirs = on_processor(model, DEVICE[name].get("kv_type", "f16"))
    mine = run(model, DEVICE[name], outputs, keep=True)
    with np.load(outputs) as here, np.load(theirs) as there:
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
    write(f"{request.param}: apart from the processor {measured}; {took}")
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
    files = find("vrt-tiny-1")
    conversation = opening(Pair("A red circle moving down.", (3.0, 3.0)), files.profile)
    encoded: list[int] = []
    for on_gpu in (True, True, False, False):
        settings, cache = EngineSettings(projector_on_gpu=on_gpu), EmbeddingCache(Disk(tmp_path))
        with DeviceBackend(
            files.text, files.projector, profile=files.profile, settings=settings, cache=cache
        ) as backend:
            reply, _ = backend.answer(conversation, Noise(1, 2))
        encoded.append(reply.usage.frames_encoded)
    assert encoded == [8, 0, 8, 0]
