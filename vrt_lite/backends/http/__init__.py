"""The HTTP back end: a judge on an OpenAI-compatible server. vLLM, SGLang, llama-server, llama-cpp-python's own.

The same seam as the engine's: each round the whole visible conversation goes out, text streams in, and the reply has
the odds of its digits where the server tells them. Safe to share between threads: it holds nothing of a conversation.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from vrt_lite.backends.http.discovery import Served, served
from vrt_lite.backends.http.faults import Fault
from vrt_lite.backends.http.forms import NAMES, forms_for, notes
from vrt_lite.backends.http.lower import Form, Lowered, lower, video_fields
from vrt_lite.backends.http.reading import FailedError, NonsenseError, Written
from vrt_lite.backends.http.service import RefusedError, RetryError, Service
from vrt_lite.backends.settings import Remote
from vrt_lite.errors import BackendError
from vrt_lite.interfaces import Encoding, FrameStore, Loading, Observe, Sampling, Wrote, ignore
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Conversation, Reply, Usage

_LIKELIEST = 20
"""Alternatives asked for at each token: what vLLM and OpenAI allow at most. The three digits are among them."""
_CRASHES = 2
"""So often a server may fail over a form that it never took before, until the next form is tried."""


@dataclass(slots=True)
class _Attempt:
    """What the tries of one reply have in common."""

    conversation: Conversation
    frames: FrameStore
    until: float
    observe: Observe
    odds: bool
    forms: list[Form]
    """What is left to try; the first is the one in use."""
    proven: bool
    crashes: int = 0
    refusal: RefusedError | None = None
    lowered: dict[Form, Lowered] = field(default_factory=dict[Form, Lowered])
    first: float = 0.0
    shown: int = 0


class HttpBackend:
    """A judge behind a URL; a context manager. Raises BackendError, UsageError; asks nothing before its first use."""

    def __init__(self, remote: Remote, *, profile: Profile) -> None:
        self._remote = remote
        self._profile = profile
        self._service = Service(remote)
        self._lock = threading.Lock()
        self._served: Served | None = None
        self._odds = True
        # The form that the server took, alone, once it has taken one: for the life of the back end.
        self._forms: tuple[Form, ...] = ()
        self._proven = False
        self._notes: dict[str, None] = dict.fromkeys(self._service.warnings)

    def __enter__(self) -> HttpBackend:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def connect(self, observe: Observe) -> Served:
        """The server's kind and model; asked once."""
        with self._lock:
            if self._served is None:
                self._served = served(self._service, observe=observe)
                self._forms = forms_for(self._served)
            return self._served

    @property
    def served(self) -> Served:
        """The server's kind and model, without telling anyone that it is waited for."""
        return self.connect(ignore)

    @property
    def form(self) -> str:
        """The form in which the server gets a video."""
        return NAMES[self._forms[0]] if self.served else ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of a verdict must know of how it was asked for, as far as that has shown."""
        return tuple(self._notes)

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The judge's next turn."""
        began = time.monotonic()
        at = self.connect(observe)
        until = time.monotonic() + self._remote.total_seconds
        attempt = _Attempt(conversation, frames, until, observe, self._odds, list(self._forms), self._proven)
        observe(Loading(f"an answer of {at.model}"))
        if shown := sum(len(message.frames) for message in conversation):
            observe(Encoding(0, shown))
        written: list[Written] = []

        def ask() -> None:
            written[:] = [self._ask(at, sampling, attempt)]

        self._service.persist(ask, until=attempt.until, observe=observe)
        ended = time.monotonic()
        done = written[0]
        self._remember(at, attempt)
        usage = Usage(
            tokens_prefilled=max(done.prompt_tokens - done.cached_tokens, 0),
            tokens_reused=done.cached_tokens,
            tokens_generated=done.tokens,
            frames_encoded=shown,
            prefill_seconds=max(attempt.first - began, 0.0),
            generate_seconds=ended - max(attempt.first, began),
        )
        return Reply(done.text, (), done.stop or "end", done.odds, usage)

    def _remember(self, at: Served, attempt: _Attempt) -> None:
        """Keep what the server took, and note what that costs."""
        form = attempt.forms[0]
        lowered = attempt.lowered[form]
        self._odds = attempt.odds
        if not attempt.odds:
            self._note("The server gives no probabilities: the verdict has choices alone.")
        if lowered.frames:
            for note in notes(at, form, lowered):
                self._note(note)
        if lowered.tells(form):
            self._forms = (form,)
            self._proven = True

    def _ask(self, at: Served, sampling: Sampling, attempt: _Attempt) -> Written:
        """One try, in as many ways as the server has to be asked. Raises RetryError where another may go well."""
        while True:
            written = Written(sampling.max_new_tokens)
            try:
                self._stream(at, sampling, attempt, written)
            except (RefusedError, RetryError, FailedError) as error:
                if self._asks_otherwise(error, at, written, attempt):
                    continue
                if isinstance(error, RefusedError):
                    raise attempt.refusal or error from error
                if isinstance(error, FailedError) and error.fault.context_full:
                    raise self._service.too_long(error.fault) from error
                if isinstance(error, FailedError):
                    said = self._service.shown(error.fault.message) or "no reason given"
                    raise RetryError(f"failed: {said}", fault=error.fault) from error
                raise
            except NonsenseError as error:
                raise BackendError(
                    f"The back end {self._remote.url} {error}. Is it an OpenAI-compatible server?"
                ) from error
            return written

    def _stream(self, at: Served, sampling: Sampling, attempt: _Attempt, written: Written) -> None:
        """Ask, and read the answer as it comes."""
        body = self._body(self._lowered(attempt), at, sampling, attempt)
        with self._service.streamed(
            body, until=attempt.until, observe=attempt.observe, done=lambda: written.done
        ) as pieces:
            for piece in pieces:
                written.feed(piece)
                if self._tell(written, sampling, attempt):
                    written.stop = "end"
                    break
        if written.stop is None and not written.done:
            raise RetryError("broke off in the middle of a reply", missing="rest")

    def _lowered(self, attempt: _Attempt) -> Lowered:
        form = attempt.forms[0]
        if form not in attempt.lowered:
            attempt.lowered[form] = lower(attempt.conversation, attempt.frames, form=form, profile=self._profile)
        return attempt.lowered[form]

    def _asks_otherwise(
        self, error: RefusedError | RetryError | FailedError, at: Served, written: Written, attempt: _Attempt
    ) -> bool:
        """Whether there is another way to ask, because this one may be what the server cannot follow."""
        fault = error.fault or Fault(0)
        # llama-cpp-python without --logits_all breaks off before the first word instead of refusing them.
        broken = isinstance(error, RetryError) and error.missing == "rest"
        breaks_off = at.kind == "llama" and not written.text and broken
        if attempt.odds and (fault.without_odds or breaks_off):
            attempt.odds = False
            return True
        # A refusal rarely says which field is at fault. A form that was never taken before may be.
        attempt.crashes += fault.status == 500
        form = attempt.forms[0]
        unsure = not attempt.proven and self._lowered(attempt).tells(form) and len(attempt.forms) > 1
        if unsure and (fault.refuses or attempt.crashes >= _CRASHES):
            if isinstance(error, RefusedError):
                attempt.refusal = attempt.refusal or error
            attempt.crashes = 0
            attempt.forms.pop(0)
            return True
        return False

    def _tell(self, written: Written, sampling: Sampling, attempt: _Attempt) -> bool:
        """Show what is new, once whatever the tries; whether the reply is concluded."""
        text = written.text
        if text and not attempt.first:
            attempt.first = time.monotonic()
        new = text[attempt.shown :]
        if new:
            attempt.shown = len(text)
            attempt.observe(Wrote(new))
        return ">" in new and sampling.concluded(text)

    def _body(self, lowered: Lowered, at: Served, sampling: Sampling, attempt: _Attempt) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": at.model,
            "messages": lowered.messages,
            "temperature": sampling.temperature,
            "top_p": 1.0,
            "seed": sampling.seed,
            "max_tokens": sampling.max_new_tokens,
            "stop": ["<|im_end|>"],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if attempt.odds:
            body |= {"logprobs": True, "top_logprobs": _LIKELIEST}
        greedy = {"top_k": 1} if sampling.temperature <= 0 else {}
        match at.kind:
            case "vllm":
                # A checkpoint's own defaults (Qwen2.5-VL: a repetition penalty) must not change what it judges.
                own = {"repetition_penalty": 1.0, "min_p": 0.0, "top_k": -1, **greedy}
                body |= {**own, **video_fields(lowered, attempt.forms[0])}
                body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
            case "sglang":
                body |= {"repetition_penalty": 1.0, "min_p": 0.0, "top_k": -1, **greedy, "separate_reasoning": False}
            case "llama":
                body |= {"repeat_penalty": 1.0, "min_p": 0.0, "top_k": 0, **greedy, "reasoning_format": "none"}
            case "openai":
                pass
        return body

    def _note(self, note: str) -> None:
        with contextlib.suppress(RuntimeError):
            self._notes.setdefault(note)
