"""The page of an evaluation: figures beside the published ones, plots, what failed, and each pair with its labels."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clips import write_clip
from judgements import FINAL, ONE, TIED, TWO, call, sure, with_odds
from report.made import judged

from vrt_lite.evaluation.cases import Case
from vrt_lite.evaluation.figures import figures
from vrt_lite.report import write_report
from vrt_lite.runs.judged import Question
from vrt_lite.runs.store import Run, Store


def evaluation(store: Store, folder: Path, split: str = "test") -> Run:
    """Three pairs in both orders: one as labelled, one that is undecided, one with a clip that is not there."""
    clips = [write_clip(folder / f"{n}.mp4", frames=20 + n, size=(56, 56)) for n in range(4)]
    run = store.begin(
        "set", kind="eval", about={"title": "GenAI-Bench", "model": "scripted", "left_out_rows": ["x: y"]}
    )
    cases: list[Case] = []
    other = "<think>T</think><final answer>TA=0, VQ=1, MQ=2, OA=1</final answer>"
    unsure = with_odds(FINAL, TIED, TWO, ONE, (0.05, 0.225, 0.725))
    for row, (a, b, swapped) in enumerate(((*clips[:2], other), (*clips[2:], unsure))):
        for order, shown, reply in (("given", (a, b), sure()), ("swapped", (b, a), swapped)):
            json = judged(list(shown), call(9, 57), reply)
            question = Question(*(clip["sha256"] for clip in json["inputs"]), "A fox runs.", "j")
            result = run.add(question, json)
            winners = {k: w if order == "given" or not w else 3 - w for k, w in result.winners.items()}
            cost = {"source": result.source, "rounds": 2, "calls": 1, "tokens": 9, "seconds": 1.0, "clip_seconds": 1.0}
            facts: dict[str, Any] = {"key": result.key, "winners": winners, **cost}
            cases.append(Case(row, f"pair <{row}>", order, {"OA": 2, "TA": 0}, "p", 11, **facts))
    lost = Case(2, "pair <2>", "given", {"OA": 1}, "p", 11, failure="missing clip", why="'<i>.mp4' is not there")
    for case in (*cases, lost):
        run.put("pair", case.item, case.to_json())
    made = figures(
        [*cases, lost],
        name="genai-bench",
        title="GenAI-Bench",
        split=split,
        labels={"OA": [1, 2, 0], "TA": [0, 0, 2]},
        order="both",
        chosen=3,
        left_out={"broken": 1},
    )
    run.note({**run.about, "figures": made})
    return run


def test_figures_stand_beside_the_published_ones(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.sqlite") as store:
        write_report(evaluation(store, tmp_path), tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    text = re.sub(r"<[^>]*>", "|", page.partition('id="pair"')[0])
    assert "100.0\u00a0% judged as people did" in text
    assert "GenAI-Bench, split test" in text
    assert re.search(r"VR-Thinker 7B\|+68\.7\|+82\.3", text)
    # Labels B, B and A, of which both B are judged.
    assert re.search(r"Overall, always tie\|+0\.0\u00a0 \(0\.0 to 65\.8\)\|", text)
    assert re.search(r"commonest answer, all 3 pairs\|+66\.7\u00a0 \(20\.8 to 93\.9\) B\|", text)
    assert re.search(r"swapped\|+2\|.*\|0\.0 / 0\.0\|+100\.0 / 100\.0\|", text)
    assert "2 of 3 pairs judged, 1 failed; 1 rows broken." in text
    assert "1 pair(s) are undecided, as the two orders name opposite winners: never right." in text
    assert re.search(r"pair &lt;2&gt; \(given\)\|+missing clip\|+&#x27;&lt;i&gt;.mp4&#x27; is not there", text)
    assert re.search(r"Exchanging changes tau by −50\.0 points \(.*\), over 2 pairs\.", text)
    assert page.count('src="data:image/png;base64,') >= 3


def test_published_figures_of_another_split_are_left_out(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.sqlite") as store:
        write_report(evaluation(store, tmp_path, "test_v1"), tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "GenAI-Bench, split test_v1" in page
    assert "Published figures of this set are of split test, not of test_v1" in page
    assert "VR-Thinker 7B" not in page


def test_each_pair_has_its_labels(tmp_path: Path, tabs: Callable[..., Any]) -> None:
    with Store(tmp_path / "runs.sqlite") as store:
        write_report(evaluation(store, tmp_path), tmp_path / "r.html")
    tab = tabs()
    page = tab.open(tmp_path / "r.html")
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
    tab.check_quiet()
