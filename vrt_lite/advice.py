"""Commands that messages advise, as the shell of this system reads them and for the environment that runs now."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Final

ON_WINDOWS: Final = sys.platform == "win32"


def command(*words: str | Path) -> str:
    """A command line, quoted as the shell of this system reads it."""
    line = [str(word) for word in words]
    if not ON_WINDOWS:
        return shlex.join(line)
    return " ".join(f'"{word}"' if re.search(r"[\s<>&|^]", word) else word for word in line)


def install(*words: str) -> str:
    """The command that installs packages into the environment that runs now."""
    return command(sys.executable, "-m", "pip", "install", *words)


def install_engine(back_end: str = "") -> str:
    """The command that builds the engine again, with a back end for GPUs if one is named.

    Without --no-cache-dir pip would install the wheel that it built before, whatever that was built with.
    """
    option = ("-C", f"cmake.args=-DGGML_{back_end.upper()}=on") if back_end else ()
    return install("--force-reinstall", "--no-cache-dir", *option, "llama-cpp-python")


def install_extra(extra: str) -> str:
    """The command that installs what an extra needs: its packages by name.

    So it works wherever vrt-lite came from: a checkout, a wheel that is gone, or an index.
    """
    return install(*(list_extra(extra) or [f"{Path(__file__).parents[1]}[{extra}]"]))


def list_extra(extra: str) -> list[str]:
    """The packages that an extra needs, with their versions; none of a checkout that only lies on the path."""
    from importlib.metadata import PackageNotFoundError, requires  # noqa: PLC0415 - 20 ms of the start of each command

    try:
        needed = [text.partition(";") for text in requires("vrt-lite") or ()]
    except PackageNotFoundError:
        return []
    return [name.strip() for name, _, when in needed if re.search(rf"extra == ['\"]{extra}['\"]", when)]


def unset_variable(name: str) -> str:
    """The command that removes an environment variable."""
    return f"set {name}=" if ON_WINDOWS else f"unset {name}"


def move_aside(path: Path) -> str:
    """The command that gives a file or folder another name, and keeps it."""
    return command("move" if ON_WINDOWS else "mv", path, path.with_name(f"{path.name}.aside"))
