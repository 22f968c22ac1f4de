"""What a user may set for all commands: the table of settings, their variables, and the settings file in TOML.

A command's option wins over a variable, a variable over the file, the file over what `vrt-lite tune` found. A key is
the name of its option; its variable is VRT_LITE_KEY, in capitals, with _ in the place of -. click reads all three.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
import tomllib
from typing import Any, NamedTuple, get_args

import click
from click.types import FuncParamType

from vrt_lite.advice import move_aside, unset_variable
from vrt_lite.disk import locked, open_to_read, settings_path, write_file
from vrt_lite.errors import UsageError
from vrt_lite.machine import MOST_SEQUENCES, KvType
from vrt_lite.profile import BUNDLED
from vrt_lite.settings import EFFORTS, MOST_JOBS, Remote, RemoteKind

LOCAL = "local"
"""The value of `backend` for this machine."""
_LARGEST = 2**31 - 1
_OWN = "the model's own"


class Number(click.ParamType[Any]):
    """A whole number from `least` to `most`; with `auto` also that word, which is converted to None."""

    def __init__(self, least: int, most: int = _LARGEST, *, auto: bool = False) -> None:
        self.numbers = range(least, most + 1)
        self.name = f"{least}..{'' if most == _LARGEST else most}{'|auto' if auto else ''}"
        self._auto = auto

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or None."""
        if self._auto and value == "auto":
            return None
        with contextlib.suppress(ValueError):
            if int(value) in self.numbers:
                return int(value)
        return self.fail(f"{value!r} is not allowed; give {self.name}.", param, ctx)


def _check_server(url: str) -> str:
    return url if url == LOCAL else Remote(url).url


class Key(NamedTuple):
    """A setting that can be kept: what it is about, what holds if it is not set, its type, and the form of a text."""

    name: str
    about: str
    default: str
    type: click.ParamType[Any]
    form: str = ""

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return f"VRT_LITE_{self.name.replace('-', '_').upper()}"

    @property
    def allowed(self) -> str:
        """Its values, as a help shows them: "f16|q8_0", "1..100", "256..|auto", "NAME"."""
        return self.form or "|".join(getattr(self.type, "choices", [self.type.name]))


_PIXELS = Number(784, 12_845_056)
KEYS = {
    key.name: key
    for key in (
        Key("model", "A bundled or pulled name, a folder, or a text GGUF.", BUNDLED, click.STRING, "NAME|PATH"),
        Key(
            "effort",
            "Fewer pixels, rounds and words take less time.",
            "full",
            click.Choice(EFFORTS),
        ),
        Key("workspace", "How many frames of a video the judge can request.", _OWN, Number(2, 10_000)),
        Key("first-frames", "How many frames of a video are shown first.", _OWN, Number(1, 10_000)),
        Key("window", "How many rounds requested frames stay visible.", _OWN, Number(0, 100)),
        Key("rounds", "At most this many rounds.", _OWN, Number(1, 100)),
        Key("max-pixels", "At most this many pixels a frame; 784 are one token.", _OWN, _PIXELS),
        Key("tool-max-pixels", "The same for requested frames.", _OWN, _PIXELS),
        Key("ctx", "Context in tokens.", "auto", Number(256, auto=True)),
        Key("gpu-layers", "Layers on the GPU.", "auto", Number(0, auto=True)),
        Key(
            "kv-type",
            "Type of the KV cache; q8_0 takes half the memory.",
            "f16 if it fits",
            click.Choice(get_args(KvType)),
        ),
        Key("threads", "Processor threads.", "auto", Number(1, auto=True)),
        Key(
            "orders",
            "Judge A beside B once, or with the clips exchanged too and average: opposite winners are undecided. auto: "
            "the second order only if the first one leaves a doubt.",
            "one",
            click.Choice(("one", "both", "auto")),
        ),
        Key("cache", "Keep encoded frames on disk for later runs.", "true", click.BOOL, "true|false"),
        Key("cache-mb", "At most this many megabytes of encoded frames.", "2000", Number(0)),
        Key(
            "backend",
            "Judge on an OpenAI-compatible server: http://HOST:8000/v1.",
            LOCAL,
            FuncParamType(_check_server),
            "local|URL",
        ),
        Key("served-model", "The model's name there.", "the only one", click.STRING, "NAME"),
        Key("backend-kind", "The kind of server.", "auto", click.Choice(get_args(RemoteKind))),
        Key(
            "jobs",
            f"Pairs judged at once: here at most {MOST_SEQUENCES}, if memory allows, with --backend {MOST_JOBS}.",
            "auto: what tune found, else 1",
            Number(1, MOST_JOBS, auto=True),
        ),
    )
}
"""Everything that can be kept, by name, in the order in which it is shown."""


class StoredValue(NamedTuple):
    """A value that is kept, and where: in a variable or in the file."""

    value: str | int
    source: str


class Problem(NamedTuple):
    """What cannot be used of the settings, in a line, and the command that does without it."""

    text: str
    command: str


def parse_value(name: str, given: object) -> str | int:
    """The value of a key that is given as a text, or as TOML has it. UsageError for a key or a value that is none."""
    if name not in KEYS:
        near = difflib.get_close_matches(name.replace("_", "-"), KEYS, n=1)
        instead = f"the nearest key is {near[0]}" if near else "vrt-lite config lists the keys"
        raise UsageError(f"nothing reads the key {name!r}; {instead}")
    try:
        value = KEYS[name].type.convert(str(given), None, None)
    except (click.BadParameter, UsageError) as error:
        raise UsageError(f"{name}: {str(error).rstrip('.')}") from error
    return "auto" if value is None else value


def find_stored() -> dict[str, StoredValue]:
    """All values that are kept, by key: a variable's, else the file's. UsageError for the first that cannot be used."""
    found, problems = read_stored()
    for text, command in problems:
        raise UsageError(f"{text}. Correct it, or: {command}")
    return found


def read_stored() -> tuple[dict[str, StoredValue], list[Problem]]:
    """All values that are kept and can be used, by key, and what cannot be used. Never fails."""
    found: dict[str, StoredValue] = {}
    problems: list[Problem] = []
    file = f"The settings file {settings_path()}"
    try:
        table = tomllib.loads(_read_text())
    except (OSError, ValueError, RecursionError) as error:
        table = {}
        problems.append(Problem(f"{file} cannot be read: {error}", move_aside(settings_path())))
    given = [(n, v, "file", file, f"vrt-lite config unset {shlex.quote(n)}") for n, v in table.items()]
    for name, key in KEYS.items():
        if text := os.environ.get(key.variable):
            repair = unset_variable(key.variable)
            given.append((name, text, "environment", f"The variable {key.variable}", repair))
    for name, value, source, place, repair in given:
        try:
            found[name] = StoredValue(parse_value(name, value), source)
        except UsageError as error:
            problems.append(Problem(f"{place}: {error}", repair))
    return found, problems


def store_value(name: str, value: str | int | None) -> None:
    """Write a value into the file, or delete its key, known or not, if it is None. All else stays, comments too.

    UsageError if the file cannot be written.
    """
    import tomlkit  # noqa: PLC0415 - only where a setting is changed
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    # A file that is a link, as to a folder of dotfiles, stays one.
    path = settings_path().resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked("settings"):
            document = tomlkit.parse(_read_text())
            if value is not None:
                document[name] = value
            elif name in document:
                del document[name]
            write_file(path, tomlkit.dumps(document).encode())
    except (OSError, TOMLKitError, ValueError) as error:
        raise UsageError(
            f"The settings file {path} cannot be changed: {error}. Correct it, or grant access."
        ) from error


def _read_text() -> str:
    """The file's text; "" without a file."""
    try:
        with open_to_read(settings_path()) as file:
            return file.read().decode("utf-8-sig")
    except FileNotFoundError:
        return ""
