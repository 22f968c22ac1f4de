"""A whole two-round verdict on real servers: llama-cpp-python's own and llama.cpp's, with a model that spells one.

The second is skipped where VRT_LITE_LLAMA_SERVER does not name the program: `make llama-server` builds it and runs
this.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import spelling_judge
from started_server import wait_for

from vrt_lite.api import Judge
from vrt_lite.cli import run
from vrt_lite.errors import BackendError, ContextFullError
from vrt_lite.records.judgement import Judgement
from vrt_lite.settings import Remote, Settings

EXAMPLES = Path(__file__).parents[2] / "examples"
PAIR = (EXAMPLES / "a.mp4", EXAMPLES / "b.mp4")
KEY = "a-key-for-this-test"
LLAMA_SERVER = os.environ.get("VRT_LITE_LLAMA_SERVER", "")
MISSING = pytest.mark.skipif(not LLAMA_SERVER, reason="VRT_LITE_LLAMA_SERVER names no program: make llama-server")


def command_of(program: str, model: Path, port: int) -> list[str]:
    """How the program is started with the model."""
    if program == "llama-server":
        options = ["--model", model, "--mmproj", spelling_judge.PROJECTOR, "--alias", "spelling-judge"]
        options += ["--ctx-size", 2048, "--parallel", 1, "--threads", 2, "--host", "127.0.0.1", "--port", port]
        # An engine built by GCC 12 dies on a processor with AMX when it repacks weights.
        options += ["--api-key", KEY, "--no-repack", "--no-warmup", "--no-ui"]
        return [LLAMA_SERVER, *map(str, options)]
    options = ["--model", model, "--clip_model_path", spelling_judge.PROJECTOR, "--model_alias", "spelling-judge"]
    options += ["--n_ctx", 2048, "--n_threads", 2, "--host", "127.0.0.1", "--port", port]
    options += ["--api_key", KEY, "--chat_format", "qwen2.5-vl", "--verbose", False]
    return [sys.executable, "-m", "llama_cpp.server", *map(str, options)]


@pytest.fixture(scope="module", params=["llama-cpp-python", pytest.param("llama-server", marks=MISSING)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """The server's program and URL, while the tests of this module run with it."""
    folder = tmp_path_factory.mktemp("server")
    model = spelling_judge.write(folder / "spelling-judge.gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # A thread of the engine that waits must not keep a shared processor busy.
    quiet = {**os.environ, "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}
    command = command_of(request.param, model, port)
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=quiet)
    try:
        path = "/health" if request.param == "llama-server" else "/v1/models"
        wait_for(f"http://127.0.0.1:{port}{path}", started, folder / "log", key=KEY)
        yield SimpleNamespace(program=request.param, url=f"http://127.0.0.1:{port}/v1")
    finally:
        started.kill()
        started.wait()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRT_LITE_API_KEY", KEY)


def test_two_rounds_end_in_a_verdict_with_probabilities_and_the_record_says_where(
    server: SimpleNamespace, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["compare", *map(str, PAIR), "--prompt", "A red square moving right.", "--model", "vrt-tiny-0"]
    arguments += ["--backend", server.url, "--json", "-vv", "--trace", str(tmp_path / "trace")]
    assert run(arguments) == 0
    shown = capsys.readouterr()
    for text in (shown.out, shown.err, (tmp_path / "trace").read_text()):
        assert KEY not in text
    data = json.loads(shown.out)
    assert data["backend"] == {"url": server.url, "model": "spelling-judge", "kind": "llama", "form": "single images"}
    assert data["model"] == {"name": "spelling-judge", "text": None, "projector": None}
    judgement = Judgement.from_json(data)
    (order,) = judgement.orders
    assert [r.outcome for r in order.rounds] == ["tool", "final"]
    assert [r.text for r in order.rounds] == [spelling_judge.CALL, spelling_judge.FINAL]
    assert [(f.video, f.index) for f in order.rounds[1].frames] == [(1, 4), (2, 11)]
    winners = {key: p.winner for key, p in judgement.verdict.preferences.items()}
    assert winners == {"TA": 0, "VQ": 1, "MQ": 0, "OA": 2}
    most, next_one, last = spelling_judge.CHANCES
    assert judgement.verdict.overall.odds == pytest.approx((next_one, last, most), abs=0.01)
    assert judgement.verdict.preferences["VQ"].odds == pytest.approx((last, most, next_one), abs=0.01)
    assert judgement.verdict.preferences["TA"].odds is None, "its digit is no token of its own"
    assert any("single images" in warning for warning in judgement.warnings)


def test_a_wrong_key_is_reported_and_not_shown(server: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    # llama-server lists its models to everyone: the judge's own request is what it refuses.
    monkeypatch.setenv("VRT_LITE_API_KEY", "another-key")
    expected = "answered 401" if server.program == "llama-server" else "answered 401: Invalid API key"
    with (
        Judge("vrt-tiny-0", backend=Remote(server.url)) as judge,
        pytest.raises(BackendError, match=expected) as raised,
    ):
        judge.compare(*PAIR)
    assert "another-key" not in str(raised.value)


def test_a_conversation_too_long_for_the_server_ends_in_an_error(server: SimpleNamespace) -> None:
    # 32 frames of 45 tokens, and the prompt. llama-cpp-python breaks off without a word instead of refusing.
    remote, settings = Remote(server.url, tries=1), Settings(first_frames=16)
    error, expected = (ContextFullError, None) if server.program == "llama-server" else (BackendError, "1 try")
    with Judge("vrt-tiny-0", backend=remote, settings=settings) as judge, pytest.raises(error, match=expected):
        judge.compare(*PAIR)


def test_a_command_whose_server_refuses_ends_with_its_own_status_and_one_line(
    server: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", *map(str, PAIR), "--backend", f"{server.url}/no"]) == BackendError.status
    told = capsys.readouterr().err
    assert told.strip().splitlines()[-1].startswith("vrt-lite: The back end http://127.0.0.1:")
    assert "Traceback" not in told
