"""The options that several commands have: the prompt, the model, and how it judges."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vrt_lite.errors import UsageError
from vrt_lite.machine import MOST_SEQUENCES
from vrt_lite.settings import MOST_JOBS, Remote, Settings

if TYPE_CHECKING:
    from vrt_lite.api import Judge
    from vrt_lite.models import ModelFiles
    from vrt_lite.protocol.messages import Dimension
    from vrt_lite.runs.store import Store
    from vrt_lite.settings import RemoteKind

_Command = TypeVar("_Command", bound=Callable[..., None])
PRESETS = "model-card, videogen-reward, text2video-human or mj-bench-video"


def auto_or(least: int) -> Callable[[str], int | None]:
    """Return an option's type: a whole number of at least `least`, or "auto", which becomes None."""

    def convert(value: str) -> int | None:
        if value == "auto":
            return None
        try:
            number = int(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is neither 'auto' nor a whole number.") from None
        if number < least:
            raise click.BadParameter(f"{number} is below the least allowed, {least}.")
        return number

    return convert


_PROMPT = (
    click.option("-p", "--prompt", metavar="TEXT", help="The text the clips were made from."),
    click.option("--prompt-file", metavar="FILE", type=click.Path(path_type=Path), help="Read the prompt from a file."),
)
_SIZES = (
    click.option("--workspace", metavar="N", type=int, help="How many frames of a video the judge can request."),
    click.option("--first-frames", metavar="N", type=int, help="How many frames of a video are shown first."),
    click.option("--window", metavar="P", type=int, help="How many rounds requested frames stay visible."),
    click.option("--rounds", metavar="N", type=int, help="At most this many rounds."),
    click.option("--max-pixels", metavar="N", type=int, help="At most this many pixels a frame; 784 are one token."),
    click.option("--tool-max-pixels", metavar="N", type=int, help="The same for requested frames."),
    click.option("--ctx", metavar="AUTO|N", type=auto_or(256), help="Context in tokens. [default: auto]"),
    click.option("--gpu-layers", metavar="AUTO|N", type=auto_or(0), help="Layers on the GPU. [default: auto]"),
    click.option(
        "--kv-type",
        type=click.Choice(["f16", "q8_0"]),
        help="Type of the KV cache; q8_0 takes half the memory. [default: f16 if it fits]",
    ),
)
_JUDGING = (
    click.option(
        "-m",
        "--model",
        metavar="MODEL",
        help="A bundled or pulled name, a folder, or a text GGUF. [default: vrt-tiny-1]",
    ),
    click.option("--projector", metavar="FILE", type=click.Path(path_type=Path), help="The projector (mmproj) GGUF."),
    click.option("--preset", metavar="NAME", help=f"Dimension wordings: {PRESETS}."),
    click.option(
        "--dimension",
        "dimensions",
        metavar="KEY=NAME:TEXT",
        multiple=True,
        help="Your own wording of TA, VQ or MQ. The judge reads NAME (KEY).",
    ),
    *_SIZES,
    click.option("--threads", metavar="AUTO|N", type=auto_or(1), help="Processor threads. [default: auto]"),
    click.option(
        "--temperature", metavar="T", type=click.FloatRange(0, 10), default=0.0, help="0 is greedy. [default: 0]"
    ),
    click.option("--seed", metavar="N", type=click.IntRange(0, 2**32 - 1), default=0, help="[default: 0]"),
    click.option(
        "--cache/--no-cache", default=True, help="Keep encoded frames on disk for later runs. [default: cache]"
    ),
)
_REMOTE = (
    click.option("--backend", metavar="URL", help="Judge on an OpenAI-compatible server: http://HOST:8000/v1."),
    click.option("--served-model", metavar="NAME", help="The model's name there. [default: the only one it serves]"),
    click.option(
        "--backend-kind",
        metavar="KIND",
        type=click.Choice(["auto", "vllm", "sglang", "llama"]),
        default="auto",
        help="The kind of server: auto, vllm, sglang or llama. [default: auto]",
    ),
)


def prompt_options(command: _Command) -> _Command:
    """Add the two ways to give a prompt; `read_prompt` reads them."""
    return _add_options(command, _PROMPT)


def size_options(command: _Command) -> _Command:
    """Add the options that decide how much memory judging takes."""
    return _add_options(command, _SIZES)


def judge_options(command: _Command) -> _Command:
    """Add the options that name a model, where it runs, and how it judges.

    The command gets `model`, `projector` and `backend` (a `Remote`, or None) for `open_judge`; `read_settings` reads
    the rest.
    """

    @functools.wraps(command)
    def call(*given: Any, backend: str | None, served_model: str | None, backend_kind: Any, **options: Any) -> None:
        command(*given, backend=_read_remote(backend, served_model, backend_kind), **options)

    with_remote: Any = call
    return _add_options(with_remote, (*_JUDGING, *_REMOTE))


def _add_options(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command


def open_judge(
    model: str | None,
    projector: Path | None,
    backend: Remote | None,
    settings: Settings,
    *,
    verbose: bool,
    store: Store | None = None,
    quiet: bool = False,
    measures: bool = False,
    jobs: int = 1,
) -> Judge:
    """Open the judge that the options name, on this machine or on a server. A store remembers the files' digests.

    With `measures` clips are measured too. Unless `quiet`, prints which file was taken where there was a choice.
    """
    from vrt_lite.api import Judge  # noqa: PLC0415
    from vrt_lite.disk import file_sha256  # noqa: PLC0415

    _check_jobs(jobs, backend)
    digest = store.digest if store else file_sha256
    options: dict[str, Any] = {"backend": backend, "digest": digest, "measures": measures, "jobs": jobs}
    judge = Judge(model, projector=projector, settings=settings, verbose=verbose, **options)
    if judge.files and not quiet:
        print_chosen_file(judge.files)
    return judge


def print_chosen_file(files: ModelFiles) -> None:
    """Print on stderr which of a folder's text files was taken, if there was a choice."""
    if files.choice:
        print_text(files.choice, err=True)


def print_text(text: str, *, err: bool = False) -> None:
    """Print a line that may hold a file's name, made harmless; with `err` on stderr."""
    from vrt_lite.show import safe  # noqa: PLC0415

    click.echo(safe(text), err=err)


def print_json(value: object) -> None:
    """Print a value as JSON on stdout."""
    click.echo(json.dumps(value, indent=2))


def read_prompt(prompt: str | None, prompt_file: Path | None) -> str:
    """Return the prompt from either option; empty without one."""
    from vrt_lite.disk import open_to_read  # noqa: PLC0415
    from vrt_lite.protocol.messages import LONGEST_PROMPT  # noqa: PLC0415

    if prompt is not None and prompt_file is not None:
        raise UsageError("Give --prompt or --prompt-file, not both.")
    if prompt_file is None:
        return prompt or ""
    try:
        with open_to_read(prompt_file) as file:
            # A character is at most four bytes; one byte more is enough to know that it is too long.
            return file.read(4 * LONGEST_PROMPT + 1).decode("utf-8-sig").rstrip("\r\n")
    except OSError as error:
        raise UsageError(f"The prompt file {prompt_file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"The prompt file {prompt_file} is not UTF-8 text, or is too long.") from error


def read_settings(options: dict[str, Any]) -> Settings:
    """Read the options of `judge_options`, and `both_orders` if a command has it. UsageError for bad values."""
    dimensions: Any = dict(_read_dimension(text) for text in options["dimensions"])
    return Settings(**{**options, "dimensions": dimensions})


def _read_remote(url: str | None, served_model: str | None, kind: RemoteKind) -> Remote | None:
    if url is not None:
        return Remote(url, served_model=served_model, kind=kind)
    if served_model is not None or kind != "auto":
        raise UsageError("--served-model and --backend-kind are about a server: give its --backend URL as well.")
    return None


def _read_dimension(text: str) -> tuple[str, Dimension]:
    from vrt_lite.protocol.messages import DIMENSIONS, Dimension  # noqa: PLC0415

    key, equals, words = text.partition("=")
    name, colon, explain = words.partition(":")
    key = key.strip().upper()
    if not (equals and colon and name.strip() and explain.strip()) or key not in DIMENSIONS:
        raise UsageError(
            f"--dimension {text!r} is not KEY=NAME:TEXT with KEY one of {', '.join(DIMENSIONS)}; "
            'for example --dimension "VQ=Sharpness: how crisp the picture is".'
        )
    return key, Dimension(name.strip(), explain.strip())


jobs_option = click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    help=f"Pairs judged at once: here at most {MOST_SEQUENCES}, if memory allows, with --backend {MOST_JOBS}.",
)


def _check_jobs(jobs: int, backend: Remote | None) -> None:
    """Raise UsageError for more jobs than the judge can use."""
    if jobs > MOST_SEQUENCES and backend is None:
        raise UsageError(
            f"--jobs {jobs} is too many: on this machine at most {MOST_SEQUENCES} pairs are judged at once, and "
            f"{MOST_JOBS} on a server (--backend URL)."
        )
    if jobs > MOST_JOBS:
        raise UsageError(f"--jobs {jobs} is too many: a server is asked for at most {MOST_JOBS} pairs at once.")


store_option = click.option(
    "--store", metavar="FILE", type=click.Path(path_type=Path), help="The store of runs. [default: the user's]"
)


def open_existing_store(path: Path | None) -> Store:
    """Open the store, the user's own without a path. UsageError if a path is given and nothing is there."""
    from vrt_lite.runs.store import Store  # noqa: PLC0415

    if path is not None and not os.path.lexists(path):
        raise UsageError(f"There is no store {path}. Give the --store that rank or eval was given.")
    return Store(path)
