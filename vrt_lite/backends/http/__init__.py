"""The HTTP back end: a judge on an OpenAI-compatible server. vLLM, llama-server, llama-cpp-python's own.

The same seam as the engine's: each round the whole visible conversation goes out, text streams in, and the reply has
the odds of its digits where the server tells them. Safe to share between threads: it holds nothing of a conversation.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Any

from vrt_lite.backends.http.discovery import Served, served
from vrt_lite.backends.http.lower import Kind, Lowered, differ, lower, video_fields
from vrt_lite.backends.http.reading import FailedError, NonsenseError, Written
from vrt_lite.backends.http.service import RefusedError, RetryError, Service
from vrt_lite.backends.settings import Remote
from vrt_lite.errors import BackendError
from vrt_lite.interfaces import Encoding, FrameStore, Loading, Observe, Sampling, Wrote
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Conversation, Reply, Usage

_LIKELIEST = 20
"""Alternatives asked for at each token: what vLLM and OpenAI allow at most. The three digits are among them."""

_FORMS: dict[Kind, str] = {
    "vllm": "frames of a video",
    "llama": "single images",
    "openai": "single images",
}


@dataclass(slots=True)
class _Attempt:
    """What the tries of one reply have in common."""

    until: float
    observe: Observe
    odds: bool
    first: float = 0.0
    shown: int = 0

    def tell(self) -> None:
        """Tell the watcher that it still goes on: it may want to end it."""
        self.observe(Wrote(""))


class HttpBackend:
    """A judge behind a URL; a context manager. Raises BackendError, UsageError; asks nothing before its first use."""

    def __init__(self, remote: Remote, *, profile: Profile) -> None:
        self._remote = remote
        self._profile = profile
        self._service = Service(remote)
        self._lock = threading.Lock()
        self._served: Served | None = None
        self._odds = True
        self._clock_each = True
        self._notes: dict[str, None] = dict.fromkeys(self._service.warnings)

    def __enter__(self) -> HttpBackend:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    @property
    def served(self) -> Served:
        """The server's kind and model; asked once."""
        with self._lock:
            if self._served is None:
                self._served = served(self._service)
                if self._served.kind != "vllm":
                    self._note(
                        "The server takes frames as single images, not as a video (--backend-kind vllm does): the "
                        "judge was trained on videos, and verdicts may differ."
                    )
            return self._served

    @property
    def form(self) -> str:
        """The form in which the server gets a video."""
        return _FORMS[self.served.kind]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of a verdict must know of how it was asked for, as far as that has shown."""
        return tuple(self._notes)

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The judge's next turn."""
        at = self.served
        lowered = lower(conversation, frames, kind=at.kind, profile=self._profile)
        if differ(lowered.clocks):
            self._note(
                "The clips differ in length, and a vLLM of July 2026 or later keeps one clock a request: it gave both "
                "videos the mean of theirs."
            )
        began = time.monotonic()
        attempt = _Attempt(began + self._remote.total_seconds, observe, self._odds)
        observe(Loading(f"an answer of {at.model}"))
        if lowered.frames:
            observe(Encoding(0, lowered.frames))
        written: list[Written] = []

        def ask() -> None:
            written[:] = [self._ask(lowered, at, sampling, observe, attempt)]

        self._service.persist(ask, until=attempt.until, tick=attempt.tell)
        ended = time.monotonic()
        done = written[0]
        usage = Usage(
            tokens_prefilled=max(done.prompt_tokens - done.cached_tokens, 0),
            tokens_reused=done.cached_tokens,
            tokens_generated=done.tokens,
            frames_encoded=lowered.frames,
            prefill_seconds=max(attempt.first - began, 0.0),
            generate_seconds=ended - max(attempt.first, began),
        )
        return Reply(done.text, (), done.stop or "end", done.odds, usage)

    def _ask(self, lowered: Lowered, at: Served, sampling: Sampling, observe: Observe, attempt: _Attempt) -> Written:
        """One try. Raises RetryError where another may go well."""
        body = self._body(lowered, at, sampling, odds=attempt.odds)
        written = Written(sampling.max_new_tokens)
        try:
            with self._service.streamed(
                body, until=attempt.until, tick=attempt.tell, done=lambda: written.done
            ) as pieces:
                for piece in pieces:
                    written.feed(piece)
                    if self._tell(written, sampling, observe, attempt):
                        written.stop = "end"
                        break
            if written.stop is None and not written.done:
                raise RetryError("broke off in the middle of a reply")
        except (RefusedError, RetryError) as error:
            if not self._asks_less(str(error), at, written, attempt):
                raise
            raise RetryError(str(error), pause_seconds=0.0) from error
        except FailedError as error:
            raise RetryError(f"failed: {self._service.shown(str(error)) or 'no reason given'}") from error
        except NonsenseError as error:
            raise BackendError(
                f"The back end {self._remote.url} {error}. Is it an OpenAI-compatible server?"
            ) from error
        self._odds = attempt.odds
        if not attempt.odds:
            self._note("The server gives no probabilities: the verdict has choices alone.")
        return written

    def _asks_less(self, said: str, at: Served, written: Written, attempt: _Attempt) -> bool:
        """Whether the next try asks for less, because that may be what the server cannot give."""
        if self._clock_each and "fps" in said:
            # Newer processors take one number of frames a second.
            self._clock_each = False
            return True
        # llama-cpp-python without --logits_all breaks off before the first word instead of refusing them.
        breaks_off = at.kind == "llama" and not written.text and "broke off" in said
        if attempt.odds and ("logprob" in said.lower() or breaks_off):
            attempt.odds = False
            return True
        return False

    def _tell(self, written: Written, sampling: Sampling, observe: Observe, attempt: _Attempt) -> bool:
        """Show what is new, once whatever the tries; whether the reply is concluded."""
        text = written.text
        if text and not attempt.first:
            attempt.first = time.monotonic()
        new = text[attempt.shown :]
        if new:
            attempt.shown = len(text)
            observe(Wrote(new))
        return ">" in new and sampling.concluded(text)

    def _body(self, lowered: Lowered, at: Served, sampling: Sampling, *, odds: bool) -> dict[str, Any]:
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
        if odds:
            body |= {"logprobs": True, "top_logprobs": _LIKELIEST}
        greedy = {"top_k": 1} if sampling.temperature <= 0 else {}
        match at.kind:
            case "vllm":
                # A checkpoint's own defaults (Qwen2.5-VL: a repetition penalty) must not change what it judges.
                own = {"repetition_penalty": 1.0, "min_p": 0.0, "top_k": -1, **greedy}
                body |= {**own, **video_fields(lowered, self._profile, clock_each=self._clock_each)}
                body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
            case "llama":
                body |= {"repeat_penalty": 1.0, "min_p": 0.0, "top_k": 0, **greedy, "reasoning_format": "none"}
            case "openai":
                pass
        return body

    def _note(self, note: str) -> None:
        with contextlib.suppress(RuntimeError):
            self._notes.setdefault(note)
