"""Reports in a real browser: quiet, offline, whole, in step, by keyboard, on any screen; what is said stays text."""

from __future__ import annotations

import json
import re
import shutil
import sys
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from clips import write_clip
from judgements import ONE, TIED, TWO, call, sure, with_odds
from pages.conftest import READY, SIDEWAYS, Tab, Tabs, until
from pages.example_records import FINAL, HOSTILE, clip_pair, hostile_reply, judge_pair
from reports import Report

from vrt_lite.errors import NoVerdictError
from vrt_lite.evaluation.evaluate import figures_of
from vrt_lite.records.labelled import EvalAbout, EvalCase
from vrt_lite.records.pairs import Question
from vrt_lite.runs.store import CASE, Run, Store
from vrt_lite.settings import Settings
from vrt_lite.video.encoding import MOST_BYTES
from vrt_lite.viewer import write_report

TIMES = "[...document.querySelectorAll('video')].map(video => video.currentTime)"
COPIES = "[...document.querySelectorAll('video')].map(video => video.currentSrc.slice(0, 15))"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two rounds in both orders, beside its clips."""
    folder = tmp_path_factory.mktemp("pair")
    final = with_odds(FINAL.replace("VQ=2", "VQ=0"), TWO, (0.9, 0.05, 0.05), ONE, TWO)
    replies = (call(9, 10, 57), final, call(9, 57), final)
    write_report(judge_pair(clip_pair(folder), *replies, settings=Settings(both_orders=True)), folder / "report.html")
    return folder / "report.html"


def fill(store: Store, clips: list[Path], *, prompt: str = "A fox.", names: list[str], said: str = "S") -> Run:
    """A ranking in which an earlier clip always wins, shown first or not; one order of one pair has no verdict."""
    digests = [store.digest(clip) for clip in clips]
    told = [
        {"name": name, "path": str(clip), "sha256": digest}
        for name, clip, digest in zip(names, clips, digests, strict=True)
    ]
    run = store.begin("ladder", kind="rank", about={"groups": [{"name": "", "prompt": prompt, "clips": told}]})
    for i, j in permutations(range(len(clips)), 2):
        question = Question(digests[i], digests[j], prompt, "judge")
        if (i, j) == (1, 0):
            run.add(question, NoVerdictError("No verdict: it said nothing."))
            continue
        winner, odds = (1, (0.1, 0.8, 0.1)) if i < j else (2, (0.1, 0.1, 0.8))
        answer = f"<final answer>TA=0, VQ={winner}, MQ=0, OA={winner}</final answer>"
        tie = (0.8, 0.1, 0.1)
        reply = with_odds(f"<snapshot>{said}</snapshot><think>{said}</think>{answer}", tie, odds, tie, odds)
        run.add(question, judge_pair([clips[i], clips[j]], call(9, 57), reply, prompt=prompt))
    return run


def write_ladder(folder: Path, files: list[str], *, names: list[str], embed: Any = None, **more: str) -> Path:
    """The report of a ranking of small clips."""
    clips = [write_clip(folder / file, frames=30 + n, size=(112, 84)) for n, file in enumerate(files)]
    with Store(folder / "runs.sqlite") as store:
        write_report(fill(store, clips, names=names, **more), folder / "ladder.html", embed=embed)
    return folder / "ladder.html"


@pytest.fixture(scope="module")
def ranking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = ["oak", "elm", "ash"]
    return write_ladder(tmp_path_factory.mktemp("ranking"), [f"{name}.mp4" for name in names], names=names)


def test_a_pair_is_quiet_whole_and_fits(pair: Path, tabs: Tabs) -> None:
    tab = tabs()
    for width in (320, 1200):
        tab.page.set_viewport_size({"width": width, "height": 800})
        for scheme in ("light", "dark"):
            tab.page.emulate_media(color_scheme=scheme)
            page = tab.open(pair)
            until(page, READY)
            tab.check()
    assert page.evaluate("document.images.length") == 8 + 3 + 8 + 2
    assert max(bar.bounding_box()["width"] for bar in page.locator(".odds .tie").all()) > 100, "its contrast was seen"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    page.get_by_text("Settings", exact=True).focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("cell", name="Temporal Alignment (TA)").is_visible()
    without_script = tabs(java_script_enabled=False)
    without_script.page.goto(pair.as_uri())
    assert without_script.page.locator("caption").inner_text() == "Undecided. Video 1: a.mp4. Video 2: b.mp4."
    assert without_script.page.locator("tr").count() == 5
    assert without_script.said == []


def test_both_clips_play_in_step_by_button_and_by_key(pair: Path, tabs: Tabs) -> None:
    tab = tabs()
    page = tab.open(pair)
    until(page, READY)
    page.locator(".players").focus()
    for _ in range(3):
        page.keyboard.press(".")
    until(page, "![...document.querySelectorAll('video')].some(video => video.seeking)")
    assert page.evaluate(TIMES) == pytest.approx([3 / 16, 3 / 16], abs=0.01)
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(TIMES) == pytest.approx([2 / 16, 2 / 16], abs=0.01)
    page.get_by_role("slider").focus()
    page.keyboard.press("End")
    assert page.evaluate(TIMES) == pytest.approx([3, 4], abs=0.05)
    page.get_by_role("button", name="Show both clips at 0.50").first.click()
    assert page.evaluate(TIMES) == pytest.approx([0.5, 0.5], abs=0.01)
    page.get_by_role("button", name="Play").click()
    until(page, f"{TIMES}[1] > 1")
    assert page.evaluate(f"Math.abs({TIMES}[0] - {TIMES}[1])") < 0.25
    page.get_by_label("Loop").uncheck()
    page.get_by_label("Speed").select_option("2")
    until(page, "[...document.querySelectorAll('video')][1].ended")
    until(page, "document.querySelector('.play').textContent === 'Play'")
    assert page.evaluate(TIMES) == pytest.approx([3, 4], abs=0.1), "the shorter waits for the longer"
    tab.check()


def check_text(tab: Tab) -> None:
    """What is hostile is shown, and is no element, no order of writing and no control character."""
    page = tab.page
    shown = page.locator("main").inner_text()
    assert "<script>alert(1)</script></script></final answer>\"><img src=x onerror=alert(2)>'&amp;" in shown
    assert "\\u202eevil\\u2066\\u2028" in shown
    assert not set("\u202e\u2066\u2028\x00\x1b") & set(page.content())
    assert page.locator("script[type=module]").count() == 1
    assert page.locator("main script, [onerror], img[src=x]").count() == 0
    assert tab.said == []


@pytest.mark.skipif(sys.platform == "win32", reason="no file can have such a name there")
def test_whatever_is_said_stays_text(tmp_path: Path, tabs: Tabs) -> None:
    name = '<img src=x onerror=alert(3)>\u202e&".mp4'
    clips = clip_pair(tmp_path, (name, "javascript:alert(4).mp4"))
    json_ = judge_pair(clips, hostile_reply(), prompt=HOSTILE.replace("\x00", "")).to_json()
    json_["warnings"].append(HOSTILE)
    json_["warning_kinds"].append("scope")
    json_["model"]["name"] = HOSTILE
    json_["settings"]["dimensions"]["TA"]["name"] = HOSTILE
    json_["orders"][0]["rounds"][0] |= {"call": HOSTILE, "correction": HOSTILE}
    write_report(json.loads(json.dumps(json_)), tmp_path / "report.html")
    tab = tabs()
    page = tab.open(tmp_path / "report.html")
    until(page, READY)
    page.get_by_role("button", name="Play").click()
    until(page, f"{TIMES}[0] > 0.2")
    check_text(tab)
    tab.check()
    json_["inputs"][1]["path"] = f'/gone/{HOSTILE}/#v0" data-copy="#about'
    write_report(json_, tmp_path / "copies.html", embed=lambda _: None)
    page = tab.open(tmp_path / "copies.html")
    until(page, READY)
    assert page.evaluate(COPIES) == ["data:video/mp4;"]
    assert page.get_by_text("cannot be played here").count() == 1
    page.get_by_role("button", name="Play").click()
    until(page, f"{TIMES}[0] > 0.2")
    check_text(tab)


def test_a_ranking_of_hostile_names_and_words(tmp_path: Path, tabs: Tabs) -> None:
    """The script parses the page of a pair: nothing in it may become an element, load or run."""
    caption = HOSTILE.replace("\x00", "")
    tab = tabs()
    page = tab.open(write_ladder(tmp_path, ["0.mp4", "1.mp4"], names=[HOSTILE, "b"], prompt=caption, said=HOSTILE))
    page.get_by_role("link", name=" and b").click()
    page.locator("#pair h1").wait_for()
    until(page, READY)
    assert page.locator("#pair .round").count() == 2
    check_text(tab)
    tab.check()


def test_a_ranking_and_each_of_its_pairs(ranking: Path, tabs: Tabs) -> None:
    tab = tabs()
    page = tab.open(ranking)
    assert page.locator(".ladder:visible th[scope=row] .file").all_inner_texts() == ["oak", "elm", "ash"]
    tab.check()
    cells = page.locator("[data-key=OA] .matrix tbody a").all()
    told = {cell.get_attribute("aria-label"): cell.get_attribute("class") for cell in cells}
    pairs = [("oak", "elm"), ("oak", "ash"), ("elm", "ash")]
    won = {f"{one} against {two}: 85 per cent, won": "share w1" for one, two in pairs}
    assert told == won | {f"{two} against {one}: 15 per cent, lost": "share w2" for one, two in pairs}
    page.get_by_role("radio", name="Visual quality").check()
    assert page.locator(".ladder:visible caption").inner_text() == "The ladder, Visual quality (VQ)"
    page.get_by_role("link", name="oak against ash").click()
    page.get_by_role("heading", name="Video 1 is better").wait_for()
    assert page.evaluate("document.activeElement.tagName") == "H1"
    until(page, READY)
    tab.check()
    assert page.locator(".round").count() == 4
    page.go_back()
    page.locator(".ladder:visible").wait_for()
    assert "oak against ash" in page.evaluate("document.activeElement.ariaLabel")
    page.set_viewport_size({"width": 320, "height": 800})
    rows = page.locator(".pairs tbody tr")
    page.get_by_label("Find a name").fill("ELM")
    assert rows.count() == 2
    page.get_by_role("combobox").select_option("one order only")
    assert rows.count() == 1
    rows.get_by_role("link").click()
    page.get_by_text("The other order: No verdict: it said nothing.").wait_for()
    tab.check()
    page.get_by_role("link", name="All results").click()
    assert rows.count() == 1
    tab.check()


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_many_judgements_open(tmp_path: Path, tabs: Tabs, count: int) -> None:
    judgement = judge_pair(clip_pair(tmp_path), sure())
    with Store(tmp_path / "runs.sqlite") as store:
        run = store.begin("many", kind="eval", about={"title": "Many"})
        store._connection.execute("PRAGMA synchronous = OFF")
        for number in range(count):
            run.add(Question(f"{number:064x}", f"{number + 1:064x}", f"Prompt {number}", "judge"), judgement)
        write_report(run, tmp_path / "many.html")
    assert (tmp_path / "many.html").stat().st_size < 200_000 + count * 1_500
    tab = tabs()
    page = tab.open(tmp_path / "many.html", hash=f"#/pair/{count - 1}")
    page.get_by_role("heading", name="Video 2 is better").wait_for()
    assert page.locator(".round").count() == 1
    page.get_by_role("link", name="All results").click()
    page.get_by_text(f"1 to 50 of {count} pairs").wait_for()
    assert page.evaluate("document.querySelectorAll('*').length") < 2000
    assert tab.said == []


LONG = "ComfyUI_wan2.2_fox-in-the-snow_seed-90210377_cfg6.5_steps30"
FILES = """() => [...document.querySelectorAll(".file")].filter((e) => e.checkVisibility()).map((e) => {
  const parts = e.children.length ? [...e.children] : [e];
  const [from, to] = [parts[0].getBoundingClientRect(), parts.at(-1).getBoundingClientRect()];
  return { text: e.textContent, title: e.title, level: Math.abs(from.top - to.top) < 2, height: to.height,
    line: parseFloat(getComputedStyle(e).lineHeight), right: to.right,
    cut: parts[0].scrollWidth > parts[0].clientWidth };
})"""


def test_a_long_name_loses_its_middle_and_never_breaks(tmp_path: Path, tabs: Tabs) -> None:
    names = [f"{LONG}_{number:05}_.mp4" for number in range(4)]
    report = write_ladder(tmp_path, names, names=names)
    for width in (390, 1280):
        page = tabs(width=width).open(report)
        page.locator(".finder").wait_for()
        found = page.evaluate(FILES)
        assert {name["text"] for name in found} == set(names)
        assert all(name["text"][-10:] in name["title"] for name in found)
        assert all(name["level"] and name["height"] < 1.5 * name["line"] and name["right"] <= width for name in found)
        assert any(name["cut"] for name in found)
        assert page.evaluate(SIDEWAYS) == 0
        # The end of each name, by which these clips differ, and the cells of the matrix are on a phone's screen too.
        ends = page.locator("[data-key=OA] .matrix tbody th .file span:last-child").all_inner_texts()
        assert sorted(ends) == [name[-10:] for name in names]
        for cell in page.locator("[data-key=OA] .matrix tbody tr:first-child td").all():
            box = cell.bounding_box()
            assert box["x"] + box["width"] <= width
        page.locator(".matrix a").first.click()
        page.get_by_text("Side by side").wait_for()
        assert {name["text"] for name in page.evaluate(FILES)} <= set(names)
        assert page.evaluate(SIDEWAYS) == 0


def test_reports_with_copies_play_where_their_clips_are_not(tmp_path: Path, tabs: Tabs) -> None:
    (tmp_path / "in").mkdir()
    clips = clip_pair(tmp_path / "in")
    write_report(judge_pair(clips), tmp_path / "report.html", embed=lambda _: None)
    report = Report(tmp_path / "report.html")
    assert "media-src data:;" in report.policy
    assert [place["note"] for place in report.media.values()] == ["a small copy: 112 × 84"] * 2
    assert len(report.html) < 2 * MOST_BYTES
    ladder = write_ladder(tmp_path / "in", ["oak.mp4", "elm.mp4"], names=["oak", "elm"], embed=lambda _: None)
    ladder = ladder.rename(tmp_path / "ladder.html")
    assert len(Report(ladder).copies) == 2
    shutil.rmtree(tmp_path / "in")
    tab = tabs(width=390)
    for path in (tmp_path / "report.html", ladder):
        page = tab.open(path, hash="#/pair/1" if path == ladder else "")
        until(page, "document.querySelectorAll('video').length === 2 && " + READY)
        assert page.evaluate(COPIES) == ["data:video/mp4;"] * 2
        page.get_by_role("button", name="Play").click()
        until(page, f"{TIMES}[0] > 0.3")
        tab.check()


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
                case = EvalCase(row, f"pair <{row}>", order, labels, "p", 11, key=key, clip_seconds=1.0)
                run.put(CASE, case.item, case)
            missing = "'<i>.mp4' is not there"
            case = EvalCase(2, "pair <2>", "given", {"OA": 1}, "p", 11, missing=missing)
            run.put(CASE, case.item, case)
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
        "commonest answer, all 3 pairs|66.7 (21-94)",
        "2 of 3 pairs judged, 1 failed; rows of the table left out: 1 broken;",
        "undecided in 1 pair, as the orders name opposite winners: never right",
        "pair <2> (given)|missing clip|'<i>.mp4' is not there",
    ):
        assert line in text
    assert re.search(r"^Overall\|2 of 3\|100\.0 \(34-100\)\|.*\|0\.0 / 0\.0\|100\.0 / 100\.0$", text, re.MULTILINE)
    assert re.search(r"^B first\|2 of 2\|.*\|0\.0 / 0\.0\|100\.0 / 100\.0$", text, re.MULTILINE)
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
