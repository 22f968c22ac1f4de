"""The HTTP back end: a judge on an OpenAI-compatible server, such as vLLM, SGLang, llama-server or llama-cpp-python's.

In each round the whole visible conversation is sent and text streams in. The reply has the odds of its digits where the
server gives them. Threads may share the back end: it keeps nothing of a conversation.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from vrt_lite.backends.http.faults import ExchangeError
from vrt_lite.backends.http.request import SentMessages, VideoForm, build_body, build_messages
from vrt_lite.backends.http.service import ServerInfo, Service, find_server
from vrt_lite.backends.http.sse import StreamedReply
from vrt_lite.backends.http.video_forms import FORM_NAMES, list_forms, list_warnings
from vrt_lite.errors import Warned
from vrt_lite.interfaces import Encoding, FrameStore, Loading, Observe, Sampling, check_stops, ignore
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Conversation, Reply, Usage
from vrt_lite.settings import FormName, Remote

_CRASHES = 2
"""How many times a server may fail on a form that it never took before. Then the next form is tried."""


@dataclass(slots=True)
class _Tries:
    """What the tries of one reply share. `forms` are still to try; the first one is in use."""

    forms: list[VideoForm]
    form_is_proven: bool
    with_odds: bool
    crashes: int = 0
    first_refusal: ExchangeError | None = None
    sent: dict[VideoForm, SentMessages] = field(default_factory=dict[VideoForm, SentMessages])
    shown: int = 0

    def ask_otherwise(self, error: ExchangeError, server: ServerInfo, reply: StreamedReply) -> bool:
        """Change the next request if the error may be due to the way of this one; whether anything changed."""
        fault = error.fault
        # llama-cpp-python without --logits_all breaks off before the first word instead of refusing probabilities.
        breaks_off = server.kind == "llama" and error.kind == "cut_off" and not reply.text
        if self.with_odds and (fault.without_odds or breaks_off):
            self.with_odds = False
            return True
        # A refusal rarely says which field is wrong. It may be a form that the server never took before.
        self.crashes += fault.status == 500
        unsure = not self.form_is_proven and self.sent[self.forms[0]].proves_form and len(self.forms) > 1
        if not unsure or not (fault.refuses or self.crashes >= _CRASHES):
            return False
        if error.kind == "refused":
            self.first_refusal = self.first_refusal or error
        self.crashes = 0
        self.forms.pop(0)
        return True


class HttpBackend:
    """A judge on a server; a context manager. Sends nothing before its first use. Raises BackendError, UsageError."""

    def __init__(self, remote: Remote, *, profile: Profile) -> None:
        self._remote = remote
        self._profile = profile
        self._service = Service(remote)
        self._lock = threading.Lock()
        self._server: ServerInfo | None = None
        self._with_odds = True
        # The forms to try. When the server has taken one, that one alone, for the life of the back end.
        self._forms: tuple[VideoForm, ...] = ()
        self._form_is_proven = False
        self._warnings: dict[Warned, None] = {}
        if self._service.sends_key_openly:
            text = "The key is sent to the back end unencrypted (http://): others on the network can read it. Use https://."
            self._warnings[Warned("key_unencrypted", text)] = None

    def __enter__(self) -> HttpBackend:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def connect(self, observe: Observe = ignore) -> ServerInfo:
        """Ask for the server's kind and model, once; `observe` is told of waits."""
        while not self._lock.acquire(timeout=0.1):
            check_stops()  # another thread is asking
        try:
            if self._server is None:
                self._server = find_server(self._service, observe=observe)
                self._forms = list_forms(self._server)
            return self._server
        finally:
            self._lock.release()

    @property
    def form(self) -> FormName:
        """The form in which the server gets a video."""
        self.connect()
        return FORM_NAMES[self._forms[0]]

    @property
    def warnings(self) -> tuple[Warned, ...]:
        """What a reader of a verdict must know about the requests, as far as it is known."""
        return tuple(self._warnings)

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The judge's next turn."""
        began = time.monotonic()
        observe = hider = self._service.hide_key_from(observe)
        server = self.connect(observe)
        until = time.monotonic() + self._remote.total_seconds
        tries = _Tries(list(self._forms), self._form_is_proven, self._with_odds)
        observe(Loading(f"an answer of {server.model}"))
        if shown := sum(len(message.frames) for message in conversation):
            observe(Encoding(0, shown))

        def ask_once() -> StreamedReply:
            while True:
                form = tries.forms[0]
                if form not in tries.sent:
                    tries.sent[form] = build_messages(conversation, frames, form=form, profile=self._profile)
                sent, with_odds = tries.sent[form], tries.with_odds
                body = build_body(sent, sampling, kind=server.kind, model=server.model, with_odds=with_odds)
                reply = StreamedReply(sampling.max_new_tokens, sampling.concluded, tries.shown)
                try:
                    self._service.stream(body, reply, until=until, observe=observe)
                except ExchangeError as error:
                    tries.shown = reply.shown
                    if not tries.ask_otherwise(error, server, reply):
                        raise (error.kind == "refused" and tries.first_refusal) or error from error
                else:
                    return reply

        reply = self._service.retry(ask_once, until=until, observe=observe)
        hider.end()
        self._remember(server, tries, shown)
        ended = time.monotonic()
        first = max(reply.first_text_at or began, began)
        usage = Usage(
            tokens_prefilled=max(reply.prompt_tokens - reply.cached_tokens, 0),
            tokens_reused=reply.cached_tokens,
            tokens_generated=reply.tokens,
            frames_encoded=shown,
            prefill_seconds=first - began,
            generate_seconds=ended - first,
        )
        return Reply(self._service.hide_key(reply.text), (), reply.stop or "end", reply.odds, usage)

    def _remember(self, server: ServerInfo, tries: _Tries, shown: int) -> None:
        """Remember what the server took, and what a reader must know about it."""
        sent = tries.sent[tries.forms[0]]
        self._with_odds = tries.with_odds
        if not tries.with_odds:
            text = "The server gives no probabilities: the verdict has choices alone."
            self._warnings[Warned("no_probabilities", text)] = None
        for warning in list_warnings(server, sent) if shown else ():
            self._warnings[warning] = None
        if sent.proves_form:
            self._forms = (sent.form,)
            self._form_is_proven = True
