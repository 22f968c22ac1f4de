"""A whole two-round verdict on llama.cpp's own server, with a model that spells one.

Skipped where VRT_LITE_LLAMA_SERVER does not name the program: `make llama-server` builds it and runs this.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import spelling_judge
from started_server import wait_for

from vrt_lite.api import Judge
from vrt_lite.backends.settings import Remote
from vrt_lite.cli import run
from vrt_lite.errors import BackendError, ContextFullError
from vrt_lite.settings import Settings

EXAMPLES = Path(__file__).parents[2] / "examples"
PAIR = (EXAMPLES / "a.mp4", EXAMPLES / "b.mp4")
PROGRAM = os.environ.get("VRT_LITE_LLAMA_SERVER", "")
KEY = "a-key-for-this-test"

pytestmark = pytest.mark.skipif(not PROGRAM, reason="VRT_LITE_LLAMA_SERVER names no llama-server: make llama-server")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server, while the tests of this module run."""
    folder = tmp_path_factory.mktemp("server")
    model = spelling_judge.write(folder / "spelling-judge.gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [PROGRAM, "--model", str(model), "--mmproj", str(spelling_judge.PROJECTOR), "--alias", "spelling-judge"]
    command += ["--ctx-size", "2048", "--parallel", "1", "--threads", "2", "--host", "127.0.0.1", "--port", str(port)]
    # An engine built by GCC 12 dies on a processor with AMX when it repacks weights.
    command += ["--api-key", KEY, "--no-repack", "--no-warmup", "--no-ui"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server, folder / "log")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill()
        server.wait()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("VRT_LITE_API_KEY", KEY)


def test_two_rounds_end_in_a_verdict_with_probabilities(url: str) -> None:
    with Judge("vrt-tiny-0", backend=Remote(url)) as judge:
        judgement = judge.compare(*PAIR, prompt="A red square moving right.")
    (order,) = judgement.orders
    assert [r.outcome for r in order.rounds] == ["tool", "final"]
    assert [r.reply.text for r in order.rounds] == [spelling_judge.CALL, spelling_judge.FINAL]
    assert [(f.clip, f.index) for f in order.rounds[1].shown] == [(0, 4), (1, 11)]
    winners = {key: p.winner for key, p in judgement.verdict.preferences.items()}
    assert winners == {"TA": 0, "VQ": 1, "MQ": 0, "OA": 2}
    most, next_one, last = spelling_judge.CHANCES
    assert judgement.verdict.overall.odds == pytest.approx((next_one, last, most), abs=0.01)
    assert judgement.verdict.preferences["VQ"].odds == pytest.approx((last, most, next_one), abs=0.01)
    assert judgement.verdict.preferences["TA"].odds is None, "its digit is no token of its own"
    assert any("single images" in warning for warning in judgement.warnings)


def test_the_command_judges_there_and_says_where(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *map(str, PAIR), "--model", "vrt-tiny-0", "--backend", url, "--json", "-vv"]) == 0
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert told["backend"] == {"url": url, "model": "spelling-judge", "kind": "llama", "form": "single images"}
    assert len(told["orders"][0]["rounds"]) == 2
    assert KEY not in shown.out + shown.err


def test_a_wrong_key_is_said_and_not_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # This server lists its models to everyone: the judge's own request is what it refuses.
    monkeypatch.setenv("VRT_LITE_API_KEY", "another-key")
    with Judge("vrt-tiny-0", backend=Remote(url)) as judge, pytest.raises(BackendError, match="answered 401") as raised:
        judge.compare(*PAIR)
    assert "another-key" not in str(raised.value)


def test_a_conversation_too_long_for_the_server_is_told_as_such(url: str) -> None:
    # 32 frames of 45 tokens, and the prompt.
    settings = Settings(first_frames=16)
    with Judge("vrt-tiny-0", backend=Remote(url), settings=settings) as judge, pytest.raises(ContextFullError):
        judge.compare(*PAIR)


def test_a_command_whose_server_refuses_ends_with_its_own_status(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *map(str, PAIR), "--backend", f"{url}/no"]) == BackendError.status
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("vrt-lite: The back end http://127.0.0.1:")
