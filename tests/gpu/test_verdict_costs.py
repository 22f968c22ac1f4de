"""`python -m bench gpu` measures verdicts with all, half and none of the layers on a device."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.__main__ import cli
from bench.random_checkpoint import SHAPES, Tower
from bench.random_pair import write_pair

pytestmark = pytest.mark.gpu


def test_all_half_and_none_of_the_layers_are_measured_in_one_run(tmp_path: Path, write: Callable[[str], None]) -> None:
    # Types and sizes of heads are the bundled judges', for which a software device has compiled its shaders before.
    shape = replace(SHAPES["tiny"], layers=2, heads=4, kv_heads=2, tower=Tower(2, 192, 512, 3, full_every=2))
    write_pair(tmp_path, "tiny", shape, text_type="q8_0", projector_type="f16")
    report = tmp_path / "report.json"
    arguments = ["gpu", "--model", str(tmp_path), "--rounds", "1", "--max-pixels", str(16 * 784), "--json", str(report)]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    write(done.output)
    assert done.exit_code == 0, done.output
    figures = {figure["name"]: figure["values"] for figure in json.loads(report.read_text("utf-8"))["figures"]}
    assert set(figures["1 rounds, whole"]) == {"gpu", "half", "cpu"}
    assert all(seconds > 0 for seconds in figures["1 rounds, whole"].values())
    assert "the same verdict as on the CPU" in done.output
