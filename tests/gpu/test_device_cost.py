"""`python -m bench gpu` measures verdicts with all, half and none of the layers on a device."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.__main__ import cli
from bench.random_checkpoint import SHAPES
from bench.random_pair import write_pair

pytestmark = pytest.mark.gpu


def test_all_half_and_none_of_the_layers_are_measured_in_one_run(tmp_path: Path, write: Callable[[str], None]) -> None:
    # Of the bundled judges' type, so that a software device compiles no other multiplications.
    write_pair(tmp_path, "tiny", replace(SHAPES["tiny"], layers=2), text_type="q8_0")
    report = tmp_path / "report.json"
    arguments = ["gpu", "--model", str(tmp_path), "--rounds", "2", "--max-pixels", str(16 * 784), "--json", str(report)]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    write(done.output)
    assert done.exit_code == 0, done.output
    figures = {figure["name"]: figure["values"] for figure in json.loads(report.read_text("utf-8"))["figures"]}
    assert set(figures["2 rounds, whole"]) == {"gpu", "half", "cpu"}
    assert all(seconds > 0 for seconds in figures["2 rounds, whole"].values())
    assert "the same verdict as on the CPU" in done.output
