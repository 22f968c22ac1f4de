"""The page of an evaluation: figures beside the published ones, plots, what failed, and each pair with its labels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from clips import write_clip
from judgements import FINAL, ONE, TIED, TWO, call, sure, with_odds
from pages.conftest import Tabs
from pages.example_records import judge_pair
from reports import Report

from vrt_lite.evaluation.cases import EvalAbout
from vrt_lite.evaluation.evaluate import figures_of
from vrt_lite.records.labelled import EvalCase
from vrt_lite.records.pairs import Question
from vrt_lite.runs.store import Store
from vrt_lite.viewer import write_report


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the reports of two splits, test.html and test_v1.html, and the figures of the first.

    Three pairs in both orders: one as labelled, one that is undecided, one with a clip that is not there.
    """
    folder = tmp_path_factory.mktemp("evaluated")
    clips = [write_clip(folder / f"{n}.mp4", frames=20 + n, size=(56, 56)) for n in range(4)]
    other = "<think>T</think><final answer>TA=0, VQ=1, MQ=2, OA=1</final answer>"
    unsure = with_odds(FINAL, TIED, TWO, ONE, (0.05, 0.225, 0.725))
    judged = [
        (row, order, judge_pair(shown, call(9, 57), reply))
        for row, (pair, swapped) in enumerate(((clips[:2], other), (clips[2:], unsure)))
        for order, shown, reply in (("given", pair, sure()), ("swapped", pair[::-1], swapped))
    ]
    with Store(folder / "runs.sqlite") as store:
        for split in ("test", "test_v1"):
            about = EvalAbout(
                set="genai-bench",
                title="GenAI-Bench",
                split=split,
                labels={"OA": (1, 2, 0), "TA": (0, 0, 2)},
                model="scripted",
                order="both",
                left_out={"broken": 1},
                left_out_rows=("x: y",),
                chosen=3,
            )
            run = store.begin(split, kind="eval", about=about.to_json())
            for row, order, judgement in judged:
                question = Question(*(clip.sha256 for clip in judgement.inputs), "A fox runs.", "j")
                key, labels = run.add(question, judgement).key, {"OA": 2, "TA": 0}
                run.keep_case(EvalCase(row, f"pair <{row}>", order, labels, "p", 11, key=key, clip_seconds=1.0))
            why = {"failure": "missing clip", "why": "'<i>.mp4' is not there"}
            run.keep_case(EvalCase(2, "pair <2>", "given", {"OA": 1}, "p", 11, **why))
            write_report(run, folder / f"{split}.html")
            assert Report(folder / f"{split}.html").record["figures"] == figures_of(run).to_json()
    return folder


def test_figures_stand_beside_the_published_ones(evaluated: Path) -> None:
    page = Report(evaluated / "test.html")
    text = page.words
    assert page.record["heading"] == "100\u00a0% judged as people did (2 of 3 pairs)"
    # Labels B, B and A, of which both B are judged.
    for line in (
        "GenAI-Bench, split test",
        "VR-Thinker 7B|68.7|82.3",
        "Not shown: tau 61.2 of UnifiedReward 7B and 64.7 of UnifiedReward-Think 7B.",
        "commonest answer, all 3 pairs|66.7 (20.8-93.9) B|",
        "2 of 3 pairs judged, 1 failed; rows of the table left out: 1 broken;",
        "1 pair is undecided, as the orders name opposite winners: never counted as right",
        "pair <2> (given)|missing clip|'<i>.mp4' is not there",
    ):
        assert line in text
    assert re.search(r"^Overall\|2 of 3\|100\.0 \(34-100\)\|.*\|0\.0 / 0\.0\|100\.0 / 100\.0$", text, re.MULTILINE)
    assert re.search(r"^B first\|2 of 2 \(100%\)\|.*\|0\.0 / 0\.0\|100\.0 / 100\.0$", text, re.MULTILINE)
    assert re.search(r"effect of B first on tau: -50\.0 \(.*\) points, over 2 pairs judged in both orders", text)
    assert page.table[1][0] == "Overall"
    [chart] = page.record["charts"]
    words = {row["label"]: row["words"] for row in chart["rows"]}
    assert (words["tau"], words["VR-Thinker 7B, tau"]) == ("100.0 (34-100) of 2", "68.7")
    text = Report(evaluated / "test_v1.html").words
    assert "GenAI-Bench, split test_v1" in text
    assert "Published figures of this set are of split test, unifiedreward, not of test_v1" in text
    assert "VR-Thinker 7B" not in text


def test_each_pair_has_its_labels(evaluated: Path, tabs: Tabs) -> None:
    tab = tabs()
    page = tab.open(evaluated / "test.html")
    rows = page.locator(".pairs tbody tr")
    page.get_by_role("combobox").select_option("as labelled")
    assert rows.count() == 1
    rows.get_by_role("link", name="0.mp4 and 1.mp4").click()
    page.get_by_role("heading", name="Video 2 is better").wait_for()
    assert page.get_by_text("People said: Overall: video 2").is_visible()
    page.go_back()
    page.get_by_role("combobox").select_option("undecided")
    assert rows.get_by_text("undecided, leans to 3.mp4 (0.58)", exact=False).count() == 1
    page.get_by_role("combobox").select_option("orders disagree")
    rows.get_by_role("link", name="2.mp4 and 3.mp4").click()
    page.get_by_role("heading", name="Undecided, leans to video 2 (0.58)").wait_for()
    assert page.locator(".order").count() == 2
    tab.check()
