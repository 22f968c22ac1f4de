"""The commands that recipes, `pull` and the READMEs print, run as they are printed, down to a verdict."""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from pathlib import Path

import answering_checkpoint
import pytest
from convert_commands import run_convert

from vrt_lite.cli import run

ROOT = Path(__file__).resolve().parents[2]
CLIPS = ("a.mp4", "b.mp4")
RECIPES = {path.stem: tomllib.loads(path.read_text("utf-8")) for path in (ROOT / "models").glob("*.toml")}
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
    for clip in CLIPS:
        shutil.copy(ROOT / "examples" / clip, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return folder


def done(command: str, capfd: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Run a command as it is printed, in this process. Returns its output and its messages."""
    program, *arguments = shlex.split(command)
    if program == "cp":
        shutil.copy(arguments[0], arguments[1])
        return "", ""
    if program == "vrt-lite":
        status = run(arguments)
        out, err = capfd.readouterr()
    else:
        assert [program, *arguments[:2]] == ["python", "-m", "convert"], command
        status, out, err = run_convert(capfd, *arguments[2:])
    assert status == 0, f"{command}: {err}"
    return out, err


def printed_in(page: Path) -> list[str]:
    """The commands of a page's examples; `verify` has another extra's dependencies and tests of its own."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    return re.findall(r"^ {4}((?:python -m convert (?!verify)|vrt-lite |cp ).*)$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "source", "folder", "taken"),
    [
        ("convert/README.md", "vrt-tiny-0", "gguf", "vrt-tiny-0-Q4_K_M.gguf"),
        ("models/README.md", "CHECKPOINT_FOLDER", "DIR", "CHECKPOINT_FOLDER-Q8_0.gguf"),
    ],
)
def test_a_pages_commands_lead_to_a_verdict(
    page: str, source: str, folder: str, taken: str, place: Path, checkpoint: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(checkpoint, place / source)
    commands = printed_in(ROOT / page)
    assert {"export", "quantize"} <= {word for command in commands for word in command.split()}
    for command in (*commands, f"vrt-lite compare a.mp4 b.mp4 --model {Path(folder, taken)}"):
        out, _ = done(command, capfd)
        if command.startswith("vrt-lite compare"):
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
