"""The HTTP back end against a scripted server: what is asked, what is read, and every way in which a server fails."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import json
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_server import (
    Act,
    Server,
    answers,
    dies_after,
    endlessly,
    hangs,
    says,
    sends,
    serving,
    stalls,
)
from judgements import FINAL, Colours, call

from vrt_lite.backends import open_remote
from vrt_lite.backends.http import HttpBackend
from vrt_lite.backends.http.faults import explain_status
from vrt_lite.errors import BackendError, ContextFullError, UsageError
from vrt_lite.interfaces import Event, Sampling, Stop, Waiting, Wrote, ignore, stops_in_force
from vrt_lite.judge import Pair, Trial, judge_with
from vrt_lite.profile import default_profile
from vrt_lite.protocol.messages import Conversation, Message, Reply, Text
from vrt_lite.protocol.tags import AFTERWORD
from vrt_lite.settings import Remote

HELLO: Conversation = (Message("user", (Text("Hello."),)),)
NO_FRAMES = Colours(((28, 28), (28, 28)))
KEY = "sk-very-secret-0123456789"
ODDS = {"2": (("2", -0.1), ("1", -2.5), ("the", -4.0)), "1": (("1", -0.2), ("0", -2.0))}


def remote(server: Server, **settings: Any) -> Remote:
    """Impatient, so that failing takes no time."""
    small = {"connect_seconds": 5.0, "silence_seconds": 0.5, "total_seconds": 8.0, "tries": 3, "pause_seconds": 0.01}
    return Remote(server.url, **{**small, **settings})


def opened(server: Server, **settings: Any) -> HttpBackend:
    return open_remote(remote(server, **settings), profile=default_profile())


def reply_of(server: Server, *, limit: int = 256, watch: Callable[[Event], None] = ignore, **settings: Any) -> Reply:
    with opened(server, **settings) as backend:
        return backend.reply(HELLO, NO_FRAMES, sampling=Sampling(limit), observe=watch)


def judged_by(server: Server, *, durations: tuple[float, float] = (3.0, 3.0), **settings: Any) -> Trial:
    with opened(server, **settings) as backend:
        return judge_with(
            Pair("A <|im_end|> fox.", durations), default_profile(), backend, Colours(((56, 28), (84, 56)))
        )


def test_vllm_neither_samples_nor_draws() -> None:
    with serving(says(FINAL), extra={"/version": {"version": "0.33.0"}}) as server:
        judged_by(server)
    body = server.bodies[0]
    wanted = {"model": "judge", "temperature": 0.0, "top_k": -1, "top_p": 1.0, "seed": 0, "stream": True}
    assert {name: body[name] for name in wanted} == wanted
    assert body["max_tokens"] == default_profile().max_new_tokens
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert (body["logprobs"], body["top_logprobs"], body["repetition_penalty"]) == (True, 20, 1.0)
    kwargs = body["mm_processor_kwargs"]
    assert kwargs["do_sample_frames"] is False
    # The smallest frame is smaller than the profile's range: no frame is resized there.
    assert (kwargs["min_pixels"], kwargs["max_pixels"]) == (56 * 28, default_profile().max_pixels)


@pytest.mark.parametrize(
    ("owner", "wanted", "kind"),
    [
        *[("vllm", "auto", "vllm"), ("sglang", "auto", "sglang"), ("me", "auto", "llama"), ("proxy", "auto", "openai")],
        *[("proxy", "vllm", "vllm"), (None, "auto", "openai"), (["vllm"], "sglang", "sglang")],
    ],
)
def test_the_kind_is_the_owners_of_the_model_or_the_one_named(owner: Any, wanted: str, kind: str) -> None:
    models = {"data": [{"id": "judge", "owned_by": owner}]}
    with serving(says(FINAL), models=models) as server, opened(server, kind=wanted) as backend:
        assert backend.connect().kind == kind


def test_frames_that_are_sent_again_are_not_counted_again() -> None:
    script = (says(call(5, 60)), says("<think>So?</think>"), says(FINAL))
    with serving(*script) as server:
        trial = judged_by(server)
    assert [r.outcome for r in trial.rounds] == ["tool", "correction", "final"]
    assert [r.reply.usage.frames_encoded for r in trial.rounds] == [8, 2, 0]


def test_what_users_and_models_write_never_becomes_a_control_token() -> None:
    with serving(says(f"<|im_end|>{call(1)}"), says(FINAL)) as server:
        judged_by(server)
    sent = json.dumps(server.bodies)
    assert sent.count("<|im_end|>") == len(server.bodies), "the stop word of each request alone"
    assert "A < |im_end|> fox." in sent


def test_odds_stand_at_the_digits_renormalised() -> None:
    with serving(says(FINAL, odds=ODDS)) as server:
        reply = reply_of(server)
    assert reply.text == FINAL
    at_two, at_one = FINAL.index("VQ=2") + 3, FINAL.index("MQ=1") + 3
    total = np.exp(-0.1) + np.exp(-2.5)
    assert reply.odds[at_two] == pytest.approx((0.0, np.exp(-2.5) / total, np.exp(-0.1) / total))
    assert reply.odds[at_one][0] == pytest.approx(np.exp(-2.0) / (np.exp(-0.2) + np.exp(-2.0)))
    assert FINAL.index("TA=0") + 3 not in reply.odds, "the server gave nothing for it"
    assert (reply.usage.tokens_prefilled, reply.usage.tokens_reused, reply.usage.tokens_generated) == (400, 500, 40)


def test_a_server_without_probabilities_is_asked_for_them_once() -> None:
    refusal = answers(400, {"error": {"message": "logprobs is not supported"}})
    with serving(refusal, says(FINAL)) as server, opened(server) as backend:
        for _ in range(2):
            assert not backend.reply(HELLO, NO_FRAMES, sampling=Sampling(64), observe=ignore).odds
        assert any("no probabilities" in warning.text for warning in backend.warnings)
    assert [body.get("logprobs") for body in server.bodies] == [True, None, None]


def test_a_concluded_answer_ends_the_request() -> None:
    def talks_on(request: Any) -> None:
        request.begin()  # Character by character, and it never ends.
        for character in FINAL + AFTERWORD * " So":
            request.event({"choices": [{"index": 0, "delta": {"content": character}, "finish_reason": None}]})
        request.chat_server.over.wait(20)
        request.drop()

    with serving(talks_on) as server:
        trial = judged_by(server, silence_seconds=15.0, total_seconds=15.0)
        assert not server.over.is_set()
    assert trial.verdict.overall.winner == 2
    assert len(server.bodies) == 1


def test_a_reply_that_is_cut_says_so() -> None:
    with serving(says("<snapshot>So", finish="length")) as server:
        assert reply_of(server).stop == "limit"


FAILING: dict[str, tuple[tuple[Act], str]] = {
    "dies in the middle": ((dies_after("<snapshot>Vid"),), "broke off the connection"),
    "stalls": ((stalls,), "said nothing for 0.3 s"),
    "never answers": ((hangs,), "said nothing for 0.3 s"),
    "500": ((answers(500, {"error": "out of \x1b[31mmemory\n"}),), "answered 500: out of [31mmemory"),
    "503 until a date": ((answers(503, Retry_After="Wed, 21 Oct 99999999999 07:28:00 GMT"),), "answered 503: no (3"),
    "503 page": ((answers(503, b"<html>Bad gateway</html>"),), "answered 503 (3 tries)"),
    "429": ((answers(429, {"error": {"message": "slow down"}}, Retry_After="0"),), "answered 429: slow down"),
    "reports a failure": ((sends(b'data: {"error": {"message": "engine died"}}\n\n'),), "failed: engine died"),
    "ends without a word": ((sends(),), "broke off in the middle of a reply"),
    "drips comments": ((endlessly(b": ping\n\n", pause_seconds=0.01),), "said nothing for 0.3 s"),
    "drips comments behind a word": (
        (endlessly(b": ping\n\n", pause_seconds=0.01, first=b'data: {"choices": [{"delta": {"content": "<s"}}]}\n'),),
        "said nothing for 0.3 s",
    ),
    "drips empty events": ((endlessly(b"data: \r\nevent: x\n\n", pause_seconds=0.01),), "said nothing for 0.3 s"),
    "drips a line": ((endlessly(b"data: ", pause_seconds=0.01),), "said nothing for 0.3 s"),
    "drips events": (
        (endlessly(b'data: {"choices": []}\n', pause_seconds=0.01),),
        "did not finish in the time allowed",
    ),
}


@pytest.mark.parametrize("script", FAILING)
def test_what_may_pass_is_tried_again_and_given_up_clearly(script: str) -> None:
    (act,), expected = FAILING[script]
    slow = script == "drips events"
    times = {"silence_seconds": 0.3, "total_seconds": 1.0 if slow else 60.0}
    with serving(act) as server, pytest.raises(BackendError) as raised:
        reply_of(server, **times)
    message = str(raised.value)
    assert message.startswith(f"The back end {server.url} ")
    assert expected in message
    assert message.isprintable()
    assert len(message) < 700
    assert len(server.bodies) == (1 if slow else 3)
    if slow:
        return
    seen: list[Event] = []
    with serving(act, says(FINAL)) as server:
        assert reply_of(server, watch=seen.append, **times).text == FINAL
    assert len(server.bodies) == 2
    assert [event.attempt for event in seen if isinstance(event, Waiting)] == [2]
    words = "".join(event.text for event in seen if isinstance(event, Wrote))
    assert len(words) == len(FINAL), "shown once, not once a try"


FAR_MORE = "sent far more than a reply of at most 64 tokens can be"
NONSENSE: dict[str, tuple[Act, str]] = {
    "no stream": (answers(200, {"choices": []}), "answered with application/json instead of a stream"),
    "no type": (sends(b"data: {}\n\n", kind=""), "no content type"),
    "not JSON": (sends(b"data: {nonsense\n\n"), "not JSON"),
    "no object": (sends(b"data: [1]\n\n"), "Expected `object`, got `array`"),
    "half a pair": (sends(b'data: {"choices": [{"delta": {"content": "<think>\\ud800"}}]}\n\n'), "not Unicode"),
    "half a pair of a thought": (
        sends(b'data: {"choices": [{"delta": {"reasoning_content": "\\udfff"}}]}\n\n'),
        "not Unicode",
    ),
    "a number": (sends(b"data: " + b"7" * 5000 + b"\n\n"), "not JSON"),
    "no choices": (sends(b'data: {"hello": 1}\n\n'), "missing required field `choices`"),
    "odd choice": (sends(b'data: {"choices": [7]}\n\n'), "at `$.choices[0]`"),
    "odd content": (sends(b'data: {"choices": [{"delta": {"content": {"a": 1}}}]}\n\n'), "Expected `str | null`"),
    "deep": (sends(b"data: " + b"[" * 100_000 + b"\n\n"), "not JSON"),
    "odd list of choices": (sends(b'data: {"choices": {"delta": 1}}\n\n'), "at `$.choices`"),
    "takes the calls": (sends(b'data: {"choices": [{"delta": {"tool_calls": [{"id": 1}]}}]}\n\n'), "tool-call parser"),
    "one endless line": (endlessly(b"data: " + b"x" * 2**20), FAR_MORE),
    "endless comments": (endlessly(b": x\n" * 2**18), FAR_MORE),
    "endless events": (endlessly(b'data: {"choices": []}\n' * 2**12), FAR_MORE),
    "too much text": (
        endlessly(b'data: {"choices": [{"delta": {"content": "%s"}}]}\n' % (b"la " * 2**10)),
        FAR_MORE,
    ),
    "400": (answers(400, {"error": {"message": "bad \u202e request " + "x" * 5000}}), "answered 400: bad request xx"),
    "404": (answers(404, {"detail": "Not Found"}), "Does the URL end in /v1"),
    "redirect": (answers(307, {}, Location="http://127.0.0.1:9/v1/chat/completions"), "307. It redirects elsewhere"),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_nonsense_is_refused_at_once(kind: str) -> None:
    act, expected = NONSENSE[kind]
    with serving(act) as server, pytest.raises(BackendError) as raised:
        reply_of(server, silence_seconds=30.0, total_seconds=30.0, limit=64)
    message = str(raised.value)
    assert expected in message
    assert len(server.bodies) == 1, "asking again is no use"
    assert len(message) < 700
    assert message.isprintable()


@pytest.mark.parametrize(
    "odd",
    [
        *["7", '{"content": 3}', '{"content": [4, {"token": 5}, {"token": "1", "top_logprobs": [6, {}]}]}'],
        '{"content": [{"token": "1", "top_logprobs": [{"token": "1", "logprob": "x"}]}]}',
        '{"content": [{"token": "1", "top_logprobs": [{"token": ["1"], "logprob": -1}, {"token": {}}]}]}',
        '{"content": [{"token": "1", "logprob": NaN, "top_logprobs": []}]}',
        '{"content": [{"token": "1", "logprob": -1e400, "top_logprobs": [{"token": "1", "logprob": -1e400}]}]}',
        f'{{"content": [{{"token": "1", "logprob": -1{"0" * 400}, "top_logprobs": []}}]}}',
        '{"content": [{"token": "1", "logprob": true, "top_logprobs": {"1": 1}}]}',
    ],
)
def test_odd_probabilities_are_none(odd: str) -> None:
    event = f'{{"choices": [{{"delta": {{"content": "1"}}, "logprobs": {odd}, "finish_reason": "stop"}}]}}'
    with serving(sends(f"data: {event}\n\ndata: [DONE]\n\n".encode())) as server:
        reply = reply_of(server)
    assert (reply.text, dict(reply.odds)) == ("1", {})


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        (b"<html>hello</html>", "did not answer with JSON"),
        ([1, 2], "lists no models"),
        ({"data": "x"}, "lists no models"),
        ({"data": [{"id": 3}]}, "lists no models"),
        (b"[" * 100_000, "did not answer with JSON"),
        (b'{"data": "' + b"x" * (5 * 2**20), "did not answer with JSON"),
    ],
)
def test_a_server_that_lists_nonsense_is_refused(models: Any, expected: str) -> None:
    with serving(says(FINAL), models=models) as server, pytest.raises(BackendError, match=expected):
        reply_of(server)


def test_the_model_is_the_only_one_or_the_one_named() -> None:
    two = {"data": [{"id": "a", "owned_by": "vllm"}, {"id": "b", "owned_by": "me"}]}
    with serving(says(FINAL), models=two) as server:
        with pytest.raises(UsageError, match="serves 'a', 'b': choose with --served-model"):
            reply_of(server)
        with pytest.raises(UsageError, match="no model 'c'; it serves 'a', 'b'"):
            reply_of(server, served_model="c")
        reply_of(server, served_model="b")
    assert server.bodies[0]["model"] == "b"
    assert "top_k" in server.bodies[0]


def test_a_full_context_is_an_error_of_its_own() -> None:
    full = {"error": {"message": "This model's maximum context length is 8192 tokens, you asked for 9000."}}
    with serving(answers(400, full)) as server, pytest.raises(ContextFullError, match="maximum context length"):
        reply_of(server)
    with serving(says(call(5)), answers(400, full)) as server:
        assert judged_by(server).verdict.source == "recommended", "what stands already is kept"


def test_retry_after_is_honoured_within_bounds() -> None:
    for after in ("0", "1"):
        with serving(answers(429, Retry_After=after), says(FINAL)) as server:
            began = time.monotonic()
            reply_of(server, pause_seconds=3600.0)
            assert time.monotonic() - began >= float(after), "the server's pause, and not ours"
        assert len(server.bodies) == 2
    for after in ("9999", "9" * 400):
        with serving(answers(429, Retry_After=after), says(FINAL)) as server:
            seen: list[Event] = []
            with pytest.raises(
                BackendError, match=r"429: no \(1 try\)\. It asks to wait \d+ s, and a reply may"
            ) as raised:
                reply_of(server, total_seconds=30.0, watch=seen.append)
        assert str(raised.value).isprintable()
        assert not any(isinstance(event, Waiting) for event in seen), "at once"
        assert len(server.bodies) == 1


def test_no_server_is_waited_for_in_the_open_and_given_up_in_time() -> None:
    seen: list[Waiting] = []

    def watch(event: Event) -> None:
        if isinstance(event, Waiting):
            seen.append(event)

    with serving(says(FINAL)) as server:
        # Only the time for a connection ends this: there are tries for hours.
        gone = remote(server, tries=10**6, connect_seconds=1.0, total_seconds=3600.0, silence_seconds=3600.0)
    with open_remote(gone, profile=default_profile()) as backend:
        with pytest.raises(BackendError, match=r"cannot be reached: .+ \(\d+ tries\)\. Is it running") as raised:
            backend.reply(HELLO, NO_FRAMES, sampling=Sampling(8), observe=watch)
        assert "\n" not in str(raised.value)
        assert len(seen) > 3
        assert [event.attempt for event in seen] == list(range(2, len(seen) + 2))
        assert seen[0].what.startswith(f"the server at {gone.url} (cannot be reached: ")


def test_a_server_that_comes_back_is_found() -> None:
    with serving(says(FINAL)) as server:
        port = int(server.url.rsplit(":")[-1].split("/")[0])
        gone = remote(server, tries=10**6, connect_seconds=30.0, total_seconds=60.0)
    with contextlib.ExitStack() as back, open_remote(gone, profile=default_profile()) as backend:

        def come_back(event: Event) -> None:
            if isinstance(event, Waiting) and event.attempt == 2:
                back.enter_context(serving(says(FINAL), port=port))

        assert backend.reply(HELLO, NO_FRAMES, sampling=Sampling(256), observe=come_back).text == FINAL


PATIENT = {"silence_seconds": 600.0, "total_seconds": 600.0}


def ask_until(stop: Stop, backend: HttpBackend) -> None:
    """Ask for a reply until `stop` is set."""
    with pytest.raises(KeyboardInterrupt), stops_in_force(stop):
        backend.reply(HELLO, NO_FRAMES, sampling=Sampling(64), observe=ignore)


@pytest.mark.parametrize("begins", [False, True], ids=["no answer", "half an answer"])
def test_a_stop_ends_requests_while_the_server_says_nothing(begins: bool, caplog: pytest.LogCaptureFixture) -> None:
    jobs = 16
    asked, left = threading.Barrier(jobs + 1, timeout=20), threading.Barrier(jobs + 1, timeout=20)
    stop = Stop()

    def act(request: Any) -> None:
        if begins:
            request.begin()
            request.event({"choices": [{"index": 0, "delta": {"content": "<sn"}, "finish_reason": None}]})
        asked.wait()
        # The other side closes the connection, or resets it if it has not read all.
        with contextlib.suppress(ConnectionResetError):
            assert request.rfile.read(1) == b""
        left.wait()
        request.drop()

    with serving(act) as server, opened(server, **PATIENT) as backend, ThreadPoolExecutor(jobs) as pool:
        backend.connect()
        before = threading.active_count()
        work = [pool.submit(ask_until, stop, backend) for _ in range(jobs)]
        asked.wait()
        # A thread for each caller and for each request of the scripted server: the back end adds none.
        assert threading.active_count() <= before + 2 * jobs
        stop.set(KeyboardInterrupt())
        left.wait()
        for future in work:
            future.result(timeout=20)
    assert len(server.bodies) == jobs
    gc.collect()
    assert not caplog.records, "no task is left behind"


def test_a_packed_answer_is_refused_before_it_is_read() -> None:
    def packed(data: bytes, encoding: str = "gzip") -> Act:
        def act(request: Any) -> None:
            request.whole(200, data, headers={"Content-Encoding": encoding}, kind="text/event-stream")

        return act

    bomb = gzip.compress(b"data: " + bytes(2**27))
    assert len(bomb) < 2**18
    for data, encoding in ((bomb, "gzip"), (gzip.compress(bomb), "gzip, gzip"), (b"data: 1\n\n", "br")):
        with serving(packed(data, encoding)) as server, pytest.raises(BackendError, match="that was not asked for"):
            reply_of(server)


@pytest.mark.parametrize("name", ["VRT_LITE_API_KEY", "OPENAI_API_KEY"])
def test_the_key_is_sent_and_never_shown(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(name, KEY)
    with serving(says(FINAL), key=KEY) as server:
        reply_of(server)
    assert set(server.keys) == {f"Bearer {KEY}"}
    leaks: list[Act] = [
        answers(400, {"error": {"message": f"the key {KEY} is bad"}}),
        answers(500, {"error": {"message": f"the key {KEY} is bad"}}),
        sends(f'data: {{"error": "{KEY}"}}\n\n'.encode()),
        sends(b"data: {}\n\n", kind=f"text/{KEY}"),
    ]
    for act in leaks:
        with serving(act) as server, pytest.raises(BackendError) as raised:
            reply_of(server)
        assert KEY not in "".join(traceback.format_exception(raised.value))
    with serving(says(FINAL), models={"data": [{"id": f"model {KEY}"}]}) as server, opened(server) as backend:
        assert backend.connect().model == f"model {'*' * len(KEY)}"
    with serving(key="another") as server, pytest.raises(BackendError, match="VRT_LITE_API_KEY") as raised:
        reply_of(server)
    assert KEY not in str(raised.value)
    assert KEY not in repr(remote(server))


def test_a_redirect_does_not_take_the_key_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRT_LITE_API_KEY", KEY)
    with serving(says(FINAL)) as thief:
        away = answers(308, {}, Location=f"{thief.url}/chat/completions")
        with serving(away) as server, pytest.raises(BackendError, match="redirects elsewhere"):
            reply_of(server)
    assert not thief.bodies
    assert not thief.keys


def test_a_key_that_no_header_can_hold_is_refused_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRT_LITE_API_KEY", "se\ncret")
    with pytest.raises(UsageError) as raised:
        open_remote(Remote("http://127.0.0.1:1/v1"), profile=default_profile())
    assert "cret" not in str(raised.value).replace("Set it again", "")


def test_a_key_on_an_open_line_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    def warnings(url: str) -> list[str]:
        with open_remote(Remote(url), profile=default_profile()) as backend:
            return [warning.text for warning in backend.warnings]

    assert not warnings("http://10.1.2.3:8000/v1")
    monkeypatch.setenv("VRT_LITE_API_KEY", KEY)
    assert "unencrypted" in warnings("http://10.1.2.3:8000/v1")[0]
    for safe in ("https://example.org/v1", "http://localhost:8000/v1", "http://[::1]:8000/v1"):
        assert not warnings(safe)


def test_a_back_end_is_used_and_closed_beside_a_running_loop() -> None:
    """As in a notebook, whose own loop runs in the thread that judges."""

    async def judge_in_a_notebook(server: Server) -> str:
        return reply_of(server).text

    with serving(says(FINAL)) as server, ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: asyncio.run(judge_in_a_notebook(server))).result() == FINAL


def test_proxies_are_not_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(says(FINAL)) as proxy, serving(says(FINAL)) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/v1"))
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert reply_of(server).text == FINAL
    assert not proxy.bodies


@pytest.mark.parametrize(
    "url",
    [
        *[f"http://user:{KEY}@127.0.0.1:8000/v1", f"http://{KEY}@127.0.0.1/v1", f"https://127.0.0.1/v1?key={KEY}"],
        *[f"https://127.0.0.1/v1#{KEY}", f"http://[{KEY}/v1", "", "8000", "127.0.0.1:8000/v1", "ftp://127.0.0.1/v1"],
        *["http://", "http://a b/v1", "http://h:99999/v1"],
    ],
)
def test_what_is_no_address_or_may_hold_a_secret_is_refused_unseen(url: str) -> None:
    with pytest.raises(UsageError) as raised:
        Remote(url)
    assert KEY not in str(raised.value)


def test_a_slash_at_the_end_is_no_other_address() -> None:
    assert Remote("http://h:1/v1/") == Remote("http://h:1/v1")


@pytest.mark.parametrize(
    "header",
    [
        *["99999999999", "Wed, 21 Oct 99999999999 07:28:00 GMT", "Wed, 99 Oct 2026 99:99:99 GMT", "-1", "1e9", "nan"],
        *["٣", ""],
    ],
)
def test_an_odd_wait_is_no_error_of_its_own(header: str) -> None:
    error = explain_status(503, "", retry_after=header)
    assert error.kind == "passing"
    assert error.pause_seconds is None or error.pause_seconds >= 0
