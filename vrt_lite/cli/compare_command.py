"""The main command: judge two clips. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vrt_lite.cli.options import (
    FILE,
    FILE_PATH,
    PATH,
    Real,
    find_source,
    format_time,
    fps_option,
    json_option,
    judge_options,
    print_json,
    print_text,
    prompt_options,
    quiet_option,
    report_options,
    store_option,
    stored_option,
    take_judge,
    take_prompt,
)
from vrt_lite.cli.report_command import take_report, write_wanted
from vrt_lite.clip_files import add_rate, find_files
from vrt_lite.disk import file_sha256
from vrt_lite.errors import StoreError, UsageError, VideoError
from vrt_lite.interfaces import Observe, ignore

if TYPE_CHECKING:
    from vrt_lite.api import Finish
    from vrt_lite.records.judgement import Judgement
    from vrt_lite.runs.store import Store
    from vrt_lite.settings import BothOrders

STATUS = """Exit status: 0 a verdict, 2 usage, 3 bad video, 4 model missing, corrupt or mismatched,
5 out of memory, 6 no verdict from the model, 8 back end's server failed, 130 interrupted."""


def _read_orders(ctx: click.Context, parameter: click.Parameter, value: str) -> BothOrders:
    return "auto" if value == "auto" else value == "both"


@click.command(epilog=STATUS)
@click.argument("a", metavar="A", type=FILE)
@click.argument("b", metavar="B", type=FILE)
@prompt_options
@judge_options
@fps_option
@stored_option("orders", "--orders", "both_orders", default="one", callback=_read_orders)
@click.option(
    "--skip-second-at",
    "confidence",
    metavar="P",
    type=Real(0.5, 1, min_open=True, max_open=True),
    help="With --orders auto: a first order whose choice has this probability leaves no doubt. [default: 0.95]",
)
@json_option
@click.option("--trace", type=FILE_PATH, help="Write each round as a JSON line.")
@click.option("--sheet", metavar="FILE.png", type=PATH, help="Draw the frames the judge saw.")
@report_options
@click.option("--measures/--no-measures", default=True, help="Measure both clips beside the judge. [default: measures]")
@click.option("--again", is_flag=True, help="Judge anew what was judged before, and keep that instead.")
@store_option
@quiet_option
@click.option("-v", "--verbose", count=True, help="-v shows the reasoning, -vv the engine's log.")
def compare(
    a: str,
    b: str,
    *,
    fps: str | None,
    as_json: bool,
    trace: Path | None,
    sheet: Path | None,
    measures: bool,
    again: bool,
    store: Path | None,
    quiet: bool,
    verbose: int,
    **options: Any,
) -> None:
    """Judge two clips, A and B, made from one prompt.

    \b
    vrt-lite compare a.mp4 b.mp4 --prompt "A fox runs through snow."
    vrt-lite compare a.mp4 b.mp4 --model ./vr-thinker-7b --orders auto --json
    vrt-lite compare a.mp4 b.mp4 --report ab.html --open
    vrt-lite compare a.mp4 b.mp4 --backend http://127.0.0.1:8000/v1
    vrt-lite compare a.webp "frames/%04d.png" --fps 8

    A clip is a video, an animated GIF or WebP, or numbered pictures: a pattern, or their folder. Give a file name that
    begins with "-" as ./-name.mp4. Nothing is fetched from the network. With --backend, frames and prompt go to that
    server, and --model only names the profile. A key is read from VRT_LITE_API_KEY, or else from OPENAI_API_KEY.

    What is judged is kept: see vrt-lite history. The same clips, prompt, judge and settings are found again, unless
    --again, --trace or --sheet ask for the work itself.

    Options that you always give can be set once for all commands: vrt-lite config --help
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    prompt, report, judge = take_prompt(options), take_report(options), take_judge(options)
    if find_source("confidence") and judge.settings.both_orders != "auto":
        raise UsageError(f"--skip-second-at {judge.settings.confidence:g} is about --orders auto: give both.")
    one, other = add_rate([Path(a), Path(b)], fps)
    _check_outputs((one, other), {"--trace": trace, "--sheet": sheet, "--report": report and report.path})
    finish = _prepare_sheet(sheet) if sheet else None
    from vrt_lite.runs.history import compare_once  # noqa: PLC0415

    with _open_store(store) as kept, contextlib.ExitStack() as stack:
        digest = kept.digest if kept else file_sha256
        opened = stack.enter_context(judge.open(verbose=verbose > 1, measures=measures, digest=digest))
        observe: Observe = ignore
        if not (quiet or as_json):
            from vrt_lite.show.judge_view import JudgeView, OrderSorter  # noqa: PLC0415

            observe = OrderSorter(stack.enter_context(JudgeView(verbose=verbose > 0, live=verbose < 2)).observe)
        opened.connect(observe)
        work = functools.partial(opened.compare, one, other, prompt=prompt, observe=observe, trace=trace, finish=finish)
        judgement, made = compare_once(
            work, opened, (one, other), prompt, store=kept, again=again or bool(trace or sheet)
        )
    if made and not quiet:
        print_text(f"found: this was judged before, {format_time(made)}. To judge it anew: --again", err=True)
    print_judgement(judgement, as_json=as_json, advise=not quiet)
    if report:
        write_wanted(report, judgement, quiet=quiet)


def _prepare_sheet(sheet: Path) -> Finish:
    """Return what draws the sheet. UsageError for a path that it cannot be written to."""
    from vrt_lite.show.sheet import check_place, draw_sheet  # noqa: PLC0415 - Pillow only for a sheet

    check_place(sheet)
    return functools.partial(draw_sheet, path=sheet)


def print_judgement(judgement: Judgement, *, as_json: bool, advise: bool = True) -> None:
    """Print a judgement as JSON, or for a person; with `advise` also how to judge better."""
    if as_json:
        print_json(judgement.to_json())
        return
    from vrt_lite.show import show_verdict  # noqa: PLC0415

    show_verdict(judgement, advise=advise)


def _open_store(path: Path | None) -> contextlib.AbstractContextManager[Store | None]:
    """Open the store. Where the user's own cannot be opened, say that nothing is kept: the verdict is what counts."""
    from vrt_lite.runs.store import Store  # noqa: PLC0415

    try:
        return Store(path)
    except (StoreError, UsageError) as error:
        if path:
            raise
        print_text(f"This comparison is not kept. {error}", err=True)
        return contextlib.nullcontext()


def _check_outputs(clips: Sequence[Path], outputs: Mapping[str, Path | None]) -> None:
    """Raise UsageError for an output that would replace a clip, an input of another option, or another output."""
    given = click.get_current_context().params
    inputs = {"--prompt-file": "prompt_file", "--model": "model", "--projector": "projector"}
    used = [(option, Path(given[name])) for option, name in inputs.items() if given[name]]
    wanted = [(option, path) for option, path in outputs.items() if path]
    for clip in clips if wanted else ():
        with contextlib.suppress(VideoError):  # opening it will tell
            used += [("one of the clips", file) for file in find_files(clip).files]
    for option, output in wanted:
        for other, path in used:
            if _same_file(output, path):
                raise UsageError(f"{option} {output} is also {other}; write to another file.")
        used.append((option, output))


def _same_file(a: Path, b: Path) -> bool:
    """Return whether two paths name one file, which need not exist."""
    try:
        return a.resolve() == b.resolve() or a.samefile(b)
    except (OSError, ValueError):
        return False
