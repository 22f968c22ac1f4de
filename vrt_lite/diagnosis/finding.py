"""One finding of `vrt-lite doctor`, and the commands that it may advise."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

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


def install_engine(back_end: str = "") -> str:
    """The command that builds the engine again, with a back end for GPUs if one is named.

    Without --no-cache-dir pip would install the wheel that it built before, whatever that was built with.
    """
    option = ("-C", f"cmake.args=-DGGML_{back_end.upper()}=on") if back_end else ()
    return install("--force-reinstall", "--no-cache-dir", *option, "llama-cpp-python")


def reinstall() -> str:
    """The command that installs vrt-lite again, with all packages that it needs, from where it was installed."""
    try:
        origin = distribution("vrt-lite").read_text("direct_url.json")
    except PackageNotFoundError:
        origin = None
    source = url2pathname(urlsplit(str(json.loads(origin)["url"])).path) if origin else "vrt-lite"
    return install("--force-reinstall", source)


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
