"""`vrt-lite convert` as a user meets it: the pair, and refusals in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_checkpoint import TextShape, make

from convert.quantize import quantize_pair
from vrt_lite.cli import run
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.conversion.type_names import TEXT_TYPES
from vrt_lite.models import find


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
