"""Clips that are judged by themselves: a run for each clip, pairs that follow, and no interval that nobody measured."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from brightness import group, names, unwatched, write_grey, write_greys
from reports import Report
from scored_worker import BrightnessScore, make_scorer

from vrt_lite import Judge, Ranking, Store, UsageError
from vrt_lite.evaluation.evaluate import PairSelection, evaluate
from vrt_lite.evaluation.sets import locate_set, read_set
from vrt_lite.protocol.answer_form import ClipScore
from vrt_lite.ranking.clip_scores import list_scores, score_lines
from vrt_lite.ranking.ladder import rate_group
from vrt_lite.ranking.rank import rank_clips
from vrt_lite.ranking.rank_run import ClipGroup, Effort, read_groups
from vrt_lite.ranking.watch import FolderWatch, watch_folders
from vrt_lite.records.ladders import RankedClip
from vrt_lite.records.pairs import Result
from vrt_lite.runs.export import csv_lines, json_lines
from vrt_lite.show.leaderboard import show_ladders
from vrt_lite.show.run_views import EvaluationView, FolderView
from vrt_lite.viewer import write_report

GREYS = (40, 200, 120, 60, 180, 90)
PAIRS = 15
BEST_FIRST = tuple(f"take {GREYS.index(grey) + 1}.mp4" for grey in sorted(GREYS, reverse=True))


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_scorer(tmp_path_factory.mktemp("judges") / "scorer")


@pytest.fixture
def clips(tmp_path: Path) -> list[Path]:
    return write_greys(tmp_path / "clips", GREYS)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as opened:
        yield opened


class Scored:
    """A judge that scores clips, and what it was asked for."""

    def __init__(self, store: Store, scorer: Path, *, dark: int = 0) -> None:
        self._store, self._scorer, self._backend = store, scorer, BrightnessScore(dark=dark)
        self.asked = self._backend.asked

    def judge(self, jobs: int = 1) -> Judge:
        return Judge(self._scorer, backend=self._backend, measures=False, jobs=jobs)

    def rank(self, clips: list[Path], *, prompt: str = "A grey.", jobs: int = 1, **options: Any) -> Ranking:
        with self.judge(jobs) as judge:
            options |= {"watcher": unwatched()}
            return rank_clips([group(clips, prompt=prompt)], store=self._store, judge=judge, **options)


@pytest.fixture
def scored(store: Store, scorer: Path) -> Scored:
    return Scored(store, scorer)


@pytest.mark.parametrize("jobs", [1, 3])
def test_each_clip_is_a_run_and_a_new_one_is_one_more(scored: Scored, clips: list[Path], jobs: int) -> None:
    [ladder] = scored.rank(clips, jobs=jobs).ladders
    assert sorted(scored.asked) == sorted(GREYS)
    assert names(ladder) == BEST_FIRST
    assert (len(ladder.pairs), ladder.judgements) == (PAIRS, 6)
    repeated = scored.rank(clips, jobs=jobs)
    assert (len(scored.asked), repeated.found, repeated.ladders) == (6, 6, (ladder,))
    new = write_grey(clips[0].with_name("new.mp4"), 210)
    [longer] = scored.rank([*clips, new], jobs=jobs).ladders
    assert (len(scored.asked), names(longer)[0]) == (7, "new.mp4")
    # Alignment depends on the prompt: the same clip with another prompt is another question.
    for prompt in ("Another.", "A grey.", "Another."):
        scored.rank(clips[:2], prompt=prompt)
    assert len(scored.asked) == 9
    with pytest.raises(UsageError, match="leave --budget and --stop-at out"):
        scored.rank(clips, effort=Effort(budget=5))


def test_pairs_follow_by_the_loss_and_what_nobody_measured_is_nowhere(
    scored: Scored, store: Store, clips: list[Path], tmp_path: Path
) -> None:
    ranking = scored.rank(clips)
    [info] = store.runs()
    assert info.judgements == 6
    run = store.run(info.name)
    judged = [of for of in run.all_results() if not of.second or "+" not in of.key]
    assert judged == list(run.all_results())[:6], "no pair is stored as judged"
    results = {(result.first, result.second): result for result in run.results()}
    [stored] = read_groups(run)
    grey_of = {path.name: grey for path, grey in zip(clips, GREYS, strict=True)}
    for pair in combinations(stored.clips, 2):
        one, two = next(order for order in (pair, pair[::-1]) if (order[0].sha256, order[1].sha256) in results)
        result = results[one.sha256, two.sha256]
        difference = grey_of[one.name] - grey_of[two.name]
        odds, winner = result.preferences["VQ"].odds, 1 if difference > 0 else 2
        assert odds
        assert odds[1] == pytest.approx(1 / (1 + math.exp(min(1.609 - difference, 700))))
        assert {key: of.winner for key, of in result.preferences.items()} == {"TA": 0, "VQ": winner, "OA": winner}
        assert result.preferences["OA"].odds is None, "the sum has no scale"
        whole = run.judgement(result.key)
        assert whole
        assert whole.verdict.preferences["VQ"].odds == odds
        assert [clip.sha256 for clip in whole.inputs] == [one.sha256, two.sha256]
        assert [[f.video for f in r.frames] for r in whole.orders[0].rounds] == [[1] * 4, [2] * 4]
    assert len(list(csv_lines(run))) == 1 + PAIRS
    assert all(len(json.loads(line)["scores"]) == 2 for line in json_lines(run))

    plain = ranking.to_json()["ladders"][0]
    assert plain["shown_first"] is None
    for standing in plain["standings"]:
        assert standing["ratings"]["OA"]["low"] is standing["ratings"]["OA"]["high"] is None
        assert "MQ" not in standing["ratings"], "not judged"
        assert (standing["together"], standing["better_than_next"]) == ([], None)
    lines = io.StringIO()
    with redirect_stdout(lines):
        show_ladders(ranking.ladders, (), run="r", judge="j")
    assert "scored: 6 clips, each by itself; the other order of a pair is its mirror" in lines.getvalue()
    assert not [word for word in ("95 %", "being shown first", "can be told") if word in lines.getvalue()]
    write_report(run, tmp_path / "page.html")
    [page] = Report(tmp_path / "page.html").record["groups"]
    assert page["ladder"] == json.loads(json.dumps({name: of for name, of in plain.items() if name != "pairs"}))


def test_a_clip_without_a_score_is_named_and_the_others_are_ranked(
    store: Store, scorer: Path, clips: list[Path]
) -> None:
    scored = Scored(store, scorer, dark=45)
    [ladder] = scored.rank(clips).ladders
    assert sorted(scored.asked) == sorted(GREYS)
    assert names(ladder) == BEST_FIRST[:-1]
    assert [(of.clip, of.reason) for of in ladder.unranked] == [(0, "No verdict: it is too dark.")]


def test_a_watched_folder_takes_a_run_for_each_new_clip(scored: Scored, store: Store, clips: list[Path]) -> None:
    class Late(FolderView):
        def judged(self, *args: Any) -> None:
            super().judged(*args)
            if len(scored.asked) == 6:
                write_grey(clips[0].with_name("new.mp4"), 220)
            if len(scored.asked) == 7:
                raise KeyboardInterrupt

    options: Any = {"watcher": Late(io.StringIO(), quiet=True), "poll_seconds": 0.05}
    watch = FolderWatch([str(clips[0].parent)], settled_seconds=0.1)
    with scored.judge() as judge:
        ranking = watch_folders(watch, prompt="A grey.", store=store, judge=judge, **options)
    assert len(scored.asked) == 7
    assert names(ranking.ladders[0])[0] == "new.mp4"


def test_a_percentile_counts_the_clips_that_have_less_and_half_of_those_that_have_as_much() -> None:
    values = (3.0, 1.0, 3.0, 4.0, 2.0)
    scored = ClipGroup("", "", tuple(RankedClip(str(n), Path(str(n)), str(n)) for n in range(5)))
    for number, value in enumerate(values):
        scored.add(number, number, Result(str(number), str(number), "", "", scores=({"OA": ClipScore(value)},)))
    told = {clip.name: clip.scores["OA"] for clip in list_scores(rate_group(scored))}
    assert {name: (of.raw, of.percentile) for name, of in told.items()} == {
        "3": (4.0, 100.0),
        "0": (3.0, 62.5),
        "2": (3.0, 62.5),
        "4": (2.0, 25.0),
        "1": (1.0, 0.0),
    }


def test_a_table_of_scores_holds_no_formula() -> None:
    """Names of files and groups may begin as a formula does; a score that is negative is a number."""
    scored = ClipGroup("=1+1", "", (RankedClip("a", Path("@a.mp4"), "a"), RankedClip("b", Path("b.mp4"), "b")))
    scored.add(0, 0, Result("a", "a", "", "", scores=({"OA": ClipScore(-2.0)},)))
    heading, first, second = score_lines(list_scores(rate_group(scored)))
    assert heading == "group,clip,OA,OA percentile,flags,error\n"
    assert (first, second) == ("'=1+1,'@a.mp4,-2.0,,,\n", "'=1+1,b.mp4,,,,not judged yet\n")


def test_an_evaluation_judges_each_clip_once(scored: Scored, store: Store, clips: list[Path]) -> None:
    """Pairs of both orders: a run a clip, and labels that are met as the scores have them."""
    pairs = list(combinations(range(6), 2))
    lines = [f"take {a + 1}.mp4,take {b + 1}.mp4,x,{'A' if GREYS[a] > GREYS[b] else 'B'}" for a, b in pairs]
    table = clips[0].with_name("pairs.csv")
    table.write_text("\n".join(("a,b,prompt,overall", *lines)))
    view = EvaluationView(io.StringIO(), quiet=True, total=2 * PAIRS)
    with scored.judge() as judge:
        found = read_set(locate_set(table))
        figures = evaluate(found, PairSelection("both"), store=store, judge=judge, watcher=view).figures
    assert sorted(scored.asked) == sorted(GREYS)
    accuracy = figures.accuracy["OA"]
    assert accuracy
    assert (figures.pairs.judged, accuracy.tau.value, accuracy.probabilities) == (PAIRS, 1.0, 0)
