"""A whole two-round verdict on a real server: llama-cpp-python's own, with a model that spells one."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import spelling_judge
from started_server import wait_for

from vrt_lite.api import Judge
from vrt_lite.backends.settings import Remote
from vrt_lite.cli import run
from vrt_lite.errors import BackendError
from vrt_lite.settings import Settings

EXAMPLES = Path(__file__).parents[2] / "examples"
PAIR = (EXAMPLES / "a.mp4", EXAMPLES / "b.mp4")
KEY = "a-key-for-this-test"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server, while the tests of this module run."""
    folder = tmp_path_factory.mktemp("server")
    model = spelling_judge.write(folder / "spelling-judge.gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "model": model,
        "model_alias": "spelling-judge",
        "clip_model_path": spelling_judge.PROJECTOR,
        "chat_format": "qwen2.5-vl",
        "n_ctx": 2048,
        "n_threads": 2,
        "host": "127.0.0.1",
        "port": port,
        "api_key": KEY,
        "verbose": False,
    }
    command = [sys.executable, "-m", "llama_cpp.server"]
    command += [text for name, value in options.items() for text in (f"--{name}", str(value))]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(f"http://127.0.0.1:{port}/v1/models", server, folder / "log", key=KEY)
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


def test_the_command_judges_there_and_says_where(url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["compare", *map(str, PAIR), "--model", "vrt-tiny-0", "--backend", url, "--json", "-vv"]
    assert run([*arguments, "--trace", str(tmp_path / "trace")]) == 0
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert told["backend"] == {"url": url, "model": "spelling-judge", "kind": "llama", "form": "single images"}
    assert told["model"] == {"name": "spelling-judge", "text": None, "projector": None}
    assert len(told["orders"][0]["rounds"]) == 2
    for text in (shown.out, shown.err, (tmp_path / "trace").read_text()):
        assert KEY not in text


def test_a_wrong_key_is_said_and_not_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRT_LITE_API_KEY", "another-key")
    with (
        Judge(backend=Remote(url)) as judge,
        pytest.raises(BackendError, match="answered 401: Invalid API key") as raised,
    ):
        judge.compare(*PAIR)
    assert "another-key" not in str(raised.value)


def test_a_conversation_too_long_for_the_server_is_bounded(url: str) -> None:
    # 32 frames of 45 tokens, and the prompt. This server breaks off without a word instead of refusing.
    remote = Remote(url, tries=2, pause_seconds=0.01)
    settings = Settings(first_frames=16)
    with Judge("vrt-tiny-0", backend=remote, settings=settings) as judge, pytest.raises(BackendError, match="2 tries"):
        judge.compare(*PAIR)


def test_a_command_whose_server_refuses_ends_with_its_own_status_and_one_line(url: str) -> None:
    arguments = ["compare", *map(str, PAIR), "--backend", f"{url}/no"]
    code = f"import sys; from vrt_lite.cli import run; sys.exit(run({arguments!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == BackendError.status
    assert done.stderr.strip().splitlines()[-1].startswith("vrt-lite: The back end http://127.0.0.1:")
    assert "Traceback" not in done.stderr
