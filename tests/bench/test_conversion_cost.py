"""What a pull costs beside the two steps, and what is counted of a command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bench.__main__ import cli
from bench.command_cost import run_measured, used_bytes


def test_a_pull_has_the_bytes_of_the_two_steps(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    command = ["convert", "tiny", str(tmp_path), "--type", "q5_k_m", "--two-steps", "--json", str(file)]
    done = CliRunner().invoke(cli, [*command, "--layers", "2"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    report = json.loads(file.read_text(encoding="utf-8"))
    names = ["mmproj-random-tiny-2-2-F16.gguf", "random-tiny-2-2-Q5_K_M.gguf"]
    assert report["detail"]["bytes_equal"] == names
    assert "the bytes of 2 of 2 files are equal" in done.output
    disk, resident = (report["figures"][i]["values"] for i in (1, 2))
    assert report["detail"]["result"] <= 1e9 * disk["pull"] <= report["detail"]["allowed_disk"]
    assert set(disk) == set(resident) == {"pull", "two steps"}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [
        "random-tiny-2-2"
    ]  # only the checkpoint stays


def test_peaks_are_those_of_the_command_and_its_children(tmp_path: Path) -> None:
    child = "x = bytearray(60_000_000); import time; time.sleep(0.5)"
    command = (
        "import pathlib, subprocess, sys\n"
        f"path = pathlib.Path({str(tmp_path)!r}) / 'file'\n"
        "path.write_bytes(bytes(3_000_000))\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)\n"
        "path.write_bytes(b'')\n"
    )
    cost = run_measured([sys.executable, "-c", command], folder=tmp_path)
    assert cost.seconds > 0.5
    assert 60e6 < cost.own_bytes <= cost.resident_bytes < 200e6
    assert 3e6 <= cost.disk_bytes < 4e6
    assert used_bytes(tmp_path) < 1e6


def test_a_command_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match=r"vrt_lite pull no/such ended with status 4"):
        run_measured(
            [sys.executable, "-m", "vrt_lite", "pull", "no/such"],
            environment={"HF_ENDPOINT": "http://127.0.0.1:9", "VRT_LITE_HOME": str(tmp_path)},
        )
