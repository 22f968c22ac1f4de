"""How a server gets a video: the form is found, kept, and keeps each clip's pixels and clock."""

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
from chat_server import Act, Server, answers, says, sends, serving
from judgements import FINAL, Colours, call, colour

from vrt_lite.backends import open_remote
from vrt_lite.backends.http import HttpBackend
from vrt_lite.backends.http.faults import read_fault, shorten
from vrt_lite.backends.http.request import frame_seconds, patch_seconds
from vrt_lite.errors import BackendError
from vrt_lite.judge import Pair, judge_with
from vrt_lite.profile import Clock, Profile, default_profile
from vrt_lite.protocol.messages import FrameRef
from vrt_lite.settings import Remote
from vrt_lite.video.lossless import write_lossless

# What vLLM 0.33.0 answered to a list of frame rates, 4 frames of 588x336 a clip, as it came over the line.
REAL_400 = (Path(__file__).parent.parent / "golden" / "vllm-0.33-list-of-fps-400.json").read_bytes()
SHOWN_FIRST = (0, 16, 31, 47)
LENGTHS = (4.0, 9.0)
NEW, OLD = {"/version": {"version": "0.33.0"}}, {"/version": {"version": "0.11.2"}}


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VRT_LITE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def opened(server: Server, **settings: Any) -> HttpBackend:
    quick = {"silence_seconds": 5.0, "total_seconds": 20.0, "tries": 3, "pause_seconds": 0.01}
    return open_remote(Remote(server.url, **{**quick, **settings}), profile=default_profile())


def judged(backend: HttpBackend, lengths: tuple[float, float] = LENGTHS, *, first_frames: int = 4) -> None:
    frames = Colours(((56, 28), (84, 56)))
    profile = Profile(first_frames=first_frames)
    assert judge_with(Pair("A fox.", lengths), profile, backend, frames).verdict.overall.winner == 2


def form_of(body: dict[str, Any]) -> str:
    """The form of a request, by its fields alone."""
    kinds = {p["type"] for m in body["messages"] if isinstance(m["content"], list) for p in m["content"]}
    if "video_url" not in kinds:
        return "images"
    rate = body.get("mm_processor_kwargs", {}).get("fps")
    return "file" if rate is None else "list" if isinstance(rate, list) else "one"


def takes(form: str, *, refusal: Act) -> Act:
    """A server that refuses every form but one."""

    def act(request: Any) -> None:
        (says(FINAL) if form_of(request.body) == form else refusal)(request)

    return act


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
        assert backend.form == "lossless video file"
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
    assert first["media_io_kwargs"] == {"video": {"num_frames": -1}}
    assert "fps" not in first["mm_processor_kwargs"]
    assert first["mm_processor_kwargs"]["do_sample_frames"] is False
    assert second["messages"][:2] == first["messages"][:2], "the server finds it in its cache"
    assert [p["type"] for p in second["messages"][3]["content"]] == ["text", "image_url", "image_url"]


@pytest.mark.parametrize("count", [2, 3, 4, 6])
def test_a_new_vllm_keeps_every_frame_of_a_file(count: int) -> None:
    """Its loader for this model keeps an even number of frames, two a second beyond four."""
    with serving(says(FINAL), extra=NEW) as server, opened(server) as backend:
        judged(backend, first_frames=count)
    fields = server.bodies[0]["media_io_kwargs"]["video"]
    assert fields == {"num_frames": -1} | ({} if count in (2, 4) else {"video_backend": "opencv"})


REFUSALS: dict[str, Act] = {
    "vLLM's own words": answers(400, REAL_400),
    "other words": answers(400, {"error": {"message": "no", "type": "BadRequestError", "param": None, "code": 400}}),
    "no words": answers(422, b""),
    "in the stream": sends(b'data: {"error": {"message": "no", "type": "BadRequestError", "code": 400}}\n\n'),
    "a crash": answers(500, {"error": {"message": "Internal Server Error", "code": 500}}),
}


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("taken", ["file", "list", "one"])
@pytest.mark.parametrize("extra", [NEW, {}, {"/version": {"version": "0.1.dev5+g12ab"}}], ids=["new", "none", "dev"])
def test_whatever_a_refusal_says_the_form_that_is_taken_is_found_and_kept(
    extra: dict[str, Any], taken: str, refusal: str
) -> None:
    act = takes(taken, refusal=REFUSALS[refusal])
    with serving(act, extra=extra) as server, opened(server, tries=5) as backend:
        judged(backend)
        before = len(server.bodies)
        judged(backend)
        assert [form_of(body) for body in server.bodies[before:]] == [taken], "remembered"
        assert any("differ in length" in note.text for note in backend.warnings) == (taken == "one")


@pytest.mark.parametrize("version", ["0.33.0", "0.11.2", None])
def test_the_real_answer_once_costs_no_verdict(version: str | None) -> None:
    extra = {"/version": {"version": version}} if version else {}
    with serving(answers(400, REAL_400), says(FINAL), extra=extra) as server, opened(server) as backend:
        judged(backend)
    assert len(server.bodies) == 2


def test_an_old_vllm_is_never_sent_a_file() -> None:
    """It would give it a wrong clock without a word."""
    act = takes("one", refusal=answers(400, REAL_400))
    with serving(act, extra=OLD) as server, opened(server) as backend:
        judged(backend)
    assert [form_of(body) for body in server.bodies] == ["list", "one"]


def test_versions_that_read_no_clock_are_warned_about() -> None:
    for version, warned in (("0.11.2", False), ("0.24.0", True), ("0.30.0", True), ("0.31.0", False)):
        with serving(says(FINAL), extra={"/version": {"version": version}}) as server, opened(server) as backend:
            judged(backend)
            assert any("reads no clock" in note.text for note in backend.warnings) == warned


def test_a_list_that_was_not_needed_is_not_taken_for_granted() -> None:
    with serving(takes("file", refusal=answers(400, REAL_400))) as server, opened(server) as backend:
        server.script = [says(FINAL), takes("file", refusal=answers(400, REAL_400))]
        judged(backend, (4.0, 4.0))
        judged(backend)
    assert [form_of(body) for body in server.bodies] == ["one", "list", "file"]


def test_a_refusal_of_every_form_is_shown_in_a_line_without_pixels() -> None:
    with serving(answers(400, REAL_400), extra=NEW) as server, opened(server) as backend:
        with pytest.raises(BackendError) as raised:
            judged(backend)
        assert [form_of(body) for body in server.bodies] == ["file", "list", "one"]
    message = str(raised.value)
    assert "Failed to apply Qwen2_5_VLProcessor" in message
    assert "'fps': [0.9999989997680181, 0.39999959990720724]" in message, "the reason stands at the end"
    assert "[205," not in message
    assert "125, 229" not in message
    assert len(message) < 500


def test_the_cut_that_hid_the_reason_hides_none() -> None:
    fault = read_fault(400, REAL_400)
    assert (fault.status, fault.codes, fault.refuses) == (400, {"BadRequestError", "400"}, True)
    assert len(fault.message) > 9_000
    assert "fps" not in fault.message[:300]
    assert "array([…" not in shorten(fault.message)
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
        fault = read_fault(400, json.dumps(answer).encode())
        assert (fault.context_full, fault.without_odds) == (full, odds)


def test_sglang_gets_files_and_what_it_loses_is_warned_about() -> None:
    for about in ({"owner": "sglang"}, {"owner": "proxy", "extra": {"/model_info": {"is_generation": True}}}):
        with serving(says(FINAL), **about) as server, opened(server) as backend:
            judged(backend)
            assert backend.connect().kind == "sglang"
            warnings = " ".join(warning.text for warning in backend.warnings)
        assert form_of(server.bodies[0]) == "file"
        assert "mm_processor_kwargs" not in server.bodies[0]
        assert "no clock" in warnings
        assert "resizes" in warnings
        assert "drops" not in warnings
    with serving(says(FINAL), owner="sglang") as server, opened(server) as backend:
        judged(backend, (2.0, 9.0), first_frames=6)
        assert any("drops" in note.text for note in backend.warnings), "six frames in 2 s"
    with serving(takes("images", refusal=answers(400)), owner="sglang") as server, opened(server) as backend:
        judged(backend)
        judged(backend)
        assert any("single images" in note.text for note in backend.warnings)
    assert [form_of(body) for body in server.bodies] == ["file", "images", "images"]


@pytest.mark.parametrize("size", [(28, 28), (588, 336), (28, 140), (364, 28)])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_a_file_holds_the_same_pixels_frames_and_rate(count: int, size: tuple[int, int]) -> None:
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
    for step in (2 / float(1 / length), 2 / (2 / patch_seconds(clock, seconds))):
        for precision in (np.float32, np.float64):
            each = float(precision(step)) * clock.tokens_per_second
            assert tuple(int(patch * each) for patch in range(12)) == wanted


def test_common_rates_are_exact() -> None:
    for seconds, rate in ((2.0, Fraction(1)), (5.0, Fraction(2, 5)), (1.0, Fraction(2)), (3.0, Fraction(2, 3))):
        assert 1 / frame_seconds(Clock(), seconds) == rate
