"""Commands that pull, and what they must say, with a hub client that knows nothing of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class Commands:
    """Runs commands in this process. None may end with a traceback."""

    capfd: pytest.CaptureFixture[str]

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """The exit status and both outputs."""
        status = run(arguments)
        out, err = self.capfd.readouterr()
        assert "Traceback" not in err
        return status, out, err

    def read(self, *arguments: str) -> Any:
        """What a command that must succeed prints as JSON."""
        self.capfd.readouterr()
        status, out, err = self.run(*arguments, "--json")
        assert status == 0, err
        return json.loads(out)

    def pull(self, *arguments: str) -> str:
        """Pull a model, which must be whole then, with nothing left over; the messages."""
        status, out, err = self.run("pull", *arguments)
        assert status == 0, err
        assert [model.damage for model in library.stored_models() if out == f"{model.folder}\n"] == [""]
        assert not list(library.home().glob("partial/*"))
        return err

    def refuse(self, says: str, *arguments: str, status: int = 4) -> str:
        """Run a command that must end with one line for its error, which is returned, and change no model."""
        self.capfd.readouterr()
        before = library.stored_models()
        got, out, err = self.run(*arguments)
        assert (got, out) == (status, "")
        *earlier, last = err.splitlines()
        assert re.match(f"vrt-lite: .*{says}", last), last
        assert arguments[0] == "pull" or not earlier
        assert library.stored_models() == before
        return last


def child(*arguments: str, **more: str) -> subprocess.Popen[str]:
    """Start a command in a process of its own."""
    program = [sys.executable, "-m", "vrt_lite", *arguments]
    environment = {**os.environ, **more}
    return subprocess.Popen(program, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def stop_pull(reference: str, began: Callable[[], bool], *, seconds: float = 0, by: str = "SIGKILL") -> tuple[int, str]:
    """Pull in another process and send it a signal, so long after it began; its exit status and messages."""
    with child("pull", reference) as process:
        while not began() and process.poll() is None:
            time.sleep(0.002)
        time.sleep(seconds)
        process.send_signal(getattr(signal, by, signal.SIGTERM))
        _, err = process.communicate(timeout=30)
    return process.returncode, err


@contextlib.contextmanager
def watched_disk(name: str) -> Iterator[list[int]]:
    """The bytes that a model's partial folder takes, measured again and again while the block runs."""
    sizes, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.003):
            sizes.append(library.partial_bytes(name))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield sizes
    finally:
        ended.set()
        watcher.join()
