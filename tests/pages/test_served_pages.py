"""The pages in a real Chromium: from dropped clips to the verdict; quiet, by keyboard, on any screen."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hub_server import Hub, serving
from pages.conftest import Tab, until
from pages.example_records import HOSTILE
from pages.test_browser import CONTRAST, SIDEWAYS, UNNAMED
from web.conftest import CIRCLE, EXAMPLES, PROMPT, STAR, Served, servers, start, write_animation, write_pictures
from web.conftest import end as end_server

from vrt_lite.models import find

__all__ = ["servers"]
AXE = os.environ.get("AXE")
"""A file of axe-core (axe.min.js), if there is one: its findings are then asserted too."""
NIGHTLY = pytest.mark.nightly
SCREENS = [
    (390, "dark"),
    pytest.param(1280, "light", marks=NIGHTLY),
    pytest.param(1280, "dark", marks=NIGHTLY),
    pytest.param(390, "light", marks=NIGHTLY),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[Served]:
    """A server that has already judged what the tests look at."""
    served = start(tmp_path_factory.mktemp("site"), "--allow", EXAMPLES)
    yield served
    end_server(served)


def go(tab: Tab, served: Served, path: str) -> Any:
    tab.page.goto(served.url.rstrip("/") + path)
    until(tab.page, "'ready' in document.documentElement.dataset")
    return tab.page


def check_page(tab: Tab, served: Served) -> None:
    """Quiet, within this machine, readable, named, and no wider than the screen."""
    page = tab.page
    assert tab.said == []
    assert [url for url in tab.asked if not url.startswith((served.url, "data:", "blob:"))] == []
    assert page.evaluate(SIDEWAYS) <= 0
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(UNNAMED) == []
    if AXE:
        page.evaluate(Path(AXE).read_text(encoding="utf-8"))
        found = page.evaluate("axe.run()")["violations"]
        assert [
            (v["id"], [n["html"] for n in v["nodes"]]) for v in found if v["impact"] in ("serious", "critical")
        ] == []


def tab_to(page: Any, selector: str, *, text: str = "") -> None:
    """Press the tab key until something like that has the focus."""
    there = """([selector, text]) => {
      const focused = document.activeElement;
      return focused.matches(selector) && focused.textContent.includes(text); }"""
    for _ in range(60):
        if page.evaluate(there, [selector, text]):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"the tab key does not lead to {selector} {text}")


def compare_from_files(page: Any, prompt: str) -> None:
    page.locator("#a-file").wait_for()
    page.locator("#a-file").set_input_files(STAR)
    page.locator("#b-file").set_input_files(CIRCLE)
    page.get_by_label("Prompt", exact=True).fill(prompt)
    page.get_by_role("button", name="Compare").click()


def test_two_clips_are_compared_while_one_watches(site: Served, tabs: Callable[..., Any]) -> None:
    tab = tabs(width=1280)
    page = go(tab, site, "/")
    check_page(tab, site)
    compare_from_files(page, "A blue star moving up.")
    page.wait_for_url("**/jobs/*")
    page.get_by_role("heading", name="Round 1").wait_for()
    page.reload()
    page.get_by_role("heading", name=re.compile("Video 1 is (narrowly )?better")).wait_for(timeout=30_000)
    assert page.locator(".round").count() == 2
    assert page.evaluate("document.activeElement.tagName") == "H1"
    until(page, "[...document.querySelectorAll('video')].every(video => video.readyState >= 2)")
    page.get_by_role("button", name="Play").click()
    until(page, "document.querySelector('video').currentTime > 0.2")
    check_page(tab, site)


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_all_pages_fit_and_are_quiet(site: Served, tabs: Callable[..., Any], width: int, scheme: str) -> None:
    done = site.post("/v1/compare", a=STAR, b=CIRCLE, prompt=PROMPT)
    ranked = site.post("/v1/rank", clips=[STAR, CIRCLE], prompt=PROMPT, both_orders=False, name="two", wait=True)
    assert (done.status_code, ranked.status_code) == (200, 200), ranked.text
    jobs = [done.headers["x-job"], ranked.headers["x-job"]]
    addresses = ("/", "/rank", "/runs", "/judges", "/docs", "/run?run=two", "/run?run=two#/pair/1", "/vote?run=two")
    for path in (*addresses, *(f"/jobs/{job}" for job in jobs)):
        tab = tabs(width=width, scheme=scheme)
        go(tab, site, path)
        check_page(tab, site)


@NIGHTLY
def test_clips_are_dropped_and_chosen_by_keyboard_alone(site: Served, tabs: Callable[..., Any]) -> None:
    tab = tabs(width=1280)
    page = go(tab, site, "/")
    drop = """([name, box]) => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(10)], name, { type: "video/mp4" }));
      document.querySelector(`[data-drop=${box}]`).dispatchEvent(
        new DragEvent("drop", { dataTransfer: data, bubbles: true })); }"""
    page.evaluate(drop, ["<img src=x onerror=alert(1)>.mp4", "a"])
    assert page.locator(".chosen bdi").first.inner_text() == "<img src=x onerror=alert(1)>.mp4"
    for box, name in (("a", "star.mp4"), ("b", "circle.mp4")):
        tab_to(page, f"[data-browse={box}]")
        page.keyboard.press("Enter")
        page.get_by_role("button", name=str(EXAMPLES)).wait_for()
        page.keyboard.press("Enter")
        page.get_by_role("button", name=name).wait_for()
        tab_to(page, "#browser li button", text=name)
        page.keyboard.press("Enter")
    tab_to(page, "#prompt")
    page.keyboard.type(PROMPT)
    tab_to(page, "[type=submit]")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Video 1 is better").wait_for(timeout=30_000)
    assert page.locator("figcaption .file").all_inner_texts() == ["star.mp4", "circle.mp4"]
    check_page(tab, site)


@NIGHTLY
def test_a_ranking_is_paused_resumed_and_its_best_copied(
    servers: Callable[..., Served], tabs: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "clips"
    folder.mkdir()
    for name in ("star", "circle", "a", "b"):
        (folder / f"{name}.mp4").write_bytes((EXAMPLES / f"{name}.mp4").read_bytes())
    write_animation(STAR, folder / "star.gif")
    write_animation(CIRCLE, folder / "circle.webp")
    served, tab = servers("--allow", folder), tabs(width=1280)
    page = go(tab, served, "/rank")
    page.locator("[data-browse]").click()
    page.get_by_role("button", name=f"{folder}/").click()
    page.get_by_role("button", name="Take all clips").click()
    page.get_by_label("Prompt", exact=True).fill(PROMPT)
    page.get_by_label("Judge each pair in both orders").uncheck()
    page.get_by_role("button", name="Rank").click()
    page.wait_for_url("**/jobs/*")
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("Paused", exact=True).wait_for(timeout=30_000)
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("heading", name="Ranked").wait_for(timeout=60_000)
    assert page.locator(".ladder tbody tr").count() == 6
    check_page(tab, served)
    page.get_by_label("How many").fill("2")
    page.get_by_role("button", name="Copy the best").click()
    page.get_by_text("2 copied").wait_for()
    assert len(list((folder / "best").iterdir())) == 2
    page.get_by_role("link", name="Open the whole result").click()
    page.get_by_role("heading", name="Pair by pair, Overall").wait_for()
    page.locator(".matrix a").first.click()
    page.get_by_role("heading", name="Side by side").wait_for()
    until(page, "[...document.querySelectorAll('video')].every(video => video.readyState >= 2)")
    assert tab.said == []


def test_votes_are_blind_kept_exported_and_compared_with_the_judge(
    site: Served, tabs: Callable[..., Any], tmp_path: Path
) -> None:
    clips = [STAR, CIRCLE, str(EXAMPLES / "a.mp4"), str(EXAMPLES / "b.mp4")]
    site.post("/v1/rank", clips=clips, prompt=PROMPT, both_orders=False, name="eye", wait=True)
    tab = tabs(width=1280)
    page = go(tab, site, "/vote?run=eye")
    page.get_by_text("0 of 6 pairs").wait_for()
    assert not any(name in page.content() for name in ("star.mp4", "circle.mp4", "a.mp4"))
    check_page(tab, site)
    for number, key in enumerate("1201", start=1):
        until(page, "!document.querySelector('.ballot').hidden")
        page.keyboard.press(key)
        page.get_by_text(f"{number} of 6 pairs").wait_for()
    told = site.client.get("/v1/votes/agreement", params={"run": "eye"}).json()
    assert told["votes"] == 4
    [judge] = told["judges"]
    assert (judge["judge"], judge["of"]) == ("vrt-tiny-2", 4)
    assert judge["low"] <= judge["share"] <= judge["high"]
    table = tmp_path / "votes.csv"
    table.write_text(site.client.get("/v1/votes", params={"run": "eye"}).text, encoding="utf-8")
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert sorted(row["overall"] for row in rows if row["overall"] != "same")
    assert [row["overall"] for row in rows].count("same") == 1
    assert {row["a"] for row in rows} | {row["b"] for row in rows} == set(clips)
    check_page(tab, site)


def drop_on(page: Any, selector: str, *paths: Path) -> None:
    """Drop files and folders as a file manager does."""
    box = page.locator(selector).bounding_box()
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [*map(str, paths)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "x": box["x"] + 9, "y": box["y"] + 9, "data": data})


@NIGHTLY
def test_files_and_folders_are_dropped(site: Served, tabs: Callable[..., Any], tmp_path: Path) -> None:
    tab = tabs(width=1280)
    page = go(tab, site, "/")
    drop_on(page, "[data-drop=b]", Path(STAR), Path(CIRCLE))
    until(page, "document.querySelectorAll('.chosen bdi').length === 2")
    assert page.locator(".chosen bdi").all_inner_texts() == ["circle.mp4", "star.mp4"]
    write_pictures(STAR, tmp_path / "frames")
    (tmp_path / "frames" / "notes.txt").write_text("x")
    drop_on(page, "[data-drop=a]", tmp_path / "frames")
    page.get_by_text("48 numbered pictures").wait_for()
    page = go(tab, site, "/rank")
    drop_on(page, "[data-drop=clips]", EXAMPLES)
    until(page, "document.querySelectorAll('.chosen bdi').length === 4")
    assert sorted(page.locator(".chosen bdi").all_inner_texts()) == ["a.mp4", "b.mp4", "circle.mp4", "star.mp4"]
    check_page(tab, site)


@NIGHTLY
def test_pictures_are_chosen_and_both_orders_judged_at_a_click(
    site: Served, tabs: Callable[..., Any], tmp_path: Path
) -> None:
    pictures = write_pictures(STAR, tmp_path / "frames")
    tab = tabs(width=390)
    page = go(tab, site, "/")
    page.locator("#b-file").set_input_files([*map(str, pictures)])
    page.get_by_text(f"{len(pictures)} numbered pictures").wait_for()
    page.get_by_label("Pictures a second").fill("8")
    check_page(tab, site)
    page.locator("#a-file").set_input_files(write_animation(CIRCLE, tmp_path / "circle.gif"))
    page.get_by_label("Prompt", exact=True).fill(PROMPT)
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("heading", name="Video 2 is better").wait_for(timeout=30_000)
    until(page, "[...document.querySelectorAll('video')].every(video => video.readyState >= 2)")
    assert page.locator("video").count() == 2
    page.get_by_role("button", name="Judge the other order too").click()
    page.get_by_text("both orders").first.wait_for(timeout=30_000)
    page.get_by_role("heading", name="Video 2 is better").wait_for()
    assert page.get_by_role("button", name="Judge the other order too").count() == 0
    check_page(tab, site)


@NIGHTLY
def test_a_judge_is_pulled_with_progress_stopped_and_used(
    servers: Callable[..., Served], tabs: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = find("vrt-tiny-0")
    files = {path.name: path.read_bytes() for path in (small.text, small.projector)}
    listed = {"config.json": {"size": 2}, "model.safetensors": {"size": 10**10}}
    for name in ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "HF_HUB_DISABLE_XET"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(Hub(files, repository="qunwang13/vr-thinker", listed=listed, seconds_per_chunk=0.02)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        served, tab = servers("--allow", EXAMPLES), tabs(width=390)
        page = go(tab, served, "/judges")
        page.locator("[data-pull=vr-thinker-7b]").click()
        until(page, "document.querySelector('progress').value > 0.1 && document.querySelector('progress').value < 1")
        check_page(tab, served)
        page.get_by_role("button", name="Stop").click()
        page.get_by_text("Cancelled", exact=True).wait_for()
        sent = sum(hub.sent.values())
        page.locator("[data-pull=vr-thinker-7b]").click()
        page.locator("tr", has_text="vr-thinker-7b").get_by_text("here", exact=True).wait_for(timeout=60_000)
        assert sum(hub.sent.values()) < sent + sum(map(len, files.values())), "what had arrived was kept"
        check_page(tab, served)
    page = go(tab, served, "/")
    page.get_by_label("Judge", exact=True).select_option("vr-thinker-7b")


@NIGHTLY
def test_a_comparison_is_cancelled(site: Served, tabs: Callable[..., Any]) -> None:
    tab = tabs(width=390)
    page = go(tab, site, "/")
    busy = [
        site.post("/v1/compare", a=STAR, b=CIRCLE, prompt=f"Before {n}.", wait=False).json()["id"] for n in range(4)
    ]
    compare_from_files(page, "A star that nobody waits for.")
    page.wait_for_url("**/jobs/*")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("heading", name="Cancelled").wait_for()
    check_page(tab, site)
    for job in busy:
        site.client.delete(f"/v1/jobs/{job}")
        site.until(job, "done", "cancelled")


@NIGHTLY
def test_whatever_is_said_stays_text(site: Served, tabs: Callable[..., Any]) -> None:
    caption = HOSTILE.replace("\x00", "")
    done = site.post("/v1/compare", a=STAR, b=CIRCLE, prompt=caption)
    ranked = site.post("/v1/rank", clips=[STAR, CIRCLE], prompt=caption, both_orders=False, name=caption, wait=True)
    run = urlencode({"run": ranked.json()["run"]})
    paths = [f"/jobs/{answer.headers['x-job']}" for answer in (done, ranked)]
    for path in (
        *paths,
        "/runs",
        f"/run?{run}",
        f"/run?{run}#/pair/1",
        f"/vote?{run}",
        f"/runs?search={quote(caption)}",
    ):
        tab = tabs(width=1280)
        page = go(tab, site, path)
        page.wait_for_timeout(500)
        assert "alert(1)" in page.locator("body").inner_text() or "search=" in path or path in paths
        assert page.evaluate("document.querySelectorAll('img[src=x]').length") == 0
        assert tab.said == []
