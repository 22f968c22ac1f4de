"""Options that several commands have: the model, and how it judges."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vrt_lite.errors import UsageError

if TYPE_CHECKING:
    from vrt_lite.api import Judge
    from vrt_lite.backends.settings import Remote, RemoteKind
    from vrt_lite.models.files import ModelFiles
    from vrt_lite.protocol.prompt import Dimension
    from vrt_lite.runs.store import Store
    from vrt_lite.settings import Settings

    _ParamType = click.ParamType[int | None]  # generic in its stubs; at run time only in new releases
else:
    _ParamType = click.ParamType

_Command = TypeVar("_Command", bound=Callable[..., None])
PRESETS = "model-card, videogen-reward, text2video-human or mj-bench-video"


class Auto(_ParamType):
    """A whole number, or "auto", which is None."""

    name = "auto|n"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """The number, or None; click's own error for anything else."""
        if value is None or value == "auto":
            return None
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is neither 'auto' nor a whole number.", param, ctx)
        if number < self._least:
            self.fail(f"{number} is below the least allowed, {self._least}.", param, ctx)
        return number


_PROMPT = (
    click.option("-p", "--prompt", metavar="TEXT", help="The text the clips were made from."),
    click.option("--prompt-file", metavar="FILE", type=click.Path(path_type=Path), help="Read the prompt from a file."),
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
        help="Word TA, VQ or MQ yourself. The judge reads NAME (KEY).",
    ),
    click.option("--workspace", metavar="N", type=int, help="Frames a video that the judge may ask for."),
    click.option("--first-frames", metavar="N", type=int, help="Frames a video shown first."),
    click.option("--window", metavar="P", type=int, help="Rounds for which asked-for frames stay visible."),
    click.option("--rounds", metavar="N", type=int, help="Rounds at most."),
    click.option("--max-pixels", metavar="N", type=int, help="Pixels a frame at most; 784 are one visual token."),
    click.option("--tool-max-pixels", metavar="N", type=int, help="The same for asked-for frames alone."),
    click.option("--ctx", metavar="AUTO|N", type=Auto(256), help="Context in tokens. [default: auto]"),
    click.option("--gpu-layers", metavar="AUTO|N", type=Auto(0), help="Layers on the GPU. [default: auto]"),
    click.option(
        "--kv-type",
        type=click.Choice(["f16", "q8_0"]),
        help="Keys and values: whole, or half the memory. [default: f16 if it fits]",
    ),
    click.option("--threads", metavar="AUTO|N", type=Auto(1), help="Processor threads. [default: auto]"),
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
        help="How it takes frames: auto, vllm, sglang or llama. [default: auto]",
    ),
)


def prompted(command: _Command) -> _Command:
    """The two ways to give a prompt; `prompt_of` reads them."""
    for option in reversed(_PROMPT):
        command = option(command)
    return command


def judging(command: _Command) -> _Command:
    """The options that name a model, where it runs, and how it judges.

    The command gets `model`, `projector` and `backend` (a `Remote`, or None) for `open_judge_of`; `settings_of` reads
    the rest.
    """

    @functools.wraps(command)
    def called(*given: Any, backend: str | None, served_model: str | None, backend_kind: Any, **options: Any) -> None:
        command(*given, backend=_remote(backend, served_model, backend_kind), **options)

    judged: Any = called
    for option in reversed((*_JUDGING, *_REMOTE)):
        judged = option(judged)
    return judged


def open_judge_of(
    model: str | None,
    projector: Path | None,
    backend: Remote | None,
    settings: Settings,
    verbose: bool,
    store: Store | None = None,
    *,
    quiet: bool = False,
) -> Judge:
    """The judge that the options of `judging` name: on this machine, or on a server. A store remembers digests.

    Unless `quiet`, says which file was taken where there was a choice.
    """
    from vrt_lite.api import Judge  # noqa: PLC0415
    from vrt_lite.models.files import sha256  # noqa: PLC0415

    digest = store.digest if store else sha256
    judge = Judge(model, projector=projector, settings=settings, backend=backend, digest=digest, verbose=verbose)
    if judge.files and not quiet:
        say_choice(judge.files)
    return judge


def say_choice(files: ModelFiles) -> None:
    """Say on stderr which of a folder's text files was taken, if there was a choice."""
    from vrt_lite.display import safe  # noqa: PLC0415

    if files.choice:
        click.echo(safe(files.choice), err=True)


def prompt_of(prompt: str | None, prompt_file: Path | None) -> str:
    """The prompt, however it was given; empty if it was not."""
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


def settings_of(options: dict[str, Any]) -> Settings:
    """Settings from the options of `judging`, and `both_orders` if a command has it; UsageError for a bad wording."""
    from vrt_lite.settings import Settings  # noqa: PLC0415

    worded: Any = dict(_dimension(text) for text in options["dimensions"])
    return Settings(**{**options, "dimensions": worded})


def _remote(url: str | None, served_model: str | None, kind: RemoteKind) -> Remote | None:
    from vrt_lite.backends.settings import Remote  # noqa: PLC0415

    if url is not None:
        return Remote(url, served_model=served_model, kind=kind)
    if served_model is not None or kind != "auto":
        raise UsageError("--served-model and --backend-kind are about a server: give its --backend URL as well.")
    return None


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
