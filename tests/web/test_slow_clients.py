"""Slow clients: a connection that sends no whole request in time is ended, one that works is not."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import httpx
import pytest
import uvicorn

from vrt_lite.web.server import TimedProtocol

HEAD = b"GET /slow HTTP/1.1\r\nHost: here\r\n"


class QuickProtocol(TimedProtocol):
    HEAD_SECONDS: ClassVar[float] = 0.4


async def serve(scope: Any, receive: Any, send: Any) -> None:
    """Answer a GET with a part every 0.2 s, and all else at once."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(5 if scope["method"] == "GET" else 0):
        await asyncio.sleep(0.2)
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of uvicorn with this protocol, in a thread of its own."""
    config = uvicorn.Config(serve, http=QuickProtocol, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()


def dribble(port: int, first: bytes, then: bytes) -> float:
    """Send a text, then others every 0.1 s; return after how many seconds the server ended the connection."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(0.1)
        began = time.monotonic()
        connection.sendall(first)
        while time.monotonic() - began < 10:
            try:
                if not connection.recv(1000):
                    break
            except TimeoutError:
                pass
            except OSError:
                break
            try:
                connection.sendall(then)
            except OSError:
                break
        return time.monotonic() - began


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"", b""),
        (HEAD, b"X"),
        (b"POST /refused HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000\r\n\r\n", b"x"),
    ],
)
def test_a_connection_without_a_whole_request_is_ended(port: int, first: bytes, then: bytes) -> None:
    assert dribble(port, first, then) < 5


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
