"""The reference itself, where it is installed: the golden file is what it says, and `convert verify` runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS / "golden")]

import fidelity_cases as golden  # noqa: E402
import make_fidelity  # noqa: E402

from convert.export import export_pair  # noqa: E402
from convert.reference import Reference  # noqa: E402

# torch and transformers warn of their own future.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parity") / "tiny"
    golden.make_checkpoint(folder)
    return folder


def test_the_golden_file_is_what_the_reference_gives(checkpoint: Path) -> None:
    profile = golden.PROFILE
    reference = Reference(checkpoint, min_pixels=profile.min_pixels, max_pixels=profile.max_pixels)
    told = json.loads((TESTS / "golden" / "fidelity.json").read_text("utf-8"))["cases"]
    seen: set[tuple[int, int]] = set()
    with np.load(TESTS / "golden" / "fidelity.npz") as stored:
        compared: set[str] = set()
        for number, case in enumerate(golden.cases({entry["name"]: entry["seed"] for entry in told})):
            assert case.name == told[number]["name"]
            for key, array in make_fidelity.record(reference, case, seen).items():
                name = f"{number} {key}"
                compared.add(name)
                if key in ("tokens", "positions") or key.startswith("pixels"):
                    assert np.array_equal(array, stored[name]), name
                else:
                    assert np.allclose(array, stored[name], rtol=1e-4, atol=1e-4), name
        # Greedy turns take the script's minutes; their logits are these.
        assert {name for name in stored.files if not name.endswith("greedy")} == compared


def test_verify_writes_a_table(checkpoint: Path, tmp_path: Path) -> None:
    export_pair(checkpoint, tmp_path / "pair", text_type="f32", projector_type="f32")
    export_pair(checkpoint, tmp_path / "pair", text_type="q8_0", projector_type="q8_0")
    # Small frames: the tiny vocabulary makes the prompt long, and the tiny model's context is 4096.
    (tmp_path / "pair" / "profile.toml").write_text("min_pixels = 3136\nmax_pixels = 18816\n", "utf-8")
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- verify:start -->\nold\n<!-- verify:end -->\nafter\n", "utf-8")
    command = [sys.executable, "-m", "convert", "verify", checkpoint, tmp_path / "pair", "--tokens", "4"]
    done = subprocess.run([*command, "--table", readme], capture_output=True, text=True, check=False, cwd=TESTS.parent)
    assert done.returncode == 0, done.stderr
    before, *rows, after = readme.read_text("utf-8").splitlines()
    assert (before, after) == ("before", "after")
    assert "\n".join(rows[1:-1]) == done.stdout.strip()
    exact, small = ([cell.strip() for cell in row.split("|")[1:-1]] for row in rows[3:-1])
    assert exact[:2] == ["tiny-F32.gguf", "mmproj-tiny-F32.gguf"]
    assert small[:2] == ["tiny-Q8_0.gguf", "mmproj-tiny-Q8_0.gguf"]
    for row in (exact, small):
        assert int(row[3]) <= 1
        assert row[4] == "equal"
    assert float(exact[5]) <= 1e-3
    assert float(exact[6]) <= 1e-3
    assert float(exact[8]) <= 1e-6 < float(small[8])
    assert exact[10] == "4 of 4"
