"""Every test here needs a device that the engine uses."""

from __future__ import annotations

import pytest

from vrt_lite.backends import has_gpu


@pytest.fixture(autouse=True, scope="session")
def device() -> None:
    if not has_gpu():
        pytest.skip("the engine has no GPU to use")
