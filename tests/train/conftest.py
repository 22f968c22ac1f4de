"""A fixture for several tests of training: a trained judge, trained once."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of `taught_judge`."""
    pytest.importorskip("torch")
    from taught_judge import teach

    return teach(tmp_path_factory.mktemp("taught"))
