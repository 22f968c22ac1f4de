"""The command line: parse, call, print. Errors become exit statuses in one place, `run`.

What a user has set for all commands reaches click as it is made for: variables, and the settings file as defaults.

A command's module is imported when the command runs, and heavy modules by the command that needs them.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TextIO

import click

from vrt_lite import __version__
from vrt_lite.errors import OutOfMemoryError, UsageError, VrtError
from vrt_lite.shortage import explain_shortage

_GROUPS: Final[dict[str, dict[str, str]]] = {
    "Judge": {
        "compare": "compare_command:compare",
        "rank": "rank_command:rank",
        "score": "score_command:score",
        "serve": "serve_command:serve",
        "eval": "eval_command:evaluate",
    },
    "Results": {
        "report": "report_command:report",
        "runs": "runs_command:runs",
        "history": "history_command:history",
        "show": "runs_command:show",
        "export": "runs_command:export",
    },
    "Judges": {
        "models": "models_command:models",
        "pull": "models_command:pull",
        "estimate": "estimate_command:estimate",
        "tune": "tune_command:tune",
        "convert": "convert_command:convert",
        "profile": "profile_command:profile",
        "rm": "models_command:rm",
    },
    "This machine": {
        "doctor": "doctor_command:doctor",
        "config": "config_command:config",
        "cache": "models_command:cache",
        "completion": "completion_command:completion",
    },
}
"""What most people want first. By name: the command's module, and what it is called there."""
_COMMANDS: Final = {name: place for group in _GROUPS.values() for name, place in group.items()}
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
        described = {name: found for name in common if (found := self.get_command(ctx, name))}
        room = formatter.width - 6 - max(map(len, described))
        with formatter.section(first):
            formatter.write_dl([(name, found.get_short_help_str(room)) for name, found in described.items()])
        with formatter.section("More, each with --help"):
            formatter.write_dl([(heading, ", ".join(names)) for heading, names in others])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. Clips without one are compared if they are two files, and else ranked."""
        if args[0] not in _COMMANDS:
            if not _names_clip(args[0]):
                meant = get_close_matches(args[0], _COMMANDS, 1)
                ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {meant[0]!r}?" if meant else ""))
            clips = list(takewhile(lambda word: not word.startswith("-"), args))
            ranked = len(clips) > 2 or any(map(_names_many, clips))
            args = ["rank" if ranked else "compare", *args]
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of that name, if there is one."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        return getattr(import_module(f"vrt_lite.cli.{module}"), attribute)


def _names_clip(word: str) -> bool:
    return os.path.lexists(word) or bool(Path(word).suffix) or any(sign in word for sign in "/\\*%")


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
        variable = next((parameter.envvar for parameter in ctx.command.params if parameter.name == name), None)
        if variable is None or ctx.resilient_parsing:
            return None
        from vrt_lite.stored_settings import KEYS, find_stored  # noqa: PLC0415 - the help does without

        return next((kept.value for key, kept in find_stored().items() if KEYS[key].variable == variable), None)


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
    verbose = any(a.startswith("-vv") for a in arguments)
    try:
        stdout: TextIO | None = sys.stdout
        if stdout is None:
            raise UsageError(f"Standard output is closed. Send it to a file, or to {os.devnull}.")
        cli.main(list(arguments), prog_name="vrt-lite", standalone_mode=False)
        stdout.flush()
    except click.ClickException as error:
        return _print_usage_error(error)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except (KeyboardInterrupt, click.Abort):
        if arguments[0] in _GO_ON:
            _print_error("What is done is kept: the same command goes on from there.", INTERRUPTED)
        return _print_error("Interrupted.", INTERRUPTED)
    except VrtError as error:
        return _print_error(str(error), error.status)
    except MemoryError:
        return _print_error(
            "Not enough memory. Close other programs, or lower --max-pixels or --ctx.",
            OutOfMemoryError.status,
        )
    except BrokenPipeError:
        _drop_output(sys.stdout)  # the reader went away
        return UNEXPECTED
    except Exception as error:
        if verbose and not explain_shortage(error) and not isinstance(error, OSError):
            raise
        return _print_error(*_explain(error))
    return 0


def _explain(error: Exception) -> tuple[str, int]:
    """Return the line and the exit status of an error that no command explains."""
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


def _print_usage_error(error: click.ClickException) -> int:
    """Print what click says, with the names in it made harmless."""
    from vrt_lite.show import safe  # noqa: PLC0415

    shown, message = io.StringIO(), error.format_message()
    error.show(shown)
    # click lists choices line by line; any other break is of a name.
    line = safe(message.replace("\n\t", " "))
    return _print_line(safe(shown.getvalue().replace(message, line), lines=True), error.exit_code)


def _print_error(message: str, status: int) -> int:
    from vrt_lite.show import safe  # noqa: PLC0415

    return _print_line(f"vrt-lite: {safe(message)}\n", status)


def _fit(text: str) -> str:
    """Break lines between words where stderr is a terminal that is too narrow for them."""
    from vrt_lite.show.wrapping import fit_line  # noqa: PLC0415

    stream: TextIO | None = sys.stderr
    if stream is None or not stream.isatty():
        return text
    return "".join(f"{part}\n" for line in text.splitlines() for part in fit_line(line, stream))


def _print_line(line: str, status: int) -> int:
    """Print on stderr, if that can be written, and return the status."""
    try:
        click.echo(_fit(line), err=True, nl=False)
    except OSError:
        _drop_output(sys.stderr)
    return status
