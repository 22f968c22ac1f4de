"""The HTTP back end: a judge on an OpenAI-compatible server, such as vLLM, SGLang, llama-server or llama-cpp-python's.

In each round the whole visible conversation is sent and text streams in. The reply has the odds of its digits where the
server gives them. Threads may share the back end: it keeps nothing of a conversation.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from vrt_lite.backends.http.client import Client
from vrt_lite.backends.http.faults import ExchangeError, shorten
from vrt_lite.backends.http.request import LIKELIEST, build_body
from vrt_lite.backends.http.service import ServerInfo, find_server
from vrt_lite.backends.http.sse import StreamedReply, hide
from vrt_lite.errors import BackendError, ContextFullError, Warned
from vrt_lite.interfaces import Encoding, FrameStore, Loading, Observe, Sampling, Waiting, check_stops, ignore
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Conversation, Reply, Usage
from vrt_lite.settings import FormName, Remote

_T = TypeVar("_T")
_MOST_DOUBLINGS = 5


class HttpBackend:
    """A judge on a server; a context manager. Sends nothing before its first use. Raises BackendError, UsageError.

    Causes are not chained to errors: they hold the server's own words, which may repeat the key, or a proxy's password.
    """

    def __init__(self, remote: Remote, *, profile: Profile) -> None:
        self._remote = remote
        self._profile = profile
        self._client = Client(remote)
        self._lock = threading.Lock()
        self._server: ServerInfo | None = None
        self._with_odds = True
        self._warnings: dict[Warned, None] = {}
        if self._client.sends_key_openly:
            text = "The key is sent to the back end unencrypted (http://): others on the network can read it. Use https://."
            self._warnings[Warned("key_unencrypted", text)] = None

    def __enter__(self) -> HttpBackend:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def connect(self, observe: Observe = ignore) -> ServerInfo:
        """Ask for the server's kind and model, once; `observe` is told of waits."""
        while not self._lock.acquire(timeout=0.1):
            check_stops()  # another thread is asking
        try:
            self._server = self._server or self._find_server(observe)
            return self._server
        finally:
            self._lock.release()

    @property
    def form(self) -> FormName:
        """The form in which the server gets a video."""
        return self.connect().form

    @property
    def warnings(self) -> tuple[Warned, ...]:
        """What a reader of a verdict must know about the requests, as far as it is known."""
        return tuple(self._warnings)

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The judge's next turn."""
        began = time.monotonic()
        server = self.connect(observe)
        observe(Loading(f"an answer of {server.model}"))
        if new := _count_new_frames(conversation):
            observe(Encoding(0, new))
        body = build_body(conversation, frames, sampling, server=server, profile=self._profile)
        until = time.monotonic() + self._remote.total_seconds
        with_odds, shown = self._with_odds, 0

        def ask() -> StreamedReply:
            nonlocal with_odds, shown
            reply = StreamedReply(sampling.max_new_tokens, sampling.concluded, shown, sampling.openings)
            request = body | LIKELIEST if with_odds else body
            try:
                self._client.stream(request, reply, until=until, observe=observe)
            except ExchangeError as error:
                shown = reply.shown
                if error.context_full:
                    words = self._clean(str(error))
                    raise ContextFullError(
                        f"The conversation does not fit into the server's context: {words}"
                    ) from None
                # llama-cpp-python without --logits_all breaks off before the first word instead of refusing them.
                breaks_off = server.kind == "llama" and error.kind == "cut_off" and not reply.text
                if not (with_odds and (error.without_odds or breaks_off)):
                    raise
                with_odds = False
                return ask()
            return reply

        reply = self._retry(ask, until, observe)
        self._with_odds = with_odds
        if not with_odds:
            text = "The server gives no probabilities: the verdict has choices alone."
            self._warnings[Warned("no_probabilities", text)] = None
        if server.warning and any(message.frames for message in conversation):
            self._warnings[server.warning] = None
        ended = time.monotonic()
        first = max(reply.first_text_at or began, began)
        usage = Usage(
            tokens_prefilled=max(reply.prompt_tokens - reply.cached_tokens, 0),
            tokens_reused=reply.cached_tokens,
            tokens_generated=reply.tokens,
            frames_encoded=new,
            prefill_seconds=first - began,
            generate_seconds=ended - first,
        )
        return Reply(hide(self._client.key, reply.text), (), reply.stop or "end", reply.odds, usage)

    def _find_server(self, observe: Observe) -> ServerInfo:
        until = time.monotonic() + min(self._remote.total_seconds, 2 * self._remote.silence_seconds)
        server = find_server(
            self._remote,
            lambda url: self._retry(lambda: self._client.get(url, until=until, observe=observe), until, observe),
        )
        if hide(self._client.key, server.model) != server.model:
            raise BackendError(
                f"The back end {self._remote.url} lists a model whose name holds the key. "
                "Do not trust it; change the key."
            )
        return server

    def _retry(self, attempt: Callable[[], _T], until: float, observe: Observe) -> _T:
        """Try until it succeeds, with growing pauses, or those that the server asks for.

        Raises BackendError where no try can help, after the last one allowed, and if the next would come after `until`
        or, for a server that takes no connection, after `connect_seconds`.
        """
        r = self._remote
        for number in itertools.count(1):
            began = time.monotonic()
            try:
                return attempt()
            except ExchangeError as failed:
                error = failed
            reason, now = self._clean(str(error)), time.monotonic()
            if error.kind == "lasting":
                raise BackendError(f"The back end {r.url} {reason}. {error.hint}".rstrip())
            hint = error.hint or "Look at the server."
            if error.kind == "unreachable":
                until = min(until, began + r.connect_seconds)
            pause = error.pause_seconds
            if pause is None:
                pause = r.pause_seconds * 2 ** min(number - 1, _MOST_DOUBLINGS) * random.uniform(0.5, 1.0)
            elif now + pause >= until:
                hint = f"It asks to wait {pause:.0f} s, and a reply may take {r.total_seconds:g} s: try again later."
            if number == r.tries or now + pause >= until:
                tries = "1 try" if number == 1 else f"{number} tries"
                raise BackendError(f"The back end {r.url} {reason} ({tries}). {hint} What is judged already is kept.")
            observe(Waiting(f"the server at {r.url} ({reason})", number + 1))
            _wait(pause)
        raise AssertionError

    def _clean(self, text: str) -> str:
        """A server's text as users may see it: one line, printable, short, and without the key."""
        return shorten(hide(self._client.key, text))


def _count_new_frames(conversation: Conversation) -> int:
    """The frames since the judge's last turn: earlier ones were sent before, and the server may still hold them."""
    latest = itertools.takewhile(lambda message: message.role != "assistant", reversed(conversation))
    return sum(len(message.frames) for message in latest)


def _wait(seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        check_stops()
        time.sleep(min(left, 0.1))
