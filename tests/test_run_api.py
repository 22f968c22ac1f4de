"""The package as a Python program uses it: public names, `rank`, `evaluate`, the store, the documented example."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
from clips import write_clip
from judgements import sure

import vrt_lite
from vrt_lite import ScriptedBackend, Settings, Store, UsageError, VideoError, evaluate, rank, read_figures
from vrt_lite.cli import run as run_command

ROOT = Path(__file__).parent.parent
SMALL = "vrt-tiny-0"  # with a back end of one's own, the default judge is another one: its numbers do not decide


def test_the_documented_example_runs_as_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    first, second = re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    exec(first, names)
    assert names["judgement"].winner == 1
    assert "answer" in names["judgement"].orders[0].rounds[0].text
    exec(second, names)
    printed = capsys.readouterr().out.splitlines()
    assert [(line.split()[0], line.split()[-1]) for line in printed] == [("1", "final"), ("2", "final")]
    assert names["ladder"].ranked[0].path.name == "star.mp4"
    assert names["ladder"].standings[0].ratings["OA"].low < 0
    assert len(names["ladders"][0].ranked) == 2
    with Store() as store:
        assert [info.name for info in store.runs()] == ["shapes"]


def test_dir_shows_what_is_public_and_all_of_it_is_documented() -> None:
    assert dir(vrt_lite) == sorted([*vrt_lite.__all__, "__version__"])
    for name in vrt_lite.__all__:
        assert inspect.getdoc(getattr(vrt_lite, name)), name
    for function in (vrt_lite.compare, rank, evaluate):
        text = inspect.getdoc(function) or ""
        assert "Raises" in text or "errors" in text
    described = inspect.getdoc(rank) or ""
    assert [name for name in inspect.signature(rank).parameters if f"`{name}`" not in described] == ["prompt"]


def test_a_ranking_of_a_program_is_the_commands(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    clips = [write_clip(tmp_path / f"{name}.mp4", frames=8 + n, size=(56, 56)) for n, name in enumerate("ab")]

    def rank_clips(source: Any, *replies: Any, **more: Any) -> Any:
        return rank(source, prompt="A fox.", model=SMALL, backend=ScriptedBackend(replies), **more)

    # The setting means nothing here: both orders are judged one by one.
    ranking = rank_clips(tmp_path, sure(), sure(), settings=Settings(both_orders=True))
    assert [clip.path for clip in ranking.ladders[0].clips] == clips
    assert (ranking.found, ranking.ladders[0].judgements, ranking.judge) == (0, 2, SMALL)
    with Store() as store:
        again = rank_clips(str(tmp_path / "*.mp4"), store=store)
        assert (again.run, again.found) == (ranking.run, 2)
        assert store.runs()[0].name == ranking.run, "an open store stays open"
    other = rank_clips(clips, sure(), both_orders=False, store=tmp_path / "s")
    assert other.ladders[0].judgements == 1
    assert run_command(["rank", *map(str, clips), "-p", "A fox.", "--model", SMALL, "--json", "-q"]) == 0
    assert json.loads(capfd.readouterr().out)["run"] == ranking.run


def test_an_evaluation_of_a_program_is_the_commands(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, frames in (("a", 8), ("b", 9)):
        write_clip(tmp_path / f"{name}.mp4", frames=frames, size=(56, 56))
    table = tmp_path / "pairs.csv"
    table.write_text("a,b,prompt,overall\na.mp4,b.mp4,A fox.,B\nb.mp4,gone.mp4,A fox.,A\n")
    made = evaluate(table, model=SMALL, backend=ScriptedBackend([sure()]))
    accuracy = made.figures.accuracy["OA"]
    assert (accuracy.tau.right, accuracy.tau.of, accuracy.failed, made.judge) == (1, 1, 1, SMALL)
    with Store() as store:
        assert read_figures(store.run("latest")) == made.figures
    assert run_command(["eval", str(table), "--model", SMALL, "--json", "-q"]) == 0
    assert json.loads(capfd.readouterr().out) == {**made.figures.to_json(), "effort": "full"}


def test_what_cannot_be_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for function, source, more in (
        (rank, tmp_path / "empty", {}),
        (rank, "a.mp4", {"jobs": 2}),
        (rank, "a.mp4", {"budget": 0}),
        (rank, "a.mp4", {"confidence": 1.0}),
        (evaluate, "no such set", {}),
        (evaluate, "genai-bench", {}),
        (evaluate, "genai-bench", {"order": "any"}),
        (evaluate, "genai-bench", {"limit": 0}),
    ):
        with pytest.raises(UsageError, match=r"^[^\n]+$"):
            function(source, backend=ScriptedBackend([]), **more)
    with pytest.raises(VideoError, match=r"gone\.mp4"):
        rank([tmp_path / "gone.mp4", tmp_path / "gone too.mp4"], backend=ScriptedBackend([]))
    with Store() as store:
        assert store.runs() == []
