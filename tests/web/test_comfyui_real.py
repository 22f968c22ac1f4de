"""The pack in ComfyUI itself: its loader, its check of a workflow, its executor. VRT_LITE_COMFYUI names its checkout.

ComfyUI needs torch and packages of its own, so this runs in an environment that has them:

    VRT_LITE_COMFYUI=~/ComfyUI python -m pytest tests/web/test_comfyui_real.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clips import write_clip
from web.conftest import ROOT, Served

COMFYUI = os.environ.get("VRT_LITE_COMFYUI", "")
PACK = ROOT / "integrations" / "comfyui"
MOST_SECONDS = 300

pytestmark = pytest.mark.skipif(not COMFYUI, reason="VRT_LITE_COMFYUI names no checkout of ComfyUI")


def execute(served: Served, tmp_path: Path, when: str = "") -> dict[str, Any]:
    """Run the example workflow on eight clips; at its first progress do `when`: "interrupt" or "kill"."""
    renders = tmp_path / "renders"
    renders.mkdir()
    for n in range(8):
        write_clip(renders / f"{n}.mp4", frames=8 + n, size=(56, 56))
    workflow = json.loads((PACK / "best_two_api.json").read_text("utf-8"))
    workflow["1"]["inputs"]["folder"] = str(renders)
    workflow["2"]["inputs"] |= {"server": served.url, "both_orders": False}
    (tmp_path / "workflow.json").write_text(json.dumps(workflow), "utf-8")
    worker = Path(__file__).with_name("comfyui_worker.py")
    command = [sys.executable, str(worker), str(PACK), str(tmp_path), when, str(served.process.pid)]
    environment = os.environ | {"VRT_LITE_SERVER": served.url}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=COMFYUI, env=environment, timeout=MOST_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_best_two_are_saved(servers: Callable[..., Served], tmp_path: Path) -> None:
    told = execute(servers(), tmp_path)
    assert told["loaded"] == ["VrtLiteCompare", "VrtLiteFolder", "VrtLiteKeepBest", "VrtLiteRank", "VrtLiteScore"]
    assert told["valid"], told
    assert told["display"] == "vrt-lite"
    assert {"vrt-tiny-0", "vrt-tiny-2"} <= set(told["menu"])
    assert told["messages"][-1] == "execution_success", told
    assert len(told["saved"]) == 2
    assert told["shown"].startswith("1. video ")
    assert [28, 28] in told["progress"]


def test_its_interrupt_cancels_the_job(servers: Callable[..., Served], tmp_path: Path) -> None:
    served = servers()
    told = execute(served, tmp_path, "interrupt")
    assert told["messages"][-1] == "execution_interrupted", told
    newest = served.client.get("/v1/jobs").json()["jobs"][0]
    assert served.until(newest["id"], "done", "cancelled")["state"] == "cancelled"


def test_a_killed_server_is_one_line(servers: Callable[..., Served], tmp_path: Path) -> None:
    told = execute(servers(), tmp_path, "kill")
    assert told["messages"][-1] == "execution_error", told
    assert told["error"].startswith("vrt-lite: no server answers at ")
    assert "\n" not in told["error"].strip()
