"""What importing and loading do to the environment variables of the process, and what the engine sees of them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

IMPORTED = (
    "import os\n"
    "before = dict(os.environ)\n"
    "from vrt_lite import Judge, Settings\n"
    "import vrt_lite.backends, vrt_lite.api\n"
    "assert dict(os.environ) == before\n"
    "from vrt_lite.backends import describe_machine\n"
    "describe_machine()\n"
    "assert dict(os.environ) == before\n"
)


@pytest.mark.parametrize("chosen", [None, "7"])
def test_importing_changes_no_variable_and_the_engine_spins_shortly(chosen: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    environment |= {"OMP_DISPLAY_ENV": "VERBOSE"} | ({"GOMP_SPINCOUNT": chosen} if chosen else {})
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], env=environment, capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    if "GOMP_" in done.stderr:  # another OpenMP knows no such variable
        assert f"GOMP_SPINCOUNT = '{chosen or 1000}'" in done.stderr
