"""Ctrl-C: during imports, in the engine, while a server is waited for; status 130 soon, and what was judged is kept."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import clips
import pytest
from backends.test_llamacpp import FILES, PAIR, SHORT, Drawn, open_backend
from chat_server import hangs, serving

from bench.random_checkpoint import SHAPES, cut
from bench.random_pair import write_pair
from vrt_lite.backends.llamacpp import LlamaCppBackend, abort_check, engine
from vrt_lite.interfaces import Encoding, Event, Prefill, Stop, Wrote, ignore, stops_in_force
from vrt_lite.judge import opening
from vrt_lite.runs.store import Store

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for another process")
WITHIN_SECONDS = 2.0
BUSY_SECONDS = 8.0
"""What a test allows on a machine that is busy with other work."""
TIMES = 5


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("clips")
    paths = [folder / f"{number}.mp4" for number in range(2)]
    for number, path in enumerate(paths):
        clips.write_clip(path, frames=16 + number, size=(84, 56), gop=4)
    return str(paths[0]), str(paths[1])


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "vrt_lite", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_line(process: subprocess.Popen[str], pattern: str) -> None:
    assert process.stderr
    seen: list[str] = []
    for line in process.stderr:
        seen.append(line)
        if re.search(pattern, line):
            return
    pytest.fail(f"no line has {pattern!r}: {seen}")


def interrupt(process: subprocess.Popen[str]) -> tuple[float, str]:
    """Press Ctrl-C; returns the seconds until the process ended with status 130, and what it wrote on stderr."""
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    seconds = time.monotonic() - began
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "vrt-lite: Interrupted."
    assert "Traceback" not in err
    return seconds, err


LATER = ("vrt_lite.cli.options", "numpy", "av")


@pytest.mark.parametrize(
    "name", ["click", "vrt_lite.api", "llama_cpp", *(pytest.param(name, marks=pytest.mark.nightly) for name in LATER)]
)
def test_an_interrupt_during_an_import_is_status_130(name: str) -> None:
    """In exec(), where Python itself takes note of it: the worst place."""
    code = (
        "import signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {name!r}: exec('signal.raise_signal(signal.SIGINT)')\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.argv[1:] = ['compare', 'examples/star.mp4', 'examples/circle.mp4', '-q']\n"
        "from vrt_lite.__main__ import main\n"
        "main()"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 130, done.stderr
    assert done.stderr.splitlines()[-1] == "vrt-lite: Interrupted."
    assert "Traceback" not in done.stderr


def test_a_step_that_nothing_can_break_ends_with_the_process() -> None:
    code = (
        "import click, sys, time, vrt_lite.cli as cli\n"
        "@click.command()\n"
        "def stuck():\n"
        "    while True:\n"
        "        try:\n"
        "            print('here', file=sys.stderr, flush=True)\n"
        "            time.sleep(60)\n"
        "        except KeyboardInterrupt:\n"
        "            pass\n"
        "cli._COMMANDS['stuck'] = ''\n"
        "cli._Commands.get_command = lambda self, ctx, name: stuck\n"
        "sys.argv[1:] = ['stuck']\n"
        "from vrt_lite.__main__ import main\n"
        "main()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for_line(process, "here")
        seconds, err = interrupt(process)
    assert seconds < BUSY_SECONDS
    assert err.splitlines()[-2:] == ["vrt-lite: Stopping ...", "vrt-lite: Interrupted."]


def test_the_bundled_judge_stops_and_keeps_what_it_judged(tmp_path: Path) -> None:
    for number in range(8):
        clips.write_clip(tmp_path / f"{number}.mp4", frames=16 + number, size=(84, 56), gop=4)
    path = tmp_path / "runs.sqlite"
    with started("rank", str(tmp_path), "--prompt", "A fox.", "--store", str(path)) as process:
        wait_for_line(process, "^3 of 56")
        seconds, err = interrupt(process)
    assert seconds < BUSY_SECONDS
    kept = re.search(r"^(\d+) judgement\(s\) are kept", err, re.MULTILINE)
    assert kept, err
    with Store(path) as store:
        assert store.runs()[0].judgements >= int(kept[1]) >= 3
        assert not store._database.read("SELECT * FROM claims")


@pytest.mark.parametrize("command", ["compare", "rank"])
def test_a_server_that_says_nothing_is_left(pair: tuple[str, str], command: str, tmp_path: Path) -> None:
    more = ("--store", str(tmp_path / "runs.sqlite")) if command == "rank" else ()
    asked = ("--prompt", "A fox.", *more, "--backend")
    with serving(hangs) as server, started(command, *pair, *asked, server.url) as process:
        until = time.monotonic() + 60
        while not server.bodies and time.monotonic() < until:
            time.sleep(0.05)
        assert server.bodies
        seconds, _ = interrupt(process)
    assert seconds < BUSY_SECONDS


@contextmanager
def dead_address() -> Iterator[str]:
    """The address of a port at which nobody listens."""
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/v1"


def test_a_dead_server_is_left(pair: tuple[str, str]) -> None:
    with dead_address() as url, started("compare", *pair, "--prompt", "A fox.", "--backend", url) as process:
        wait_for_line(process, "waiting for the server")
        seconds, _ = interrupt(process)
    assert seconds < BUSY_SECONDS


@pytest.fixture
def breakable(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlamaCppBackend]:
    """The bundled judge, run as a large model is: the engine asks at every check whether to stop."""
    monkeypatch.setattr(engine, "SMALL_MODEL_BYTES", 0)
    monkeypatch.setattr(abort_check, "_EVERY_SECONDS", 0.0)
    with open_backend() as opened:
        yield opened


class StopsWithin(Stop):
    """Is set at one of the checks that the engine makes within a stage."""

    def __init__(self, stage: type[Event], check: int) -> None:
        super().__init__()
        self._stage = stage
        self._left = check
        self._in_stage = False

    def observe(self, event: Event) -> None:
        self._in_stage = isinstance(event, self._stage)

    def check(self) -> None:
        self._left -= self._in_stage
        if self._left == 0:
            self.set(KeyboardInterrupt())
        super().check()


def test_the_engine_stops_within_an_evaluation_and_goes_on_exactly(
    breakable: LlamaCppBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = opening(PAIR, FILES.profile)
    for stage in (Encoding, Prefill, Wrote):
        for check in (1, 7):
            stop = StopsWithin(stage, check)
            with pytest.raises(KeyboardInterrupt), stops_in_force(stop):
                breakable.reply(conversation, Drawn(), sampling=SHORT, observe=stop.observe)
            assert stop.error
    after = breakable.reply(conversation, Drawn(), sampling=SHORT, observe=ignore)
    monkeypatch.undo()
    with open_backend() as plain:
        expected = plain.reply(conversation, Drawn(), sampling=SHORT, observe=ignore)
    assert (after.text, after.tokens, after.odds) == (expected.text, expected.tokens, expected.odds)


@pytest.fixture(scope="module")
def cut_7b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 7B's widths with two text layers and eight vision layers, random weights: 1.3 GB."""
    folder = tmp_path_factory.mktemp("cut")
    write_pair(folder, "cut", cut(SHAPES["7b"], layers=2, vision_layers=8))
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("pattern", "pause_seconds", "options"),
    [
        ("^encoding", 1.0, ()),
        ("^reading", 0.5, ()),
        ("^reading", 12.0, ("--max-pixels", "12544")),  # few tokens to read: it writes by then
        ("^reading.*exchanged", 0.5, ("--orders", "both")),
        ("^reading.*exchanged", 12.0, ("--orders", "both", "--max-pixels", "12544")),
    ],
    ids=["vision", "prefill", "writing", "second prefill", "writing both"],
)
def test_a_large_model_stops_in_time(
    cut_7b: Path, pattern: str, pause_seconds: float, options: tuple[str, ...], tmp_path: Path
) -> None:
    paths = [tmp_path / f"{number}.mp4" for number in range(2)]
    for number, path in enumerate(paths):
        clips.write_clip(path, frames=16 + number, size=(1280, 720), gop=4)
    arguments = ("compare", *map(str, paths), "--prompt", "A fox.", "--model", str(cut_7b), *options)
    for number in range(TIMES):
        with started(*arguments) as process:
            wait_for_line(process, pattern)
            time.sleep(pause_seconds + 0.3 * number)
            assert process.poll() is None
            seconds, _ = interrupt(process)
        assert seconds < WITHIN_SECONDS, number


def test_a_process_in_the_background_ignores_an_interrupt() -> None:
    """As the shell starts it: Ctrl-C is for what runs in the foreground."""
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from vrt_lite.__main__ import main\n"
        "sys.argv[1:] = ['--version']\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'click': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ)
    assert (done.returncode, done.stderr) == (0, "")


IN_A_CALLBACK = """
import signal, time, weakref
import vrt_lite.__main__ as program
signal.signal(signal.SIGINT, program._interrupt)
class Thing: pass
thing = Thing()
callback = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
del thing
time.sleep(60)
"""


def test_an_interrupt_in_a_callback_of_pythons_own_is_status_130_without_a_traceback() -> None:
    """Such as those of the locks of imports: what is raised there goes no further."""
    ended = subprocess.run([sys.executable, "-c", IN_A_CALLBACK], capture_output=True, text=True, check=False)
    assert ended.returncode == 130
    assert ended.stderr.splitlines()[-1] == "vrt-lite: Interrupted."
    assert "Traceback" not in ended.stderr
