"""Every test here needs a device that the engine uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vrt_lite.backends import has_gpu


@pytest.fixture(autouse=True, scope="session")
def device() -> None:
    if not has_gpu():
        pytest.skip("the engine has no GPU to use")


@pytest.fixture(scope="session")
def write(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Writes a line at once, although pytest captures output: a run that is cut off still shows what it measured."""
    capture: Any = request.config.pluginmanager.getplugin("capturemanager")

    def write_line(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n  {line}", flush=True)

    return write_line
