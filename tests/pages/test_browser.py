"""Reports in a real browser: quiet, offline, whole, in step, by keyboard, on any screen; what is said stays text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from clips import write_clip
from judgements import call, sure, with_odds
from pages.conftest import until
from pages.example_records import HOSTILE, clip_pair, hostile_reply, judge_pair, judged

from vrt_lite.errors import NoVerdictError
from vrt_lite.records.pairs import Question
from vrt_lite.runs.store import Run, Store
from vrt_lite.settings import Settings
from vrt_lite.viewer import write_report

BROKEN = "[...document.images].filter(image => !image.complete || image.naturalWidth < 2).map(image => image.alt)"
PICTURES = "document.images.length"
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
TIMES = "[...document.querySelectorAll('video')].map(video => video.currentTime)"
READY = "[...document.querySelectorAll('video')].every(video => video.readyState >= 2)"
# The contrast of each text with what is behind it, those below 4.5 (3 for large ones), by the rules of WCAG.
CONTRAST = """() => {
  const parse = (c) => {
    const [r, g, b, a = 1] = c.match(/[\\d.]+/g).map(Number), one = c.startsWith("color(") ? 255 : 1;
    return [one * r, one * g, one * b, a]; };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
  const behind = (e) => {
    for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3]) return c; } };
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest("script, style, option")) continue;
    const style = getComputedStyle(e), a = light(parse(style.color)), b = light(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) bad.push([e.textContent.slice(0, 40), ratio]);
  }
  return bad; }"""
# What a person who cannot see the page needs: names, alternatives, headings in order, landmarks, scopes, unique ids.
UNNAMED = """() => {
  const bad = [], seen = (e) => e.checkVisibility(), each = (s) => document.querySelectorAll(s);
  for (const e of each("img")) if (!e.alt) bad.push("img without alt");
  for (const e of each("input, select")) if (!e.labels.length && !e.ariaLabel) bad.push(e.outerHTML);
  for (const e of each("button, a")) if (!(e.ariaLabel || e.textContent.trim())) bad.push(e.outerHTML);
  for (const e of each("svg")) if (!e.ariaHidden && !e.ariaLabel) bad.push("svg without a name");
  for (const e of each("video")) if (!e.ariaLabel) bad.push("video without a name");
  for (const e of each("th")) if (!e.scope) bad.push(`th without scope: ${e.textContent}`);
  for (const e of each(".preferences, .ladder, .matrix")) if (!e.caption) bad.push("no caption");
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size !== ids.length) bad.push("an id twice");
  if ([...document.querySelectorAll("h1")].filter(seen).length !== 1) bad.push("not one h1");
  let before = 0;
  for (const e of [...document.querySelectorAll("h1, h2, h3, h4, h5")].filter(seen)) {
    const level = Number(e.tagName[1]);
    if (level > before + 1) bad.push(`${e.tagName} ${e.textContent} after h${before}`);
    before = level;
  }
  for (const name of ["header", "main", "footer"]) if (!document.querySelector(name)) bad.push(`no ${name}`);
  if (!document.documentElement.lang || !document.title) bad.push("no language or title");
  return bad; }"""


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A report of two rounds in both orders, beside its clips."""
    settings = Settings(both_orders=True)
    final = "<snapshot>Sharp.</snapshot><think>Enough.</think><final answer>TA=0, VQ=2, MQ=1, OA=2</final answer>"
    clips = clip_pair(tmp_path)
    json_ = judged(clips, call(9, 10, 57), final, call(9, 57), final, settings=settings)
    write_report(json_, tmp_path / "report.html")
    return tmp_path / "report.html"


def fill(store: Store, clips: list[Path], *, prompt: str = "A fox.", names: list[str] | None = None) -> Run:
    """A ranking in which an earlier clip always wins, shown first or not; one order of one pair has no verdict."""
    digests = [store.digest(clip) for clip in clips]
    told = [
        {"name": name, "path": str(clip), "sha256": digest}
        for name, clip, digest in zip(names or [clip.stem for clip in clips], clips, digests, strict=True)
    ]
    run = store.begin("ladder", kind="rank", about={"groups": [{"name": "", "prompt": prompt, "clips": told}]})
    for i, j in permutations(range(len(clips)), 2):
        winner = 1 if i < j else 2
        text = (
            f"<snapshot>S</snapshot><think>T</think><final answer>TA=0, VQ={winner}, MQ=0, OA={winner}</final answer>"
        )
        odds = (0.1, 0.8, 0.1) if winner == 1 else (0.1, 0.1, 0.8)
        tie = (0.8, 0.1, 0.1)
        question = Question(digests[i], digests[j], prompt, "judge")
        if (i, j) == (1, 0):
            run.add_failure(question, NoVerdictError("No verdict: it said nothing."))
        else:
            reply = with_odds(text, tie, odds, tie, odds)
            run.add(question, judge_pair([clips[i], clips[j]], call(9, 57), reply, prompt=prompt))
    return run


@pytest.fixture
def ranking(tmp_path: Path) -> Path:
    clips = [
        write_clip(tmp_path / f"{n}.mp4", frames=30 + i, size=(112, 84)) for i, n in enumerate(("oak", "elm", "ash"))
    ]
    with Store(tmp_path / "runs.sqlite") as store:
        write_report(fill(store, clips), tmp_path / "ladder.html")
    return tmp_path / "ladder.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 320])
def test_a_pair_is_quiet_whole_and_fits(pair: Path, tabs: Callable[..., Any], width: int, scheme: str) -> None:
    tab = tabs(width=width, scheme=scheme)
    page = tab.open(pair)
    until(page, READY)
    assert page.evaluate(PICTURES) == 8 + 3 + 8 + 2
    assert page.evaluate(BROKEN) == []
    assert page.evaluate(SIDEWAYS) == 0
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(UNNAMED) == []
    tab.check_quiet()


def test_without_a_script_there_is_the_table(pair: Path, tabs: Callable[..., Any]) -> None:
    tab = tabs(java_script_enabled=False)
    tab.page.goto(pair.as_uri())
    assert tab.page.locator("caption").inner_text() == "Undecided. Video 1: a.mp4. Video 2: b.mp4."
    assert tab.page.locator("tr").count() == 5
    tab.check_quiet()


def test_both_clips_play_in_step_and_the_shorter_waits_for_the_longer(pair: Path, tabs: Callable[..., Any]) -> None:
    tab = tabs()
    page = tab.open(pair)
    until(page, READY)
    page.get_by_role("button", name="Play").click()
    until(page, f"{TIMES}[1] > 1")
    a, b = page.evaluate(TIMES)
    assert abs(a - b) < 0.25
    page.get_by_label("Loop").uncheck()
    page.get_by_label("Speed").select_option("2")
    until(page, "[...document.querySelectorAll('video')][1].ended")
    until(page, "document.querySelector('.play').textContent === 'Play'")
    a, b = page.evaluate(TIMES)
    assert abs(a - 3) < 0.1
    assert abs(b - 4) < 0.1
    tab.check_quiet()


def test_keys_step_frames_in_both(pair: Path, tabs: Callable[..., Any]) -> None:
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


def test_the_first_key_leads_to_the_verdict(pair: Path, tabs: Callable[..., Any]) -> None:
    page = tabs().open(pair)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    page.get_by_text("Settings", exact=True).focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("cell", name="Temporal Alignment (TA)").is_visible()


def test_clips_that_went_away_are_said_to_be(pair: Path, tabs: Callable[..., Any]) -> None:
    (pair.parent / "a.mp4").unlink()
    page = tabs().open(pair)
    page.get_by_text("a.mp4 cannot be played").wait_for()
    assert page.locator("video").count() == 1
    assert page.evaluate(BROKEN) == []
    until(page, READY)
    page.get_by_role("button", name="Play").click()
    until(page, f"{TIMES}[0] > 0.3")


@pytest.mark.skipif(sys.platform == "win32", reason="no file can have such a name there")
def test_whatever_is_said_stays_text(tmp_path: Path, tabs: Callable[..., Any]) -> None:
    name = '<img src=x onerror=alert(3)>\u202e&".mp4'
    clips = clip_pair(tmp_path, (name, "javascript:alert(4).mp4"))
    json_ = judged(clips, hostile_reply(), prompt=HOSTILE.replace("\x00", ""))
    json_["warnings"].append(HOSTILE)
    json_["model"]["name"] = HOSTILE
    json_["settings"]["dimensions"]["TA"]["name"] = HOSTILE
    json_["orders"][0]["rounds"][0]["call"] = HOSTILE
    json_["orders"][0]["rounds"][0]["correction"] = HOSTILE
    write_report(json.loads(json.dumps(json_)), tmp_path / "report.html")
    tab = tabs()
    page = tab.open(tmp_path / "report.html")
    until(page, READY)
    page.get_by_role("button", name="Play").click()
    until(page, f"{TIMES}[0] > 0.2")
    assert page.locator("script[type=module]").count() == 1
    assert page.evaluate(BROKEN) == []
    assert page.evaluate("[...document.images].some(image => image.getAttribute('onerror'))") is False
    shown = page.locator("main").inner_text()
    assert "<script>alert(1)</script></script></final answer>\"><img src=x onerror=alert(2)>'&amp;" in shown
    assert "\\u202eevil\\u2066\\u2028" in shown
    for character in "\u202e\u2066\u2028\x00\x1b":
        assert character not in page.content()
    tab.check_quiet()


def test_a_ranking_and_each_of_its_pairs(ranking: Path, tabs: Callable[..., Any]) -> None:
    tab = tabs()
    page = tab.open(ranking)
    assert page.locator(".ladder:visible th[scope=row] .file").all_inner_texts() == ["oak", "elm", "ash"]
    assert page.evaluate(BROKEN) == []
    assert page.evaluate(UNNAMED) == []
    assert page.evaluate(CONTRAST) == []
    page.get_by_role("radio", name="Visual quality").check()
    assert page.locator(".ladder:visible caption").inner_text() == "The ladder, Visual quality (VQ)"
    page.get_by_role("link", name="oak against ash").click()
    page.get_by_role("heading", name="Video 1 is better").wait_for()
    assert page.evaluate("document.activeElement.tagName") == "H1"
    until(page, READY)
    assert page.evaluate(BROKEN) == []
    assert page.evaluate(UNNAMED) == []
    assert page.locator(".round").count() == 4
    page.go_back()
    page.locator(".ladder:visible").wait_for()
    assert "oak against ash" in page.evaluate("document.activeElement.ariaLabel")
    tab.check_quiet()


def test_pairs_are_found_by_name_and_by_what_became_of_them(ranking: Path, tabs: Callable[..., Any]) -> None:
    page = tabs(width=320).open(ranking)
    rows = page.locator(".pairs tbody tr")
    page.get_by_label("Find a name").fill("ELM")
    assert rows.count() == 2
    page.get_by_role("combobox").select_option("one order only")
    assert rows.count() == 1
    rows.get_by_role("link").click()
    page.get_by_text("The other order: No verdict: it said nothing.").wait_for()
    assert page.evaluate(SIDEWAYS) == 0
    page.get_by_role("link", name="All results").click()
    assert rows.count() == 1
    assert page.evaluate(SIDEWAYS) == 0


def test_a_ranking_of_hostile_names(tmp_path: Path, tabs: Callable[..., Any]) -> None:
    clips = [write_clip(tmp_path / f"{n}.mp4", frames=20 + n, size=(56, 56)) for n in range(2)]
    with Store(tmp_path / "runs.sqlite") as store:
        run = fill(store, clips, prompt=HOSTILE, names=[HOSTILE, "b"])
        write_report(run, tmp_path / "r.html")
    tab = tabs()
    page = tab.open(tmp_path / "r.html")
    page.get_by_role("link", name=" and b").click()
    page.locator("#pair h1").wait_for()
    until(page, READY)
    for character in "\u202e\u2066\u2028\x00\x1b":
        assert character not in page.content()
    tab.check_quiet()


@pytest.mark.skipif(sys.platform == "win32", reason="no file can have such a name there")
def test_what_is_said_of_a_pair_in_a_run_stays_text(tmp_path: Path, tabs: Callable[..., Any]) -> None:
    """The script parses the page of such a pair: nothing in it may become an element, load or run."""
    clips = clip_pair(tmp_path, ('<img src=x onerror=alert(3)>\u202e&".mp4', "b.mp4"))
    judgement = judge_pair(clips, hostile_reply(), prompt=HOSTILE.replace("\x00", ""))
    with Store(tmp_path / "runs.sqlite") as store:
        run = store.begin("hostile", kind="rank", about={})
        run.add(Question(judgement.inputs[0].sha256, judgement.inputs[1].sha256, HOSTILE, "judge"), judgement)
        write_report(run, tmp_path / "r.html")
    tab = tabs()
    page = tab.open(tmp_path / "r.html", hash="#/pair/1")
    page.locator("#pair h1").wait_for()
    until(page, READY)
    assert page.locator("#pair .round").count() == 1
    assert page.locator("#pair script, #pair [onerror], #pair img[src=x]").count() == 0
    assert page.evaluate(BROKEN) == []
    shown = page.locator("#pair").inner_text()
    assert "<script>alert(1)</script></script></final answer>\"><img src=x onerror=alert(2)>'&amp;" in shown
    assert "\\u202eevil\\u2066\\u2028" in shown
    for character in "\u202e\u2066\u2028\x00\x1b":
        assert character not in page.content()
    tab.check_quiet()


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_many_judgements_open(tmp_path: Path, tabs: Callable[..., Any], count: int) -> None:
    judgement = judge_pair(clip_pair(tmp_path), sure())
    with Store(tmp_path / "runs.sqlite") as store:
        run = store.begin("many", kind="eval", about={"title": "Many"})
        store._database._connection.execute("PRAGMA synchronous = OFF")
        for number in range(count):
            run.add(Question(f"{number:064x}", f"{number + 1:064x}", f"Prompt {number}", "judge"), judgement)
        write_report(run, tmp_path / "many.html")
    assert (tmp_path / "many.html").stat().st_size < count * 1_600
    tab = tabs()
    page = tab.open(tmp_path / "many.html", hash=f"#/pair/{count - 1}")
    page.get_by_role("heading", name="Video 2 is better").wait_for()
    assert page.locator(".round").count() == 1
    page.get_by_role("link", name="All results").click()
    page.get_by_text(f"1 to 50 of {count} pairs").wait_for()
    assert page.evaluate("document.querySelectorAll('*').length") < 2000
    tab.check_quiet()


LONG = "ComfyUI_wan2.2_fox-in-the-snow_seed-90210377_cfg6.5_steps30"
NAMES = """() => [...document.querySelectorAll(".file")].filter((e) => e.checkVisibility()).map((e) => {
  const parts = e.children.length ? [...e.children] : [e];
  const [from, to] = [parts[0].getBoundingClientRect(), parts.at(-1).getBoundingClientRect()];
  return { text: e.textContent, title: e.title, level: Math.abs(from.top - to.top) < 2, height: to.height,
    line: parseFloat(getComputedStyle(e).lineHeight), right: to.right,
    cut: parts[0].scrollWidth > parts[0].clientWidth };
})"""


def test_a_long_name_loses_its_middle_and_never_breaks(tmp_path: Path, tabs: Callable[..., Any]) -> None:
    names = [f"{LONG}_{number:05}_.mp4" for number in range(5)]
    clips = [write_clip(tmp_path / name, frames=30 + i, size=(112, 84)) for i, name in enumerate(names)]
    with Store(tmp_path / "runs.sqlite") as store:
        write_report(fill(store, clips, names=names), tmp_path / "ladder.html")
    for width in (390, 1280):
        tab = tabs(width=width)
        page = tab.open(tmp_path / "ladder.html")
        page.locator(".finder").wait_for()
        found = page.evaluate(NAMES)
        assert {name["text"] for name in found} == set(names)
        assert all(name["text"][-10:] in name["title"] for name in found)
        assert all(name["level"] and name["height"] < 1.5 * name["line"] and name["right"] <= width for name in found)
        assert any(name["cut"] for name in found)
        assert page.evaluate(SIDEWAYS) == 0
        # The end of each name, by which these clips differ, and the cells of the matrix are on a phone's screen too.
        ends = page.locator("[data-key=OA] .matrix tbody th .file span:last-child").all_inner_texts()
        assert sorted(ends) == [f"{number:05}_.mp4"[-10:] for number in range(5)]
        cells = page.locator("[data-key=OA] .matrix tbody tr:first-child td")
        boxes = [cells.nth(number).bounding_box() for number in range(5)]
        assert all(box["x"] + box["width"] <= width for box in boxes)
        page.locator(".matrix a").first.click()
        page.get_by_text("Side by side").wait_for()
        assert {name["text"] for name in page.evaluate(NAMES)} <= set(names)
        assert page.evaluate(SIDEWAYS) == 0
        tab.check_quiet()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_bar_of_a_tie_can_be_seen(pair: Path, tabs: Callable[..., Any], scheme: str) -> None:
    tie = with_odds("<think>T</think><final answer>TA=0, VQ=2, MQ=1, OA=0</final answer>", *[(0.9, 0.05, 0.05)] * 4)
    write_report(judged(clip_pair(pair.parent), call(9), tie), pair)
    page = tabs(scheme=scheme).open(pair)
    [fill_, paper] = page.evaluate(
        "['.odds .tie', 'body'].map((which, at) => getComputedStyle(document.querySelector(which))[at ? "
        "'backgroundColor' : 'fill'].match(/\\d+/g).map(Number))"
    )

    def light(colour: list[int]) -> float:
        linear = [(v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4) for v in (c / 255 for c in colour)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05

    assert max(light(fill_), light(paper)) / min(light(fill_), light(paper)) >= 3  # as WCAG asks of a drawing
    assert page.locator(".odds .tie").first.bounding_box()["width"] > 100
