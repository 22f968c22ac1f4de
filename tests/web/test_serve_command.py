"""The command: what it says without the extra, with a bad address or folder, how it ends; and its slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
import uvicorn
from web.conftest import EXAMPLES, PROMPT, STAR, Servers

from vrt_lite.advice import install_extra
from vrt_lite.cli import run
from vrt_lite.web.server import TimedProtocol

HEAD = b"GET /slow HTTP/1.1\r\nHost: here\r\n"


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "python_multipart"])
def test_without_the_extra_it_says_what_to_install(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("vrt_lite.web", package))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    assert run(["serve"]) == 2
    said = capsys.readouterr().err
    assert said == f"vrt-lite: vrt-lite serve needs {package}: {install_extra('web')}\n"
    # It works wherever vrt-lite came from: it names packages.
    assert shlex.split(install_extra("web"))[:4] == [sys.executable, "-m", "pip", "install"]
    assert package.replace("_", "-") in said


def test_what_cannot_be_served_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for arguments, expected, words in (
            (("--port", str(taken.getsockname()[1])), 2, "cannot be served"),
            (("--host", "no.such.host.invalid"), 2, "cannot be served"),
            (("--allow", str(tmp_path / "none")), 2, "is no folder"),
            (("--host-name", "https://judge.example.org"), 2, "is no name"),
            (("--model", "none"), 4, "none"),
            (("--store", STAR, "--port", "0"), 2, "no store"),
        ):
            status, said = run(["serve", *arguments]), capsys.readouterr().err
            assert (status, said.count("\n")) == (expected, 1), said
            assert words in said


@pytest.mark.skipif(sys.platform == "win32", reason="there an interrupt goes to the whole console")
def test_an_interrupt_ends_it_in_order_and_keeps_what_is_left_to_do(servers: Servers) -> None:
    served = servers("--allow", EXAMPLES)
    job = served.post("/v1/rank", clips=[str(EXAMPLES)], prompt=PROMPT).json()["id"]
    served.until(job, "running")
    os.kill(served.process.pid, signal.SIGINT)
    assert served.process.wait(20) == 130
    assert [path.stem for path in (served.home / "jobs").iterdir()] == [job]


class QuickProtocol(TimedProtocol):
    HEAD_SECONDS: ClassVar[float] = 0.4


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of uvicorn with this protocol. It answers a GET with a part every 0.1 s, and all else at once."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(5 if scope["method"] == "GET" else 0):
            await asyncio.sleep(0.1)
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    server = uvicorn.Server(uvicorn.Config(serve, http=QuickProtocol, log_level="critical", lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"", b""),
        (HEAD, b"X"),
        (b"POST /refused HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000\r\n\r\n", b"x"),
    ],
)
def test_a_connection_without_a_whole_request_is_ended(port: int, first: bytes, then: bytes) -> None:
    """However often a client sends a byte more."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(0.1)
        with contextlib.suppress(OSError):
            connection.sendall(first)
            while time.monotonic() - began < 10:
                try:
                    if not connection.recv(1000):
                        break
                except TimeoutError:
                    connection.sendall(then)
    assert time.monotonic() - began < 5


def test_a_long_answer_is_not_cut_and_the_next_request_has_its_time(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        for _ in range(2):
            connection.sendall(HEAD + b"\r\n")
            answer = b""
            while b"\r\n0\r\n\r\n" not in answer:
                part = connection.recv(1000)
                assert part, answer
                answer += part
            assert answer.count(b"\r\nx\r\n") == 5


def test_a_server_keeps_an_idle_connection_longer_than_its_clients_do() -> None:
    """Otherwise a client may send a request at the moment at which the server closes the connection."""
    kept = httpx.Limits().keepalive_expiry
    assert kept
    assert kept < round(TimedProtocol.HEAD_SECONDS)
