"""The command line: parse, call, print. Errors become exit statuses in one place, `run`.

Knows click and the options; heavy modules are imported by the command that needs them, so that `--help` is quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from vrt_lite import __version__
from vrt_lite.cli.cache import cache
from vrt_lite.cli.compare import compare
from vrt_lite.cli.estimate import estimate
from vrt_lite.cli.eval import evaluate
from vrt_lite.cli.models import models, pull, rm
from vrt_lite.cli.rank import rank
from vrt_lite.cli.report import report
from vrt_lite.cli.runs import export, runs, show
from vrt_lite.cli.tune import tune
from vrt_lite.errors import OutOfMemoryError, VrtError

INTERRUPTED = 130
UNEXPECTED = 1
EPILOG = """\b
Exit status: 0 done, 2 usage, 3 bad video, 4 model missing, corrupt or mismatched, 5 out of memory,
6 no verdict from the model, 7 unusable store of runs, 8 back end's server failed, 130 interrupted."""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vrt-lite")
def cli() -> None:
    """Say which of two generated videos is better, on this machine."""


for _command in (compare, rank, pull, models, rm, cache, estimate, tune, evaluate, runs, show, report, export):
    cli.add_command(_command)


def run(arguments: Sequence[str]) -> int:
    """Run a command; its exit status. The one place where errors become messages and statuses."""
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        # A file name that this terminal's encoding lacks is shown escaped.
        reconfigure(errors="backslashreplace")
    verbose = any(a.startswith("-vv") for a in arguments)
    try:
        cli.main(list(arguments), prog_name="vrt-lite", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _fail("Interrupted.", INTERRUPTED)
    except VrtError as error:
        return _fail(str(error), error.status)
    except MemoryError:
        return _fail(
            "Not enough memory. Close other programs, or lower --max-pixels or --ctx.",
            OutOfMemoryError.status,
        )
    except BrokenPipeError:
        # The reader went away; keep the interpreter from failing again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNEXPECTED
    except Exception as error:
        if verbose:
            raise
        return _fail(f"Unexpected {type(error).__name__}: {error}. Run with -vv and report what it prints.", UNEXPECTED)
    return 0


def _fail(message: str, status: int) -> int:
    from vrt_lite.display import safe  # noqa: PLC0415

    click.echo(f"vrt-lite: {safe(message)}", err=True)
    return status
