"""Waits until a server that a test has started answers."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

PATIENCE_SECONDS = 120.0


def wait_for(url: str, server: subprocess.Popen[bytes], log: Path, *, key: str = "") -> None:
    """Ask until `url` answers. AssertionError with the log's end if the server stops or takes too long."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with opener.open(request, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            assert server.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < until, log.read_text(errors="replace")[-2000:]
            time.sleep(0.1)
