"""The client in examples/, as its first lines say, against a real server."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from web.conftest import CIRCLE, PROMPT, ROOT, STAR, Served

from vrt_lite import compare
from vrt_lite.show import list_verdict


def run(*arguments: Any) -> str:
    command = [sys.executable, ROOT / "examples" / "api_client.py", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_client_compares_and_rewards(served: Served) -> None:
    out = run(STAR, CIRCLE, "--prompt", PROMPT, "--server", served.url).splitlines()
    expected = [line for line in list_verdict(compare(STAR, CIRCLE, prompt=PROMPT)) if "seconds: " not in line]
    assert expected[0].startswith("Video 1 is ")
    assert [line for line in out if "seconds: " not in line][-len(expected) :] == expected
    out = run(CIRCLE, STAR, "--rewards", "--prompt", PROMPT, "--server", served.url).splitlines()
    low, high = (float(line.rpartition(": ")[2]) for line in out)
    assert low < 0 < high
