"""One finding of `vrt-lite doctor`, and the commands that it may advise."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Level = Literal["ok", "note", "problem"]
"""As it should be; costs speed or may surprise; breaks something."""
_ON_WINDOWS: Final = sys.platform == "win32"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found: its kind, for programs, one line of text, and the next command; "" if nothing is to be done."""

    kind: str
    level: Level
    text: str
    next_step: str = ""


def command(*words: str | Path) -> str:
    """A command line, quoted as the shell of this system reads it."""
    line = [str(word) for word in words]
    return subprocess.list2cmdline(line) if _ON_WINDOWS else shlex.join(line)


def install(*words: str) -> str:
    """The command that installs packages into the environment that runs now."""
    return command(sys.executable, "-m", "pip", "install", *words)


def install_engine(cmake_option: str = "") -> str:
    """The command that builds the engine again, with an option of its build. Wheels that pip has kept are not used."""
    option = ("-C", f"cmake.args={cmake_option}") if cmake_option else ()
    return install("--force-reinstall", "--no-cache-dir", *option, "llama-cpp-python")


def set_variable(name: str, value: str | Path) -> str:
    """The command that sets an environment variable."""
    return f"set {name}={value}" if _ON_WINDOWS else f"export {name}={shlex.quote(str(value))}"


def unset_variable(name: str) -> str:
    """The command that removes an environment variable."""
    return f"set {name}=" if _ON_WINDOWS else f"unset {name}"


def delete_file(path: Path) -> str:
    """The command that deletes a file."""
    return command("del" if _ON_WINDOWS else "rm", path)


def move_aside(path: Path) -> str:
    """The command that gives a file or folder another name, and keeps it."""
    return command("move" if _ON_WINDOWS else "mv", path, path.with_name(f"{path.name}.aside"))
