"""Completion in real shells: a line is typed, the tab key is pressed, and what the shell then runs is looked at."""

from __future__ import annotations

import inspect
import itertools
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vrt_lite.cli import run
from vrt_lite.cli.completion_command import SHELLS, completion

if sys.platform != "win32":
    import pty

AT_TERMINAL = (
    "import fcntl, os, sys, termios\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)\nos.execvp(sys.argv[1], sys.argv[1:])"
)
"""Starts a shell with its standard input as its terminal, which fish needs."""
ROOT = Path(__file__).parent.parent
PROGRAMS = Path(sys.executable).parent
SECONDS = 30.0
SHELL = {"bash": ["bash", "-i"], "zsh": ["zsh", "-i"], "fish": ["fish", "-i"], "powershell": ["pwsh", "-NoLogo"]}
"""How each shell is started for a person."""


def install_commands(shell: str) -> list[str]:
    """The commands of the help that make a shell complete."""
    lines = inspect.cleandoc(completion.help or "").splitlines()
    following = lines[lines.index(f"{shell}:") + 1 :]
    return [line.strip() for line in itertools.takewhile(lambda line: line.startswith(" "), following)]


def environment(home: Path) -> dict[str, str]:
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "HOME": str(home), "ZDOTDIR": str(home), "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **own}


def completed(shell: str, text: str) -> list[str]:
    """What vrt-lite tells a shell for a line, of which the last word is completed."""
    words = text.split(" ")
    asked = {"_VRT_LITE_COMPLETE": f"{shell}_complete", "COMP_WORDS": text, "COMP_CWORD": str(len(words) - 1)}
    command = [sys.executable, "-m", "vrt_lite"]
    done = subprocess.run(
        command, env={**os.environ, **asked}, cwd=ROOT, capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform == "win32", reason="the shells are typed into at a terminal of POSIX")
@pytest.mark.parametrize("shell", SHELL)
def test_the_tab_key_completes_commands_and_keys(shell: str, tmp_path: Path, own_home: Path) -> None:
    arguments = SHELL[shell]
    if not shutil.which(arguments[0]) or not (PROGRAMS / "vrt-lite").exists():
        pytest.skip(f"{arguments[0]} or the program vrt-lite is not here")
    for line in install_commands(shell):
        batch = "-Command" if shell == "powershell" else "-c"
        subprocess.run([arguments[0], batch, line], env=environment(tmp_path), check=True)
    master, slave = pty.openpty()
    command = [sys.executable, "-c", AT_TERMINAL, *arguments]
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment(tmp_path), start_new_session=True
    )
    os.close(slave)
    shown = b""

    def read_until(mark: bytes) -> None:
        nonlocal shown
        deadline = time.monotonic() + SECONDS
        while mark not in shown:
            assert time.monotonic() < deadline, shown.decode(errors="replace")
            if select.select([master], [], [], 0.2)[0]:
                shown += os.read(master, 4096)

    try:
        os.write(master, b"echo rea''dy\n")
        read_until(b"ready\r\n")
        shown = b""
        # Completed, this is: vrt-lite config path
        os.write(master, b"vrt-lite conf\tpa\t\n")
        read_until(str(own_home / "config.toml").encode())
    finally:
        process.kill()
        process.wait()
        os.close(master)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"{shell}_complete" in script
    assert "_VRT_LITE_COMPLETE" in script


def test_what_powershell_is_told() -> None:
    lines = completed("powershell", "vrt-lite co")
    found = list(zip(lines[::3], lines[1::3], strict=True))
    assert found == [("plain", name) for name in ("compare", "completion", "config", "convert")]


def test_values_are_completed_too(own_home: Path) -> None:
    def values(text: str) -> list[str]:
        return [line.partition(",")[2] for line in completed("bash", text)]

    assert values("vrt-lite compare --effort q") == ["quick"]
    assert values("vrt-lite config set max") == ["max-pixels"]
    assert values("vrt-lite config set cache t") == ["true"]
    assert values("vrt-lite config set orders a") == ["auto"]
    assert values("vrt-lite compare --orders a") == ["auto"]
    assert values("vrt-lite tune vrt-tiny-") == ["vrt-tiny-0", "vrt-tiny-2"]
    # A clip's name is the shell's own business; a broken settings file does not matter.
    (own_home / "config.toml").write_text("what?", encoding="utf-8")
    assert completed("bash", "vrt-lite compare st") == ["file,st"]


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
    assert run(["completion"]) == 2
    assert "Choose from: bash, zsh, fish, powershell" in " ".join(capsys.readouterr().err.split())
