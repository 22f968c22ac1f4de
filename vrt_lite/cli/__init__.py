"""The command line: parse, call, print. Errors become exit statuses in one place, `run`.

What a user has set for all commands reaches click as it is made for: variables, and the settings file as defaults.

A command's module is imported when the command runs, and heavy modules by the command that needs them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TextIO

import click

from vrt_lite import __version__
from vrt_lite.errors import OutOfMemoryError, UsageError, VrtError
from vrt_lite.shortage import explain_shortage

_GROUPS: Final = {
    "Judge": ("compare", "rank", "score", "serve", "eval"),
    "Results": ("report", "runs", "history", "show", "export"),
    "Judges": ("models", "pull", "estimate", "tune", "convert", "profile", "rm"),
    "This machine": ("doctor", "config", "cache", "completion"),
}
"""The commands; first what most people want."""
_HOMES: Final = {
    "score": "rank",
    "history": "runs",
    "show": "runs",
    "export": "runs",
    "pull": "models",
    "convert": "models",
    "rm": "models",
    "cache": "models",
}
"""The commands that are not in a module of their own name, and what that is named after."""
_COMMANDS: Final = [name for names in _GROUPS.values() for name in names]
_TABLES: Final = (".csv", ".tsv", ".jsonl")
_GO_ON: Final = ("convert", "eval", "pull")
"""The commands that go on where they were interrupted; `rank` says it by itself."""
INTERRUPTED = 130
UNEXPECTED = 1
_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Commands(click.Group):
    """The commands, each imported when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List all names."""
        return sorted(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what most people want, then the names of the others: all on one screen."""
        (first, common), *others = _GROUPS.items()
        commands = [(name, command) for name in common if (command := self.get_command(ctx, name))]
        with formatter.section(first):
            formatter.write_dl([(name, command.get_short_help_str(formatter.width)) for name, command in commands])
        with formatter.section("More, each with --help"):
            formatter.write_dl([(heading, ", ".join(names)) for heading, names in others])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. Clips without one are compared if they are two files, and else ranked."""
        if args[0] not in _COMMANDS:
            word = args[0]
            if not (os.path.lexists(word) or Path(word).suffix or any(sign in word for sign in "/\\*%")):
                raise click.exceptions.NoSuchCommand(word, possibilities=_COMMANDS, ctx=ctx)
            clips = list(takewhile(lambda word: not word.startswith("-"), args))
            args = ["rank" if len(clips) > 2 or any(map(_names_many, clips)) else "compare", *args]
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of that name, if there is one."""
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"vrt_lite.cli.{_HOMES.get(cmd_name, cmd_name)}_command")
        return getattr(module, "evaluate" if cmd_name == "eval" else cmd_name)


def _names_many(word: str) -> bool:
    return os.path.isdir(word) or "*" in word or Path(word).suffix.lower() in _TABLES  # noqa: PTH112 - raises nothing


class _FileDefaults(dict[str, Any]):
    """What the settings file sets, as defaults of every command: for each parameter that a variable may set too."""

    def get(self, key: str, default: object = None) -> _FileDefaults:
        """Return the defaults of a command, whatever its name."""
        return self

    def __contains__(self, name: object) -> bool:
        return self[str(name)] is not None

    def __getitem__(self, name: str) -> Any:
        ctx = click.get_current_context()
        variables = {parameter.name: parameter.envvar for parameter in ctx.command.params if parameter.envvar}
        if not variables or ctx.resilient_parsing:
            return None
        from vrt_lite.stored_settings import KEYS, find_stored  # noqa: PLC0415 - the help does without

        if __name__ not in ctx.meta:  # once a command, not once a parameter
            ctx.meta[__name__] = find_stored()
        stored = ctx.meta[__name__]
        return next((of.value for key, of in stored.items() if KEYS[key].variable == variables.get(name)), None)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "default_map": _FileDefaults()})
@click.version_option(__version__, prog_name="vrt-lite")
def cli() -> None:
    """Say which of two generated videos is better, on this machine.

    \b
    vrt-lite a.mp4 b.mp4 --prompt "A fox runs through snow."
    vrt-lite renders/ --prompt "A fox runs through snow."
    """  # noqa: D301 - \b is click's mark for "do not wrap"


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status. The one place where errors become messages and statuses."""
    _fill_closed_streams()
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        # Characters of a file name that the terminal's encoding lacks are shown escaped.
        reconfigure(errors="backslashreplace")
    try:
        stdout: TextIO | None = sys.stdout
        if stdout is None:
            raise UsageError(f"Standard output is closed. Send it to a file, or to {os.devnull}.")
        cli.main(list(arguments), prog_name="vrt-lite", standalone_mode=False)
        stdout.flush()
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        if arguments[0] in _GO_ON:
            _print_error("What is done is kept: the same command goes on from there.", INTERRUPTED)
        return _print_error("Interrupted.", INTERRUPTED)
    except BrokenPipeError:
        _drop_output(sys.stdout)  # the reader went away
        return UNEXPECTED
    except Exception as error:
        known = isinstance(error, VrtError | click.ClickException | OSError | MemoryError) or explain_shortage(error)
        if not known and any(argument.startswith("-vv") for argument in arguments):
            raise
        return _print_error(*_explain(error))
    return 0


def _explain(error: Exception) -> tuple[str, int]:
    """Return the line and the exit status of an error."""
    if isinstance(error, VrtError):
        return str(error), error.status
    if isinstance(error, click.ClickException):
        ctx = error.ctx if isinstance(error, click.UsageError) else None
        # click lists choices line by line.
        message = " ".join(error.format_message().split())
        end = "" if message.endswith((".", "?")) else "."
        return f"{message}{end} See: {ctx.command_path if ctx else 'vrt-lite'} --help", error.exit_code
    if isinstance(error, MemoryError):
        return "Not enough memory. Close other programs, or lower --max-pixels or --ctx.", OutOfMemoryError.status
    if short := explain_shortage(error):
        return str(short), short.status
    if isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None:
        # Commands explain what they cannot write to a file: this is standard output.
        _drop_output(sys.stdout)
        return (
            f"Standard output cannot be written: {error.strerror}. Make room there, or send it elsewhere.",
            UsageError.status,
        )
    if isinstance(error, OSError) and error.strerror:
        what = f"{error.filename}: " if error.filename else ""
        return f"{what}{error.strerror}. Make room or grant access, and run it again.", UNEXPECTED
    return (
        f"Unexpected {type(error).__name__}: {error}. Check this machine: vrt-lite doctor. If all is well, run "
        "with -vv and report what it prints.",
        UNEXPECTED,
    )


def _fill_closed_streams() -> None:
    """Open the null device in the place of standard streams that are closed.

    Otherwise the next file that is opened gets that number, and what a library prints is written into it.
    """
    with contextlib.suppress(OSError):
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(number, True)
        os.close(number)


def _drop_output(stream: TextIO) -> None:
    """Send what is left for a stream nowhere, or the interpreter fails again when it flushes the stream at exit."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _print_error(message: str, status: int) -> int:
    """Print a line on stderr, if that can be written, and return the status."""
    from vrt_lite.show.words import print_wrapped  # noqa: PLC0415

    try:
        print_wrapped(f"vrt-lite: {message}", sys.stderr)
    except OSError:
        _drop_output(sys.stderr)
    return status
