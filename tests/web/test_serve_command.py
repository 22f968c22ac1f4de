"""The command: what it says without the extra, with a bad address or folder, and how it ends."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from web.conftest import EXAMPLES, PROMPT, ROOT, Served

from vrt_lite.advice import install_extra


def run(*arguments: Any, missing: str = "") -> tuple[int, str]:
    """Run the command to its end; return its exit status and what it prints on stderr."""
    program = f"import sys\nsys.modules[{missing!r}] = None\n" if missing else "import sys\n"
    program += f"from vrt_lite.cli import run\nsys.exit(run({['serve', *map(str, arguments)]!r}))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "python_multipart"])
def test_without_the_extra_it_says_what_to_install(package: str) -> None:
    status, said = run(missing=package)
    assert status == 2
    assert said == f"vrt-lite: vrt-lite serve needs {package}: {install_extra('web')}\n"
    # It works wherever vrt-lite came from: it names packages.
    assert shlex.split(install_extra("web"))[:4] == [sys.executable, "-m", "pip", "install"]
    assert package.replace("_", "-") in said


def test_what_cannot_be_served_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cases = [
            (("--port", taken.getsockname()[1]), 2, "cannot be served"),
            (("--host", "no.such.host.invalid"), 2, "cannot be served"),
            (("--allow", tmp_path / "none"), 2, "is no folder"),
            (("--host-name", "https://judge.example.org"), 2, "is no name"),
            (("--model", "none"), 4, "none"),
            (("--store", EXAMPLES / "star.mp4", "--port", 0), 2, "no store"),
        ]
        for arguments, expected, words in cases:
            status, said = run(*arguments)
            assert (status, said.count("\n")) == (expected, 1), said
            assert words in said


@pytest.mark.skipif(sys.platform == "win32", reason="there an interrupt goes to the whole console")
def test_an_interrupt_ends_it_in_order_and_keeps_what_is_left_to_do(servers: Callable[..., Served]) -> None:
    served = servers("--allow", EXAMPLES)
    job = served.post("/v1/rank", clips=[str(EXAMPLES)], prompt=PROMPT).json()["id"]
    served.until(job, "running")
    os.kill(served.process.pid, signal.SIGINT)
    assert served.process.wait(20) == 130
    assert [path.stem for path in (served.home / "jobs").iterdir()] == [job]
