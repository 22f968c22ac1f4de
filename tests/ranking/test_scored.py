"""Clips that are judged by themselves: a run for each clip, pairs that follow, and no interval that nobody measured."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path

import pytest
from brightness import names, unwatched, write_grey, write_greys
from reports import Report
from scored_worker import PROMPT, BrightnessScore, make_scorer, rank_folder

from vrt_lite.api import Judge
from vrt_lite.errors import UsageError
from vrt_lite.ranking.folder_watch import FolderWatch
from vrt_lite.ranking.rank import rank_clips
from vrt_lite.ranking.rank_run import Effort, read_groups
from vrt_lite.runs.export import csv_lines, json_lines
from vrt_lite.runs.store import Store
from vrt_lite.show.leaderboard import show_ladders
from vrt_lite.viewer import write_report

GREYS = (40, 200, 120, 60, 180, 90, 150, 70, 110, 160, 50, 190)
WORKER = Path(__file__).parent / "scored_worker.py"
BEST_FIRST = tuple(f"take {GREYS.index(grey) + 1}.mp4" for grey in sorted(GREYS, reverse=True))


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_scorer(tmp_path_factory.mktemp("judges") / "scorer")


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    write_greys(tmp_path / "clips", GREYS)
    return tmp_path / "clips"


@pytest.mark.parametrize("jobs", [1, 3])
def test_twelve_clips_are_twelve_runs_and_a_new_one_is_one_more(
    tmp_path: Path, clips: Path, scorer: Path, jobs: int
) -> None:
    store, backend = tmp_path / "runs.sqlite", BrightnessScore()
    [ladder] = rank_folder(store, clips, scorer, backend, jobs=jobs).ladders
    assert sorted(backend.asked) == sorted(GREYS)
    assert names(ladder) == BEST_FIRST
    assert len(ladder.pairs) == 66
    assert ladder.judgements == 12
    repeated = rank_folder(store, clips, scorer, backend, jobs=jobs)
    assert (len(backend.asked), repeated.found, repeated.ladders) == (12, 12, (ladder,))
    write_grey(clips / "take 13.mp4", 210)
    [longer] = rank_folder(store, clips, scorer, backend, jobs=jobs).ladders
    assert len(backend.asked) == 13
    assert names(longer)[0] == "take 13.mp4"


def test_killed_anywhere_it_goes_on(tmp_path: Path, clips: Path) -> None:
    store, lines = tmp_path / "runs.sqlite", tmp_path / "lines"
    command = [sys.executable, str(WORKER), str(store), str(clips), str(lines)]
    for more in (1, 4, 2):
        judged = len(lines.read_text().splitlines()) if lines.exists() else 0
        process = subprocess.Popen(command)
        while (len(lines.read_text().splitlines()) if lines.exists() else 0) < judged + more:
            assert process.poll() is None, "it must be killed at work"
            time.sleep(0.001)
        process.kill()
        process.wait()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(list(GREYS).index(200))]
    # At most the clip that was in progress is judged again at each kill.
    begun = lines.read_text().splitlines()
    assert sorted(set(begun)) == sorted(map(str, GREYS))
    assert len(begun) <= 12 + 3


def test_no_pair_is_stored_as_judged_and_each_follows_by_the_loss(tmp_path: Path, clips: Path, scorer: Path) -> None:
    rank_folder(tmp_path / "runs.sqlite", clips, scorer, BrightnessScore())
    with Store(tmp_path / "runs.sqlite") as store:
        [info] = store.runs()
        assert info.judgements == 12
        run = store.run(info.name)
        assert [of.key for of in run.all_results() if not of.second or "+" not in of.key] == [
            of.key for of in run.all_results()
        ][:12]
        results = {(result.first, result.second): result for result in run.results()}
        [group] = read_groups(run)
        grey_of = {f"take {number}.mp4": grey for number, grey in enumerate(GREYS, start=1)}
        for pair in combinations(group.clips, 2):
            one, two = next(order for order in (pair, pair[::-1]) if (order[0].sha256, order[1].sha256) in results)
            result = results[one.sha256, two.sha256]
            difference = grey_of[one.name] - grey_of[two.name]
            odds = result.odds["VQ"]
            assert odds
            assert odds[1] == pytest.approx(1 / (1 + math.exp(min(1.609 - difference, 700))))
            assert result.winners == {"TA": 0, "VQ": 1 if difference > 0 else 2, "OA": 1 if difference > 0 else 2}
            assert result.odds["OA"] is None, "the sum has no scale"
            whole = run.judgement(result.key)
            assert whole
            assert whole.verdict.preferences["VQ"].odds == odds
            assert [clip.sha256 for clip in whole.inputs] == [one.sha256, two.sha256]
            assert [[f.video for f in r.frames] for r in whole.orders[0].rounds] == [[1] * 4, [2] * 4]
        assert len(list(csv_lines(run))) == 1 + 66
        assert all(len(json.loads(line)["scores"]) == 2 for line in json_lines(run))


def test_what_nobody_measured_is_nowhere(tmp_path: Path, clips: Path, scorer: Path) -> None:
    ranking = rank_folder(tmp_path / "runs.sqlite", clips, scorer, BrightnessScore())
    plain = ranking.to_json()["ladders"][0]
    assert plain["shown_first"] is None
    for standing in plain["standings"]:
        assert standing["ratings"]["OA"]["low"] is standing["ratings"]["OA"]["high"] is None
        assert "MQ" not in standing["ratings"], "not judged"
        assert standing["together"] == []
        assert standing["better_than_next"] is None
    lines = io.StringIO()
    show_ladders(ranking.ladders, (), run="r", stream=lines)
    told = lines.getvalue()
    assert "scored: 12 clips, each by itself; the other order of a pair is its mirror" in told
    assert not [word for word in ("95 %", "being shown first", "can be told") if word in told]
    with Store(tmp_path / "runs.sqlite") as store:
        write_report(store.run("latest"), tmp_path / "page.html")
    [group] = Report(tmp_path / "page.html").record["groups"]
    assert group["ladder"] == json.loads(json.dumps({name: of for name, of in plain.items() if name != "pairs"}))


def test_a_clip_without_a_score_is_named_and_the_others_are_ranked(tmp_path: Path, clips: Path, scorer: Path) -> None:
    backend = BrightnessScore(dark=45)
    [ladder] = rank_folder(tmp_path / "runs.sqlite", clips, scorer, backend).ladders
    assert sorted(backend.asked) == sorted(GREYS)
    assert names(ladder) == BEST_FIRST[:-1]
    assert [(of.clip, of.reason) for of in ladder.unranked] == [(0, "No verdict: it is too dark.")]


def test_a_limit_on_pairs_is_refused(tmp_path: Path, clips: Path, scorer: Path) -> None:
    with (
        Store(tmp_path / "runs.sqlite") as store,
        Judge(scorer, backend=BrightnessScore(), measures=False) as judge,
        pytest.raises(UsageError, match="leave --budget and --stop-at out"),
    ):
        rank_clips([], store=store, judge=judge, watcher=None, effort=Effort(budget=5))  # pyright: ignore


def test_alignment_alone_depends_on_the_prompt(tmp_path: Path, scorer: Path) -> None:
    """The same clip with another prompt is another question; the same prompt finds it, whatever pair it is in."""
    paths = write_greys(tmp_path / "clips", (10, 20))
    backend = BrightnessScore()
    with Store(tmp_path / "runs.sqlite") as store, Judge(scorer, backend=backend, measures=False) as judge:
        from vrt_lite.ranking.entries import Group

        for prompt in (PROMPT, "Another.", PROMPT):
            rank_clips([Group("", prompt, tuple(paths))], store=store, judge=judge, watcher=unwatched())
    assert len(backend.asked) == 4


def test_a_watched_folder_takes_a_run_for_each_new_clip(tmp_path: Path, clips: Path, scorer: Path) -> None:
    from vrt_lite.ranking.watch import watch_folders
    from vrt_lite.show.run_views import FolderView
    from vrt_lite.show.screen import Screen

    backend = BrightnessScore()

    class Late(FolderView):
        def judged(self, *args: object) -> None:
            super().judged(*args)  # pyright: ignore
            if len(backend.asked) == 12 and not (clips / "take 13.mp4").exists():
                write_grey(clips / "take 13.mp4", 220)
            if len(backend.asked) == 13:
                raise KeyboardInterrupt

    with Store(tmp_path / "runs.sqlite") as store, Judge(scorer, backend=backend, measures=False) as judge:
        screen = Screen(io.StringIO(), quiet=True)
        ranking = watch_folders(
            FolderWatch([str(clips)]), prompt=PROMPT, store=store, judge=judge, watcher=Late(screen), poll_seconds=0.05
        )
    assert len(backend.asked) == 13
    assert names(ranking.ladders[0])[0] == "take 13.mp4"


def test_an_evaluation_judges_each_clip_once(tmp_path: Path, clips: Path, scorer: Path) -> None:
    """Twelve clips in thirty pairs of both orders: twelve runs, and labels that are met as the scores have them."""
    from vrt_lite.evaluation.evaluate import PairSelection, evaluate
    from vrt_lite.evaluation.fetching import find_set
    from vrt_lite.evaluation.sets import read_set
    from vrt_lite.show.run_views import EvaluationView
    from vrt_lite.show.screen import Screen

    pairs = list(combinations(range(1, 13), 2))[:30]
    lines = [f"take {a}.mp4,take {b}.mp4,{PROMPT},{'A' if GREYS[a - 1] > GREYS[b - 1] else 'B'}" for a, b in pairs]
    (clips / "pairs.csv").write_text("\n".join(("a,b,prompt,overall", *lines)))
    backend = BrightnessScore()
    with Store(tmp_path / "runs.sqlite") as store, Judge(scorer, backend=backend, measures=False) as judge:
        found = read_set(find_set(str(clips / "pairs.csv"), split=None, folder=None))
        view = EvaluationView(Screen(io.StringIO(), quiet=True), total=60)
        figures = evaluate(found, PairSelection("both"), store=store, judge=judge, watcher=view).figures
    used = {GREYS[number - 1] for pair in pairs for number in pair}
    assert sorted(backend.asked) == sorted(used)
    assert figures.pairs.judged == 30
    accuracy = figures.accuracy["OA"]
    assert accuracy
    assert accuracy.tau.value == 1.0
    assert accuracy.probabilities == 0
