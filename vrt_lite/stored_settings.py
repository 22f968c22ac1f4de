"""What a user may set for all commands: the table of settings, their variables, and the settings file in TOML.

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
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import click
from click.core import ParameterSource

from vrt_lite.advice import move_aside, unset_variable
from vrt_lite.disk import locked, open_to_read, settings_path, write_file
from vrt_lite.errors import UsageError
from vrt_lite.machine import MOST_SEQUENCES, KvType
from vrt_lite.profile import BUNDLED
from vrt_lite.settings import EFFORTS, MOST_JOBS, Remote, RemoteKind

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from tomlkit import TOMLDocument

Value = str | int | bool
LOCAL: Final = "local"
"""The value of `backend` for this machine."""
_LARGEST = 2**31
_LONGEST = 4096
_MAX_FILE_BYTES = 2**20
_OWN = "the model's own"
_AUTO: Final = {"auto": "auto"}
_WORDS_OF: Final = {True: ("true", "on", "yes", "1"), False: ("false", "off", "no", "0")}
_SWITCH: Final = {word: value for value, words in _WORDS_OF.items() for word in words}


@dataclass(frozen=True, slots=True)
class Key(click.ParamType[Any]):
    """A setting that can be kept, and the type of its option: what it is about, and what holds if it is not set.

    Its values are the numbers from `least` to `most`; what each of the `words` stands for; and any text, if `text` says
    what it is.
    """

    name: str
    about: str
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
    def choices(self) -> list[str]:
        """The words for its values, one for each."""
        return [word for word, value in self.words.items() if word == str(value).lower()]

    @property
    def allowed(self) -> str:
        """Its values, in words."""
        numbers = f"{self.least} to {self.most}" if self.most < _LARGEST else f"at least {self.least}"
        *listed, last = filter(None, (numbers if self.most >= 0 else "", *self.choices, self.text))
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

    def refuse(self, given: object) -> str:
        """Say what is wrong with a value; that of `backend` is not shown, as it may hold credentials."""
        shown = "a value" if self.name == "backend" else repr(given)[:80]
        return f"{shown} for {self.name}, which is not allowed; give {self.allowed}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Value | None:
        """The value of the option: None for a number that is chosen automatically. A text is read where it is used."""
        parsed = value if self.text else self.parse(value)
        if parsed is None:
            by_variable = ctx and param and ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT
            where = f"variable {self.variable}" if by_variable else f"option --{self.name}"
            raise UsageError(f"The {where} has {self.refuse(value)}.")
        return None if parsed == "auto" and self.most >= 0 else parsed

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """What stands for the value in a help; None for a text's name."""
        return None if self.text else "|".join([*self.choices, *(["N"] if self.most >= 0 else [])])

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The values that begin so."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only while a shell completes

        return [CompletionItem(word) for word in self.words if word.startswith(incomplete)]


def _is_server(text: str) -> bool:
    with contextlib.suppress(UsageError):
        return bool(Remote(text))
    return False


def _choice(*words: str) -> Mapping[str, Value]:
    return {word: word for word in words}


_TABLE = (
    Key(
        "model",
        "A bundled or pulled name, a folder, or a text GGUF.",
        BUNDLED,
        text="a name, folder or text GGUF",
    ),
    Key(
        "effort",
        "quick, balanced or full: fewer pixels, rounds and words take less time.",
        "full",
        words=_choice(*EFFORTS),
    ),
    Key("workspace", "How many frames of a video the judge can request.", _OWN, 2, 10_000),
    Key("first-frames", "How many frames of a video are shown first.", _OWN, 1, 10_000),
    Key("window", "How many rounds requested frames stay visible.", _OWN, 0, 100),
    Key("rounds", "At most this many rounds.", _OWN, 1, 100),
    Key("max-pixels", "At most this many pixels a frame; 784 are one token.", _OWN, 784, 16_384 * 784),
    Key("tool-max-pixels", "The same for requested frames.", _OWN, 784, 16_384 * 784),
    Key("ctx", "Context in tokens.", "auto", 256, _LARGEST, words=_AUTO),
    Key("gpu-layers", "Layers on the GPU.", "auto", 0, _LARGEST, words=_AUTO),
    Key(
        "kv-type",
        "Type of the KV cache; q8_0 takes half the memory.",
        "f16 if it fits",
        words=_choice(*get_args(KvType)),
    ),
    Key("threads", "Processor threads.", "auto", 1, _LARGEST, words=_AUTO),
    Key(
        "orders",
        "Judge A beside B once, or with the clips exchanged too and average: opposite winners are undecided. auto: the "
        "second order only if the first one leaves a doubt.",
        "one",
        words=_choice("one", "both", "auto"),
    ),
    Key("cache", "Keep encoded frames on disk for later runs.", "true", words=_SWITCH),
    Key("cache-mb", "At most this many megabytes of encoded frames.", "2000", 0, _LARGEST),
    Key(
        "backend",
        "Judge on an OpenAI-compatible server: http://HOST:8000/v1.",
        LOCAL,
        words=_choice(LOCAL),
        text="http://HOST/v1",
    ),
    Key("served-model", "The model's name there.", "the only one", text="a name on the server"),
    Key(
        "backend-kind", "The kind of server: auto, vllm, sglang or llama.", "auto", words=_choice(*get_args(RemoteKind))
    ),
    Key(
        "jobs",
        f"Pairs judged at once: here at most {MOST_SEQUENCES}, if memory allows, with --backend {MOST_JOBS}.",
        "auto: what tune found, else 1",
        1,
        MOST_JOBS,
        words=_AUTO,
    ),
)
KEYS: Final[Mapping[str, Key]] = {key.name: key for key in _TABLE}
"""Everything that can be kept, by name, in the order in which it is shown."""


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A value that is kept, and where: in a variable or in the file."""

    value: Value
    source: Literal["environment", "file"]


@dataclass(frozen=True, slots=True)
class Problem:
    """What cannot be used of the settings, in a line, and the command that does without it."""

    text: str
    command: str

    def as_error(self) -> UsageError:
        """The error that a command ends with."""
        return UsageError(f"{self.text}. Correct it, or: {self.command}")


def find_stored(environment: Mapping[str, str] | None = None) -> dict[str, StoredValue]:
    """All values that are kept, by key: a variable's, else the file's. UsageError for the first that cannot be used."""
    found, problems = read_stored(os.environ if environment is None else environment)
    if problems:
        raise problems[0].as_error()
    return found


def read_stored(environment: Mapping[str, str]) -> tuple[dict[str, StoredValue], list[Problem]]:
    """All values that are kept and can be used, by key, and what cannot be used. Never fails."""
    found: dict[str, StoredValue] = {}
    problems: list[Problem] = []
    table: Mapping[str, object] = {}
    try:
        table = tomllib.loads(_read_text())
    except (OSError, ValueError, RecursionError) as error:
        problems.append(Problem(_explain_file(error, "read"), move_aside(settings_path())))
    for name, value in table.items():
        key = KEYS.get(name)
        if key and (parsed := key.parse(value)) is not None:
            found[name] = StoredValue(parsed, "file")
            continue
        wrong = key.refuse(value) if key else describe_unknown(name)
        command = f"vrt-lite config unset {shlex.quote(name)}"
        problems.append(Problem(f"The settings file {settings_path()} has {wrong}", command))
    for key in KEYS.values():
        if not (text := environment.get(key.variable)):
            continue
        if (parsed := key.parse(text)) is not None:
            found[key.name] = StoredValue(parsed, "environment")
            continue
        wrong = f"The variable {key.variable} has {key.refuse(text)}"
        problems.append(Problem(wrong, unset_variable(key.variable)))
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
        raise UsageError(f"{_explain_file(error, 'changed')}. Correct it, or make room or grant access.") from error


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


def _explain_file(error: Exception, done: str) -> str:
    """Why the file cannot be read or changed."""
    if isinstance(error, OSError):
        why = f"cannot be {done}: {error.filename or ''}: {error.strerror or error}"
    else:
        nested = isinstance(error, RecursionError)
        why = f"is not valid TOML ({'it is nested too deeply' if nested else str(error).rstrip('.')})"
    return f"The settings file {settings_path()} {why}"
