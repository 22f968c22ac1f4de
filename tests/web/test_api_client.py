"""The client in examples/, as its first lines say, against a real server."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from web.conftest import CIRCLE, PROMPT, ROOT, STAR, Served


def run(*arguments: Any) -> str:
    command = [sys.executable, ROOT / "examples" / "api_client.py", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_client_compares_and_rewards(served: Served) -> None:
    out = run(STAR, CIRCLE, "--prompt", PROMPT, "--server", served.url)
    assert out.splitlines()[-1] == "Better: star.mp4"
    out = run(CIRCLE, STAR, "--rewards", "--prompt", PROMPT, "--server", served.url)
    low, high = (float(line.rpartition(": ")[2]) for line in out.splitlines())
    assert low < 0 < high
