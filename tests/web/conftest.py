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
import psutil
import pytest

from vrt_lite.cli import run

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
STAR, CIRCLE, A, B = (str(EXAMPLES / f"{name}.mp4") for name in ("star", "circle", "a", "b"))
PROMPT = "A blue star moves up."
SMALL = {"max_pixels": 10_000, "tool_max_pixels": 10_000}
"""Options with which little work is done for each frame."""


@dataclass
class Served:
    """A server that runs, a client to it, and the folder that has all that it keeps."""

    process: subprocess.Popen[str]
    url: str
    client: httpx.Client
    home: Path

    def post(self, path: str, /, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)

    @property
    def uploads(self) -> list[Path]:
        """What it keeps of what was sent."""
        return sorted((self.home / "uploads").iterdir())

    @property
    def workers(self) -> list[psutil.Process]:
        """The processes in which it decodes and judges."""
        children = psutil.Process(self.process.pid).children()
        return [child for child in children if "vrt_lite.worker" in " ".join(child.cmdline())]

    def list_clips(self, folder: Path) -> list[dict[str, str]]:
        return self.client.get("/v1/folders", params={"path": str(folder)}).json()["clips"]

    def make_folder(self, name: str) -> Path:
        """Make a folder of which the server of a session allows the clips."""
        folder = self.home / "allowed" / name
        folder.mkdir(parents=True)
        return folder

    def compare(self, prompt: str, a: str = STAR, b: str = CIRCLE, **more: Any) -> httpx.Response:
        """Compare two clips, and wait for the judgement."""
        answer = self.post("/v1/compare", a=a, b=b, prompt=prompt, **more)
        assert answer.status_code == 200, answer.text
        return answer

    def begin(self, prompt: str, a: str = STAR, b: str = CIRCLE, **more: Any) -> str:
        """Begin to compare two clips; return the job."""
        return self.post("/v1/compare", a=a, b=b, prompt=prompt, wait=False, **more).json()["id"]

    def rank(self, *clips: str, **more: Any) -> httpx.Response:
        """Rank clips in one order, and wait for the ladder."""
        answer = self.post("/v1/rank", clips=clips, both_orders=False, wait=True, **more)
        assert answer.status_code == 200, answer.text
        return answer

    def find_job(self, job: str | httpx.Response) -> Any:
        """Find a job by its name, or by an answer."""
        name = job if isinstance(job, str) else job.headers["x-job"]
        return self.client.get(f"/v1/jobs/{name}").json()

    def cancel(self, *jobs: str) -> list[str]:
        """Cancel jobs; return the state that each is in at last."""
        for job in jobs:
            self.client.delete(f"/v1/jobs/{job}")
        return [self.until(job)["state"] for job in jobs]

    def connect(self, *lines: str, host: str = "") -> socket.socket:
        """Open a connection, and send the head of a request: its first line and its headers, if there are any."""
        address = self.client.base_url
        connection = socket.create_connection((address.host, address.port), timeout=10)
        if lines:
            own = host or f"Host: {address.host}:{address.port}"
            connection.sendall("\r\n".join([lines[0], own, *lines[1:], "", ""]).encode())
        return connection

    def until(self, job: str, *states: str) -> dict[str, Any]:
        """Wait until a job is in one of these states, by default until it has ended."""
        wait_until(lambda: self.find_job(job)["state"] in (states or ("done", "failed", "cancelled")))
        return self.find_job(job)


Servers = Callable[..., Served]


def wait_until(is_so: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)  # each question takes time of a processor from what is waited for


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


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests that leave it as it was, but for what it has judged."""
    home = tmp_path_factory.mktemp("served")
    (home / "allowed").mkdir()
    found = start(home, "--allow", EXAMPLES, "--allow", home / "allowed")
    yield found
    end(found)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """Starts servers that the test may end as it likes; they share one home."""
    with contextlib.ExitStack() as stack:

        def begin(*arguments: str | Path) -> Served:
            made = start(tmp_path / "home", *arguments)
            stack.callback(end, made)
            return made

        yield begin
