"""A clip that ends whatever process decodes it ends no report and no watched ranking, but is named in them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from reports import Report

from vrt_lite.api import compare

ROOT = Path(__file__).parents[1]
STAR, CIRCLE = ROOT / "examples" / "star.mp4", ROOT / "examples" / "circle.mp4"
DEADLY = "deadly.mp4"
HOOK = f"""
import os, sys

def end(event, args):
    # A file of this name kills a process that has the decoder. Any process may compute its digest.
    if event == "open" and str(args[0]).endswith("{DEADLY}") and "av" in sys.modules:
        os.abort()

sys.addaudithook(end)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where a file `deadly.mp4` aborts each Python process that decodes it."""
    folder = tmp_path / "hook"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HOOK)
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}


@pytest.fixture
def judgement(tmp_path: Path) -> Path:
    """The JSON of a judgement, one of whose clips became deadly afterwards."""
    clip = tmp_path / DEADLY
    clip.write_bytes(CIRCLE.read_bytes())
    path = tmp_path / "judgement.json"
    path.write_text(json.dumps(compare(STAR, clip, prompt="A blue star moves up.").to_json()), encoding="utf-8")
    return path


def run(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "vrt_lite", *command)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_the_clip_does_end_a_process_that_decodes_it(environment: dict[str, str], judgement: Path) -> None:
    ended = run(environment, "compare", str(STAR), str(judgement.with_name(DEADLY)))
    assert ended.returncode not in (0, 3), ended.stderr


@pytest.mark.parametrize("option", [(), ("--embed",)])
def test_a_report_is_written_all_the_same(
    environment: dict[str, str], judgement: Path, option: tuple[str, ...]
) -> None:
    page = judgement.with_name("report.html")
    ended = run(environment, "report", str(judgement), "--output", str(page), *option)
    assert ended.returncode == 0, ended.stderr
    report = Report(page)
    assert "cannot be decoded: The judge's process ended" in report.words
    assert report.pictures, "the other clip's frames are there"


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to a process")
def test_a_watched_folder_is_ranked_without_it(environment: dict[str, str], tmp_path: Path) -> None:
    renders = tmp_path / "renders"
    renders.mkdir()
    for name, clip in (("a.mp4", STAR), ("b.mp4", CIRCLE), (DEADLY, STAR)):
        (renders / name).write_bytes(clip.read_bytes())
    command = [sys.executable, "-m", "vrt_lite", "rank", str(renders), "--watch"]
    with subprocess.Popen(
        [*command, "-p", "A blue star moves up.", "--store", str(tmp_path / "runs.sqlite")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        for line in process.stderr:
            if line.startswith("2 of 2"):
                break
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert {line.split()[1] for line in out.splitlines()[1:3]} == {"a.mp4", "b.mp4"}
    assert DEADLY in out
    assert "cannot be decoded: The judge's process ended" in " ".join(out.split())
