"""A store and a run in it, for all tests of runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vrt_lite.runs.store import Run, Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "runs.sqlite") as opened:
        yield opened


@pytest.fixture
def run(store: Store) -> Run:
    return store.begin("r", kind="rank", about={"prompt": "A fox runs."})
