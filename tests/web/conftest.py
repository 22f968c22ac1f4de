"""A real server: `vrt-lite serve` in a process of its own, with a home of its own, on a free port."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import av
import httpx
import pytest

from vrt_lite.cli import run

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
STAR, CIRCLE = str(EXAMPLES / "star.mp4"), str(EXAMPLES / "circle.mp4")
PROMPT = "A blue star moves up."


@dataclass
class Served:
    """A server that runs, a client to it, and the folder that has all that it keeps."""

    process: subprocess.Popen[str]
    url: str
    client: httpx.Client
    home: Path

    def post(self, path: str, /, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)

    def connect(self, *lines: str, host: str = "") -> socket.socket:
        """Open a connection, and send the head of a request: its first line and its headers, if there are any."""
        address = self.client.base_url
        connection = socket.create_connection((address.host, address.port), timeout=10)
        if lines:
            own = host or f"Host: {address.host}:{address.port}"
            connection.sendall("\r\n".join([lines[0], own, *lines[1:], "", ""]).encode())
        return connection

    def place_clip(self) -> tuple[str, str]:
        """Compare two clips; return the job, and the address at which a page plays the first."""
        job = self.post("/v1/compare", a=STAR, b=CIRCLE, wait=False).json()["id"]
        return job, self.client.get(f"/view/jobs/{job}").json()["clips"][0]["address"]

    def until(self, job: str, *states: str) -> dict[str, Any]:
        """Wait until a job is in one of these states."""
        end = time.monotonic() + 60
        while (told := self.client.get(f"/v1/jobs/{job}").json())["state"] not in states:
            assert time.monotonic() < end, told
            time.sleep(0.05)
        return told


def start(home: Path, *arguments: str | Path) -> Served:
    """Start a server; its address is what it prints."""
    command = [sys.executable, "-m", "vrt_lite", "serve", "--port", "0", *map(str, arguments)]
    environment = os.environ | {"VRT_LITE_HOME": str(home), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
    assert process.stdout
    line = process.stdout.readline()
    assert "serves at" in line, line
    url = line.split()[3]
    return Served(process, url, httpx.Client(base_url=url.partition("?")[0], timeout=60), home)


def say(served: Served, *arguments: str) -> str:
    """What the command line, in this process, prints about the same store."""
    told = io.BytesIO()
    stream = io.TextIOWrapper(told, encoding="utf-8", write_through=True)
    home = patch.dict(os.environ, VRT_LITE_HOME=str(served.home))
    with home, contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        status = run(arguments)
    assert status == 0, told.getvalue()
    return told.getvalue().decode()


def end(served: Served) -> None:
    served.client.close()
    served.process.terminate()
    try:
        served.process.wait(10)
    except subprocess.TimeoutExpired:
        served.process.kill()
        served.process.wait()
    if served.process.stdout:
        served.process.stdout.close()


def write_pictures(clip: str, folder: Path, name: str = "%04d.png") -> list[Path]:
    """Write each frame of a clip as a numbered picture."""
    folder.mkdir(parents=True)
    with av.open(clip) as file:
        frames = [frame.to_image() for frame in file.decode(video=0)]
    paths = [folder / (name % number) for number in range(len(frames))]
    for frame, path in zip(frames, paths, strict=True):
        frame.save(path)
    return paths


def write_animation(clip: str, path: Path) -> Path:
    """Write a clip as an animated GIF or WebP, by the name's suffix."""
    with av.open(clip) as file:
        first, *rest = (frame.to_image() for frame in file.decode(video=0))
    first.save(path, save_all=True, append_images=rest, duration=125)
    return path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests of a module that leave it as it was, but for what it has judged."""
    found = start(tmp_path_factory.mktemp("served"), "--allow", EXAMPLES)
    yield found
    end(found)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Starts servers that the test may end as it likes; they share one home."""
    with contextlib.ExitStack() as stack:

        def begin(*arguments: str | Path) -> Served:
            made = start(tmp_path / "home", *arguments)
            stack.callback(end, made)
            return made

        yield begin
