"""A server that sends odd values gets one line and status 8, or a verdict without them; the key is never written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chat_server import Act, Server, answers, says, sends, serving
from clips import write_clip
from judgements import FINAL

from vrt_lite import Judgement, Remote, compare
from vrt_lite.backends.http.faults import explain_status
from vrt_lite.cli import run
from vrt_lite.errors import BackendError

KEY = "sk-secret-0123456789"


@pytest.fixture
def clips(tmp_path: Path, own_home: Path) -> list[str]:
    return [str(write_clip(tmp_path / f"{i}.mp4", frames=4, gop=2 + i)) for i in range(2)]


def streams(*events: object) -> Act:
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return sends(*(f"data: {line}\n\n".encode() for line in lines), b"data: [DONE]\n\n")


def says_with(entry: str) -> Act:
    """A good answer, whose tokens come with this list of probabilities, as JSON."""
    content, finish = json.dumps(FINAL), '"finish_reason": "stop"'
    return streams(
        f'{{"choices": [{{"delta": {{"content": {content}}}, "logprobs": {{"content": {entry}}}, {finish}}}]}}'
    )


def judged(clips: list[str], server: Server) -> Judgement:
    small = {"connect_seconds": 5.0, "silence_seconds": 2.0, "total_seconds": 4.0, "tries": 2, "pause_seconds": 0.01}
    return compare(*clips, prompt="A fox.", backend=Remote(server.url, **small))


def assert_refused_in_one_line(clips: list[str], server: Server) -> str:
    with pytest.raises(BackendError) as caught:
        judged(clips, server)
    message = str(caught.value)
    assert message.startswith(f"The back end {server.url} ")
    assert message.isprintable()
    return message


@pytest.mark.parametrize(
    "entry",
    [
        '[{"token": "2", "logprob": -1e400, "top_logprobs": [{"token": "2", "logprob": -1e400}]}]',
        '[{"token": "2", "logprob": 1e400, "top_logprobs": [{"token": "1", "logprob": NaN}]}]',
        f'[{{"token": "2", "logprob": -1{"0" * 400}, "top_logprobs": [{{"token": "2", "logprob": 1{"0" * 400}}}]}}]',
        '[{"token": ["2"], "logprob": -0.1, "top_logprobs": [{"token": ["2"], "logprob": -0.1}]}]',
        '[{"token": {"2": 2}, "logprob": "x", "top_logprobs": [[], 3, null, "2"]}, 7, null, "2", [[]]]',
        '[{"token": "2", "logprob": true, "top_logprobs": {"2": 1}}]',
        '{"content": 3}',
    ],
)
def test_odd_probabilities_do_no_harm(clips: list[str], entry: str) -> None:
    with serving(says_with(entry)) as server:
        judgement = judged(clips, server)
    assert judgement.winner in {0, 1, 2}
    assert json.dumps(judgement.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    "event",
    [
        '{"choices": [{"delta": {"content": "<think>\\ud800</think>"}}]}',
        '{"choices": [{"delta": {"reasoning_content": "\\udfff"}}]}',
        '{"choices": [{"delta": {"content": ["text"]}}]}',
        '{"choices": [{"delta": {"content": 7}}]}',
        '{"choices": {"delta": 1}}',
        '{"choices": [[]]}',
        '{"error": {"message": "\\ud800 \\u001b]0;x\\u0007 no"}}',
        "7" * 5000,
        "[" * 100_000,
    ],
)
def test_an_odd_event_gets_one_line(clips: list[str], event: str) -> None:
    with serving(streams(event)) as server:
        assert_refused_in_one_line(clips, server)


@pytest.mark.parametrize(
    "header",
    [
        "99999999999",
        "Wed, 21 Oct 99999999999 07:28:00 GMT",
        "Wed, 21 Oct 9999 07:28:00 GMT",
        "Wed, 99 Oct 2026 99:99:99 GMT",
        "Wed, 21 Oct 0000 07:28:00 +9999",
        "-1",
        "1e9",
        "nan",
        "٣",
        "",
    ],
)
def test_an_odd_wait_is_no_error_of_its_own(header: str) -> None:
    error = explain_status(503, b"", retry_after=header)
    assert error.kind == "passing"
    assert error.pause_seconds is None or error.pause_seconds >= 0


def test_a_wait_for_ages_ends_with_one_line(clips: list[str]) -> None:
    with serving(answers(503, retry_after="Wed, 21 Oct 99999999999 07:28:00 GMT")) as server:
        assert "answered 503" in assert_refused_in_one_line(clips, server)


def test_the_key_is_in_nothing_that_is_written(
    clips: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VRT_LITE_API_KEY", KEY)
    echo = FINAL.replace("Enough.", f"Your key is {KEY}.").replace("Sharp", KEY)
    with serving(says(echo, odds={"2": (("2", -0.1), ("1", -2.5))})) as server:
        trace = ["--json", "--trace", str(tmp_path / "trace.jsonl")]
        assert run(["compare", *clips, "-p", "A fox.", "--backend", server.url, *trace]) == 0
    out, err = capfd.readouterr()
    written = (tmp_path / "trace.jsonl").read_text(encoding="utf-8")
    assert "Your key is ***" in written
    assert KEY not in written + out + err
    assert Judgement.from_json(json.loads(out)).winner == 2


def test_a_model_that_is_called_like_the_key_is_refused(clips: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRT_LITE_API_KEY", KEY)
    with serving(says(FINAL), models={"data": [{"id": f"model {KEY}"}]}) as server:
        message = assert_refused_in_one_line(clips, server)
    assert "whose name holds the key" in message
    assert KEY not in message
