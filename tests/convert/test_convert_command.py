"""`vrt-lite convert` as a user meets it: the pair, refusals in one line, and a killed run leaves nothing half."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from synthetic_checkpoint import TextShape, make
from test_lora import halves, write_adapter
from test_quantize import write_imatrix

from convert.quantize import quantize_pair
from vrt_lite.cli import run
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.conversion.type_names import TEXT_TYPES
from vrt_lite.models import find

NIGHTLY_KILLS = 30
KILLS = pytest.mark.parametrize("kills", [3, pytest.param(NIGHTLY_KILLS, marks=pytest.mark.nightly)])


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRT_LITE_HOME", str(tmp_path / "home"))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_becomes_a_pair(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "c", tmp_path / "out"
    make(source, shards=2, shape=TextShape(width=256))
    options = ["--type", "q5_k_m", "--projector-type", "q8_0", "--license", "MIT", "--name", "judge"]
    before = {path.name: path.stat().st_mtime_ns for path in source.iterdir()}
    assert run(["convert", str(source), "--out", str(out), *options]) == 0
    printed, messages = capfd.readouterr()
    assert printed.splitlines() == [str(out / "judge-Q5_K_M.gguf"), str(out / "mmproj-judge-Q8_0.gguf")]
    assert messages.splitlines()[-1] == f"ready: vrt-lite compare a.mp4 b.mp4 --model {out}"
    assert find(out).text == out / "judge-Q5_K_M.gguf"
    authorship = {"license": "MIT"}
    export_pair(source, tmp_path / "two", name="judge", text_type="bf16", projector_type="bf16", authorship=authorship)
    for two in quantize_pair(tmp_path / "two", text_type="q5_k_m", projector_type="q8_0"):
        assert (out / two.path.name).read_bytes() == two.path.read_bytes()
    assert len(names(out)) == 2
    assert {path.name: path.stat().st_mtime_ns for path in source.iterdir()} == before


def test_q8_0_is_that_of_two_steps_and_a_matrix_and_an_adapter_count(tmp_path: Path) -> None:
    make(tmp_path / "c", dtype="F32")
    adapter = write_adapter(tmp_path / "judge", halves())
    matrix = write_imatrix(tmp_path / "matrix.gguf", 64, ["blk.0.attn_q.weight", "blk.1.ffn_up.weight"])
    export_pair(tmp_path / "c", tmp_path / "two", adapter=adapter, text_type="f32", projector_type="f32")
    (whole,) = quantize_pair(tmp_path / "two", projector_type="f16")
    projector = whole.path.rename(tmp_path / whole.path.name)
    for kind, given in (("q8_0", None), ("iq4_nl", matrix), ("q4_0", None)):
        options = ["--type", kind, "--lora", str(adapter), *(["--imatrix", str(given)] if given else [])]
        assert run(["convert", str(tmp_path / "c"), "--out", str(tmp_path / kind), *options]) == 0
        (text,) = quantize_pair(tmp_path / "two", text_type=kind, imatrix=given)
        for two in (text.path, projector):
            assert (tmp_path / kind / two.name).read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("edit", "options", "status", "message"),
    [
        ("nothing", ["--type", "q4_1"], 2, "'q4_1' is not one of"),
        ("nothing", ["--name", "a/b"], 2, "name is 'a/b'"),
        ("nothing", ["--imatrix", "absent.gguf"], 4, "absent.gguf is missing"),
        ("nothing", ["--lora", "absent"], 4, "adapter_config.json is missing"),
        ("tokenizer.json", [], 4, "tokenizer.json is missing"),
        ("model-00002-of-00002.safetensors", [], 4, "model-00002-of-00002.safetensors is missing"),
        ("config.json", [], 4, "config.json is missing"),
    ],
)
def test_refused_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], edit: str, options: list[str], status: int, message: str
) -> None:
    make(tmp_path / "c", shards=2)
    if edit != "nothing":
        (tmp_path / "c" / edit).unlink()
    assert run(["convert", str(tmp_path / "c"), "--out", str(tmp_path / "out"), *options]) == status
    printed, messages = capfd.readouterr()
    assert printed == ""
    assert message in messages
    assert not (tmp_path / "out").exists()


def test_a_profile_is_given_and_comes_with_its_prompts(tmp_path: Path) -> None:
    make(tmp_path / "c")
    (tmp_path / "own.txt").write_text("Judge {caption} by {dim_name_1}", "utf-8")
    (tmp_path / "given.toml").write_text('name = "given"\nuser_prompt_file = "own.txt"\n', "utf-8")
    out = tmp_path / "out"
    assert run(["convert", str(tmp_path / "c"), "--out", str(out), "--profile", str(tmp_path / "given.toml")]) == 0
    profile = find(out).profile
    assert (profile.name, profile.user_prompt) == ("given", "Judge {caption} by {dim_name_1}")


def test_the_page_of_help_names_every_type(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", "--help"]) == 0
    page = capfd.readouterr()[0]
    assert [kind for kind in TEXT_TYPES if f" {kind}" not in page] == []


@KILLS
def test_a_killed_run_leaves_no_half_pair(tmp_path: Path, kills: int) -> None:
    source, out, whole = tmp_path / "c", tmp_path / "out", tmp_path / "whole"
    make(source, shards=3, shape=TextShape(width=256, feed_forward=2048, layers=6, rows=4096))
    command = [sys.executable, "-m", "vrt_lite", "convert", str(source), "--type", "q4_k_m", "--out"]

    def start(folder: Path) -> subprocess.Popen[bytes]:
        """Start a run, and return when it writes: starting takes longer, and nothing can break in it."""
        child = subprocess.Popen([*command, str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while child.poll() is None and not list(folder.glob("*.vrt-unfinished/*")):
            time.sleep(0.002)
        return child

    child, begin = start(whole), time.perf_counter()
    assert child.wait() == 0
    seconds, cut, generator = time.perf_counter() - begin, 0, random.Random(17)
    for _ in range(kills):
        child = start(out)
        time.sleep(generator.uniform(0, seconds / 2))
        child.kill()
        cut += child.wait() != 0
        for path in out.glob("*.gguf"):  # none, or it has all its bytes
            assert path.read_bytes() == (whole / path.name).read_bytes()
            if child.returncode == 0:
                path.unlink()
    assert cut
    assert start(out).wait() == 0
    assert names(out) == names(whole)
    for path in out.iterdir():
        assert path.read_bytes() == (whole / path.name).read_bytes()
