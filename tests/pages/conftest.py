"""A real browser for the tests that look at a page in one: the machine's own Chromium; none is downloaded."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@dataclass
class Tab:
    """A page that is open, and all that it said and asked for."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def open(self, path: Path, *, hash: str = "") -> Any:  # noqa: A002
        self.page.goto(path.as_uri() + hash)
        until(self.page, "'ready' in document.documentElement.dataset")
        return self.page

    def check_quiet(self) -> None:
        """Nothing on the console, and nothing fetched but files and data."""
        assert self.said == []
        assert [url for url in self.asked if not url.startswith(("file:", "data:"))] == []


def until(page: Any, truth: str) -> None:
    """Wait until an expression is true. (Playwright's own way evaluates text in the page, which its policy forbids.)"""
    end = time.monotonic() + 20
    while not page.evaluate(truth):
        assert time.monotonic() < end, truth
        page.wait_for_timeout(20)


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
def tabs(chromium: Any) -> Iterator[Any]:
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
