"""What every test gets: a folder of its own for all that is kept, and none of the user's settings and keys."""

from __future__ import annotations

import gc
import itertools
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from vrt_lite.stored_settings import KEYS


def pytest_configure() -> None:
    """Listen to interrupts, and let every child: a shell starts what it puts in the background deaf to them.

    Collecting the tests makes many objects, none of them garbage: until it ends, Python's garbage collector is off.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage from now on, but look no more at what collecting the tests has made: it stays to the end."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests of the server, which wait much: by name they come last, when other workers have ended."""
    items.sort(key=lambda item: item.path.parent.name != "web")


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names of folders. To find each, `mktemp` would go through the folders of all tests before."""
    parent = tmp_path_factory.mktemp("homes")
    return (parent / f"{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def own_home(homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    home = next(homes)
    home.mkdir()
    monkeypatch.setenv("VRT_LITE_HOME", str(home))
    for name in (*(key.variable for key in KEYS.values()), "VRT_LITE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return home
