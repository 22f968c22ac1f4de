"""One step to the picture: --report of compare, rank and eval, and `report` without a name, with copies, opened."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from judgements import judgement, sure
from reports import Report
from terminals import Terminal

from examples.ladder import PROMPT, write_ladder
from vrt_lite.cli import run

ROOT = Path(__file__).parent.parent
JUDGE = ("-m", "vrt-tiny-0", "--prompt", PROMPT, "-q")


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    first, *_, last = write_ladder(tmp_path_factory.mktemp("ladder"))
    return str(first), str(last)


def test_compare_writes_the_report_of_its_verdict(
    tmp_path: Path, clips: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "ab.html"
    assert run(["compare", *clips, *JUDGE[:-1], "--no-measures", "--report", str(target), "--embed"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("overall: ")
    assert f"{target} is written (" in err.splitlines()[-1]
    assert len(Report(target).copies) == 2


def test_rank_and_eval_write_the_report_of_their_run_and_report_takes_the_last(
    tmp_path: Path, clips: tuple[str, str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = ("--store", str(tmp_path / "runs.sqlite"))
    assert run(["rank", *clips, *JUDGE, *store, "--orders", "one", "--name", "two", "--report", "rank.html"]) == 0
    assert Report(Path("rank.html")).record["title"] == "maple.mp4 leads"
    Path("pairs.csv").write_text(f"a,b,prompt,overall\n{clips[0]},{clips[1]},{PROMPT},A\n")
    assert run(["eval", "pairs.csv", *JUDGE[:2], "-q", *store, "--name", "of-it", "--report", "eval.html"]) == 0
    assert "Beside people's labels" in Report(Path("eval.html")).words
    assert run(["report", *store]) == 0
    assert Path("of-it.html").read_bytes() == Path("eval.html").read_bytes()
    assert run(["rank", *clips, *JUDGE, *store, "--name", "three"]) == 0
    assert run(["report", *store, "--embed"]) == 0
    assert "three.html is written" in capfd.readouterr().err
    assert len(Report(Path("three.html")).copies) == 2


def test_what_cannot_be_is_refused_before_anything_is_judged(
    tmp_path: Path, clips: tuple[str, str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.html").write_text("mine")
    for arguments, says in (
        (["--embed"], "--embed is about a report: give its --report FILE.html, or --open, as well."),
        (["--report", "ab.txt"], "a report is HTML. Give a name that ends in .html."),
        (["--report", "notes.html"], "notes.html is there and is no report: give another name."),
        (["--report", "no/where.html"], "there is no folder"),
        (["--report", "x.html", "--trace", "x.html"], "--report x.html is also --trace; write to another file."),
    ):
        assert run(["compare", *clips, *JUDGE, *arguments]) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert says in err
    assert Path("notes.html").read_text() == "mine"
    assert run(["report"]) == 2
    assert "there are none yet. vrt-lite rank and vrt-lite eval make them." in capfd.readouterr().err


def open_report(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`vrt-lite report --open` of a judgement, in a process of its own: webbrowser looks for browsers once."""
    (folder / "a b.json").write_text(json.dumps(judgement([sure()]).to_json()))
    command = [sys.executable, "-m", "vrt_lite", *(words or ("report", "a b.json")), "--open"]
    found = {"VRT_LITE_HOME": os.environ["VRT_LITE_HOME"], "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, env=found, cwd=folder, check=False, capture_output=True, text=True)


@pytest.mark.skipif(sys.platform == "win32", reason="webbrowser splits the command there as a POSIX shell would")
def test_open_hands_the_page_to_the_browser(tmp_path: Path, clips: tuple[str, str]) -> None:
    seen = tmp_path / "seen.txt"
    browser = tmp_path / "browser.py"
    browser.write_text(f"import pathlib, sys; pathlib.Path({str(seen)!r}).write_text(sys.argv[1])")
    surroundings = {"BROWSER": f"{sys.executable} {browser} %s", "PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    done = open_report(tmp_path, **surroundings)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"a b\.html is written \(\d\.\d MB\)\n", done.stderr)
    assert seen.read_text() == (tmp_path / "a b.html").as_uri()
    # Without a name it lies among temporary files.
    done = open_report(tmp_path, *clips, *JUDGE, **surroundings)
    assert done.returncode == 0, done.stderr
    [page] = tmp_path.glob("vrt-lite-*/report.html")
    assert seen.read_text() == page.as_uri()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system always has a browser")
def test_without_a_browser_the_page_is_named(tmp_path: Path) -> None:
    done = open_report(tmp_path, PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "No browser was found: open a b.html in one."
    assert (tmp_path / "a b.html").is_file()


def test_a_terminal_is_told_which_clip_is_copied(
    tmp_path: Path, clips: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "60")
    (tmp_path / "ab.json").write_text(json.dumps(judgement([sure()], names=clips).to_json()))
    assert run(["report", str(tmp_path / "ab.json"), "-o", str(tmp_path / "ab.html"), "--embed"]) == 0
    assert " copying maple.mp4 into the report " in terminal.getvalue()
    assert terminal.getvalue().endswith(" MB): open it in a browser\n")
