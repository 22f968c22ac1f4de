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
from dataclasses import KW_ONLY, dataclass, field
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
_LARGEST = 2**31
_LONGEST = 4096
_MAX_FILE_BYTES = 2**20
_OWN = "the model's own"
_AUTO: Final = {"auto": "auto"}
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


@dataclass(frozen=True, slots=True)
class Key:
    """A setting that can be kept: its name, what holds if it is not set, and the values that it can have.

    They are the numbers from `least` to `most`; what each of the `words` stands for; and any text, if `text` says what
    it is.
    """

    name: str
    default: str
    least: int = 0
    most: int = -1
    _: KW_ONLY
    words: Mapping[str, Value] = field(default_factory=dict[str, Value])
    text: str = ""

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return f"VRT_LITE_{self.name.replace('-', '_').upper()}"

    @property
    def allowed(self) -> str:
        """Its values, in words."""
        numbers = f"{self.least} to {self.most}" if self.most < _LARGEST else f"at least {self.least}"
        words = [word for word, value in self.words.items() if word == str(value).lower()]
        *listed, last = filter(None, (numbers if self.most >= 0 else "", *words, self.text))
        return f"{', '.join(listed)} or {last}" if listed else last

    def parse(self, given: object) -> Value | None:
        """The value that is given as a text, or as TOML has it; None if it cannot have it."""
        text = str(given) if isinstance(given, str | int) else ""
        if text.lower() in self.words:
            return self.words[text.lower()]
        if text.isascii() and text.isdigit() and len(text) < 20 and self.least <= int(text) <= self.most:
            return int(text)
        free = self.text and 0 < len(text) <= _LONGEST and text.isprintable()
        return text if free and (self.name != "backend" or _is_server(text)) else None


def _is_server(text: str) -> bool:
    with contextlib.suppress(UsageError):
        return bool(Remote(text))
    return False


def _choice(*words: str) -> Mapping[str, Value]:
    return {word: word for word in words}


KEYS: Final[Mapping[str, Key]] = {
    key.name: key
    for key in (
        Key("model", BUNDLED, text="a name, folder or text GGUF"),
        Key("effort", "full", words=_choice(*EFFORTS)),
        Key("workspace", _OWN, 2, 10_000),
        Key("first-frames", _OWN, 1, 10_000),
        Key("window", _OWN, 0, 100),
        Key("rounds", _OWN, 1, 100),
        Key("max-pixels", _OWN, 784, 16_384 * 784),
        Key("tool-max-pixels", _OWN, 784, 16_384 * 784),
        Key("ctx", "auto", 256, _LARGEST, words=_AUTO),
        Key("gpu-layers", "auto", 0, _LARGEST, words=_AUTO),
        Key("kv-type", "f16 if it fits", words=_choice(*get_args(KvType))),
        Key("threads", "auto", 1, _LARGEST, words=_AUTO),
        Key("orders", "one", words=_choice("one", "both", "auto")),
        Key("cache", "true", words=_SWITCH),
        Key("cache-mb", "2000", 0, _LARGEST),
        Key("backend", LOCAL, words=_choice(LOCAL), text="http://HOST/v1"),
        Key("served-model", "the only one", text="a name on the server"),
        Key("backend-kind", "auto", words=_choice(*get_args(RemoteKind))),
        Key("jobs", "auto", 1, MOST_JOBS, words=_AUTO),
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
    found: dict[str, StoredValue] = {}
    problems: list[Problem] = []
    table: Mapping[str, object] = {}
    try:
        table = tomllib.loads(_read_text())
    except (OSError, ValueError, RecursionError) as error:
        problems.append(_explain_file(error, "read"))
    for name, value in table.items():
        key = KEYS.get(name)
        if key and (parsed := key.parse(value)) is not None:
            found[name] = StoredValue(parsed, "file")
            continue
        wrong = _explain_value(key, value, name) if key else f"has {describe_unknown(name)}"
        command = f"vrt-lite config unset {shlex.quote(name)}"
        problems.append(Problem(f"The settings file {settings_path()} {wrong}", "Correct it, or", command))
    for key in KEYS.values():
        if not (text := environment.get(key.variable)):
            continue
        if (parsed := key.parse(text)) is not None:
            found[key.name] = StoredValue(parsed, "environment")
            continue
        wrong = f"The variable {key.variable} {_explain_value(key, text)}"
        problems.append(Problem(wrong, "Correct or unset the variable", variable=key.variable))
    return found, problems


def describe_unknown(name: str) -> str:
    """Say that there is no such key, and what to give in its place: the one that looks like it, else all."""
    near = difflib.get_close_matches(name.lower().replace("_", "-"), KEYS, n=1)
    instead = f"the nearest key is {near[0]}" if near else "vrt-lite config lists the keys"
    return f"the key {name[:80]!r}, which nothing reads; {instead}"


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
            before = _read_text()
            document = tomlkit.parse(before)
            yield document
            if (after := tomlkit.dumps(document)) != before:
                write_file(path, after.encode())
    except (OSError, TOMLKitError, ValueError, RecursionError) as error:
        raise _explain_file(error, "changed").as_error() from error


def _read_text() -> str:
    """The file's text; "" without a file."""
    try:
        with open_to_read(settings_path()) as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return ""
    if len(data) > _MAX_FILE_BYTES:
        raise ValueError(f"it has more than {_MAX_FILE_BYTES} bytes")
    return data.decode("utf-8-sig")


def _explain_file(error: Exception, done: str) -> Problem:
    """Why the file cannot be read or changed."""
    file = f"The settings file {settings_path()}"
    if isinstance(error, OSError):
        text = f"{file} cannot be {done}: {error.filename or ''}: {error.strerror or error}"
        return Problem(text, f"Grant access, or set {HOME_VARIABLE} to another folder", cause=error)
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).rstrip(".")
    step = "Correct that line, or give the file another name"
    return Problem(f"{file} is not valid TOML ({reason})", step, cause=error)


def _explain_value(key: Key, value: object, name: str = "") -> str:
    """Say what is wrong with a value; that of `backend` is not shown, as it may hold credentials."""
    shown = "a value" if key.name == "backend" else repr(value)[:80]
    return f"has {shown}{f' for {name}' if name else ''}, which is not allowed; give {key.allowed}"
