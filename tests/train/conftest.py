"""Fixtures for several tests of training: a trained judge, trained once, and a single thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of `taught_judge`."""
    pytest.importorskip("torch")
    from taught_judge import teach

    return teach(tmp_path_factory.mktemp("taught"))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums are split among threads: two runs are equal to the bit only with the same number of them."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new model that reads the pairs of `coloured`."""
    pytest.importorskip("torch")
    from coloured import PROFILE, SHAPE, cases
    from small_checkpoint import write_checkpoint

    from train.tiny.restoring import NewModelShape

    return write_checkpoint(tmp_path_factory.mktemp("new") / "start", NewModelShape(**SHAPE), PROFILE, cases(4))
