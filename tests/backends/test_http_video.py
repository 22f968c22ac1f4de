"""How a server gets a video: as a file that keeps each clip's pixels and clock, or as images and with a warning."""

from __future__ import annotations

import base64
import io
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from chat_server import Server, answers, says, serving
from judgements import FINAL, Colours, call, colour

from vrt_lite.backends import open_remote
from vrt_lite.backends.http import HttpBackend
from vrt_lite.backends.http.faults import explain_status, find_message, shorten
from vrt_lite.backends.http.request import frame_seconds
from vrt_lite.errors import BackendError
from vrt_lite.judge import Pair, judge_with
from vrt_lite.profile import Clock, Profile, default_profile
from vrt_lite.protocol.messages import FrameRef
from vrt_lite.settings import Remote
from vrt_lite.video.encoding import write_lossless

# What vLLM 0.33.0 answered to a list of frame rates, 4 frames of 588x336 a clip, as it came over the line.
REAL_400 = (Path(__file__).parent.parent / "golden" / "vllm-0.33-list-of-fps-400.json").read_bytes()
SHOWN_FIRST = (0, 16, 31, 47)
LENGTHS = (4.0, 9.0)
NEW = {"/version": {"version": "0.33.0"}}


def opened(server: Server, **settings: Any) -> HttpBackend:
    quick = {"silence_seconds": 5.0, "total_seconds": 20.0, "tries": 3, "pause_seconds": 0.01}
    return open_remote(Remote(server.url, **{**quick, **settings}), profile=default_profile())


def judged(backend: HttpBackend, lengths: tuple[float, float] = LENGTHS, *, first_frames: int = 4) -> None:
    frames = Colours(((56, 28), (84, 56)))
    profile = Profile(first_frames=first_frames)
    assert judge_with(Pair("A fox.", lengths), profile, backend, frames).verdict.overall.winner == 2


def decoded(url: str) -> tuple[Fraction, list[Any]]:
    """The frame rate of a file in a data URL, and its frames."""
    data = base64.b64decode(url.removeprefix("data:video/mp4;base64,"), validate=True)
    with av.open(io.BytesIO(data)) as container:
        rate = container.streams.video[0].average_rate
        assert rate is not None
        return rate, [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def test_a_new_vllm_gets_each_clip_as_a_file_on_its_own_clock_without_loss() -> None:
    with serving(says(call(5, 60)), says(FINAL), extra=NEW) as server, opened(server) as backend:
        judged(backend, (4.0, 10.0))
        assert backend.connect().form == "lossless video file"
        assert not backend.warnings
    first, second = server.bodies
    urls = [p["video_url"]["url"] for p in first["messages"][1]["content"] if p["type"] == "video_url"]
    found = [decoded(url) for url in urls]
    assert [rate for rate, _ in found] == [Fraction(1), Fraction(2, 5)]
    for clip, (_, frames) in enumerate(found):
        assert len(frames) == 4
        for pixels, index in zip(frames, SHOWN_FIRST, strict=True):
            assert pixels.shape == ((28, 56, 3), (56, 84, 3))[clip]
            assert (pixels == colour(FrameRef(clip, index))).all()
    assert "fps" not in first["mm_processor_kwargs"]
    assert first["mm_processor_kwargs"]["do_sample_frames"] is False
    # Its loader for this model keeps an even number of frames, two a second beyond four.
    assert first["media_io_kwargs"]["video"] == {"num_frames": -1, "video_backend": "opencv"}
    assert second["messages"][:2] == first["messages"][:2], "the server finds it in its cache"
    assert [p["type"] for p in second["messages"][3]["content"]] == ["text", "image_url", "image_url"]


def test_the_cut_that_hid_the_reason_hides_none() -> None:
    message = find_message(REAL_400.decode())
    assert len(message) > 9_000
    assert "fps" not in message[:300]
    assert "array([…" not in shorten(message)
    assert shorten("short: [1, 2, 3]") == "short: [1, 2, 3]"
    assert shorten("a" * 5_000) == f"{'a' * 140} … {'a' * 200}"


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
        assert (found.context_full, found.without_odds) == (full, odds)
        assert found.kind == "lasting"


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"extra": {"/version": {"version": "0.11.2"}}}, "this vLLM is version '0.11.2'"),
        ({"extra": {"/version": {"version": "0.30.0"}}}, "only 0.31 and newer read a video's clock: serve with such"),
        ({"extra": {"/version": {"version": "0.1.dev5+g12ab"}}}, "this vLLM is version '0.1.dev5+g12ab'"),
        ({"extra": {"/version": {"version": "\x1b[31m" * 99}}}, r"this vLLM is version '\x1b[31m"),
        ({"extra": {"/version": {"version": 31}}}, "this vLLM is version 'unknown'"),
        ({"extra": {"/version": [31]}}, "this vLLM is version 'unknown'"),
        ({}, "this vLLM is version 'unknown'"),
        ({"owner": "me"}, "only vLLM 0.31 and newer read a video's clock"),
        ({"owner": "llamacpp"}, "only vLLM 0.31 and newer read a video's clock"),
        ({"owner": "sglang"}, "only vLLM 0.31 and newer read a video's clock"),
        ({"owner": "a proxy"}, "--backend-kind vllm"),
    ],
)
def test_every_other_server_gets_single_images_and_is_told_what_it_lacks(about: dict[str, Any], said: str) -> None:
    with serving(says(FINAL), **about) as server, opened(server) as backend:
        judged(backend)
        assert backend.connect().form == "single images"
        (warning,) = backend.warnings
    assert warning.kind == "single_images"
    assert said in warning.text
    assert warning.text.isprintable()
    assert len(warning.text) < 300
    for body in server.bodies:
        assert {p["type"] for p in body["messages"][1]["content"]} == {"image_url"}
        assert not {"media_io_kwargs"} & set(body)
        # Fields of one server's own make a strict other one refuse.
        assert ("top_k" in body) == (about.get("owner") != "a proxy")
        assert ("mm_processor_kwargs" in body) == ("owner" not in about)


@pytest.mark.parametrize("version", ["0.31.0", "0.31", "0.33.1.dev12+gabc", "1.0.0", "0.31.2rc1"])
def test_a_version_from_31_on_is_new_enough(version: str) -> None:
    with serving(says(FINAL), extra={"/version": {"version": version}}) as server, opened(server) as backend:
        judged(backend)
        assert (backend.connect().form, backend.warnings) == ("lossless video file", ())


def test_a_refusal_is_shown_in_a_line_without_pixels() -> None:
    with serving(answers(400, REAL_400), extra=NEW) as server, opened(server) as backend:
        with pytest.raises(BackendError) as raised:
            judged(backend)
        assert len(server.bodies) == 1
    message = str(raised.value)
    assert "Failed to apply Qwen2_5_VLProcessor" in message
    assert "'fps': [0.9999989997680181, 0.39999959990720724]" in message, "the reason stands at the end"
    assert "[205," not in message
    assert "125, 229" not in message
    assert len(message) < 500


@pytest.mark.parametrize(
    ("size", "count"),
    [((28, 28), 1), ((28, 28), 3), ((28, 140), 2), ((364, 28), 5), ((588, 336), 4)],
)
def test_a_file_holds_the_same_pixels_frames_and_rate(size: tuple[int, int], count: int) -> None:
    noise = np.random.default_rng(count).integers(0, 256, (count, size[1], size[0], 3), dtype=np.uint8)
    lengths = (Fraction(350_001, 1_000_000), Fraction(1, 2), Fraction(5, 2), Fraction(3, 2), Fraction(1, 1000))
    # Noise of a real size takes long to write, and the length is written in the same way for each size.
    for length in lengths[: 1 if size == (588, 336) else None]:
        data = write_lossless(list(noise), frame_seconds=length)
        assert data == write_lossless(list(noise), frame_seconds=length), "one file a video: servers cache by content"
        rate, found = decoded(f"data:video/mp4;base64,{base64.b64encode(data).decode()}")
        assert rate == 1 / length
        assert np.array_equal(np.stack(found), noise)


@pytest.mark.parametrize("rule", ["truncate", "exact"])
@pytest.mark.parametrize("seconds", [0.2, 0.7, 1.0, 1.3, 2.0, 2.2, 3.0, 5.0, 49.0, 61.6, 300.0, 1999.7, 20_000.5])
def test_a_server_makes_the_profiles_steps_of_a_rate(seconds: float, rule: Any) -> None:
    clock = Clock(rule)
    wanted = clock.steps(12, seconds)
    length = frame_seconds(clock, seconds)
    assert length.numerator < 2**31
    for precision in (np.float32, np.float64):
        each = float(precision(2 / float(1 / length))) * clock.tokens_per_second
        assert tuple(int(patch * each) for patch in range(12)) == wanted


def test_common_rates_are_exact() -> None:
    for seconds, rate in ((2.0, Fraction(1)), (5.0, Fraction(2, 5)), (1.0, Fraction(2)), (3.0, Fraction(2, 3))):
        assert 1 / frame_seconds(Clock(), seconds) == rate
