"""The command line: parse, call, print. Errors become exit statuses in one place, `run`.

Knows click and the options; heavy modules are imported by the command that needs them, so that `--help` is quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vrt_lite import __version__
from vrt_lite.cli.cache import cache
from vrt_lite.cli.estimate import estimate
from vrt_lite.cli.models import models, pull, rm
from vrt_lite.cli.options import Auto
from vrt_lite.cli.tune import tune
from vrt_lite.errors import OutOfMemoryError, UsageError, VrtError

if TYPE_CHECKING:
    from vrt_lite.judgement import Judgement
    from vrt_lite.protocol.prompt import Dimension
    from vrt_lite.settings import Settings

PRESETS = "model-card, videogen-reward, text2video-human or mj-bench-video"
INTERRUPTED = 130
UNEXPECTED = 1

EPILOG = """\b
Exit status: 0 a verdict, 2 usage, 3 bad video, 4 model missing, corrupt or mismatched,
5 out of memory, 6 no verdict from the model, 130 interrupted."""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vrt-lite")
def cli() -> None:
    """Say which of two generated videos is better, on this machine."""


for _command in (pull, models, rm, cache, estimate, tune):
    cli.add_command(_command)


@cli.command(epilog=EPILOG)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("-p", "--prompt", metavar="TEXT", help="The text both clips were made from.")
@click.option("--prompt-file", metavar="FILE", type=click.Path(path_type=Path), help="Read the prompt from a file.")
@click.option(
    "-m", "--model", metavar="MODEL", help="A bundled or pulled name, a folder, or a text GGUF. [default: vrt-tiny-0]"
)
@click.option("--projector", metavar="FILE", type=click.Path(path_type=Path), help="The projector (mmproj) GGUF.")
@click.option("--preset", metavar="NAME", help=f"Dimension wordings: {PRESETS}.")
@click.option("--dimension", "dimensions", metavar="KEY=NAME:TEXT", multiple=True, help="Word TA, VQ or MQ yourself.")
@click.option("--workspace", metavar="N", type=int, help="Frames a video that the judge may ask for.")
@click.option("--first-frames", metavar="N", type=int, help="Frames a video shown first.")
@click.option("--window", metavar="P", type=int, help="Rounds for which asked-for frames stay visible.")
@click.option("--rounds", metavar="N", type=int, help="Rounds at most.")
@click.option("--max-pixels", metavar="N", type=int, help="Pixels a frame at most; 784 are one visual token.")
@click.option("--ctx", metavar="AUTO|N", type=Auto(256), help="Context in tokens. [default: auto]")
@click.option("--gpu-layers", metavar="AUTO|N", type=Auto(0), help="Layers on the GPU. [default: auto]")
@click.option(
    "--kv-type",
    type=click.Choice(["f16", "q8_0"]),
    help="Keys and values: whole, or half the memory. [default: f16 if it fits]",
)
@click.option("--threads", metavar="AUTO|N", type=Auto(1), help="Processor threads. [default: auto]")
@click.option("--temperature", metavar="T", type=click.FloatRange(0, 10), default=0.0, help="0 is greedy. [default: 0]")
@click.option("--seed", metavar="N", type=click.IntRange(0, 2**32 - 1), default=0, help="[default: 0]")
@click.option("--both-orders", is_flag=True, help="Judge twice, exchanged, and average.")
@click.option("--cache/--no-cache", default=True, help="Keep encoded frames on disk for later runs. [default: cache]")
@click.option("--json", "as_json", is_flag=True, help="Print the judgement as JSON.")
@click.option(
    "--trace",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write a JSON line a round, as it happens.",
)
@click.option("--sheet", metavar="FILE.png", type=click.Path(path_type=Path), help="Draw the frames the judge saw.")
@click.option("-q", "--quiet", is_flag=True, help="Only the verdict.")
@click.option("-v", "--verbose", count=True, help="-v shows the reasoning, -vv the engine's log.")
def compare(
    a: str,
    b: str,
    *,
    prompt: str | None,
    prompt_file: Path | None,
    model: str | None,
    projector: Path | None,
    preset: str | None,
    dimensions: tuple[str, ...],
    as_json: bool,
    trace: Path | None,
    sheet: Path | None,
    quiet: bool,
    verbose: int,
    **options: Any,
) -> None:
    """Judge two clips, A and B, made from one prompt.

    \b
    vrt-lite compare a.mp4 b.mp4 --prompt "A fox runs through snow."
    vrt-lite compare a.mp4 b.mp4 --model ./vr-thinker-7b --both-orders --json

    A file name that begins with "-" is given as ./-name.mp4. Nothing is ever fetched from the network.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    caption = _prompt(prompt, prompt_file)
    for output in (trace, sheet):
        _refuse_inputs(output, (a, b))
    settings = _settings(preset, dimensions, options)

    from vrt_lite import display  # noqa: PLC0415
    from vrt_lite.api import Judge  # noqa: PLC0415

    with (
        Judge(model, projector=projector, settings=settings, verbose=verbose > 1) as judge,
        display.view(quiet=quiet or as_json, verbose=verbose > 0, live=verbose < 2) as view,
    ):
        judgement = judge.compare(a, b, prompt=caption, trace=trace, sheet=sheet, observe=view.observe)
    _print(judgement, as_json=as_json)


def _print(judgement: Judgement, *, as_json: bool) -> None:
    from vrt_lite import display  # noqa: PLC0415

    if as_json:
        import json  # noqa: PLC0415

        click.echo(json.dumps(judgement.to_json(), indent=2))
    else:
        display.show_verdict(judgement)


def _prompt(prompt: str | None, prompt_file: Path | None) -> str:
    from vrt_lite.api import LONGEST_PROMPT  # noqa: PLC0415

    if prompt is not None and prompt_file is not None:
        raise UsageError("Give --prompt or --prompt-file, not both.")
    if prompt_file is None:
        return prompt or ""
    try:
        with prompt_file.open("rb") as file:
            # A character is at most four bytes; one byte more is enough to know that it is too long.
            return file.read(4 * LONGEST_PROMPT + 1).decode("utf-8-sig").rstrip("\r\n")
    except OSError as error:
        raise UsageError(f"The prompt file {prompt_file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"The prompt file {prompt_file} is not UTF-8 text, or is too long.") from error


def _refuse_inputs(output: Path | None, inputs: Sequence[str]) -> None:
    """An output must not replace a clip."""
    if output and any(_same_file(output, Path(path)) for path in inputs):
        raise UsageError(f"{output} is one of the clips; write to another file.")


def _same_file(a: Path, b: Path) -> bool:
    try:
        return a.exists() and b.exists() and a.samefile(b)
    except (OSError, ValueError):
        return False


def _settings(preset: str | None, dimensions: tuple[str, ...], options: dict[str, Any]) -> Settings:
    from vrt_lite.settings import Settings  # noqa: PLC0415

    return Settings(preset=preset, dimensions=dict(map(_dimension, dimensions)), **options)


def _dimension(text: str) -> tuple[str, Dimension]:
    from vrt_lite.protocol.prompt import Dimension  # noqa: PLC0415
    from vrt_lite.protocol.tags import DIMENSIONS  # noqa: PLC0415

    key, equals, words = text.partition("=")
    name, colon, explain = words.partition(":")
    key = key.strip().upper()
    if not (equals and colon and name.strip() and explain.strip()) or key not in DIMENSIONS:
        raise UsageError(
            f"--dimension {text!r} is not KEY=NAME:TEXT with KEY one of {', '.join(DIMENSIONS)}; "
            'for example --dimension "VQ=Sharpness: how crisp the picture is".'
        )
    return key, Dimension(name.strip(), explain.strip())


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
