"""The options that several commands have: the prompt, the model, and how it judges."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from vrt_lite.cli import KeptOption, find_sources, kept_in
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.settings import EFFORTS, Remote, choose_settings, read_dimension

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from vrt_lite.api import Judge
    from vrt_lite.models import ModelFiles
    from vrt_lite.profile import Profile
    from vrt_lite.settings import RemoteKind, Settings

_Command = TypeVar("_Command", bound=Callable[..., None])
FILE: Final = click.Path(readable=False)
"""The type of an argument that may name a file: a shell completes it, and the command checks it."""
PRESETS = "model-card, videogen-reward, text2video-human or mj-bench-video"


def auto_or_number(name: str) -> Callable[[str], object]:
    """Return an option's type: a number that the key of that name allows, or "auto", which becomes None."""

    def convert(value: str) -> object:
        from vrt_lite.stored_settings import KEYS  # noqa: PLC0415 - rarely given

        parsed = KEYS[name].parse(str(value))
        if parsed is None:
            raise click.BadParameter(f"{value!r} is not allowed; give {KEYS[name].allowed}.")
        return None if parsed == "auto" else parsed

    return convert


def complete_models(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the models that are here and begin so; if there are none, let the shell complete the name of a file."""
    from vrt_lite.cli.completion_command import list_models  # noqa: PLC0415 - only while a shell completes

    return list_models(begun)


_kept_option = functools.partial(click.option, cls=KeptOption)
_PROMPT = (
    click.option("-p", "--prompt", metavar="TEXT", help="The text the clips were made from."),
    click.option("--prompt-file", metavar="FILE", type=click.Path(path_type=Path), help="Read the prompt from a file."),
)


def _read_profile(path: str) -> Profile:
    from vrt_lite.profile import load_profile  # noqa: PLC0415 - rarely given

    return load_profile(Path(path))


_SIZES = (
    click.option(
        "--profile",
        metavar="FILE",
        type=_read_profile,
        help="How to talk to the model, in place of its own profile; see: vrt-lite profile",
    ),
    _kept_option(
        "--effort",
        metavar="NAME",
        type=click.Choice(list(EFFORTS)),
        default="full",
        help="quick, balanced or full: fewer pixels, rounds and words take less time. [default: full]",
    ),
    _kept_option("--workspace", metavar="N", type=int, help="How many frames of a video the judge can request."),
    _kept_option("--first-frames", metavar="N", type=int, help="How many frames of a video are shown first."),
    _kept_option("--window", metavar="P", type=int, help="How many rounds requested frames stay visible."),
    _kept_option("--rounds", metavar="N", type=int, help="At most this many rounds."),
    _kept_option("--max-pixels", metavar="N", type=int, help="At most this many pixels a frame; 784 are one token."),
    _kept_option("--tool-max-pixels", metavar="N", type=int, help="The same for requested frames."),
    _kept_option("--ctx", metavar="AUTO|N", type=auto_or_number("ctx"), help="Context in tokens. [default: auto]"),
    _kept_option(
        "--gpu-layers", metavar="AUTO|N", type=auto_or_number("gpu-layers"), help="Layers on the GPU. [default: auto]"
    ),
    _kept_option(
        "--kv-type",
        type=click.Choice(["f16", "q8_0"]),
        help="Type of the KV cache; q8_0 takes half the memory. [default: f16 if it fits]",
    ),
)
_JUDGING = (
    _kept_option(
        "-m",
        "--model",
        metavar="MODEL",
        shell_complete=complete_models,
        help="A bundled or pulled name, a folder, or a text GGUF. [default: vrt-tiny-2]",
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
    _kept_option(
        "--threads", metavar="AUTO|N", type=auto_or_number("threads"), help="Processor threads. [default: auto]"
    ),
    click.option(
        "--temperature", metavar="T", type=click.FloatRange(0, 10), default=0.0, help="0 is greedy. [default: 0]"
    ),
    click.option("--seed", metavar="N", type=click.IntRange(0, 2**32 - 1), default=0, help="[default: 0]"),
    click.option(
        "--evidence", is_flag=True, help="Experimental: tell any judge in its prompt what was measured. [default: off]"
    ),
    _kept_option(
        "--cache/--no-cache", default=True, help="Keep encoded frames on disk for later runs. [default: cache]"
    ),
)
_REMOTE = (
    _kept_option(
        "--backend", metavar="URL", help="Judge on an OpenAI-compatible server: http://HOST:8000/v1. [default: local]"
    ),
    _kept_option("--served-model", metavar="NAME", help="The model's name there. [default: the only one it serves]"),
    _kept_option(
        "--backend-kind",
        metavar="KIND",
        type=click.Choice(["auto", "vllm", "sglang", "llama"]),
        default="auto",
        help="The kind of server: auto, vllm, sglang or llama. [default: auto]",
    ),
)


_PAGE = (
    click.option(
        "--embed", is_flag=True, help="Put small copies of the clips into the report, so that it can be sent."
    ),
    click.option("--open", "open_it", is_flag=True, help="Open the report in the browser."),
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


def page_options(command: _Command) -> _Command:
    """Add the options of a report's page: `embed` and `open_it`."""
    return _add_options(command, _PAGE)


def report_options(command: _Command) -> _Command:
    """Add the options that write a report. The command gets `report`, a checked `WantedReport` or None."""

    @functools.wraps(command)
    def call(*given: Any, report: Path | None, embed: bool, open_it: bool, **options: Any) -> None:
        if report or embed or open_it:
            from vrt_lite.cli.report_writing import want_report  # noqa: PLC0415

            options["report"] = want_report(report, embed=embed, open_it=open_it)
        command(*given, **{"report": None, **options})

    with_report: Any = call
    path = click.Path(path_type=Path)
    option = click.option("--report", metavar="FILE.html", type=path, help="Write a report: one HTML file.")
    return option(page_options(with_report))


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
    digest: Callable[[Path], str] | None = None,
    quiet: bool = False,
    measures: bool = True,
    jobs: int = 1,
    process: bool | None = None,
) -> Judge:
    """Open the judge that the options name, on this machine or on a server. `digest` finds files' digests.

    With `process` it judges in a process of its own; by default a model that is not bundled does, as its start takes
    little of the time. With `measures` clips are measured too. Unless `quiet`, prints which file was taken where there
    was a choice.
    """
    from vrt_lite.api import Judge  # noqa: PLC0415
    from vrt_lite.disk import file_sha256  # noqa: PLC0415
    from vrt_lite.models import bundled_names  # noqa: PLC0415
    from vrt_lite.shortage import limit_heaps, multiply_in_one_thread  # noqa: PLC0415

    limit_heaps()
    multiply_in_one_thread()
    if process is None:
        process = backend is None and model not in (None, *bundled_names())
    digest = digest or file_sha256
    options: dict[str, Any] = {"backend": backend, "digest": digest, "measures": measures, "jobs": jobs}
    try:
        judge = Judge(model, projector=projector, settings=settings, verbose=verbose, process=process, **options)
    except ModelError as error:
        if settings.sources.get("model") not in ("environment", "file"):
            raise
        raise ModelError(f"{error}. Without --model, {model!r} is set. See: vrt-lite config") from error
    if judge.files and not quiet:
        print_chosen_file(judge.files)
    return judge


def print_chosen_file(files: ModelFiles) -> None:
    """Print on stderr which of a folder's text files was taken, if there was a choice."""
    if files.choice:
        print_text(files.choice, err=True)


def print_text(text: str, *, err: bool = False) -> None:
    """Print a line that may hold a file's name, made harmless; with `err` on stderr."""
    from vrt_lite.show.wrapping import print_wrapped  # noqa: PLC0415

    print_wrapped(text, sys.stderr if err else sys.stdout)


def print_json(value: object) -> None:
    """Print a value as JSON on stdout."""
    click.echo(json.dumps(value, indent=2))


def read_prompt(prompt: str | None, prompt_file: Path | None) -> str:
    """Return the prompt from either option; empty without one."""
    if prompt_file is None:
        return prompt or ""
    if prompt is not None:
        raise UsageError("Give --prompt or --prompt-file, not both.")
    from vrt_lite.cli.prompt_file import read_prompt_file  # noqa: PLC0415 - rarely given

    return read_prompt_file(prompt_file)


def read_settings(options: dict[str, Any], backend: Remote | None = None) -> Settings:
    """Read the options of `judge_options` or `size_options`, and `both_orders` if a command has it.

    UsageError for bad values.
    """
    dimensions = dict(read_dimension(text) for text in options.get("dimensions", ()))
    kept = kept_in(click.get_current_context()).get("cache-mb")
    values = {**options, "dimensions": dimensions, "cache_mb": kept and kept.value}
    return choose_settings(values, find_sources(), remote=backend is not None)


def _read_remote(url: str | None, served_model: str | None, kind: RemoteKind) -> Remote | None:
    if url not in (None, "local"):
        return Remote(url, served_model=served_model, kind=kind)
    if "option" in map(find_sources().get, ("served_model", "backend_kind")):
        raise UsageError("--served-model and --backend-kind are about a server: give its --backend URL as well.")
    return None


def _read_fps(value: str) -> str:
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,9})?", value) or not 0 < float(value) <= 1000:
        raise click.BadParameter(f"{value!r} is no frame rate: give a number above 0, at most 1000.")
    return value


fps_option = click.option(
    "--fps",
    metavar="N",
    type=_read_fps,
    help="Frames a second of numbered pictures, as in frames/%04d.png. [default: 24]",
)
"""The command calls `clip_files.add_rate` with its value."""
