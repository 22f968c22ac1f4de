"""The command as a user meets it: leaderboard, JSON, winners, statuses, flags, and whatever a name may hold."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from brightness import GREY, Brightness, Honest, group, names, ranked, write_greys
from clips import write_clip
from measures.scenes import scenes
from rich.cells import cell_len
from terminals import Terminal

from examples.ladder import PROMPT, write_ladder
from vrt_lite import Store
from vrt_lite.cli import run
from vrt_lite.measures.kept import list_files, measures_folder
from vrt_lite.ranking.rank_run import Effort
from vrt_lite.show.leaderboard import show_ladders
from vrt_lite.show.run_views import RankingView

SMALL = ("--model", "vrt-tiny-0")  # the ladder's world is its own
FLAGGING = ("--model", "vrt-tiny-2", "--orders", "one")
HEADINGS = "RANK CLIP RATING LOW HIGH GROUP VQ MQ WON TIED LOST UNDECIDED FLAGGED"
HOSTILE = "\x1b[31m\x1b]0;owned\x07[bold]x[-] \u202egpj\u2066\nnew"
HARMLESS = re.compile(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]*")
OURS = re.compile(r"\x1b\[[0-9;?]*[mAKhl]|[\r\n]")
STUTTERS = {"a.mp4": [], "b.mp4": [], "stutters.mp4": [{"fault": "stutter", "words": "repeated 77 %"}]}


class Told:
    """What a command said, run in this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str], *arguments: str) -> None:
        self.status = run(list(arguments))
        self.out, self.err = capfd.readouterr()
        self.lines = self.out.splitlines()
        assert "Traceback" not in self.err


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    return tuple(write_ladder(tmp_path_factory.mktemp("ladder")))


@pytest.fixture
def clips(tmp_path: Path, ladder: tuple[Path, ...]) -> Path:
    """A folder of two clips; a.mp4 is much the better one."""
    (tmp_path / "clips").mkdir()
    for name, source in (("a.mp4", ladder[0]), ("b.mp4", ladder[-1])):
        shutil.copyfile(source, tmp_path / "clips" / name)
    return tmp_path / "clips"


def test_a_table_ranks_each_group_and_json_says_it_all(capfd: pytest.CaptureFixture[str], clips: Path) -> None:
    (clips / "c.mp4").write_text("no video", encoding="utf-8")
    rows = (
        "clip,prompt,group",
        f"a.mp4,{PROMPT},one",
        "b.mp4,,one",
        "c.mp4,,one",
        "b.mp4,A grey.,two",
        "gone.mp4,,two",
    )
    (clips / "clips.csv").write_text("\n".join(rows), encoding="utf-8")
    command = ("rank", str(clips / "clips.csv"), *SMALL, "--top", "1", "--orders", "one", "--effort", "quick")
    told = Told(capfd, *command, "--json")
    ranking: dict[str, Any] = json.loads(told.out)
    [ladder] = ranking["ladders"]
    assert told.status == 3, "a clip that was left out shows in the status"
    left_out = "vrt-lite: 2 clip(s) cannot be used and are left out, as listed; all others are ranked."
    assert told.err.splitlines() == [left_out]
    assert [place["name"] for place in ladder["standings"]] == ["a.mp4", "b.mp4"]
    assert set(ladder["standings"][0]["ratings"]) == {"TA", "VQ", "MQ", "OA"}
    assert {Path(out["path"]).name for out in ranking["left_out"]} == {"b.mp4", "c.mp4", "gone.mp4"}
    assert ranking["winners"] == [{"group": "one", "clips": [str(clips / "a.mp4")]}]
    assert (ladder["judgements"], ranking["effort"]) == (1, "quick")
    out = Told(capfd, *command).out
    assert "one:" in out and "two:" not in out
    assert "GROUP TA VQ MQ" in " ".join(out.split()), "this judge reads the prompt"
    for said in ("judged with effort quick, not with the model's own pixels", "gone.mp4", "the only clip of its group"):
        assert said in out


def test_a_resumed_ranking_loads_no_decoder_and_starts_no_judge(clips: Path) -> None:
    program = (
        "import sys\nfrom vrt_lite.cli import run\nstarted = []\n"
        "sys.addaudithook(lambda event, _: started.append(event) if event == 'subprocess.Popen' else None)\n"
        f"status = run(['rank', {str(clips)!r}, '-p', {PROMPT!r}, '-q'])\n"
        "heavy = ('av', 'vrt_lite.backends.llamacpp.engine', 'rich', 'PIL', 'httpx')\n"
        "print(status, len(started), *[name for name in heavy if name in sys.modules])"
    )
    # Clips and the engine are opened in another process.
    for expected in ("0 1", "0 0"):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == expected


def test_what_cannot_be_is_refused_in_a_line(capfd: pytest.CaptureFixture[str], clips: Path, tmp_path: Path) -> None:
    a, both = str(clips / "a.mp4"), str(clips)
    for status, says, *arguments in (
        (2, "Two different clips are needed", a),
        (3, "left out", a, str(tmp_path / "gone.mp4")),
        (2, "No file matches", str(tmp_path / "*.mp4")),
        (2, "give 1..256|auto", both, "--jobs", "257"),
        (2, "is a file", both, "--copy-to", a),
        (2, "at most 8000 are allowed", both, "-p", "x" * 8001),
        (2, "budget", both, "--budget", "0"),
        (2, "stop-at", both, "--stop-at", "1"),
        (2, "--max-pixels", both, "--max-pixels", "1"),
        (4, "no-such-model", both, "--model", "no-such-model"),
        (5, "--ctx", both, "--ctx", "100000000"),
    ):
        told = Told(capfd, "rank", *arguments, "-q", "--name", "foxes")
        assert (told.status, told.out) == (status, "")
        assert says in told.err.strip().splitlines()[-1], told.err
    with Store() as store:
        assert store.runs() == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_an_interrupt_says_how_to_go_on(clips: Path) -> None:
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
    assert (process.returncode, out) == (130, "")
    kept = re.search(r"^(\d+) judgement\(s\) are kept: the same command goes on from there\.$", err, re.MULTILINE)
    assert kept, err
    assert 1 <= int(kept[1]) < 30  # how many depends on how busy the machine is
    assert err.splitlines()[-1] == "vrt-lite: Interrupted."
    assert "Traceback" not in err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")
def test_hostile_names_stay_text_at_any_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_greys(tmp_path / "in", (90, 94, 40, 150))
    hostile = (f"{HOSTILE}.mp4", "-rf.mp4", "x" * 120 + ".mp4")
    given = [path.rename(path.with_name(name)) for path, name in zip(paths, hostile, strict=False)]
    with Store() as store:
        backend = Brightness(near=10, biased=1, dark=50)
        ranking = ranked(store, backend, group([*given, paths[-1]], prompt=HOSTILE))
    for width in (20, 40, 60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        for stream in (Terminal(), io.StringIO()):
            with redirect_stdout(stream):
                show_ladders(ranking.ladders, ranking.left_out, run=ranking.run, judge="j")
            shown = stream.getvalue()
            assert "orders disagree" in shown
            assert "not ranked" in shown
            assert HARMLESS.fullmatch(OURS.sub("", shown)), shown
            if isinstance(stream, Terminal):
                table = OURS.sub("\n", shown).split("judged:")[0]
                assert all(cell_len(line) <= width for line in table.splitlines())


@pytest.mark.parametrize("width", [20, 120])
def test_the_live_board_stays_within_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    for name, value in (("COLUMNS", str(width)), ("LINES", "8"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    stream, clips = Terminal(), group(write_greys(tmp_path / "in", range(60, 120, 12)))
    with Store() as store, RankingView(stream) as view:
        assert view.console
        ranked(store, Brightness(), clips, watcher=view, effort=Effort(both_orders=False))
    lines = [OURS.sub("", line) for line in re.split(r"[\r\n]", stream.getvalue())]
    assert max(map(cell_len, lines)) <= width
    assert any("of 10" in line for line in lines)
    assert any("take 5" in line for line in lines)
    assert any("and 3 more" in line for line in lines)


def test_plain_progress_is_a_line_a_judgement(tmp_path: Path) -> None:
    stream, clips = io.StringIO(), group(write_greys(tmp_path / "in", (60, 120)))
    with Store() as store, RankingView(stream) as view:
        assert not view.console
        ranked(store, Brightness(), clips, watcher=view)
    assert [re.sub(r", [\d.]+ s left", "", line) for line in stream.getvalue().splitlines()] == [
        "2 clips, at most 2 judgements, 0 of them made before",
        "1 of 2: take 1.mp4 and take 2.mp4: take 2.mp4 is better (0.80)",
        "2 of 2: take 2.mp4 and take 1.mp4: take 2.mp4 is better (0.80)",
    ]


@pytest.mark.parametrize("both_orders", [True, False])
def test_a_strong_preference_for_the_first_leaves_the_order_right(tmp_path: Path, *, both_orders: bool) -> None:
    greys, strong = (100, 140, 60, 180, 40, 200), 3.0
    clips = group(write_greys(tmp_path / "in", greys))
    with Store() as store:
        ranking = ranked(store, Honest(first=strong), clips, effort=Effort(both_orders=both_orders))
    [ladder] = ranking.ladders
    right = [f"take {greys.index(grey) + 1}.mp4" for grey in sorted(greys, reverse=True)]
    assert sorted(names(ladder)[:3]) == sorted(right[:3])
    assert 0 < ladder.first.low < strong < ladder.first.high
    undecided = [pair for pair in ladder.pairs if pair.preferences["OA"].undecided]
    assert sum(standing.undecided for standing in ladder.standings) == 2 * len(undecided)
    assert sum(standing.won for standing in ladder.standings) == 15 - len(undecided)
    if not both_orders:
        assert not undecided
        return
    assert names(ladder) == tuple(right)
    # Clips closer than the preference are undecided, and lean to the better one; others are won by it.
    for pair in ladder.pairs:
        i, j = pair.clips
        better = 1 if greys[i] > greys[j] else 2
        gap, own = abs(greys[i] - greys[j]) / GREY, pair.preferences["OA"]
        assert (own.winner, own.leans) == ((0, better) if gap < strong else (better, None))
    shown, count = io.StringIO(), len(undecided)
    with redirect_stdout(shown):
        show_ladders(ranking.ladders, (), run=ranking.run, judge="j")
    counts = f"VQ in {count} of 15, MQ in 0 of 15, OA in {count} of 15; {count} undecided overall"
    assert f"orders disagree, of the pairs judged in both: {counts}" in shown.getvalue().splitlines()
    assert "take 1.mp4 and take 2.mp4 on VQ, OA; overall undecided, leans to take 2.mp4 (0.5" in shown.getvalue()


@pytest.fixture(scope="module")
def moving(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three clips of a texture that moves, ever brighter; of the last each picture is shown four times."""
    folder, texture = tmp_path_factory.mktemp("moving"), scenes()["texture"]
    for name, hold, shade in (("a.mp4", 1, 0), ("b.mp4", 1, 4), ("stutters.mp4", 4, 8)):
        held = [texture[t - t % hold][:120, :208].astype(int) + shade for t in range(32)]
        pictures = [np.repeat(np.clip(picture, 0, 255).astype(np.uint8)[..., None], 3, 2) for picture in held]
        write_clip(folder / name, fps=16, size=(208, 120), pictures=pictures, bframes=0)
    return folder


@pytest.fixture
def renders(tmp_path: Path, moving: Path) -> Path:
    return shutil.copytree(moving, tmp_path / "renders")


def test_a_folder_is_ranked_with_its_flags_and_found_again(
    renders: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    best, page = tmp_path / "best", tmp_path / "all.html"
    command = ("rank", str(renders), *FLAGGING, "--name", "all", "--top", "3", "--copy-to", str(best))
    told = Told(capfd, *command)
    assert told.status == 0
    assert told.lines[0].split() == HEADINGS.split()
    places, clips = zip(*(line.split()[:2] for line in told.lines[1:4]), strict=True)
    assert (places, clips[2]) == (("1", "2", "3"), "stutters.mp4")
    assert told.lines[3].endswith("repeated 77 %")
    assert "judged: 3 of 3 pairs, 3 judgement(s)" in told.lines
    for place, name in enumerate(clips, start=1):
        copy = best / f"0{place}-{name}"
        assert f"winner {place}: {renders / name} -> {copy}" in told.lines
        assert copy.read_bytes() == (renders / name).read_bytes()
    assert "3 of 3" in told.err and "loading" in told.err
    assert "stutters.mp4 is flagged: repeated 77 %; it is copied all the same. --exclude-flagged leaves" in told.err
    again = Told(capfd, *command)
    assert (again.status, again.out, "loading" in again.err) == (0, told.out, False)
    shown = Told(capfd, "show", "all").lines
    assert shown == [line for line in told.lines if not line.startswith("winner ")]
    assert re.fullmatch(r"Best: [ab]\.mp4\..* Flagged: stutters\.mp4 \(stutter\)\.", shown[-1])
    for same in (command[:-4], ("show", "all")):
        [ladder] = json.loads(Told(capfd, *same, "--json").out)["ladders"]
        assert {clip["name"]: clip["flags"] for clip in ladder["clips"]} == STUTTERS
    assert Told(capfd, "report", "all", "-o", str(page)).status == 0
    assert "repeated 77 %" in page.read_text(encoding="utf-8")
    assert Told(capfd, "export", "all", "-o", str(tmp_path / "all.csv")).status == 0
    for cells in csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text(encoding="utf-8"))):
        flagged = "stutters.mp4" in (cells["first"], cells["second"])
        assert ("is flagged: repeated 77 %" in cells["warnings"]) == flagged

    # The measures are those of the clips, and are not made again for another prompt.
    assert len(list(list_files(measures_folder()))) == 3

    def measure_again(*_: object, **__: object) -> None:
        raise AssertionError("a clip is measured again")

    monkeypatch.setattr("vrt_lite.measures.measuring.measure_clip", measure_again)
    told = Told(capfd, "compare", str(renders / "a.mp4"), str(renders / "stutters.mp4"), *FLAGGING[:2], "-q")
    assert "warning: Video 2 is flagged: repeated 77 %." in told.out
    command = ("rank", str(renders), *FLAGGING, "-q", "--prompt", "A fox.", "--exclude-flagged")
    told = Told(capfd, *command)
    assert told.status == 0
    assert "judged: 1 of 1 pairs" in told.out
    assert "stutters.mp4' is flagged: repeated 77 %" in told.out
    assert "Flagged" not in told.lines[-1]
    (renders / "b.mp4").unlink()
    told = Told(capfd, *command)
    assert (told.status, told.out) == (2, "")
    assert "Without the flagged clips no two are left to rank. Leave out --exclude-flagged." in told.err
