"""The options that several commands have: the prompt, the model and how it judges, a run, a report."""

from __future__ import annotations

import functools
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from vrt_lite.errors import ModelError, UsageError
from vrt_lite.machine import MOST_SEQUENCES
from vrt_lite.protocol.messages import DIMENSIONS, Dimension
from vrt_lite.settings import LOCAL_SETTINGS, Remote, Settings
from vrt_lite.stored_settings import KEYS, LOCAL, Number

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from vrt_lite.api import Judge
    from vrt_lite.profile import Profile
    from vrt_lite.runs.store import Store
    from vrt_lite.settings import EffortName, Source

_Command = TypeVar("_Command", bound=Callable[..., None])
_Made = TypeVar("_Made")
_Option = Callable[[Any], Any]
FILE: Final = click.Path(readable=False)
"""The type of an argument that may name a file: a shell completes it, and the command checks it."""
PATH: Final = click.Path(path_type=Path)
FILE_PATH: Final = click.Path(dir_okay=False, path_type=Path)
FOLDER: Final = click.Path(file_okay=False, path_type=Path)
_SOURCES: Final[dict[ParameterSource | None, Source]] = {
    ParameterSource.COMMANDLINE: "option",
    ParameterSource.ENVIRONMENT: "environment",
    ParameterSource.DEFAULT_MAP: "file",
}
_NEAREST: Final = (*_SOURCES.values(), None)
"""Where a value comes from, the nearest to the command first; None is a default."""
_OUTDONE_BY_EFFORT: Final = ("max_pixels", "tool_max_pixels", "first_frames", "rounds")
"""Settings that an effort sets back to what it decides if they come from further away than itself."""


class Real(click.FloatRange):
    """A number within a range. "nan" is in none, though it is neither below nor above any bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        return self.fail(f"{value!r} is not a number.", param, ctx) if math.isnan(number) else number


def complete_models(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the models that are here and begin so; if there are none, let the shell complete the name of a file."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - only while a shell completes

    from vrt_lite.models import bundled_names  # noqa: PLC0415
    from vrt_lite.models.library import stored_models  # noqa: PLC0415

    names = [*bundled_names(), *(model.manifest.name for model in stored_models())]
    return [CompletionItem(name) for name in names if name.startswith(begun)] or [CompletionItem(begun, type="file")]


def stored_option(name: str, *names: str, **more: Any) -> _Option:
    """Make the option of a key of `KEYS`: a variable and the settings file may set it too."""
    key = KEYS[name]
    more = {"type": key.type, "metavar": key.allowed, **more}
    about = f"{key.about} [default: {key.default}]"
    return click.option(*names or (f"--{name}",), envvar=key.variable, help=about, **more)


def find_source(parameter: str) -> Source | None:
    """Return where the value of a parameter of the running command comes from; None for a default."""
    return _SOURCES.get(click.get_current_context().get_parameter_source(parameter))


def _add_options(*options: _Option) -> Callable[[_Command], _Command]:
    """Return a decorator that adds options, which a help lists in this order."""
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


def _read_dimension(text: str) -> tuple[str, Dimension]:
    """Return the key and the wording in KEY=NAME:TEXT. UsageError for another text."""
    key, _, words = text.partition("=")
    name, _, explain = (part.strip() for part in words.partition(":"))
    if key not in DIMENSIONS or not name or not explain:
        raise UsageError(
            f"--dimension {text!r} is not KEY=NAME:TEXT with KEY one of {', '.join(DIMENSIONS)}; "
            'for example --dimension "VQ=Sharpness: how crisp the picture is".'
        )
    return key, Dimension(name, explain)


def _read_profile(path: str) -> Profile:
    from vrt_lite.profile import load_profile  # noqa: PLC0415 - rarely given

    return load_profile(Path(path))


model_argument = click.argument(
    "model",
    metavar="[MODEL]",
    required=False,
    envvar=KEYS["model"].variable,
    shell_complete=complete_models,
)
projector_option = click.option("--projector", type=FILE_PATH, help="The projector (mmproj) GGUF.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Only the result, and errors.")
store_option = click.option("--store", type=FILE_PATH, help="The store of runs. [default: the user's]")
jobs_option = stored_option("jobs")
size_options = _add_options(
    click.option(
        "--profile",
        metavar="FILE",
        type=_read_profile,
        help="How to talk to the model, in place of its own profile; see: vrt-lite profile",
    ),
    stored_option("effort"),
    *map(stored_option, ("workspace", "first-frames", "window", "rounds", "max-pixels", "tool-max-pixels")),
    *map(stored_option, ("ctx", "gpu-layers", "kv-type")),
)
"""The options that decide how much memory judging takes."""
page_options = _add_options(
    click.option(
        "--embed", is_flag=True, help="Put small copies of the clips into the report, so that it can be sent."
    ),
    click.option("--open", "open_it", is_flag=True, help="Open the report in the browser."),
)
"""The options of a report's page: `embed` and `open_it`."""
judge_options = _add_options(
    stored_option("model", "-m", "--model", shell_complete=complete_models),
    projector_option,
    click.option(
        "--preset",
        metavar="NAME",
        help="model-card, videogen-reward, mj-bench-video or text2video-human: published wordings.",
    ),
    click.option(
        "--dimension",
        "dimensions",
        metavar="KEY=NAME:TEXT",
        type=_read_dimension,
        multiple=True,
        help="Your own wording of TA, VQ or MQ. The judge reads NAME (KEY).",
    ),
    size_options,
    stored_option("threads"),
    click.option("--temperature", metavar="T", type=Real(0, 10), help="0 is greedy. [default: 0]"),
    click.option("--seed", type=Number(0, 2**32 - 1), help="[default: 0]"),
    click.option(
        "--evidence", is_flag=True, help="Experimental: tell any judge in its prompt what was measured. [default: off]"
    ),
    stored_option("cache", "--cache/--no-cache", default=True),
    stored_option("cache-mb", hidden=True),
    *map(stored_option, ("backend", "served-model")),
    stored_option("backend-kind", default="auto"),
)
"""The options that choose a judge: `take_judge` reads them."""
run_options = _add_options(
    judge_options,
    jobs_option,
    click.option("--name", metavar="NAME", help="The run's name. [default: the same for the same call]"),
    store_option,
    json_option,
    quiet_option,
    click.option("-v", "--verbose", count=True, help="-v prints all notes, -vv the engine's log."),
)
"""Those, and the options of a run: `take_run` reads them."""
prompt_options = _add_options(
    click.option("-p", "--prompt", metavar="TEXT", help="The text the clips were made from."),
    click.option("--prompt-file", type=FILE_PATH, help="Read the prompt from a file."),
)
"""The two ways to give a prompt: `take_prompt` reads them."""
report_options = _add_options(
    click.option("--report", metavar="FILE.html", type=PATH, help="Write a report: one HTML file."), page_options
)
"""The options that write a report: `report_command.take_report` reads them."""


@dataclass(frozen=True, slots=True)
class ChosenJudge:
    """The judge that the options of a command choose: which model, where it runs, how it judges, and pairs at once."""

    model: str | None
    projector: Path | None
    backend: Remote | None
    settings: Settings
    jobs: int | None = None

    def open(self, **options: Any) -> Judge:
        """Open it; `options` are those of `Judge`.

        A model that is not bundled judges in a process of its own by default: its start takes little of the time.
        """
        from vrt_lite.api import Judge  # noqa: PLC0415
        from vrt_lite.models import bundled_names  # noqa: PLC0415
        from vrt_lite.shortage import limit_heaps, multiply_in_one_thread  # noqa: PLC0415

        limit_heaps()
        multiply_in_one_thread()
        options.setdefault("process", self.backend is None and self.model not in (None, *bundled_names()))
        own: dict[str, Any] = {"projector": self.projector, "backend": self.backend, "settings": self.settings}
        try:
            return Judge(self.model, **own, **options)
        except ModelError as error:
            if self.settings.sources.get("model") not in ("environment", "file"):
                raise
            raise ModelError(f"{error}. Without --model, {self.model!r} is set. See: vrt-lite config") from error

    def choose_jobs(self) -> int:
        """Return how many jobs to use: by default what `tune` found for the model here, 1 if there is nothing."""
        if self.jobs is None:
            from vrt_lite.tuning import find_tuning  # noqa: PLC0415

            tuning = None if self.backend else find_tuning(self.model, self.projector)
            return tuning.jobs if tuning else 1
        return self.jobs if self.backend else min(self.jobs, MOST_SEQUENCES)


def take_judge(options: dict[str, Any]) -> ChosenJudge:
    """Take the judge out of the options of a command that has `judge_options`. UsageError for bad values."""
    model, projector, url, served, kind = (
        options.pop(name) for name in ("model", "projector", "backend", "served_model", "backend_kind")
    )
    remote = None if url in (None, LOCAL) else Remote(url, served_model=served, kind=kind)
    if remote is None and "option" in map(find_source, ("served_model", "backend_kind")):
        raise UsageError("--served-model and --backend-kind are about a server: give its --backend URL as well.")
    return ChosenJudge(model, projector, remote, take_settings(options, remote), options.pop("jobs", None))


def take_settings(options: dict[str, Any], backend: Remote | None = None) -> Settings:
    """Take the settings out of a command's options.

    An effort decides what was set further from the command than itself: with the option `--effort full` the model's own
    holds, whatever a variable or the settings file says. For a judge on a server (`backend`), what is set for all
    commands about the engine here does not hold.
    """
    sources = {p.name: find_source(p.name) for p in click.get_current_context().command.params if p.envvar}
    effort = _NEAREST.index(sources["effort"])
    dropped = {name for name in _OUTDONE_BY_EFFORT if _NEAREST.index(sources[name]) > effort}
    if backend:
        dropped |= {name for name in LOCAL_SETTINGS if sources[name] != "option"}
    given: dict[str, Any] = {field.name: options.pop(field.name, None) for field in fields(Settings)}
    given["dimensions"] = dict(given["dimensions"] or ())
    given["sources"] = {name: source for name, source in sources.items() if source and name not in dropped}
    return Settings(**{name: value for name, value in given.items() if value is not None and name not in dropped})


@dataclass(frozen=True, slots=True)
class ChosenRun:
    """What the options of a command say of its run: the judge, name and store, and what is printed."""

    judge: ChosenJudge
    name: str | None
    store: Path | None
    as_json: bool
    quiet: bool
    verbose: int

    def make_view(self, view: Callable[..., _Made], *, quiet: bool = False) -> _Made:
        """Make a screen of this class for the progress."""
        return view(quiet=self.quiet or quiet, live=self.verbose < 2)

    def judge_with(self, view: Any, work: Callable[..., _Made]) -> _Made:
        """Let `work` judge with a store, a judge in a process of its own, and a view as its watcher."""
        from vrt_lite.runs.store import Store  # noqa: PLC0415

        with Store(self.store) as store:
            options: dict[str, Any] = {"process": True, "jobs": self.judge.choose_jobs(), "digest": store.digest}
            with self.judge.open(verbose=self.verbose > 1, **options) as judge, view:
                judge.connect(view.observe)
                return work(store=store, judge=judge, watcher=view, name=self.name)


def take_run(options: dict[str, Any]) -> ChosenRun:
    """Take the judge and the run out of the options of a command that has `run_options`. UsageError for bad values."""
    own = {name: options.pop(name) for name in ("name", "store", "as_json", "quiet", "verbose")}
    return ChosenRun(take_judge(options), **own)


def take_prompt(options: dict[str, Any]) -> str:
    """Take the prompt out of the options, "" without one. UsageError for a file that is no short text."""
    prompt, path = options.pop("prompt"), options.pop("prompt_file")
    if not path:
        return prompt or ""
    if prompt is not None:
        raise UsageError("Give --prompt or --prompt-file, not both.")
    from vrt_lite.disk import open_to_read  # noqa: PLC0415 - rarely given
    from vrt_lite.protocol.messages import LONGEST_PROMPT  # noqa: PLC0415

    try:
        with open_to_read(path) as file:
            # A character is at most four bytes; one byte more is enough to know that it is too long.
            return file.read(4 * LONGEST_PROMPT + 1).decode("utf-8-sig").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The prompt file {path} cannot be read as a short text in UTF-8: {error}.") from error


def open_existing_store(path: Path | None) -> Store:
    """Open the store, the user's own without a path. UsageError if a path is given and nothing is there."""
    from vrt_lite.runs.store import Store  # noqa: PLC0415

    if path is not None and not os.path.lexists(path):
        raise UsageError(f"There is no store {path}. Give the --store that rank or eval was given.")
    return Store(path)


def print_effort(effort: EffortName) -> None:
    """Print what a run was judged with, unless it is the model's own."""
    if effort != "full":
        click.echo(f"judged with effort {effort}, not with the model's own pixels, rounds and length of replies")


def print_text(text: str, *, err: bool = False) -> None:
    """Print a line that may hold a file's name, made harmless; with `err` on stderr."""
    from vrt_lite.show.words import print_wrapped  # noqa: PLC0415

    print_wrapped(text, sys.stderr if err else sys.stdout)


def print_json(value: object) -> None:
    """Print a value as JSON on stdout; records and dataclasses as objects."""
    click.echo(json.dumps(value, indent=2, default=_to_plain))


def _to_plain(record: object) -> Any:
    from msgspec import to_builtins  # noqa: PLC0415 - only for records; `doctor` runs without it

    return str(record) if isinstance(record, Path) else to_builtins(record)


def format_time(seconds: float, *, whole: bool = False) -> str:
    """Format a local time: to the minute, or whole, as ISO 8601 with the offset."""
    from datetime import datetime  # noqa: PLC0415

    moment = datetime.fromtimestamp(seconds).astimezone()
    return moment.isoformat(timespec="seconds") if whole else f"{moment:%Y-%m-%d %H:%M}"


def shorten(text: str, most: int) -> str:
    """Return a text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _write_fps(ctx: click.Context, parameter: click.Parameter, fps: float | None) -> str | None:
    return f"{fps:.9g}" if fps else None


fps_option = click.option(
    "--fps",
    metavar="N",
    type=Real(0.001, 1000),
    callback=_write_fps,
    help="Frames a second of numbered pictures, as in frames/%04d.png. [default: 24]",
)
"""The command calls `clip_files.add_rate` with its value."""
clip_options = _add_options(
    click.argument("clips", metavar="CLIPS...", nargs=-1, required=True, type=FILE),
    prompt_options,
    run_options,
    fps_option,
    click.option("-r", "--recursive", is_flag=True, help="Take the videos of folders in folders too."),
)
"""The options of commands that judge many clips."""
