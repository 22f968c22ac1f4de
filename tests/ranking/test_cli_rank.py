"""The command as a user meets it: the leaderboard, its JSON, winners, statuses, and whatever a name may hold."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from brightness import Brightness, judge_of, unwatched, write_grey, write_greys
from rich.cells import cell_len
from terminals import Terminal

from examples.ladder import PROMPT, write_ladder
from vrt_lite.cli import run
from vrt_lite.ranking.entries import Group
from vrt_lite.ranking.rank import rank_clips
from vrt_lite.ranking.rank_run import Effort
from vrt_lite.records.ladders import Ranking
from vrt_lite.runs.store import Store
from vrt_lite.show.leaderboard import show_ladders
from vrt_lite.show.run_views import RankingView
from vrt_lite.show.screen import Screen

JUDGE = ("--model", "vrt-tiny-0")  # the ladder's world is its own
HOSTILE = "\x1b[31m\x1b]0;owned\x07[bold]x[-] \u202egpj\u2066\nnew"
HARMLESS = re.compile(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]*")
OURS = re.compile(r"\x1b\[[0-9;?]*[mAKhl]|[\r\n]")


def ranked(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of `vrt-lite rank`, run in this process."""
    status = run(["rank", *arguments])
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    return status, out, err


def refused(capfd: pytest.CaptureFixture[str], status: int, says: str, *arguments: str) -> None:
    got, out, err = ranked(capfd, *arguments, "-q")
    assert (got, out) == (status, "")
    assert says in err.strip().splitlines()[-1], err


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    return tuple(write_ladder(tmp_path_factory.mktemp("ladder")))


@pytest.fixture
def clips(tmp_path: Path, ladder: tuple[Path, ...]) -> Path:
    """A folder of two clips; a.mp4 is much the better one."""
    folder = tmp_path / "clips"
    folder.mkdir()
    for name, source in (("a.mp4", ladder[0]), ("b.mp4", ladder[-1])):
        (folder / name).write_bytes(source.read_bytes())
    return folder


def test_a_folder_is_ranked_and_found_again(capfd: pytest.CaptureFixture[str], clips: Path, tmp_path: Path) -> None:
    out_folder = tmp_path / "best"
    arguments = (str(clips), "-p", PROMPT, *JUDGE, "--top", "1", "--copy-to", str(out_folder))
    status, out, err = ranked(capfd, *arguments)
    lines = out.splitlines()
    assert status == 0
    assert lines[0].split() == [
        "RANK",
        "CLIP",
        "RATING",
        "LOW",
        "HIGH",
        "GROUP",
        "TA",
        "VQ",
        "MQ",
        "WON",
        "TIED",
        "LOST",
        "UNDECIDED",
        "FLAGGED",
    ]
    assert lines[1].split()[:2] == ["1", "a.mp4"]
    assert lines[2].split()[:2] == ["2", "b.mp4"]
    assert "judged: 1 of 1 pairs, 2 judgement(s)" in lines
    assert f"winner 1: {clips / 'a.mp4'} -> {out_folder / '01-a.mp4'}" in lines
    assert (out_folder / "01-a.mp4").read_bytes() == (clips / "a.mp4").read_bytes()
    assert "2 of 2" in err
    assert "loading" in err

    status, again, err = ranked(capfd, *arguments)
    assert (status, again) == (0, out)
    assert "loading" not in err

    name = next(line for line in lines if line.startswith("run: ")).removeprefix("run: ")
    assert run(["show", name]) == 0
    shown, _ = capfd.readouterr()
    told = [line for line in lines if not line.startswith("winner ")]
    assert shown.splitlines() == told
    assert told[-1] == "Best: a.mp4. As good: b.mp4. Flagged: b.mp4 (flicker)."


def test_json_says_it_all(capfd: pytest.CaptureFixture[str], clips: Path) -> None:
    (clips / "c.mp4").write_text("no video", encoding="utf-8")
    same = (str(clips), "-p", PROMPT, *JUDGE, "--top", "1", "--orders", "one", "--effort", "quick")
    status, out, err = ranked(capfd, *same, "--json")
    told: dict[str, Any] = json.loads(out)
    [ladder] = told["ladders"]
    assert status == 3, "a clip that was left out shows in the status"
    assert err.splitlines() == [
        "vrt-lite: 1 clip(s) cannot be used and are left out, as listed; all others are ranked."
    ]
    assert [place["name"] for place in ladder["standings"]] == ["a.mp4", "b.mp4"]
    assert set(ladder["standings"][0]["ratings"]) == {"TA", "VQ", "MQ", "OA"}
    assert [out["path"] for out in told["left_out"]] == [str(clips / "c.mp4")]
    assert told["winners"] == [{"group": "", "clips": [str(clips / "a.mp4")]}]
    assert ladder["judgements"] == 1
    assert told["effort"] == "quick"
    assert "judged with effort quick, not with the model's own pixels" in ranked(capfd, *same)[1]


def test_a_resumed_ranking_loads_no_decoder_and_starts_no_judge(clips: Path, own_home: Path) -> None:
    program = (
        "import sys\nfrom vrt_lite.cli import run\nstarted = []\n"
        "sys.addaudithook(lambda event, _: started.append(event) if event == 'subprocess.Popen' else None)\n"
        f"status = run(['rank', {str(clips)!r}, '-p', {PROMPT!r}, '-q'])\n"
        "heavy = ('av', 'llama_cpp', 'rich', 'PIL', 'httpx')\n"
        "print(status, len(started), *[name for name in heavy if name in sys.modules])"
    )

    def last_line() -> list[str]:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1].split()

    # Clips and the engine are opened in another process.
    assert last_line() == ["0", "1"]
    assert last_line() == ["0", "0"]


def test_what_cannot_be_is_refused_in_a_line(capfd: pytest.CaptureFixture[str], clips: Path, tmp_path: Path) -> None:
    refused(capfd, 2, "Two different clips are needed", str(clips / "a.mp4"))
    refused(capfd, 3, "left out", str(clips / "a.mp4"), str(tmp_path / "gone.mp4"))
    refused(capfd, 2, "No file matches", str(tmp_path / "*.mp4"))
    refused(capfd, 2, "--jobs 17 is too many: on this machine at most 16", str(clips), "--jobs", "17")
    refused(capfd, 2, "is no folder", str(clips), "--copy-to", str(clips / "a.mp4"))
    refused(capfd, 2, "at most 8000 are allowed", str(clips), "-p", "x" * 8001)
    refused(capfd, 2, "budget", str(clips), "--budget", "0")
    refused(capfd, 2, "stop-at", str(clips), "--stop-at", "1")
    refused(capfd, 4, "no-such-model", str(clips), "--model", "no-such-model")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_an_interrupt_says_how_to_go_on(tmp_path: Path, clips: Path, own_home: Path) -> None:
    for number in range(4):
        (clips / f"c{number}.mp4").write_bytes((clips / "a.mp4").read_bytes() + bytes(number + 1))
    command = [sys.executable, "-m", "vrt_lite", "rank", str(clips), "-p", PROMPT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        for line in process.stderr:
            if line.startswith("1 of 30"):
                break
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130
    assert out == ""
    kept = re.search(r"^(\d+) judgement\(s\) are kept: the same command goes on from there\.$", err, re.MULTILINE)
    assert kept, err
    assert 1 <= int(kept[1]) < 30  # how many depends on how busy the machine is
    assert err.splitlines()[-1] == "vrt-lite: Interrupted."
    assert "Traceback" not in err


def ranking_of(folder: Path, greys: range | tuple[int, ...], names: tuple[str, ...] = (), **brightness: int) -> Ranking:
    """A ranking of greys, of which the first clips have these names."""
    paths = write_greys(folder / "in", greys)
    given = [path.rename(path.with_name(name)) for path, name in zip(paths, names, strict=False)] + paths[len(names) :]
    with Store(folder / "runs.sqlite") as store, judge_of(Brightness(**brightness)) as judge:
        group = Group("", HOSTILE, tuple(given))
        return rank_clips([group], store=store, judge=judge, watcher=unwatched(), effort=Effort(both_orders=True))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")
@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_hostile_names_stay_text_at_any_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    names = (f"{HOSTILE}.mp4", "-rf.mp4", "x" * 120 + ".mp4")
    ranking = ranking_of(tmp_path, (90, 94, 40, 150), names, near=10, biased=1, dark=50)
    monkeypatch.setenv("COLUMNS", str(width))
    for stream in (Terminal(), io.StringIO()):
        show_ladders(ranking.ladders, ranking.left_out, run=ranking.run, stream=stream)
        shown = stream.getvalue()
        assert "orders disagree" in shown
        assert "not ranked" in shown
        assert HARMLESS.fullmatch(OURS.sub("", shown)), shown
        if isinstance(stream, Terminal):
            table = OURS.sub("\n", shown).split("judged:")[0]
            assert all(cell_len(line) <= width for line in table.splitlines())


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_the_live_board_stays_within_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("LINES", "8")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    clips = write_greys(tmp_path / "in", range(60, 132, 12))
    with (
        Store(tmp_path / "runs.sqlite") as store,
        judge_of(Brightness()) as judge,
        RankingView(Screen(stream)) as view,
    ):
        assert view._screen.is_live
        rank_clips([Group("", "Light.", tuple(clips))], store=store, judge=judge, watcher=view)
    lines = [OURS.sub("", line) for line in re.split(r"[\r\n]", stream.getvalue())]
    assert max(map(cell_len, lines)) <= width
    assert any("of 30" in line for line in lines)
    assert any("take 6" in line for line in lines)


def test_plain_progress_is_a_line_a_judgement(tmp_path: Path) -> None:
    stream = io.StringIO()
    clips = write_greys(tmp_path / "in", (60, 120))
    with (
        Store(tmp_path / "runs.sqlite") as store,
        judge_of(Brightness()) as judge,
        RankingView(Screen(stream)) as view,
    ):
        assert not view._screen.is_live
        rank_clips([Group("", "Light.", tuple(clips))], store=store, judge=judge, watcher=view)
    first, *lines = stream.getvalue().splitlines()
    assert first == "2 clips, at most 2 judgements, 0 of them made before"
    assert [re.sub(r", \d+ s left", "", line) for line in lines] == [
        "1 of 2: take 1.mp4 and take 2.mp4: take 2.mp4 is better (0.80)",
        "2 of 2: take 2.mp4 and take 1.mp4: take 2.mp4 is better (0.80)",
    ]


def test_a_table_ranks_each_group(capfd: pytest.CaptureFixture[str], clips: Path) -> None:
    write_grey(clips / "grey.mp4", 90)
    table = clips / "clips.csv"
    rows = ("clip,prompt,group", f"a.mp4,{PROMPT},one", "b.mp4,,one", "b.mp4,A grey.,two", "gone.mp4,,two")
    table.write_text("\n".join(rows), encoding="utf-8")
    status, out, _ = ranked(capfd, str(table), "--orders", "one")
    assert status == 3
    assert "one:" in out
    assert "two:" not in out
    assert "the only clip of its group that can be used" in out
    assert "gone.mp4" in out
