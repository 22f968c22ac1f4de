"""The package as a Python program uses it: public names, `rank`, `evaluate`, the store, the documented example."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from clips import write_clip
from judgements import sure

import vrt_lite
from vrt_lite import ScriptedBackend, Settings, Store, UsageError, VideoError, evaluate, rank, read_figures
from vrt_lite.cli import run as run_command

ROOT = Path(__file__).parent.parent
SMALL = "vrt-tiny-0"  # with a back end of one's own, the default judge is another one: its numbers do not decide


def test_the_documented_example_runs_as_printed(own_home: Path) -> None:
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    code = re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    assert len(code) == 2
    told = (
        "import json\nprint(json.dumps([judgement.orders[0].rounds[0].text, ladder.ranked[0].path.name,"
        " ladder.standings[0].ratings['OA'].low, len(ladders[0].ranked), first]))"
    )
    program = "\n".join([code[0], "first = judgement.winner", code[1], told])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    *printed, last = done.stdout.splitlines()
    text, best, low, clips, winner = json.loads(last)
    assert (best, clips, winner) == ("star.mp4", 2, 1)
    assert "answer" in text
    assert low < 0
    assert [line.split()[0] for line in printed] == ["1", "2"]
    assert all(line.endswith(" final") for line in printed)
    with Store() as store:
        assert [info.name for info in store.runs()] == ["shapes"]


def test_dir_shows_what_is_public_and_all_of_it_is_documented() -> None:
    assert dir(vrt_lite) == sorted([*vrt_lite.__all__, "__version__"])
    for name in vrt_lite.__all__:
        assert inspect.getdoc(getattr(vrt_lite, name)), name
    for function in (vrt_lite.compare, rank, evaluate):
        text, described = inspect.getdoc(function) or "", inspect.signature(function).parameters
        assert "Raises" in text or "errors" in text
        if function is rank:
            assert [name for name in described if f"`{name}`" not in text] == ["prompt"]


def test_a_ranking_of_a_program_is_the_commands(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    clips = [write_clip(tmp_path / f"{name}.mp4", frames=8 + n, size=(56, 56)) for n, name in enumerate("ab")]
    settings = Settings(both_orders=True)  # means nothing here: both orders are judged one by one
    backend = ScriptedBackend([sure(), sure()])
    ranking = rank(tmp_path, prompt="A fox.", model=SMALL, backend=backend, settings=settings)
    assert [clip.path for clip in ranking.ladders[0].clips] == clips
    assert (ranking.found, ranking.ladders[0].judgements, ranking.judge) == (0, 2, SMALL)
    with Store() as store:
        again = rank(str(tmp_path / "*.mp4"), prompt="A fox.", model=SMALL, backend=ScriptedBackend([]), store=store)
        assert (again.run, again.found) == (ranking.run, 2)
        assert store.runs()[0].name == ranking.run, "an open store stays open"
    other = rank(
        clips, prompt="A fox.", model=SMALL, backend=ScriptedBackend([sure()]), both_orders=False, store=tmp_path / "s"
    )
    assert other.ladders[0].judgements == 1
    assert run_command(["rank", *map(str, clips), "-p", "A fox.", "--model", SMALL, "--json", "-q"]) == 0
    assert json.loads(capfd.readouterr().out)["run"] == ranking.run


def test_an_evaluation_of_a_program_is_the_commands(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        write_clip(tmp_path / f"{name}.mp4", frames=8 + ord(name) % 7, size=(56, 56))
    table = tmp_path / "pairs.csv"
    table.write_text("a,b,prompt,overall\na.mp4,b.mp4,A fox.,B\nb.mp4,gone.mp4,A fox.,A\n")
    made = evaluate(table, model=SMALL, backend=ScriptedBackend([sure()]))
    accuracy = made.figures.accuracy["OA"]
    assert (accuracy.tau.right, accuracy.tau.of, accuracy.failed, made.judge) == (1, 1, 1, SMALL)
    with Store() as store:
        assert read_figures(store.run("latest")) == made.figures
    assert run_command(["eval", str(table), "--model", SMALL, "--json", "-q"]) == 0
    printed = json.loads(capfd.readouterr().out)
    assert printed.pop("effort") == "full"
    assert printed == made.figures.to_json()


def test_what_cannot_be_is_an_error_of_one_line(tmp_path: Path) -> None:
    backend = ScriptedBackend([])
    (tmp_path / "empty").mkdir()
    for call in (
        lambda: rank(tmp_path / "empty", backend=backend),
        lambda: rank("a.mp4", backend=backend, jobs=2),
        lambda: rank("a.mp4", backend=backend, budget=0),
        lambda: rank("a.mp4", backend=backend, confidence=1.0),
        lambda: evaluate("no such set", backend=backend),
        lambda: evaluate("genai-bench", backend=backend),
        lambda: evaluate("genai-bench", order="any", backend=backend),  # type: ignore[arg-type]
        lambda: evaluate("genai-bench", limit=0, backend=backend),
    ):
        with pytest.raises(UsageError) as caught:
            call()
        assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(VideoError, match=r"gone\.mp4"):
        rank([tmp_path / "gone.mp4", tmp_path / "gone too.mp4"], backend=backend)
    with Store() as store:
        assert store.runs() == []
