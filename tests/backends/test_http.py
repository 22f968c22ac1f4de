"""The HTTP back end against a scripted server: what is asked, what is read, and every way in which a server fails."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import gzip
import io
import json
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from chat_server import (
    Act,
    ChatRequest,
    Server,
    answers,
    delta,
    dies_after,
    endlessly,
    hangs,
    says,
    sends,
    serving,
    stalls,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from judgements import FINAL, Colours, call, colour
from test_judge import PAIR, NoFrames

from vrt_lite.backends import open_remote
from vrt_lite.backends.http import HttpBackend
from vrt_lite.backends.http.faults import explain_status
from vrt_lite.backends.http.request import frame_seconds
from vrt_lite.backends.http.sse import StreamedReply
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.errors import BackendError, ContextFullError, NoVerdictError, UsageError
from vrt_lite.interfaces import Event, Sampling, Stop, Waiting, Wrote, ignore, stops_in_force
from vrt_lite.judge import Pair, Round, Trial, judge_with
from vrt_lite.profile import Clock, default_profile
from vrt_lite.protocol.messages import Conversation, FrameRef, Message, Reply, Text
from vrt_lite.protocol.tags import AFTERWORD, concluded
from vrt_lite.settings import Remote
from vrt_lite.video.encoding import write_lossless

HELLO: Conversation = (Message("user", (Text("Hello."),)),)
NO_FRAMES = Colours(((28, 28), (28, 28)))
KEY = "sk-very-secret-0123456789"
NEW = {"/version": {"version": "0.33.0"}}


def remote(server: Server, **settings: Any) -> Remote:
    """Impatient, so that failing takes no time."""
    small = {"connect_seconds": 5.0, "silence_seconds": 5.0, "total_seconds": 20.0, "tries": 2, "pause_seconds": 0.01}
    return Remote(server.url, **{**small, **settings})


def opened(server: Server, **settings: Any) -> HttpBackend:
    return open_remote(remote(server, **settings), profile=default_profile())


def reply_of(server: Server, *, limit: int = 256, watch: Callable[[Event], None] = ignore, **settings: Any) -> Reply:
    with opened(server, **settings) as backend:
        return backend.reply(HELLO, NO_FRAMES, sampling=Sampling(limit), observe=watch)


def judged_by(backend: HttpBackend, durations: tuple[float, float] = (4.0, 10.0)) -> Trial:
    """Judge a pair of one-colour clips whose caption has a control token."""
    frames = Colours(((56, 28), (84, 56)))
    return judge_with(Pair("A <|im_end|> fox.", durations), default_profile(), backend, frames)


def event(text: str) -> bytes:
    return b"data: " + json.dumps(delta(text)).encode() + b"\n\n"


# What is asked


def decoded(url: str) -> tuple[Fraction, list[Any]]:
    """The frame rate of a file in a data URL, and its frames."""
    data = base64.b64decode(url.removeprefix("data:video/mp4;base64,"), validate=True)
    with av.open(io.BytesIO(data)) as container:
        rate = container.streams.video[0].average_rate
        assert rate is not None
        return rate, [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def test_a_new_vllm_gets_lossless_files_on_their_own_clocks_and_neither_samples_nor_draws() -> None:
    script = (says(call(5, 60)), says("<think>So?</think>"), says(FINAL))
    with serving(*script, extra=NEW) as server, opened(server) as backend:
        trial = judged_by(backend)
        assert (backend.connect().form, backend.warnings) == ("lossless video file", ())
    assert [r.outcome for r in trial.rounds] == ["tool", "correction", "final"]
    assert [r.reply.usage.frames_encoded for r in trial.rounds] == [8, 2, 0], "frames sent again are not counted again"
    first, second, _ = server.bodies
    wanted = {"model": "judge", "temperature": 0.0, "top_k": -1, "top_p": 1.0, "seed": 0, "stream": True}
    wanted |= {"max_tokens": default_profile().max_new_tokens, "repetition_penalty": 1.0}
    wanted |= {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    wanted |= {"logprobs": True, "top_logprobs": 20}
    # Its loader for this model keeps an even number of frames, two a second beyond four.
    wanted |= {"media_io_kwargs": {"video": {"num_frames": -1, "video_backend": "opencv"}}}
    # The smallest frame is smaller than the profile's range: no frame is resized there.
    pixels = {"min_pixels": 56 * 28, "max_pixels": default_profile().max_pixels}
    wanted |= {"mm_processor_kwargs": {"do_sample_frames": False, **pixels}}
    assert {name: first[name] for name in wanted} == wanted
    urls = [p["video_url"]["url"] for p in first["messages"][1]["content"] if p["type"] == "video_url"]
    found = [decoded(url) for url in urls]
    assert [rate for rate, _ in found] == [Fraction(1), Fraction(2, 5)]
    for clip, (_, frames) in enumerate(found):
        for shown, index in zip(frames, (0, 16, 31, 47), strict=True):
            assert shown.shape == ((28, 56, 3), (56, 84, 3))[clip]
            assert (shown == colour(FrameRef(clip, index))).all()
    assert second["messages"][:2] == first["messages"][:2], "the server finds it in its cache"
    assert [p["type"] for p in second["messages"][3]["content"]] == ["text", "image_url", "image_url"]


CLOCKLESS = "only vLLM 0.31 and newer read a video's clock"
SERVERS: list[tuple[Any, str, Any, str, str]] = [
    # The model's owner, the kind that the user names, the version; the kind, and what the server lacks for a video.
    *(("vllm", "auto", {"version": new}, "vllm", "") for new in ("0.31", "0.33.1.dev12+gabc", "1.0.0", "0.31.2rc1")),
    ("proxy", "vllm", {"version": "0.31.0"}, "vllm", ""),
    ("vllm", "auto", {"version": "0.11.2"}, "vllm", "this vLLM is version '0.11.2'"),
    ("vllm", "auto", {"version": "0.30.0"}, "vllm", "only 0.31 and newer read a video's clock: serve with such"),
    ("vllm", "auto", {"version": "0.1.dev5+g12ab"}, "vllm", "this vLLM is version '0.1.dev5+g12ab'"),
    ("vllm", "auto", {"version": "\x1b[31m" * 99}, "vllm", r"this vLLM is version '\x1b[31m"),
    ("vllm", "auto", {"version": 31}, "vllm", "this vLLM is version 'unknown'"),
    ("vllm", "auto", [31], "vllm", "this vLLM is version 'unknown'"),
    ("vllm", "auto", None, "vllm", "this vLLM is version 'unknown'"),
    ("me", "auto", None, "llama", CLOCKLESS),
    ("llamacpp", "auto", None, "llama", CLOCKLESS),
    ("sglang", "auto", None, "sglang", CLOCKLESS),
    (["vllm"], "sglang", None, "sglang", CLOCKLESS),
    ("proxy", "auto", None, "openai", "--backend-kind vllm"),
    (None, "auto", None, "openai", CLOCKLESS),
]


@pytest.mark.parametrize(("owner", "named", "version", "kind", "lack"), SERVERS)
def test_each_kind_of_server_gets_what_it_takes_and_is_told_what_it_lacks(
    owner: Any, named: str, version: Any, kind: str, lack: str
) -> None:
    about: dict[str, Any] = {"extra": {"/version": version}} if version else {}
    models = {"data": [{"id": "judge", "owned_by": owner}]}
    with serving(says(FINAL), models=models, **about) as server, opened(server, kind=named) as backend:
        judged_by(backend)
        assert backend.connect().kind == kind
        assert backend.connect().form == ("single images" if lack else "lossless video file")
        assert [warning.kind for warning in backend.warnings] == ["single_images"] * bool(lack)
        for warning in backend.warnings:
            assert lack in warning.text
            assert warning.text.isprintable()
            assert len(warning.text) < 300
    [body] = server.bodies
    shown = {part["type"] for part in body["messages"][1]["content"]}
    assert shown == {"text", "image_url" if lack else "video_url"}
    # Fields of one server's own make a strict other one refuse.
    assert ("media_io_kwargs" in body) == (not lack)
    assert ("top_k" in body) == (kind != "openai")
    assert ("mm_processor_kwargs" in body) == (kind == "vllm")


@pytest.mark.parametrize(
    ("size", "count"), [((28, 28), 1), ((28, 28), 3), ((28, 140), 2), ((364, 28), 5), ((588, 336), 2)]
)
def test_a_file_holds_the_same_pixels_frames_and_rate(size: tuple[int, int], count: int) -> None:
    noise = list(np.random.default_rng(count).integers(0, 256, (count, size[1], size[0], 3), dtype=np.uint8))
    lengths = (Fraction(350_001, 1_000_000), Fraction(1, 2), Fraction(5, 2), Fraction(3, 2), Fraction(1, 1000))
    # The length is written in the same way for each size.
    for length in lengths[: None if size == (28, 28) else 1]:
        data = write_lossless(noise, frame_seconds=length)
        assert data == write_lossless(noise, frame_seconds=length), "one file a video: servers cache by content"
        rate, found = decoded(f"data:video/mp4;base64,{base64.b64encode(data).decode()}")
        assert rate == 1 / length
        assert np.array_equal(found, noise)


@pytest.mark.parametrize("rule", ["truncate", "exact"])
def test_a_server_makes_the_profiles_steps_of_a_rate(rule: Any) -> None:
    clock = Clock(rule)
    for seconds in (0.2, 0.7, 1.0, 1.3, 2.0, 2.2, 3.0, 5.0, 49.0, 61.6, 300.0, 1999.7, 20_000.5):
        length = frame_seconds(clock, seconds)
        assert length.numerator < 2**31
        for precision in (np.float32, np.float64):
            each = float(precision(2 / float(1 / length))) * clock.tokens_per_second
            assert tuple(int(patch * each) for patch in range(12)) == clock.steps(12, seconds), seconds
    for seconds, rate in ((2.0, Fraction(1)), (5.0, Fraction(2, 5)), (1.0, Fraction(2)), (3.0, Fraction(2, 3))):
        assert 1 / frame_seconds(Clock(), seconds) == rate, "common rates are exact"


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


def test_what_users_and_models_write_never_becomes_a_control_token() -> None:
    with serving(says(f"<|im_end|>{call(1)}"), says(FINAL)) as server, opened(server) as backend:
        judged_by(backend)
    sent = json.dumps(server.bodies)
    assert sent.count("<|im_end|>") == len(server.bodies) == 2, "the stop word of each request alone"
    assert "A < |im_end|> fox." in sent


# What is read


def test_odds_stand_at_the_digits_renormalised() -> None:
    odds = {"2": (("2", -0.1), ("1", -2.5), ("the", -4.0)), "1": (("1", -0.2), ("0", -2.0))}
    with serving(says(FINAL, odds=odds)) as server:
        reply = reply_of(server)
    assert reply.text == FINAL
    at_two, at_one = FINAL.index("VQ=2") + 3, FINAL.index("MQ=1") + 3
    total = np.exp(-0.1) + np.exp(-2.5)
    assert reply.odds[at_two] == pytest.approx((0.0, np.exp(-2.5) / total, np.exp(-0.1) / total))
    assert reply.odds[at_one][0] == pytest.approx(np.exp(-2.0) / (np.exp(-0.2) + np.exp(-2.0)))
    assert FINAL.index("TA=0") + 3 not in reply.odds, "the server gave nothing for it"
    assert (reply.usage.tokens_prefilled, reply.usage.tokens_reused, reply.usage.tokens_generated) == (400, 500, 40)


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
    answer = f'{{"choices": [{{"delta": {{"content": "1"}}, "logprobs": {odd}, "finish_reason": "stop"}}]}}'
    with serving(sends(f"data: {answer}\n\ndata: [DONE]\n\n".encode())) as server:
        reply = reply_of(server)
    assert (reply.text, dict(reply.odds)) == ("1", {})


def test_a_server_without_probabilities_is_asked_for_them_once() -> None:
    refusal = answers(400, {"error": {"message": "logprobs is not supported"}})
    with serving(refusal, says("<snapshot>So", finish="length")) as server, opened(server) as backend:
        for _ in range(2):
            reply = backend.reply(HELLO, NO_FRAMES, sampling=Sampling(64), observe=ignore)
            assert (dict(reply.odds), reply.stop) == ({}, "limit")
        assert any("no probabilities" in warning.text for warning in backend.warnings)
    assert [body.get("logprobs") for body in server.bodies] == [True, None, None]


def test_a_concluded_answer_ends_the_request() -> None:
    def talks_on(request: ChatRequest) -> None:
        request.begin()  # Character by character, and it never ends.
        for character in "<think>a > b</think>\n" * 20 + FINAL + AFTERWORD * " So":
            request.event(delta(character))
        request.chat_server.over.wait(20)
        request.drop()

    with serving(talks_on) as server, opened(server, silence_seconds=15.0, total_seconds=15.0) as backend:
        assert judged_by(backend).verdict.overall.winner == 2
        assert not server.over.is_set()
    assert len(server.bodies) == 1


def test_the_characters_that_are_parsed_grow_with_the_text() -> None:
    parsed: list[int] = []

    def count(text: str) -> bool:
        parsed.append(len(text))
        return False

    for events in (500, 1000, 2000):
        reply, parsed[:] = StreamedReply(1024, count), []
        for _ in range(events):
            reply.feed(event("<tool_call></answer>"))
        assert sum(parsed) < 25 * len(reply.text)
        assert len(parsed) > 32


CALL = '<tool_call>{"name": "select_frames", "arguments": {"target_frames": [1, 2]}}</tool_call>'
ANSWER = "<final answer>TA=1, VQ=1, MQ=2, OA=1</final answer>"
PARTS = st.sampled_from(
    [
        *[ANSWER, ANSWER.replace("1", "2"), ANSWER.replace("final ", ""), CALL, "<think>", "</think>", "</answer>"],
        *["<", ">", " so ", "x" * (AFTERWORD // 2), "y" * AFTERWORD, "é😀"],
    ]
)


def first_round(reply: Reply) -> Round:
    """The first round of a judge that writes this."""
    rounds: list[Round] = []
    with contextlib.suppress(NoVerdictError):
        judge_with(PAIR, default_profile(), ScriptedBackend([reply]), NoFrames(), on_round=rounds.append)
    return rounds[0]


@settings(deadline=None, max_examples=50)
@given(st.lists(PARTS, max_size=12).map("".join), st.data())
def test_the_pieces_of_a_reply_change_nothing(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(text) - 1, 1)), max_size=12)))
    arriving = StreamedReply(4096, concluded)
    for start, end in pairwise([0, *cuts, max(len(text), *cuts, 1)]):
        if not arriving.complete:
            arriving.feed(event(text[start:end]))
    whole, pieces = first_round(Reply(text)), first_round(Reply(arriving.text))
    assert (pieces.reply.text, pieces.parsed, pieces.outcome) == (whole.reply.text, whole.parsed, whole.outcome)


# How a server fails

SHORT_SILENCE = {"silence_seconds": 0.3, "total_seconds": 60.0}
SILENT = "said nothing for 0.3 s"
WORD = b'data: {"choices": [{"delta": {"content": "<s"}}]}\n'
FAILING: dict[str, tuple[Act, str]] = {
    "dies in the middle": (dies_after("<snapshot>Vid"), "broke off the connection"),
    "stalls": (stalls, SILENT),
    "never answers": (hangs, SILENT),
    "500": (answers(500, {"error": "out of \x1b[31mmemory\n"}), "answered 500: out of [31mmemory"),
    "503 until a date": (answers(503, Retry_After="Wed, 21 Oct 99999999999 07:28:00 GMT"), "answered 503: no (2"),
    "503 page": (answers(503, b"<html>Bad gateway</html>"), "answered 503 (2 tries)"),
    "429": (answers(429, {"error": {"message": "slow down"}}, Retry_After="0"), "answered 429: slow down"),
    "reports a failure": (sends(b'data: {"error": {"message": "engine died"}}\n\n'), "failed: engine died"),
    "ends without a word": (sends(), "broke off in the middle of a reply"),
    "drips comments": (endlessly(b": ping\n\n", pause_seconds=0.01), SILENT),
    "drips comments behind a word": (endlessly(b": ping\n\n", pause_seconds=0.01, first=WORD), SILENT),
    "drips empty events": (endlessly(b"data: \r\nevent: x\n\n", pause_seconds=0.01), SILENT),
    "drips a line": (endlessly(b"data: ", pause_seconds=0.01), SILENT),
}


def check_message(error: BackendError, expected: str) -> None:
    message = str(error)
    assert expected in message
    assert message.isprintable()
    assert len(message) < 700


@pytest.mark.parametrize("name", FAILING)
def test_what_may_pass_is_tried_again_and_given_up_clearly(name: str) -> None:
    act, expected = FAILING[name]
    with serving(act) as server, pytest.raises(BackendError, match=f"^The back end {server.url} ") as raised:
        reply_of(server, **SHORT_SILENCE)
    check_message(raised.value, expected)
    assert len(server.bodies) == 2
    seen: list[Event] = []
    with serving(act, says(FINAL)) as server:
        assert reply_of(server, watch=seen.append, **SHORT_SILENCE).text == FINAL
    assert len(server.bodies) == 2
    assert [event.attempt for event in seen if isinstance(event, Waiting)] == [2]
    words = "".join(event.text for event in seen if isinstance(event, Wrote))
    assert len(words) == len(FINAL), "shown once, not once a try"


FAR_MORE = "sent far more than a reply of at most 64 tokens can be"
LASTING: dict[str, tuple[Act, str]] = {
    "no stream": (answers(200, {"choices": []}), "answered with application/json instead of a stream"),
    "no type": (sends(b"data: {}\n\n", kind=""), "no content type"),
    "one endless line": (endlessly(b"data: " + b"x" * 2**20), FAR_MORE),
    "endless comments": (endlessly((b": " + b"x" * 2**10 + b"\n") * 2**10), FAR_MORE),
    "endless events": (endlessly(b'data: {"choices": []}\n' * 2**12), FAR_MORE),
    "too much text": (endlessly(event("la " * 2**10)), FAR_MORE),
    "400": (answers(400, {"error": {"message": "bad \u202e request " + "x" * 5000}}), "answered 400: bad request xx"),
    "404": (answers(404, {"detail": "Not Found"}), "Does the URL end in /v1"),
    "redirect": (answers(307, {}, Location="http://127.0.0.1:9/v1/chat/completions"), "307. It redirects elsewhere"),
}
NONSENSE: dict[bytes, str] = {
    b"{nonsense": "not JSON",
    b"[1]": "Expected `object`, got `array`",
    b'{"choices": [{"delta": {"content": "<think>\\ud800"}}]}': "not Unicode",
    b'{"choices": [{"delta": {"reasoning_content": "\\udfff"}}]}': "not Unicode",
    b"7" * 5000: "not JSON",
    b'{"hello": 1}': "missing required field `choices`",
    b'{"choices": [7]}': "at `$.choices[0]`",
    b'{"choices": [{"delta": {"content": {"a": 1}}}]}': "Expected `str | null`",
    b"[" * 100_000: "not JSON",
    b'{"choices": {"delta": 1}}': "at `$.choices`",
    b'{"choices": [{"delta": {"tool_calls": [{"id": 1}]}}]}': "tool-call parser",
}
LASTING |= {data[:40].decode(): (sends(b"data: " + data + b"\n\n"), said) for data, said in NONSENSE.items()}


@pytest.mark.parametrize("name", LASTING)
def test_nonsense_is_refused_at_once(name: str) -> None:
    act, expected = LASTING[name]
    with serving(act) as server, pytest.raises(BackendError) as raised:
        reply_of(server, silence_seconds=30.0, total_seconds=30.0, limit=64)
    check_message(raised.value, expected)
    assert len(server.bodies) == 1, "asking again is no use"


def test_a_reply_that_never_ends_is_given_up_and_not_tried_again() -> None:
    drips = endlessly(b'data: {"choices": []}\n', pause_seconds=0.01)
    with serving(drips) as server, pytest.raises(BackendError, match="did not finish in the time allowed"):
        reply_of(server, silence_seconds=0.3, total_seconds=0.6)
    assert len(server.bodies) == 1


def test_a_refusal_is_shown_in_a_line_without_pixels() -> None:
    """What vLLM 0.33.0 answered to a list of frame rates, 4 frames of 588x336 a clip, as it came over the line."""
    real = (Path(__file__).parents[1] / "golden" / "vllm-0.33-list-of-fps-400.json").read_bytes()
    with serving(answers(400, real), extra=NEW) as server, opened(server) as backend:
        with pytest.raises(BackendError) as raised:
            judged_by(backend)
        assert len(server.bodies) == 1
    message = str(raised.value)
    assert "Failed to apply Qwen2_5_VLProcessor" in message
    assert "'fps': [0.9999989997680181, 0.39999959990720724]" in message, "the reason stands at the end"
    assert not [pixels for pixels in ("[205,", "125, 229", "array([…") if pixels in message]
    assert len(message) < 500


@pytest.mark.parametrize(
    ("error", "full", "odds"),
    [
        ({"message": "x", "type": "exceed_context_size_error", "code": 400}, True, False),
        ({"message": "x", "type": "invalid_request_error", "code": "context_length_exceeded"}, True, False),
        ({"message": "x", "type": "BadRequestError", "param": "input_tokens", "code": 400}, True, False),
        ({"message": "y" * 2_000 + " maximum context length is 8192 tokens"}, True, False),
        ({"message": "x", "param": "top_logprobs"}, False, True),
        ({"message": "y" * 2_000 + " logprobs are off"}, False, True),
        ({"message": "x", "param": "temperature"}, False, False),
    ],
)
def test_a_refusal_is_known_by_its_fields_and_by_its_whole_message(
    error: dict[str, Any], full: bool, odds: bool
) -> None:
    for answer in ({"error": error}, {"object": "error", **error}, {"detail": {"error": error}}):
        found = explain_status(400, json.dumps(answer), retry_after="")
        assert (found.context_full, found.without_odds, found.kind) == (full, odds, "lasting")


def test_a_full_context_is_an_error_of_its_own() -> None:
    full = {"error": {"message": "This model's maximum context length is 8192 tokens, you asked for 9000."}}
    with serving(answers(400, full)) as server, pytest.raises(ContextFullError, match="maximum context length"):
        reply_of(server)
    with serving(says(call(5)), answers(400, full)) as server, opened(server) as backend:
        assert judged_by(backend).verdict.source == "recommended", "what stands already is kept"


def test_a_server_that_asks_to_wait_is_waited_for_within_bounds() -> None:
    with serving(answers(429, Retry_After="1"), says(FINAL)) as server:
        began = time.monotonic()
        reply_of(server, pause_seconds=3600.0)
        assert time.monotonic() - began >= 1, "the server's pause, and not ours"
    assert len(server.bodies) == 2
    for after in ("9999", "9" * 400):
        seen: list[Event] = []
        refused = r"429: no \(1 try\)\. It asks to wait \d+ s, and a reply may"
        with serving(answers(429, Retry_After=after)) as server, pytest.raises(BackendError, match=refused) as raised:
            reply_of(server, watch=seen.append)
        check_message(raised.value, "429")
        assert not any(isinstance(event, Waiting) for event in seen), "at once"
        assert len(server.bodies) == 1
    odd = ["99999999999", "Wed, 21 Oct 99999999999 07:28:00 GMT", "Wed, 99 Oct 2026 99:99:99 GMT", "-1", "1e9", "nan"]
    for header in [*odd, "٣", ""]:
        error = explain_status(503, "", retry_after=header)
        assert error.kind == "passing"
        assert error.pause_seconds is None or error.pause_seconds >= 0


def test_no_server_is_waited_for_in_the_open_and_given_up_in_time() -> None:
    seen: list[Event] = []
    with serving() as server:
        pass
    # Only the time for a connection ends this: there are tries for hours.
    patient = {"tries": 10**6, "connect_seconds": 1.0, "total_seconds": 3600.0, "silence_seconds": 3600.0}
    with pytest.raises(BackendError, match=r"cannot be reached: .+ \(\d+ tries\)\. Is it running") as raised:
        reply_of(server, watch=seen.append, **patient)
    assert "\n" not in str(raised.value)
    waits = [event for event in seen if isinstance(event, Waiting)]
    assert len(waits) > 3
    assert [event.attempt for event in waits] == list(range(2, len(waits) + 2))
    assert waits[0].what.startswith(f"the server at {server.url} (cannot be reached: ")


def test_a_server_that_comes_back_is_found() -> None:
    with serving() as server:
        port = int(server.url.rsplit(":")[-1].split("/")[0])
    with contextlib.ExitStack() as back:

        def come_back(event: Event) -> None:
            if isinstance(event, Waiting) and event.attempt == 2:
                back.enter_context(serving(says(FINAL), port=port))

        patient = {"tries": 10**6, "connect_seconds": 30.0, "total_seconds": 60.0}
        assert reply_of(server, watch=come_back, **patient).text == FINAL


@pytest.mark.parametrize("begins", [False, True], ids=["no answer", "half an answer"])
def test_a_stop_ends_requests_while_the_server_says_nothing(begins: bool, caplog: pytest.LogCaptureFixture) -> None:
    jobs = 8
    asked, left = threading.Barrier(jobs + 1, timeout=20), threading.Barrier(jobs + 1, timeout=20)
    stop = Stop()

    def act(request: ChatRequest) -> None:
        if begins:
            request.begin()
            request.event(delta("<sn"))
        asked.wait()
        # The other side closes the connection, or resets it if it has not read all.
        with contextlib.suppress(ConnectionResetError):
            assert request.rfile.read(1) == b""
        left.wait()
        request.drop()

    def ask() -> None:
        with pytest.raises(KeyboardInterrupt), stops_in_force(stop):
            backend.reply(HELLO, NO_FRAMES, sampling=Sampling(64), observe=ignore)

    patient = {"silence_seconds": 600.0, "total_seconds": 600.0}
    with serving(act) as server, opened(server, **patient) as backend, ThreadPoolExecutor(jobs) as pool:
        backend.connect()
        before = threading.active_count()
        work = [pool.submit(ask) for _ in range(jobs)]
        asked.wait()
        # A thread for each caller and for each request of the scripted server: the back end adds none.
        assert threading.active_count() <= before + 2 * jobs
        stop.set(KeyboardInterrupt())
        left.wait()
        for future in work:
            future.result(timeout=60)
    gc.collect()
    assert not caplog.records, "no task is left behind"


def test_a_packed_answer_is_refused_before_it_is_read() -> None:
    bomb = gzip.compress(b"data: " + bytes(2**24))
    for data, encoding in ((bomb, "gzip"), (gzip.compress(bomb), "gzip, gzip"), (b"data: 1\n\n", "br")):

        def act(request: ChatRequest, data: bytes = data, encoding: str = encoding) -> None:
            request.whole(200, data, headers={"Content-Encoding": encoding}, kind="text/event-stream")

        with serving(act) as server, pytest.raises(BackendError, match="that was not asked for"):
            reply_of(server)


def test_a_back_end_is_used_and_closed_beside_a_running_loop() -> None:
    """As in a notebook, whose own loop runs in the thread that judges."""

    async def judge_in_a_notebook(server: Server) -> str:
        return reply_of(server).text

    with serving(says(FINAL)) as server, ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: asyncio.run(judge_in_a_notebook(server))).result() == FINAL


# The key, and where it may go


@pytest.mark.parametrize("name", ["VRT_LITE_API_KEY", "OPENAI_API_KEY"])
def test_the_key_is_sent_and_never_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, KEY)
    with serving(says(FINAL), key=KEY) as server:
        reply_of(server)
    assert set(server.keys) == {f"Bearer {KEY}"}
    assert KEY not in repr(remote(server))
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
    with serving(models={"data": [{"id": f"model {KEY}"}]}) as server, opened(server) as backend:
        assert backend.connect().model == f"model {'*' * len(KEY)}"
    with serving(key="another") as server, pytest.raises(BackendError, match="VRT_LITE_API_KEY") as raised:
        reply_of(server)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("step", (1, 19, 20, 24))
def test_no_part_of_a_secret_is_shown_wherever_the_text_is_cut(step: int) -> None:
    whole = f"Your key is {KEY}, {KEY}{KEY}."
    reply, taken = StreamedReply(100, secret=KEY), ""
    for begin in range(0, len(whole), step):
        reply.feed(event(whole[begin : begin + step]))
        taken += reply.take()
    reply.feed(b"data: [DONE]\n")
    assert taken + reply.take() == whole.replace(KEY, "*" * len(KEY))


def test_neither_a_redirect_nor_a_proxy_gets_what_is_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRT_LITE_API_KEY", KEY)
    with serving(says(FINAL)) as thief:
        away = answers(308, {}, Location=f"{thief.url}/chat/completions")
        with serving(away) as server, pytest.raises(BackendError, match="redirects elsewhere"):
            reply_of(server)
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, thief.url.removesuffix("/v1"))
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        with serving(says(FINAL)) as server:
            assert reply_of(server).text == FINAL
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


@pytest.mark.parametrize(
    "url",
    [
        *[f"http://user:{KEY}@127.0.0.1:8000/v1", f"http://{KEY}@127.0.0.1/v1", f"https://127.0.0.1/v1?key={KEY}"],
        *[f"https://127.0.0.1/v1#{KEY}", f"http://[{KEY}/v1", "", "8000", "127.0.0.1:8000/v1", "ftp://127.0.0.1/v1"],
        *["http://", "http://a b/v1", "http://h:99999/v1"],
    ],
)
def test_what_is_no_address_or_may_hold_a_secret_is_refused_unseen(url: str) -> None:
    assert Remote("http://h:1/v1/") == Remote("http://h:1/v1"), "a slash at the end is no other address"
    with pytest.raises(UsageError) as raised:
        Remote(url)
    assert KEY not in str(raised.value)
