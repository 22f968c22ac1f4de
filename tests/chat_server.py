"""A small OpenAI-compatible chat server on loopback that replays a script: good streams, and every kind of bad one.

Each request to /v1/chat/completions takes the script's next act; the last act stays. It keeps what it was asked.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Act = Callable[["ChatRequest"], None]


@dataclass
class Server:
    """The script, how the server calls itself, and what it was asked. `extra` are answers at other paths."""

    script: Sequence[Act] = ()
    owner: str = "vllm"
    models: Any = None
    key: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    most_at_once: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    taken: int = 0
    under_way: int = 0
    lock: Any = field(default_factory=threading.Lock)


class ChatRequest(BaseHTTPRequestHandler):
    """One request; the acts write the answer."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # Else each small write waits up to 40 ms for the last one's acknowledgement.
    chat_server: Server
    body: dict[str, Any]

    def do_GET(self) -> None:
        server, key = self.chat_server, self.headers.get("Authorization", "")
        server.keys.append(key)
        listed = {"object": "list", "data": [{"id": "judge", "object": "model", "owned_by": server.owner}]}
        if server.key and key != f"Bearer {server.key}":
            self.whole(401, {"error": {"message": f"bad key {key}"}})
        elif self.path == "/v1/models":
            self.whole(200, server.models or listed)
        elif self.path in server.extra:
            self.whole(200, server.extra[self.path])
        else:
            self.whole(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        server = self.chat_server
        self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.bodies.append(self.body)
        server.keys.append(self.headers.get("Authorization", ""))
        with server.lock:
            act = server.script[min(server.taken, len(server.script) - 1)]
            server.taken += 1
            server.under_way += 1
            server.most_at_once = max(server.most_at_once, server.under_way)
        try:
            act(self)
        finally:
            with server.lock:
                server.under_way -= 1

    def whole(
        self, status: int, body: Any, *, headers: Mapping[str, str] | None = None, kind: str = "application/json"
    ) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def begin(self, kind: str = "text/event-stream") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def event(self, payload: Any) -> None:
        self.send(f"data: {json.dumps(payload)}\n\n".encode())

    def end(self) -> None:
        self.send(b"data: [DONE]\n\n")
        self.send(b"")

    def drop(self) -> None:
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def delta(text: str, *, odds: Sequence[tuple[str, float]] = ()) -> dict[str, Any]:
    """A chunk of one token, with the log probabilities of it and others."""
    likely = [{"token": token, "logprob": value, "bytes": None} for token, value in odds]
    entries = [{**likely[0], "token": text, "top_logprobs": likely}] if likely else []
    logprobs = {"content": entries} if entries else None
    return {"choices": [{"index": 0, "delta": {"content": text}, "logprobs": logprobs, "finish_reason": None}]}


Odds = Mapping[str, Sequence[tuple[str, float]]]


def says(text: str | Sequence[str], *, odds: Odds | None = None, finish: str = "stop") -> Act:
    """A good reply in these tokens, or in small pieces with digits on their own; `odds` by piece."""

    def act(request: ChatRequest) -> None:
        request.begin()
        request.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        for piece in pieces(text) if isinstance(text, str) else text:
            request.event(delta(piece, odds=(odds or {}).get(piece, ())))
        request.event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        usage = {"prompt_tokens": 900, "completion_tokens": 40, "prompt_tokens_details": {"cached_tokens": 500}}
        request.event({"choices": [], "usage": usage})
        request.end()

    return act


def pieces(text: str) -> list[str]:
    found: list[str] = []
    for character in text:
        if found and not character.isdigit() and not found[-1].isdigit() and len(found[-1]) < 7:
            found[-1] += character
        else:
            found.append(character)
    return found


def answers(status: int, body: Any = None, **headers: str) -> Act:
    """A status with a body, at once."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda request: request.whole(status, {"error": {"message": "no"}} if body is None else body, headers=named)


def dies_after(text: str) -> Act:
    """The connection ends in the middle of a reply."""

    def act(request: ChatRequest) -> None:
        request.begin()
        for piece in pieces(text):
            request.event(delta(piece))
        request.drop()

    return act


def stalls(request: ChatRequest) -> None:
    """A stream that begins and then sends nothing more."""
    request.begin()
    request.event(delta("<sn"))
    request.chat_server.over.wait(20)
    request.drop()


def hangs(request: ChatRequest) -> None:
    """No answer at all."""
    request.chat_server.over.wait(20)
    request.drop()


def sends(*pieces: bytes, kind: str = "text/event-stream") -> Act:
    """Bytes as they stand."""

    def act(request: ChatRequest) -> None:
        request.begin(kind)
        for piece in pieces:
            request.send(piece)
        request.send(b"")

    return act


def endlessly(piece: bytes, *, pause_seconds: float = 0.0, first: bytes = b"\n") -> Act:
    """Something, and then the same piece until the other side leaves."""

    def act(request: ChatRequest) -> None:
        request.begin()
        request.send(first)
        try:
            while not request.chat_server.over.wait(pause_seconds):
                request.send(piece)
        except OSError:
            request.drop()

    return act


class _Listener(ThreadingHTTPServer):
    request_queue_size = 512  # Connections that come at once: beyond that, each would be tried again a second later.


@contextmanager
def serving(*script: Act, port: int = 0, **about: Any) -> Iterator[Server]:
    """The server, while it runs; at a free port, or at this one."""
    server = Server(script, **about)
    handler = type("Handler", (ChatRequest,), {"chat_server": server})
    listener = _Listener(("127.0.0.1", port), handler)
    listener.daemon_threads = True
    listener.handle_error = lambda request, client_address: None  # type: ignore[method-assign] # a client may leave
    server.url = f"http://127.0.0.1:{listener.server_port}/v1"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        listener.shutdown()
        listener.server_close()
        thread.join()
