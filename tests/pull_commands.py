"""Commands that pull, and what they must say, with a hub client that knows nothing of this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vrt_lite.cli import run
from vrt_lite.models import library

SMALL_BYTES = 2**17
"""Bytes of a partial folder beside weights: the small files, and what a file system adds."""


def isolate_client(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hub's client ask loopback directly, and keep in `folder` what it keeps. Nothing of the user's is read."""
    for key in [key for key in os.environ if key.startswith("HF_") or key.lower().endswith("_proxy")]:
        monkeypatch.delenv(key)
    for key in ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "HF_HUB_DISABLE_XET"):
        monkeypatch.setenv(key, "1")
    monkeypatch.setenv("HF_HOME", str(folder))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def command(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command, which must not end with a traceback; its status and both outputs."""
    status = run(arguments)
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    return status, out, err


def child(*arguments: str, **more: str) -> subprocess.Popen[str]:
    """Start a command in a process of its own."""
    program = [sys.executable, "-m", "vrt_lite", *arguments]
    environment = {**os.environ, **more}
    return subprocess.Popen(program, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def refused(capfd: pytest.CaptureFixture[str], says: str, *arguments: str, status: int = 4) -> str:
    """A command that must fail with one line, and register nothing."""
    got, out, err = command(capfd, *arguments)
    assert (got, out) == (status, "")
    last = err.strip().splitlines()[-1]
    assert last.startswith("vrt-lite: ")
    assert re.search(says, last), last
    assert library.stored_models() == []
    return last
