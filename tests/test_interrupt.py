"""Ctrl-C: during imports, in the engine, while a server is waited for; status 130 soon, and what was judged is kept."""

from __future__ import annotations

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
from vrt_lite.api import Judge
from vrt_lite.backends.llamacpp import abort_check, engine
from vrt_lite.interfaces import Encoding, Event, Prefill, Stop, Wrote, ignore, stops_in_force
from vrt_lite.judge import opening
from vrt_lite.runs.store import Store
from vrt_lite.settings import Settings

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for another process")
EXAMPLES = Path(__file__).parents[1] / "examples"
WITHIN_SECONDS = 2.0
BUSY_SECONDS = 8.0
"""What a test allows on a machine that is busy with other work."""


def write_clips(folder: Path, count: int, *, frames: int = 16, size: tuple[int, int] = (84, 56)) -> list[str]:
    """Clips that differ in their numbers of frames."""
    paths = [folder / f"{number}.mp4" for number in range(count)]
    return [str(clips.write_clip(path, frames=frames + n, size=size, gop=4)) for n, path in enumerate(paths)]


@contextmanager
def started(*arguments: str, before: str = "") -> Iterator[subprocess.Popen[str]]:
    """The command line in a process that does something else before."""
    command = [sys.executable, "-c", f"{before}\nfrom vrt_lite.__main__ import main\nmain()", *arguments]
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
    err = check_interrupted(process)
    return time.monotonic() - began, err


def check_interrupted(process: subprocess.Popen[str]) -> str:
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "vrt-lite: Interrupted."
    assert "Traceback" not in err
    return err


INTERRUPTED_IMPORT = """
import signal, sys
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "{}":
            exec("signal.raise_signal(signal.SIGINT)")
sys.meta_path.insert(0, Interrupt())
"""
"""In exec(), where Python itself takes note of it: the worst place."""
LATER = ("vrt_lite.cli.options", "numpy", "av")


@pytest.mark.parametrize(
    "name", ["click", "vrt_lite.api", "llama_cpp", *(pytest.param(name, marks=pytest.mark.nightly) for name in LATER)]
)
def test_an_interrupt_during_an_import_is_status_130(name: str) -> None:
    star, circle = str(EXAMPLES / "star.mp4"), str(EXAMPLES / "circle.mp4")
    with started("compare", star, circle, "-q", before=INTERRUPTED_IMPORT.format(name)) as process:
        check_interrupted(process)


def test_a_process_in_the_background_ignores_an_interrupt() -> None:
    """As the shell starts it: Ctrl-C is for what runs in the foreground."""
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)"
    with started("--version", before=deaf + INTERRUPTED_IMPORT.format("click")) as process:
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


STUCK = """
import click, sys, time, vrt_lite.cli as cli
@click.command()
def stuck():
    while True:
        try:
            print("here", file=sys.stderr, flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            pass
cli._COMMANDS.append("stuck")
cli._Commands.get_command = lambda self, ctx, name: stuck
"""


def test_a_step_that_nothing_can_break_ends_with_the_process() -> None:
    with started("stuck", before=STUCK) as process:
        wait_for_line(process, "here")
        seconds, err = interrupt(process)
    assert seconds < BUSY_SECONDS
    assert err.splitlines()[-2:] == ["vrt-lite: Stopping ...", "vrt-lite: Interrupted."]


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
    with started(before=IN_A_CALLBACK) as process:
        check_interrupted(process)


def test_the_bundled_judge_stops_and_keeps_what_it_judged(tmp_path: Path) -> None:
    write_clips(tmp_path, 6)
    path = tmp_path / "runs.sqlite"
    with started("rank", str(tmp_path), "--prompt", "A fox.", "--store", str(path)) as process:
        wait_for_line(process, "^3 of 30")
        seconds, err = interrupt(process)
    assert seconds < BUSY_SECONDS
    kept = re.search(r"^(\d+) judgement\(s\) are kept", err, re.MULTILINE)
    assert kept, err
    with Store(path) as store:
        assert store.runs()[0].judgements >= int(kept[1]) >= 3
        assert not store.read("SELECT * FROM claims")


def test_a_server_that_says_nothing_is_left(tmp_path: Path) -> None:
    more = ("--prompt", "A fox.", "--store", str(tmp_path / "runs.sqlite"), "--backend")
    with serving(hangs) as server, started("rank", *write_clips(tmp_path, 2), *more, server.url) as process:
        until = time.monotonic() + 60
        while not server.bodies and time.monotonic() < until:
            time.sleep(0.05)
        assert server.bodies
        seconds, _ = interrupt(process)
    assert seconds < BUSY_SECONDS


def test_a_dead_server_is_left(tmp_path: Path) -> None:
    with closing(socket.socket()) as bound:  # a port at which nobody listens
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
        with started("compare", *write_clips(tmp_path, 2), "--prompt", "A fox.", "--backend", url) as process:
            wait_for_line(process, "waiting for the server")
            seconds, _ = interrupt(process)
    assert seconds < BUSY_SECONDS


@pytest.fixture
def breakable(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let a bundled judge run as a large model is: the engine asks at every check whether to stop."""
    monkeypatch.setattr(engine, "SMALL_MODEL_BYTES", 0)
    monkeypatch.setattr(abort_check, "_EVERY_SECONDS", 0.0)
    return monkeypatch


class StopsWithin(Stop):
    """Is set at one of the checks that the engine makes within a stage, or later."""

    def __init__(self, stage: type[Event], check: int) -> None:
        super().__init__()
        self._stage = stage
        self._left = check
        self._in_stage = False

    def observe(self, event: Event) -> None:
        self._in_stage = isinstance(event, self._stage)

    @property
    def error(self) -> BaseException | None:
        self._left -= self._in_stage
        if self._left == 0:
            self.set(KeyboardInterrupt())
        return super().error


def test_the_engine_stops_within_an_evaluation_and_goes_on_exactly(breakable: pytest.MonkeyPatch) -> None:
    conversation = opening(PAIR, FILES.profile)
    with open_backend() as backend:
        for stage in (Encoding, Prefill, Wrote):
            for check in (1, 7):
                stop = StopsWithin(stage, check)
                with pytest.raises(KeyboardInterrupt), stops_in_force(stop):
                    backend.reply(conversation, Drawn(), sampling=SHORT, observe=stop.observe)
        after = backend.reply(conversation, Drawn(), sampling=SHORT, observe=ignore)
    breakable.undo()
    with open_backend() as plain:
        expected = plain.reply(conversation, Drawn(), sampling=SHORT, observe=ignore)
    assert (after.text, after.tokens, after.odds) == (expected.text, expected.tokens, expected.odds)


@pytest.mark.usefixtures("breakable")
def test_an_interrupt_within_an_evaluation_ends_both_orders() -> None:
    pair = (EXAMPLES / "star.mp4", EXAMPLES / "circle.mp4")
    with Judge(settings=Settings(both_orders=True, cache=False), measures=False) as judge:
        for check in (1, 9):
            stop = StopsWithin(Wrote, check)
            with pytest.raises(KeyboardInterrupt):
                judge.compare(*pair, prompt="A blue star moves up.", observe=stop.observe, stop=stop)
        assert len(judge.compare(*pair, prompt="A blue star moves up.").orders) == 2


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
    paths = write_clips(tmp_path, 2, size=(1280, 720))
    for number in range(5):
        with started("compare", *paths, "--prompt", "A fox.", "--model", str(cut_7b), *options) as process:
            wait_for_line(process, pattern)
            time.sleep(pause_seconds + 0.3 * number)
            assert process.poll() is None
            seconds, _ = interrupt(process)
        assert seconds < WITHIN_SECONDS, number
