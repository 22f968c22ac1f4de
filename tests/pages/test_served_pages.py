"""The pages in a real Chromium: from dropped clips to the verdict; quiet, by keyboard, on any screen."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from pages.conftest import READY, Tabs, until
from pages.example_records import HOSTILE
from web.conftest import (
    CIRCLE,
    EXAMPLES,
    PROMPT,
    SMALL,
    STAR,
    A,
    B,
    Served,
    Servers,
    servers,
    start,
    write_animation,
    write_pictures,
)
from web.conftest import end as end_server

from vrt_lite.machine import format_bytes
from vrt_lite.model_list import list_models

__all__ = ["servers"]
NIGHTLY = pytest.mark.nightly
Visit = Callable[..., tuple[Any, Callable[[], None]]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = start(tmp_path_factory.mktemp("site"), "--allow", EXAMPLES)
    yield served
    end_server(served)


@pytest.fixture
def visit(tabs: Tabs, served: Served) -> Visit:
    """Opens a page of the server in a new tab; returns the page, and what checks it."""

    def go(path: str, *, of: Served = served, **look: Any) -> tuple[Any, Callable[[], None]]:
        tab = tabs(**look)
        return tab.open(of.url.rstrip("/") + path), lambda: tab.check(of.url, "blob:")

    return go


def compare_files(page: Any, prompt: str, a: Any, b: Any) -> None:
    page.locator("#a-file").set_input_files(a)
    page.locator("#b-file").set_input_files(b)
    page.get_by_label("Prompt", exact=True).fill(prompt)
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/jobs/*")


def test_two_clips_are_compared_while_one_watches(visit: Visit) -> None:
    page, check = visit("/", width=1280)
    check()
    compare_files(page, "A blue star moving up.", STAR, CIRCLE)
    page.get_by_role("heading", name="Round 1").wait_for()
    page.reload()
    page.get_by_role("heading", name=re.compile("Video 1 is (narrowly )?better")).wait_for(timeout=30_000)
    assert page.locator(".round").count() == 2
    assert page.evaluate("document.activeElement.tagName") == "H1"
    until(page, READY)
    page.get_by_role("button", name="Play").click()
    until(page, "document.querySelector('video').currentTime > 0.2")
    check()


def test_all_pages_fit_and_are_quiet_and_whatever_is_said_stays_text(served: Served, tabs: Tabs) -> None:
    caption = HOSTILE.replace("\x00", "")
    ranked = served.rank(STAR, CIRCLE, prompt=caption, name=caption)
    jobs = [f"jobs/{answer.headers['x-job']}" for answer in (served.compare(caption), ranked)]
    run = urlencode({"run": ranked.json()["run"]})
    runs = [f"run?{run}", f"run?{run}#/pair/1", f"vote?{run}", "runs"]
    tab = tabs()
    for path in ("", "rank", "judges", "docs", f"runs?search={quote(caption)}", *jobs, *runs):
        page = tab.open(served.url + path)
        if path in runs:
            until(page, "document.body.innerText.includes('alert(1)')")
        until(page, READY)
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            for scheme in ("dark", "light"):
                page.emulate_media(color_scheme=scheme)
                tab.check(served.url)
        assert page.locator("img[src=x]").count() == 0


def test_sizes_are_those_that_the_terminal_shows(visit: Visit) -> None:
    page, _ = visit("/judges", width=1280)
    page.get_by_text("vrt-tiny-2").wait_for()
    shown = page.locator("td[data-name='On disk']").all_inner_texts()
    assert [size.replace("\u00a0", " ") for size in shown] == [format_bytes(of.disk_bytes) for of in list_models()]
    page, _ = visit("/", width=1280)
    page.locator("#a-file").set_input_files(STAR)
    page.get_by_text(f", {math.ceil(Path(STAR).stat().st_size / 1000)} kB").wait_for()


def test_votes_are_blind_and_kept(served: Served, visit: Visit) -> None:
    served.rank(STAR, CIRCLE, A, prompt=PROMPT, name="eye", options={"rounds": 1, **SMALL})
    page, check = visit("/vote?run=eye", width=1280)
    page.get_by_text("0 of 3 pairs").wait_for()
    assert not any(name in page.content() for name in ("star.mp4", "circle.mp4", "a.mp4"))
    check()
    for number, key in enumerate("10", start=1):
        until(page, "!document.querySelector('.ballot').hidden")
        page.keyboard.press(key)
        page.get_by_text(f"{number} of 3 pairs").wait_for()
    check()
    page.set_viewport_size({"width": 340, "height": 800})
    check()
    rows = csv.DictReader(served.client.get("/v1/votes", params={"run": "eye"}).text.splitlines())
    assert [row["overall"] == "same" for row in rows] == [False, True]


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


@NIGHTLY
def test_clips_are_chosen_by_keyboard_alone(visit: Visit) -> None:
    page, check = visit("/", width=1280)
    for box, name in (("a", "star.mp4"), ("b", "circle.mp4")):
        tab_to(page, f"[data-browse={box}]")
        page.keyboard.press("Enter")
        tab_to(page, "#browser li button", text=str(EXAMPLES))
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
    check()


@NIGHTLY
def test_a_folder_is_ranked_and_its_result_opened(servers: Servers, visit: Visit, tmp_path: Path) -> None:
    folder = tmp_path / "clips"
    folder.mkdir()
    for path in (STAR, CIRCLE, A, B):
        (folder / Path(path).name).write_bytes(Path(path).read_bytes())
    write_animation(STAR, folder / "star.gif")
    write_animation(CIRCLE, folder / "circle.webp")
    page, check = visit("/rank", of=servers("--allow", folder), width=1280)
    page.locator("[data-browse]").click()
    page.get_by_role("button", name=f"{folder}/").click()
    page.get_by_role("button", name="Take all clips").click()
    page.get_by_label("Prompt", exact=True).fill(PROMPT)
    page.get_by_label("Judge each pair in both orders").uncheck()
    page.get_by_role("button", name="Rank").click()
    page.wait_for_url("**/jobs/*")
    page.get_by_role("heading", name="Ranked").wait_for(timeout=60_000)
    assert page.locator(".ladder tbody tr").count() == 6
    assert page.locator(".how").first.inner_text().strip() == "Done"
    check()
    page.get_by_role("link", name="Open the whole result").click()
    page.get_by_role("heading", name="Pair by pair, Overall").wait_for()
    page.locator(".matrix a").first.click()
    page.get_by_role("heading", name="Side by side").wait_for()
    until(page, READY)
    check()


def drop_on(page: Any, selector: str, *paths: Path) -> None:
    """Drop files and folders as a file manager does."""
    box = page.locator(selector).bounding_box()
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [*map(str, paths)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "x": box["x"] + 9, "y": box["y"] + 9, "data": data})


@NIGHTLY
def test_files_and_folders_are_dropped_and_both_orders_judged_at_a_click(visit: Visit, tmp_path: Path) -> None:
    page, check = visit("/", width=390)
    write_pictures(STAR, tmp_path / "frames")
    (tmp_path / "frames" / "notes.txt").write_text("x")
    hostile = write_animation(CIRCLE, tmp_path / "<img src=x onerror=alert(1)>.gif")
    drop_on(page, "[data-drop=b]", hostile, Path(STAR))
    until(page, "document.querySelectorAll('.chosen bdi').length === 2")
    assert sorted(page.locator(".chosen bdi").all_inner_texts()) == [hostile.name, "star.mp4"]
    drop_on(page, "[data-drop=a]", tmp_path / "frames")
    page.get_by_text("48 numbered pictures").wait_for()
    page.get_by_label("Pictures a second").fill("8")
    check()
    page.locator("#b-file").set_input_files(hostile)
    page.get_by_label("Prompt", exact=True).fill(PROMPT)
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("heading", name="Video 1 is better").wait_for(timeout=30_000)
    until(page, "document.querySelectorAll('video').length === 2 && " + READY)
    page.get_by_role("button", name="Judge the other order too").click()
    page.get_by_text("both orders").first.wait_for(timeout=30_000)
    page.get_by_role("heading", name="Video 1 is better").wait_for()
    assert page.get_by_role("button", name="Judge the other order too").count() == 0
    check()
    page, check = visit("/rank", width=1280)
    drop_on(page, "[data-drop=clips]", EXAMPLES)
    until(page, "document.querySelectorAll('.chosen bdi').length === 4")
    assert sorted(page.locator(".chosen bdi").all_inner_texts()) == ["a.mp4", "b.mp4", "circle.mp4", "star.mp4"]
    check()


@NIGHTLY
def test_a_comparison_is_cancelled(served: Served, visit: Visit) -> None:
    page, check = visit("/", width=390)
    busy = [served.begin(f"Before {n}.") for n in range(4)]
    compare_files(page, "A star that nobody waits for.", STAR, CIRCLE)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("heading", name="Cancelled").wait_for()
    check()
    served.cancel(*busy)
