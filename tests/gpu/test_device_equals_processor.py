"""On a device as on the processor: verdicts, embeddings, logits, and what is kept, on every way to divide a judge."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convert.verify import distances

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
JUDGES = ("vrt-tiny-0", "vrt-tiny-1")
PROCESSOR: Mapping[str, dict[str, Any]] = {
    "processor": {"gpu_layers": 0},
    "processor q8_0": {"gpu_layers": 0, "kv_type": "q8_0"},
}
DEVICE: Mapping[str, dict[str, Any]] = {
    "all": {},
    "all layers alone, q8_0": {"projector_on_gpu": False, "kv_type": "q8_0"},
    "all, no flash attention": {"flash_attention": False},
    "three layers alone": {"gpu_layers": 3, "projector_on_gpu": False, "flash_attention": True},
    "projector alone": {"gpu_layers": 0, "projector_on_gpu": True},
}
# A software device takes half a minute for a verdict: not every check with all of the settings.
BOTH_ORDERS = (*PROCESSOR, "all")
KEPT = ("all layers alone, q8_0",)
Found = dict[str, dict[str, Any]]


def run_task(model: str, folder: Path, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Judge with these settings in a process of its own."""
    both_orders, keep = name in BOTH_ORDERS, name in KEPT
    task = {"name": name, "model": model, "settings": settings, "both_orders": both_orders, "keep": keep}
    command = [sys.executable, str(Path(__file__).with_name("device_worker.py")), json.dumps(task), str(folder)]
    # Lavapipe: one thread each, because two processes run at a time. A GPU knows nothing of it.
    one_thread = {**os.environ, "LP_NUM_THREADS": "1"}
    child = subprocess.run(command, cwd=ROOT, env=one_thread, capture_output=True, text=True, check=False)
    if child.returncode:
        return {"failed": f"exit status {child.returncode}: {child.stderr[-2000:]}"}
    return json.loads(child.stdout)


def run_tasks(model: str, folder: Path) -> Found:
    """Judge with each of the settings, two at a time."""
    tasks = {**PROCESSOR, **DEVICE}
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda name: run_task(model, folder, name, tasks[name]), tasks)
        return dict(zip(tasks, results, strict=True))


@pytest.fixture(scope="module", params=JUDGES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "found.json").write_text(json.dumps(run_tasks(request.param, folder)), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> Found:
    return json.loads((folder / "found.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def ended(request: pytest.FixtureRequest, found: Found) -> None:
    """Fail what a process that ended without a result was for, and nothing else."""
    result = found[request.node.callspec.params["name"]]
    assert "failed" not in result, result["failed"]


def processor_for(name: str) -> str:
    """The run on the processor with the same type of keys and values."""
    return "processor q8_0" if DEVICE[name].get("kv_type") == "q8_0" else "processor"


@pytest.mark.parametrize("name", DEVICE)
def test_the_verdict_is_the_processors(found: Found, name: str) -> None:
    orders = found[name]["orders"]
    assert len(orders) == (2 if name in BOTH_ORDERS else 1)
    for mine, theirs in zip(orders, found[processor_for(name)]["orders"], strict=False):
        assert mine["winners"] == theirs["winners"]
        assert mine["rounds"] == theirs["rounds"] == 2
        for key, odds in theirs["odds"].items():
            assert mine["odds"][key] == pytest.approx(odds, abs=0.02)


@pytest.mark.parametrize("name", DEVICE)
def test_embeddings_and_logits_are_the_processors(folder: Path, name: str) -> None:
    with np.load(folder / f"{name}.npz") as mine, np.load(folder / f"{processor_for(name)}.npz") as theirs:
        print(f"{folder.name} {name}: { ({key: distances(mine[key], theirs[key]) for key in theirs}) }")
        assert distances(mine["embeddings"], theirs["embeddings"]) < 0.02
        assert distances(mine["logits"], theirs["logits"]) < 0.02


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_equals_what_is_computed_anew(found: Found, name: str) -> None:
    kept = found[name]["kept"]
    print(name, kept, found[name]["seconds"])
    # Of the second pair, the first clip's two frame pairs are found; of a longer conversation, all but the new frames.
    assert kept["encoded"] == [8, 4, 8, 3, 11]
    assert kept["reused"][2] == kept["reused"][4] == 0
    assert kept["reused"][3] > kept["reused"][1] > 0
    assert kept["sizes"][1] > kept["sizes"][0]
    assert kept["same tokens"] == [True, True]
    assert max(kept["apart"]) < 0.02
