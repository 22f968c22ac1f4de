"""What a user has set for all commands: in environment variables, and in the settings file, a flat TOML table.

A command's option wins over a variable, a variable over the file, the file over what `vrt-lite tune` found. A key is
the name of its option; its variable is VRT_LITE_KEY, in capitals, with _ in the place of -.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
import tomllib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from vrt_lite.disk import HOME_VARIABLE, locked, open_to_read, settings_path, write_file
from vrt_lite.errors import UsageError
from vrt_lite.machine import KvType
from vrt_lite.models import BUNDLED
from vrt_lite.settings import EFFORTS, MOST_JOBS, Remote, RemoteKind

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

Value = str | int | bool
LOCAL: Final = "local"
"""The value of `backend` for this machine."""
_MOST_PIXELS = 16_384 * 784
_LARGEST = 2**31
_LONGEST = 4096
_MAX_FILE_BYTES = 2**20
_SWITCH: Final = {
    "true": True,
    "on": True,
    "yes": True,
    "1": True,
    "false": False,
    "off": False,
    "no": False,
    "0": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A setting that can be kept: its name, what holds if it is not set, and which values it can have.

    A number is within `least` and `most`, or one of `words`; a switch is on, off, or one of `words`; a text is one of
    `words`, or any if there are none.
    """

    name: str
    default: str
    type: type[Value]
    least: int = 0
    most: int = _LARGEST
    words: tuple[str, ...] = ()
    what: str = "a text"

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return f"VRT_LITE_{self.name.replace('-', '_').upper()}"

    @property
    def allowed(self) -> str:
        """Its values, in words."""
        if self.type is int:
            numbers = f"{self.least} to {self.most}" if self.most < _LARGEST else f"{self.least} or more"
            return ", or ".join((numbers, *self.words))
        words = ("true", "false", *self.words) if self.type is bool else self.words
        return " or ".join((", ".join(words[:-1]), words[-1])) if words else self.what

    def allows(self, value: object) -> bool:
        """Whether it can have this value."""
        if isinstance(value, str):
            free = self.type is str and not self.words and 0 < len(value) <= _LONGEST and value.isprintable()
            return value in self.words or (free and (self.name != "backend" or _is_server(value)))
        if self.type is int:
            return type(value) is int and self.least <= value <= self.most
        return type(value) is self.type

    def parse(self, text: str) -> Value | None:
        """The value in a text, as of a variable or an argument; None if it cannot have it."""
        value: Value | None = text
        if self.type is bool:
            value = _SWITCH.get(text.lower(), text)
        elif self.type is int and text.isascii() and text.isdigit() and len(text) < 20:
            value = int(text)
        return value if self.allows(value) else None


def _is_server(value: str) -> bool:
    with contextlib.suppress(UsageError):
        return value == LOCAL or bool(Remote(value))
    return False


_OWN = "the model's own"
KEYS: Final[Mapping[str, Key]] = {
    key.name: key
    for key in (
        Key(name="model", default=BUNDLED, type=str, what="a name, folder or text GGUF"),
        Key(name="effort", default="full", type=str, words=tuple(EFFORTS)),
        Key(name="workspace", default=_OWN, type=int, least=2, most=10_000),
        Key(name="first-frames", default=_OWN, type=int, least=1, most=10_000),
        Key(name="window", default=_OWN, type=int, most=100),
        Key(name="rounds", default=_OWN, type=int, least=1, most=100),
        Key(name="max-pixels", default=_OWN, type=int, least=784, most=_MOST_PIXELS),
        Key(name="tool-max-pixels", default=_OWN, type=int, least=784, most=_MOST_PIXELS),
        Key(name="ctx", default="auto", type=int, least=256, words=("auto",)),
        Key(name="gpu-layers", default="auto", type=int, words=("auto",)),
        Key(name="kv-type", default="f16 if it fits", type=str, words=get_args(KvType)),
        Key(name="threads", default="auto", type=int, least=1, words=("auto",)),
        Key(name="orders", default="one", type=str, words=("one", "both", "auto")),
        Key(name="cache", default="true", type=bool),
        Key(name="cache-mb", default="2000", type=int),
        Key(name="backend", default=LOCAL, type=str, what=f"{LOCAL} or http://HOST/v1"),
        Key(name="served-model", default="the only one", type=str, what="a name on the server"),
        Key(name="backend-kind", default="auto", type=str, words=get_args(RemoteKind)),
        Key(name="jobs", default="auto", type=int, least=1, most=MOST_JOBS, words=("auto",)),
    )
}
"""Everything that can be kept, by name, in the order in which it is shown."""


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A value that is kept, and where: in a variable or in the file."""

    value: Value
    source: Literal["environment", "file"]


@dataclass(frozen=True, slots=True)
class Problem:
    """What cannot be used of the settings, in a line; the next step in words, and as a command if there is one."""

    text: str
    step: str
    command: str = ""
    variable: str = ""
    cause: Exception | None = field(default=None, compare=False)

    def as_error(self) -> UsageError:
        """The error that a command ends with."""
        return UsageError(f"{self.text}. {self.step}{f': {self.command}' if self.command else '.'}")


def find_stored(environment: Mapping[str, str] | None = None) -> dict[str, StoredValue]:
    """All values that are kept, by key: a variable's, else the file's. UsageError for the first that cannot be used."""
    found, problems = read_stored(os.environ if environment is None else environment)
    if problems:
        raise problems[0].as_error() from problems[0].cause
    return found


def read_stored(environment: Mapping[str, str]) -> tuple[dict[str, StoredValue], list[Problem]]:
    """All values that are kept and can be used, by key, and what cannot be used. Never fails."""
    values, problems = _read_file(settings_path())
    found = {name: StoredValue(value, "file") for name, value in values.items()}
    for name, key in KEYS.items():
        if text := environment.get(key.variable):
            value = key.parse(text)
            if value is None:
                wrong = f"The variable {key.variable} {_explain_value(key, text)}"
                problems.append(Problem(wrong, "Correct or unset the variable", variable=key.variable))
            else:
                found[name] = StoredValue(value, "environment")
    return found, problems


def _read_file(path: Path) -> tuple[dict[str, Value], list[Problem]]:
    """The file's values that can be used, and what cannot be used of it. No file is an empty one."""
    try:
        with open_to_read(path) as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        table = tomllib.loads(_decode(data))
    except FileNotFoundError:
        return {}, []
    except OSError as error:
        return {}, [_unreadable(path, error)]
    except (ValueError, RecursionError) as error:
        return {}, [_damaged(path, error)]
    values: dict[str, Value] = {}
    problems: list[Problem] = []
    for name, value in table.items():
        key = KEYS.get(name)
        if key and key.allows(value):
            values[name] = value
            continue
        wrong = _explain_value(key, value, name) if key else _explain_unknown(name)
        problems.append(Problem(f"The settings file {path} {wrong}", "Correct it, or", f"{_UNSET} {shlex.quote(name)}"))
    return values, problems


_UNSET = "vrt-lite config unset"


def _decode(data: bytes) -> str:
    if len(data) > _MAX_FILE_BYTES:
        raise ValueError(f"it has more than {_MAX_FILE_BYTES} bytes")
    return data.decode("utf-8-sig")


def _damaged(path: Path, error: Exception) -> Problem:
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).rstrip(".")
    text = f"The settings file {path} is not valid TOML ({reason})"
    return Problem(text, "Correct that line, or give the file another name", cause=error)


def _unreadable(path: Path, error: OSError) -> Problem:
    text = f"The settings file {path} cannot be read: {error.strerror or error}"
    return Problem(text, f"Make it readable, or set {HOME_VARIABLE} to another folder", cause=error)


def _explain_value(key: Key, value: object, name: str = "") -> str:
    """Say what is wrong with a value; that of `backend` is not shown, as it may hold credentials."""
    shown = "a value" if key.name == "backend" else repr(value)[:80]
    return f"has {shown}{f' for {name}' if name else ''}, which is not allowed; give {key.allowed}"


def _explain_unknown(name: str) -> str:
    return f"has the key {name[:80]!r}, which nothing reads; {describe_keys(name)}"


def describe_keys(name: str) -> str:
    """What to give in the place of an unknown key: the one that looks like it, else all."""
    near = difflib.get_close_matches(name.lower().replace("_", "-"), KEYS, n=1)
    return f"the nearest key is {near[0]}" if near else "vrt-lite config lists the keys"


def store_value(name: str, value: Value) -> None:
    """Write a value into the file, and keep all else in it, comments too. UsageError if it cannot be written."""
    with _changed_document() as document:
        document[name] = value


def forget_value(name: str) -> bool:
    """Delete a key from the file, known or not; returns whether it was there. UsageError if it cannot be written."""
    with _changed_document() as document:
        there = name in document
        if there:
            del document[name]
        return there


@contextlib.contextmanager
def _changed_document() -> Generator[TOMLDocument]:
    """Yield the file's document, and write it whole when the block ends, if it has changed."""
    import tomlkit  # noqa: PLC0415 - only where a setting is changed
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    # A file that is a link, as to a folder of dotfiles, stays one.
    path = settings_path().resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked("settings"):
            before = _read_text(path)
            document = tomlkit.parse(before)
            yield document
            after = tomlkit.dumps(document)
            if after != before:
                write_file(path, after.encode())
    except OSError as error:
        text = f"The settings file {path} cannot be changed ({error.filename or path}: {error.strerror or error})"
        raise Problem(text, f"Make it writable, or set {HOME_VARIABLE} to another folder").as_error() from error
    except (TOMLKitError, ValueError, RecursionError) as error:
        raise _damaged(path, error).as_error() from error


def _read_text(path: Path) -> str:
    try:
        with open_to_read(path) as file:
            return _decode(file.read(_MAX_FILE_BYTES + 1))
    except FileNotFoundError:
        return ""
