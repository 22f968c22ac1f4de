"""No name of a file, a model or an option reaches the terminal with its control characters."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from vrt_lite.cli import run
from vrt_lite.records.judgement import Judgement

CLIPS = [str(Path(__file__).parents[1] / "examples" / name) for name in ("star.mp4", "circle.mp4")]

EVIL = "c\x1b]0;PWNED\x07\r\n\u202eb.mp4"


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", EVIL],
        ["compare", "a.mp4", "b.mp4", EVIL],
        ["compare", EVIL, "b.mp4", "--prompt", "A fox."],
        ["compare", "a.mp4", "b.mp4", f"--{EVIL}"],
        ["compare", "a.mp4", "b.mp4", "--prompt-file", EVIL],
        ["compare", "a.mp4", "b.mp4", "--ctx", EVIL],
        ["compare", "a.mp4", "b.mp4", "-p", "A fox.", "--model", EVIL],
        [EVIL],
        [f"--{EVIL}"],
        ["rank", EVIL, "-p", "A fox."],
        ["rank", "a.mp4", "--jobs", EVIL],
        ["eval", EVIL],
        ["show", EVIL],
        ["export", "foxes", "-o", EVIL],
        ["rm", EVIL],
        ["pull", EVIL],
        ["report", EVIL],
        ["estimate", "--model", EVIL],
    ],
    ids=lambda arguments: " ".join(arguments).replace(EVIL, "EVIL"),
)
def test_an_error_shows_what_it_names_escaped(
    arguments: list[str], capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VRT_LITE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert run(arguments) in {2, 3, 4, 7}
    out, err = capfd.readouterr()
    assert all(c.isprintable() or c == "\n" for c in out + err)
    assert "PWNED" not in err or r"\x1b]0;PWNED\x07" in err
    assert "\nb.mp4" not in err


@pytest.mark.skipif(sys.platform != "linux", reason="macOS and Windows have no such names")
def test_a_name_and_a_prompt_that_are_not_utf_8_are_in_the_json(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / os.fsdecode(b"\xff.mp4")
    path.write_bytes(Path(CLIPS[0]).read_bytes())
    assert run(["compare", str(path), CLIPS[1], "-p", os.fsdecode(b"A \xff fox."), "--json"]) == 0
    judgement = Judgement.from_json(json.loads(capfd.readouterr().out))
    assert (judgement.inputs[0].path, judgement.prompt) == (str(path), "A \udcff fox.")


def test_what_a_stored_model_says_about_itself_is_shown_escaped(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VRT_LITE_HOME", str(tmp_path))
    folder = tmp_path / "models" / "evil"
    folder.mkdir(parents=True)
    files = [{"name": f"{role}\x9b31m.gguf", "role": role, "size": 1, "sha256": ""} for role in ("text", "projector")]
    facts = {"name": EVIL, "repository": EVIL, "revision": EVIL, "quant": EVIL, "licence": EVIL, "verified": False}
    (folder / "manifest.json").write_text(json.dumps({**facts, "files": files, "format": 1}), encoding="utf-8")
    assert run(["models"]) == 0
    out, err = capfd.readouterr()
    assert all(c.isprintable() or c == "\n" for c in out + err)
    assert r"text\x9b31m.gguf is missing" in err
