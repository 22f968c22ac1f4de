"""A small OpenAI-compatible chat server on loopback that replays a script: good streams, and every kind of bad one.

Each request to /v1/chat/completions takes the script's next act; the last act stays. What was asked is kept.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Act = Callable[["Asked"], None]


@dataclass
class Server:
    """The script, how the server calls itself, and what it was asked."""

    script: Sequence[Act] = ()
    owner: str = "vllm"
    models: Any = None
    key: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Answers at other paths, as /version."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    peers: set[Any] = field(default_factory=set)
    together: int = 0
    """The most requests that were under way at once."""
    over: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    _taken: int = 0
    _open: int = 0
    _lock: Any = field(default_factory=threading.Lock)

    def next_act(self) -> Act:
        with self._lock:
            act = self.script[min(self._taken, len(self.script) - 1)]
            self._taken += 1
            return act

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._lock:
            self._open += 1
            self.together = max(self.together, self._open)
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1


class Asked(BaseHTTPRequestHandler):
    """One request; the acts write the answer."""

    protocol_version = "HTTP/1.1"
    told: Server
    body: dict[str, Any]

    def do_GET(self) -> None:
        self.told.keys.append(self.headers.get("Authorization", ""))
        if self.told.key and self.headers.get("Authorization") != f"Bearer {self.told.key}":
            return self.whole(401, {"error": {"message": f"bad key {self.headers.get('Authorization')}"}})
        if self.path == "/v1/models":
            listed = {"object": "list", "data": [{"id": "judge", "object": "model", "owned_by": self.told.owner}]}
            return self.whole(200, listed if self.told.models is None else self.told.models)
        if self.path in self.told.extra:
            return self.whole(200, self.told.extra[self.path])
        return self.whole(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.told.bodies.append(self.body)
        self.told.keys.append(self.headers.get("Authorization", ""))
        self.told.peers.add(self.client_address)
        with self.told.counted():
            self.told.next_act()(self)

    def whole(self, status: int, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
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
        text = payload if isinstance(payload, str) else json.dumps(payload)
        self.send(f"data: {text}\n\n".encode())

    def end(self) -> None:
        self.event("[DONE]")
        self.send(b"")

    def drop(self) -> None:
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def delta(text: str, *, odds: Sequence[tuple[str, float]] = (), finish: str | None = None) -> dict[str, Any]:
    """A chunk of one token, with the log probabilities of it and others."""
    told = [{"token": token, "logprob": value, "bytes": None} for token, value in odds]
    entry = {"token": text, "logprob": told[0]["logprob"] if told else -0.1, "bytes": None, "top_logprobs": told}
    logprobs = {"content": [entry]} if odds else None
    return {"choices": [{"index": 0, "delta": {"content": text}, "logprobs": logprobs, "finish_reason": finish}]}


def says(text: str, *, odds: Mapping[str, Sequence[tuple[str, float]]] | None = None, finish: str = "stop") -> Act:
    """A good reply in small pieces, digits on their own; `odds` by digit."""

    def act(asked: Asked) -> None:
        asked.begin()
        asked.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        for piece in pieces(text):
            asked.event(delta(piece, odds=(odds or {}).get(piece, ())))
        asked.event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        usage = {"prompt_tokens": 900, "completion_tokens": 40, "prompt_tokens_details": {"cached_tokens": 500}}
        asked.event({"choices": [], "usage": usage})
        asked.end()

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
    return lambda asked: asked.whole(status, {"error": {"message": "no"}} if body is None else body, headers=named)


def dies_after(text: str) -> Act:
    """The connection ends in the middle of a reply."""

    def act(asked: Asked) -> None:
        asked.begin()
        for piece in pieces(text):
            asked.event(delta(piece))
        asked.drop()

    return act


def stalls(asked: Asked) -> None:
    """A stream that begins and then says nothing more."""
    asked.begin()
    asked.event(delta("<sn"))
    asked.told.over.wait(20)
    asked.drop()


def hangs(asked: Asked) -> None:
    """No answer at all."""
    asked.told.over.wait(20)
    asked.drop()


def sends(*pieces: bytes, kind: str = "text/event-stream") -> Act:
    """Bytes as they stand."""

    def act(asked: Asked) -> None:
        asked.begin(kind)
        for piece in pieces:
            asked.send(piece)
        asked.send(b"")

    return act


def endlessly(piece: bytes, *, pause_seconds: float = 0.0) -> Act:
    """The same piece until the other side leaves."""

    def act(asked: Asked) -> None:
        asked.begin()
        try:
            while not asked.told.over.wait(pause_seconds):
                asked.send(piece)
        except OSError:
            asked.drop()

    return act


@contextmanager
def serving(*script: Act, port: int = 0, **about: Any) -> Iterator[Server]:
    """The server, while it runs; at a free port, or at this one."""
    told = Server(script, **about)
    handler = type("Handler", (Asked,), {"told": told})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    server.handle_error = lambda request, client_address: None  # type: ignore[method-assign] # a client may leave
    told.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        told.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
