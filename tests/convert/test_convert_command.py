"""`vrt-lite convert` as a user meets it: the pair, and refusals in one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from synthetic_checkpoint import TextShape, make

from convert.quantize import quantize_pair
from vrt_lite.cli import run
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.conversion.type_names import TEXT_TYPES
from vrt_lite.models import find

SHARD = "model-00002-of-00002.safetensors"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("convert") / "c"
    make(folder, shards=2, shape=TextShape(width=256))
    return folder


def test_a_folder_becomes_a_pair(tmp_path: Path, source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    (tmp_path / "own.txt").write_text("Judge {caption} by {dim_name_1}", "utf-8")
    (tmp_path / "given.toml").write_text('name = "given"\nuser_prompt_file = "own.txt"\n', "utf-8")
    options = ["--type", "q5_k_m", "--projector-type", "q8_0", "--license", "MIT", "--name", "judge"]
    options += ["--profile", str(tmp_path / "given.toml")]
    before = {path.name: path.stat().st_mtime_ns for path in source.iterdir()}
    assert run(["convert", str(source), "--out", str(out), *options]) == 0
    printed, messages = capfd.readouterr()
    names = ["judge-Q5_K_M.gguf", "mmproj-judge-Q8_0.gguf", "profile.toml"]
    assert printed.splitlines()[:2] == [str(out / name) for name in names[:2]]
    assert messages.splitlines()[-1] == f"ready: vrt-lite compare a.mp4 b.mp4 --model {out}"
    authorship = {"license": "MIT"}
    export_pair(source, tmp_path / "two", name="judge", text_type="bf16", projector_type="bf16", authorship=authorship)
    for two in quantize_pair(tmp_path / "two", text_type="q5_k_m", projector_type="q8_0"):
        assert (out / two.name).read_bytes() == two.read_bytes()
    assert sorted(path.name for path in out.iterdir()) == names
    assert {path.name: path.stat().st_mtime_ns for path in source.iterdir()} == before
    found = find(out)
    assert found.text == out / names[0]
    assert (found.profile.name, found.profile.user_prompt) == ("given", "Judge {caption} by {dim_name_1}")


@pytest.mark.parametrize(
    ("lost", "options", "status", "message"),
    [
        (None, ["--type", "q4_1"], 2, "'q4_1' is not one of"),
        (None, ["--name", "a/b"], 2, "name is 'a/b'"),
        (None, ["--imatrix", "absent.gguf"], 4, "absent.gguf is missing"),
        (None, ["--lora", "absent"], 4, "adapter_config.json is missing"),
        (SHARD, [], 4, f"{SHARD} is missing"),
    ],
)
def test_refused_in_one_line(
    tmp_path: Path,
    source: Path,
    capfd: pytest.CaptureFixture[str],
    lost: str | None,
    options: list[str],
    status: int,
    message: str,
) -> None:
    shutil.copytree(source, tmp_path / "c", ignore=lambda *_: [lost] if lost else [])
    assert run(["convert", str(tmp_path / "c"), "--out", str(tmp_path / "out"), *options]) == status
    printed, messages = capfd.readouterr()
    assert printed == ""
    assert message in messages
    assert not (tmp_path / "out").exists()


def test_the_page_of_help_names_every_type(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", "--help"]) == 0
    page = capfd.readouterr()[0]
    assert [kind for kind in TEXT_TYPES if f" {kind}" not in page] == []
