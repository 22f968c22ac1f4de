"""A real browser for the tests that look at a page in one: the machine's own Chromium; none is downloaded."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
AXE = os.environ.get("AXE")
"""A file of axe-core (axe.min.js), if there is one: its findings are then asserted too."""
BROKEN = "[...document.images].filter(image => !image.complete || image.naturalWidth < 2).map(image => image.alt)"
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
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
  const compare = (name, front, back, least) => {
    const a = light(parse(front)), b = light(back), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least) bad.push([name, ratio]); };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest("script, style, option")) continue;
    const style = getComputedStyle(e), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    compare(e.textContent.slice(0, 40), style.color, behind(e), large ? 3 : 4.5);
  }
  for (const e of document.querySelectorAll(".odds .tie")) compare("a bar", getComputedStyle(e).fill, behind(e), 3);
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
  const ids = [...each("[id]")].map((e) => e.id);
  if (new Set(ids).size !== ids.length) bad.push("an id twice");
  if ([...each("h1")].filter(seen).length !== 1) bad.push("not one h1");
  let before = 0;
  for (const e of [...each("h1, h2, h3, h4, h5")].filter(seen)) {
    const level = Number(e.tagName[1]);
    if (level > before + 1) bad.push(`${e.tagName} ${e.textContent} after h${before}`);
    before = level;
  }
  for (const name of ["header", "main", "footer"]) if (!document.querySelector(name)) bad.push(`no ${name}`);
  if (!document.documentElement.lang || !document.title) bad.push("no language or title");
  return bad; }"""


@dataclass
class Tab:
    """A page that is open, and all that it said and asked for."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def open(self, place: str | Path, *, hash: str = "") -> Any:  # noqa: A002
        self.page.goto((place.as_uri() if isinstance(place, Path) else place) + hash)
        until(self.page, "'ready' in document.documentElement.dataset")
        return self.page

    def check(self, *own: str) -> None:
        """Nothing on the console, nothing fetched but from there; whole, readable, named, no wider than the screen."""
        assert self.said == []
        assert [url for url in self.asked if not url.startswith(("data:", *(own or ("file:",))))] == []
        if not own:  # a server's pages load pictures when they come into sight
            until(self.page, f"{BROKEN}.length === 0")
        assert self.page.evaluate(SIDEWAYS) <= 0
        assert self.page.evaluate(CONTRAST) == []
        assert self.page.evaluate(UNNAMED) == []
        if AXE:
            self.page.evaluate(Path(AXE).read_text(encoding="utf-8"))
            found = self.page.evaluate("axe.run()")["violations"]
            found = [violation for violation in found if violation["impact"] in ("serious", "critical")]
            assert [(violation["id"], [node["html"] for node in violation["nodes"]]) for violation in found] == []


Tabs = Callable[..., Tab]


def until(page: Any, truth: str) -> None:
    """Wait until an expression is true. (Playwright's own way evaluates text in the page, which its policy forbids.)"""
    end = time.monotonic() + 20
    while not page.evaluate(truth):
        assert time.monotonic() < end, truth
        page.wait_for_timeout(20)


@pytest.fixture(scope="session", autouse=True)
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What fixtures that several tests share keep."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VRT_LITE_HOME", str(tmp_path_factory.mktemp("shared")))
        yield


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        pytest.skip("there is no Chromium here; put one there (apt-get install chromium), or name it: CHROMIUM=PATH")
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; it is in the extra `test`")
    with sync.sync_playwright() as driver:
        # Chromium refuses its own sandbox to root, as in most containers.
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def tabs(chromium: Any) -> Iterator[Tabs]:
    """Opens tabs; `width` in pixels, `scheme` light or dark."""
    contexts: list[Any] = []

    def new(*, width: int = 1200, scheme: str = "light", **options: Any) -> Tab:
        context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, **options)
        contexts.append(context)
        tab = Tab(context.new_page())
        tab.page.on("console", lambda message: tab.said.append(message.text))
        tab.page.on("pageerror", lambda error: tab.said.append(str(error)))
        tab.page.on("dialog", lambda dialog: (tab.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        tab.page.on("request", lambda request: tab.asked.append(request.url))
        return tab

    yield new
    for context in contexts:
        context.close()
