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
from click.testing import CliRunner

from vrt_lite.cli import cli, run
from vrt_lite.cli.completion_command import SHELLS, completion

if sys.platform != "win32":
    import pty

AT_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Starts a shell with its standard input as its terminal, which fish needs."""
PROGRAMS = Path(sys.executable).parent
SECONDS = 30.0
SHELL = {"bash": ["bash", "-i"], "zsh": ["zsh", "-i"], "fish": ["fish", "-i"], "powershell": ["pwsh", "-NoLogo"]}
"""How each shell is started for a person."""


def install_commands(shell: str) -> list[str]:
    """The commands of the help that make a shell complete."""
    lines = inspect.cleandoc(completion.help or "").splitlines()
    following = lines[lines.index(f"{shell}:") + 1 :]
    return [line.strip() for line in itertools.takewhile(lambda line: line.startswith(" "), following)]


@pytest.mark.skipif(sys.platform == "win32", reason="the shells are typed into at a terminal of POSIX")
@pytest.mark.parametrize("shell", SHELL)
def test_the_tab_key_completes_commands_and_keys(shell: str, tmp_path: Path, own_home: Path) -> None:
    program, *options = SHELL[shell]
    if not shutil.which(program) or not (PROGRAMS / "vrt-lite").exists():
        pytest.skip(f"{program} or the program vrt-lite is not here")
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path), "TERM": "xterm"}
    environment = {**os.environ, **own, "PYTHONPATH": str(Path(__file__).parent.parent)}
    for line in install_commands(shell):
        batch = "-Command" if shell == "powershell" else "-c"
        subprocess.run([program, batch, line], env=environment, check=True)
    master, slave = pty.openpty()
    command = [sys.executable, "-c", AT_TERMINAL, program, *options]
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
    )
    os.close(slave)

    def type_until(line: bytes, mark: bytes) -> None:
        os.write(master, line)
        shown, deadline = b"", time.monotonic() + SECONDS
        while mark not in shown:
            assert time.monotonic() < deadline, shown.decode(errors="replace")
            if select.select([master], [], [], 0.2)[0]:
                shown += os.read(master, 4096)

    try:
        type_until(b"echo rea''dy\n", b"ready\r\n")
        # Completed, this is: vrt-lite config path
        type_until(b"vrt-lite conf\tpa\t\n", str(own_home / "config.toml").encode())
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_every_shell_gets_its_script_and_another_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in SHELLS:
        assert run(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert f"{shell}_complete" in script
        assert "_VRT_LITE_COMPLETE" in script
    for words in ([], ["tcsh"]):
        assert run(["completion", *words]) == 2
        assert "bash, zsh, fish, powershell" in " ".join(capsys.readouterr().err.replace("'", "").split())


def completed(shell: str, text: str) -> list[str]:
    """What vrt-lite tells a shell for a line, of which the last word is completed."""
    asked = {"_VRT_LITE_COMPLETE": f"{shell}_complete", "COMP_WORDS": text, "COMP_CWORD": str(text.count(" "))}
    return CliRunner().invoke(cli, prog_name="vrt-lite", env=asked).output.splitlines()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("vrt-lite compare --effort q", ["plain,quick"]),
        ("vrt-lite config set max", ["plain,max-pixels"]),
        ("vrt-lite config set cache t", ["plain,true"]),
        ("vrt-lite config set orders a", ["plain,auto"]),
        ("vrt-lite compare --orders a", ["plain,auto"]),
        ("vrt-lite tune vrt-tiny-", ["plain,vrt-tiny-0", "plain,vrt-tiny-2"]),
        ("vrt-lite compare st", ["file,st"]),  # a clip's name is the shell's own business
    ],
)
def test_values_are_completed_too(text: str, values: list[str]) -> None:
    assert completed("bash", text) == values


def test_a_broken_settings_file_does_not_matter_and_powershell_is_told_in_lines(own_home: Path) -> None:
    (own_home / "config.toml").write_text("what?", encoding="utf-8")
    lines = completed("powershell", "vrt-lite co")
    assert lines[::3] == ["plain"] * 4
    assert lines[1::3] == ["compare", "completion", "config", "convert"]
