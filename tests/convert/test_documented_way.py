"""The commands that recipes, `pull` and the READMEs print, run as they are printed, down to a verdict.

And the bundled pairs are what their recipes say, byte for byte.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import Any

import answering_checkpoint
import gguf
import pytest
from convert_commands import run_convert

from vrt_lite.cli import run
from vrt_lite.models import find

ROOT = Path(__file__).resolve().parents[2]
RECIPES = {path.stem: tomllib.loads(path.read_text("utf-8")) for path in (ROOT / "models").glob("*.toml")}
FILES = [file for recipe in RECIPES.values() for file in recipe["files"]]
BUNDLED = [file for file in FILES if file["path"].startswith("vrt_lite/bundled/")]
VERDICT = re.compile(rf"overall: video {answering_checkpoint.WINNER} .*\[final\]")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return answering_checkpoint.make(tmp_path_factory.mktemp("answering") / "checkpoint")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in: with the clips where a user's would lie, and what a checkout has of data."""
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    bundled = Path("vrt_lite", "bundled", "vrt-tiny-0", "profile.toml")
    (folder / bundled).parent.mkdir(parents=True)
    shutil.copy(ROOT / bundled, folder / bundled)
    for clip in ("a.mp4", "b.mp4"):
        shutil.copy(ROOT / "examples" / clip, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return folder


def done(command: str, capfd: pytest.CaptureFixture[str]) -> str:
    """Run a command as it is printed, in this process. Returns its output."""
    program, *arguments = shlex.split(command)
    if program == "cp":
        shutil.copy(arguments[0], arguments[1])
        return ""
    if program == "vrt-lite":
        status = run(arguments)
        out, err = capfd.readouterr()
    else:
        assert [program, *arguments[:2]] == ["python", "-m", "convert"], command
        status, out, err = run_convert(capfd, *arguments[2:])
    assert status == 0, f"{command}: {err}"
    return out


@pytest.mark.parametrize(
    ("page", "source", "more"),
    [
        ("convert/README.md", "vrt-tiny-0", []),
        (
            "models/README.md",
            "CHECKPOINT_FOLDER",
            ["vrt-lite compare a.mp4 b.mp4 --model DIR/CHECKPOINT_FOLDER-Q8_0.gguf"],
        ),
    ],
)
def test_a_pages_commands_lead_to_a_verdict(
    page: str, source: str, more: list[str], place: Path, checkpoint: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(checkpoint, place / source)
    text = (ROOT / page).read_text("utf-8").replace("\\\n", " ")
    # `verify` has another extra's dependencies and tests of its own.
    commands = re.findall(r"^ {4}((?:python -m convert (?!verify)|vrt-lite |cp ).*)$", text, re.MULTILINE)
    assert {"export", "quantize"} <= {word for command in commands for word in command.split()}
    for command in (*commands, *more):
        out = done(command, capfd)
    assert VERDICT.match(out)


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if "conversion" in recipe])
def test_a_recipes_command_makes_its_files(
    name: str, place: Path, checkpoint: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = RECIPES[name]["conversion"]["command"]
    shutil.copytree(checkpoint, place / shlex.split(command)[shlex.split(command).index("export") + 1])
    done(command, capfd)
    made = {path.relative_to(place).as_posix() for path in place.rglob("*.gguf")}
    assert made == {file["path"] for file in RECIPES[name]["files"]}


@pytest.mark.parametrize("file", BUNDLED, ids=lambda file: Path(file["path"]).name)
def test_size_checksum_and_type(file: dict[str, Any]) -> None:
    path = ROOT / file["path"]
    assert path.stat().st_size == file["size"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == file["sha256"]
    fields = gguf.GGUFReader(path).fields
    assert fields["general.architecture"].contents() == {"text": "qwen2vl", "projector": "clip"}[file["role"]]
    kind = gguf.LlamaFileType(fields["general.file_type"].contents()).name
    assert kind == f"MOSTLY_{file['type'].upper()}"


def test_every_bundled_gguf_has_a_recipe_and_the_default_judge_is_small() -> None:
    files = sorted((ROOT / "vrt_lite" / "bundled").rglob("*.gguf"))
    assert files == sorted(ROOT / file["path"] for file in BUNDLED)
    default = find()
    assert default.text.stat().st_size + default.projector.stat().st_size <= 12_000_000
    assert sum(path.stat().st_size for path in files) <= 17_000_000


def test_every_recipe_has_its_row_and_its_checksums() -> None:
    table = (ROOT / "models" / "README.md").read_text("utf-8")
    for name, recipe in RECIPES.items():
        assert recipe["name"] == name
        assert f"[{name}]({name}.toml)" in table
        assert recipe["licence"]
        if "source" not in recipe:
            continue  # not converted here: a place to pull from, no checksums of ours
        sums = recipe["source"]["sha256"]
        assert {"config.json", "tokenizer.json"} < sums.keys()
        assert any(shard.endswith(".safetensors") for shard in sums)
        assert all(len(sum_) == 64 for sum_ in sums.values())
