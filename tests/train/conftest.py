"""Fixtures for several tests of training: a judge that is trained once, and a new model."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of `taught_judge`."""
    pytest.importorskip("torch")
    from taught_judge import teach

    return teach(tmp_path_factory.mktemp("taught"))


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new model that reads the pairs of `coloured`."""
    pytest.importorskip("torch")
    from coloured import PROFILE, SHAPE, cases
    from small_checkpoint import write_checkpoint

    from train.tiny.restoring import NewModelShape

    return write_checkpoint(tmp_path_factory.mktemp("new") / "start", NewModelShape(**SHAPE), PROFILE, cases(4))
