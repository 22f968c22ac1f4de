"""The main command: judge two clips. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from vrt_lite.cli import KeptOption
from vrt_lite.cli.options import (
    FILE,
    fps_option,
    judge_options,
    open_judge,
    print_json,
    print_text,
    prompt_options,
    read_prompt,
    read_settings,
    report_options,
)
from vrt_lite.cli.run_options import store_option
from vrt_lite.errors import StoreError, UsageError

if TYPE_CHECKING:
    from vrt_lite.api import Finish, Judge
    from vrt_lite.cli.report_writing import WantedReport
    from vrt_lite.records.judgement import Judgement
    from vrt_lite.runs.store import Store
    from vrt_lite.settings import BothOrders, Remote, Settings
    from vrt_lite.show import PlainView
    from vrt_lite.show.live import LiveView

_ORDERS: Final[Mapping[str, BothOrders]] = {"one": False, "both": True, "auto": "auto"}

STATUS = """Exit status: 0 a verdict, 2 usage, 3 bad video, 4 model missing, corrupt or mismatched,
5 out of memory, 6 no verdict from the model, 8 back end's server failed, 130 interrupted."""


def _read_orders(ctx: click.Context, parameter: click.Parameter, value: str) -> BothOrders:
    return _ORDERS[value]


@click.command(epilog=STATUS)
@click.argument("a", metavar="A", type=FILE)
@click.argument("b", metavar="B", type=FILE)
@prompt_options
@judge_options
@fps_option
@click.option(
    "--orders",
    "both_orders",
    cls=KeptOption,
    type=click.Choice(list(_ORDERS)),
    default="one",
    callback=_read_orders,
    help="Judge A beside B once, or with the clips exchanged too and average: opposite winners are undecided. auto: "
    "the second order only if the first one leaves a doubt. [default: one]",
)
@click.option(
    "--skip-second-at",
    "confidence",
    metavar="P",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
    help="With --orders auto: a first order whose choice has this probability leaves no doubt. [default: 0.95]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the judgement as JSON.")
@click.option("--trace", metavar="FILE", type=click.Path(path_type=Path), help="Write each round as a JSON line.")
@click.option("--sheet", metavar="FILE.png", type=click.Path(path_type=Path), help="Draw the frames the judge saw.")
@report_options
@click.option("--measures/--no-measures", default=True, help="Measure both clips beside the judge. [default: measures]")
@click.option("--again", is_flag=True, help="Judge anew what was judged before, and keep that instead.")
@store_option
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
    backend: Remote | None,
    fps: str | None,
    as_json: bool,
    trace: Path | None,
    sheet: Path | None,
    report: WantedReport | None,
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

    A clip is a video, an animated GIF or WebP, or numbered pictures: a pattern, or their folder.
    Give a file name that begins with "-" as ./-name.mp4. Nothing is fetched from the network. With --backend, frames
    and prompt go to that server, and --model only names the profile. A key is read from VRT_LITE_API_KEY, or else from
    OPENAI_API_KEY.

    What is judged is kept: see vrt-lite history. The same clips, prompt, judge and settings are found again, unless
    --again, --trace or --sheet ask for the work itself.

    Options that you always give can be set once for all commands: vrt-lite config --help
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    a, b = _add_rate(a, b, fps)
    inputs = {"--prompt-file": prompt_file, "--model": Path(model) if model else None, "--projector": projector}
    _check_outputs((a, b), inputs, {"--trace": trace, "--sheet": sheet, "--report": report and report.path})
    caption = read_prompt(prompt, prompt_file)
    settings = _read_settings(options, backend)
    finish = _sheet_drawer(sheet) if sheet else None
    from vrt_lite.show import view  # noqa: PLC0415

    silent = quiet or as_json
    opening = functools.partial(open_judge, model, projector, backend, settings, measures=measures)
    viewing = functools.partial(view, quiet=silent, verbose=verbose > 0, live=verbose < 2)
    with _open_store(store) as kept, opening(verbose=verbose > 1, quiet=silent, digest=kept and kept.digest) as judge:
        work = functools.partial(judge.compare, a, b, prompt=caption, trace=trace, finish=finish)
        again = again or bool(trace or sheet)
        judgement, made = _find_or_judge(work, judge, (a, b), caption, kept, viewing, again=again, measures=measures)
    if made and not quiet:
        print_text(f"found: this was judged before, {made}. To judge it anew: --again", err=True)
    _show(judgement, report, as_json=as_json, quiet=quiet)


def _show(judgement: Judgement, report: WantedReport | None, *, as_json: bool, quiet: bool) -> None:
    """Print the verdict, and write the report."""
    if as_json:
        print_json(judgement.to_json())
    else:
        from vrt_lite.show import show_verdict  # noqa: PLC0415

        show_verdict(judgement, advise=not quiet)
    if report:
        from vrt_lite.cli.report_writing import write_wanted  # noqa: PLC0415

        write_wanted(report, judgement, quiet=quiet)


def _find_or_judge(
    work: Callable[..., Judgement],
    judge: Judge,
    clips: tuple[str, str],
    prompt: str,
    store: Store | None,
    viewing: Callable[[], LiveView | PlainView],
    *,
    again: bool,
    measures: bool,
) -> tuple[Judgement, str]:
    """Return the judgement, and when it was made if it was found in the store, "" if it was not."""
    from vrt_lite.show import OrderSorter  # noqa: PLC0415

    with viewing() as shown:
        working = functools.partial(work, observe=OrderSorter(shown.observe))
        if store is None:
            return working(), ""
        from vrt_lite.cli.runs_command import format_time  # noqa: PLC0415
        from vrt_lite.runs.history import compare_once, describe_orders  # noqa: PLC0415

        judge.connect(shown.observe)
        orders = describe_orders(judge.settings.both_orders, judge.settings.confidence)
        asked = orders if measures else f"{orders} unmeasured"
        paths = (Path(clips[0]), Path(clips[1]))
        judgement, made = compare_once(working, judge, paths, prompt, store=store, orders=asked, again=again)
        return judgement, format_time(made) if made else ""


@contextlib.contextmanager
def _open_store(path: Path | None) -> Generator[Store | None]:
    """Open the store. Where the user's own cannot be opened, say that nothing is kept: the verdict is what counts."""
    from vrt_lite.runs.store import Store  # noqa: PLC0415

    try:
        opened = Store(path)
    except (StoreError, UsageError) as error:
        if path:
            raise
        print_text(f"This comparison is not kept. {error}", err=True)
        yield None
        return
    try:
        yield opened
    finally:
        with contextlib.suppress(StoreError):
            opened.close()


def _read_settings(options: Mapping[str, Any], backend: Remote | None) -> Settings:
    """Read the settings. UsageError for bad values, and for a confidence that nothing is compared with."""
    given = {name: value for name, value in options.items() if name != "confidence" or value is not None}
    settings = read_settings(given, backend)
    if "confidence" in given and settings.both_orders != "auto":
        raise UsageError(f"--skip-second-at {given['confidence']:g} is about --orders auto: give both.")
    return settings


def _add_rate(a: str, b: str, fps: str | None) -> tuple[str, str]:
    """Return both clips, numbered pictures with their frame rate. UsageError if neither is numbered pictures."""
    if fps is None:
        return a, b
    from vrt_lite.clip_files import add_rate  # noqa: PLC0415

    one, other = add_rate([Path(a), Path(b)], fps)
    return str(one), str(other)


def _sheet_drawer(path: Path) -> Finish:
    """Return a function that draws the sheet. UsageError for a path that no sheet can be written to."""
    from vrt_lite.show.sheet import check_place, draw_sheet  # noqa: PLC0415 - Pillow only for a sheet

    check_place(path)
    return functools.partial(draw_sheet, path=path)


def _check_outputs(
    clips: tuple[str, str], inputs: Mapping[str, Path | None], outputs: Mapping[str, Path | None]
) -> None:
    """Raise UsageError for an output that would replace a clip, an input of another option, or another output."""
    used = {option: path for option, path in inputs.items() if path}
    files = [file for clip in clips for file in _files_of(Path(clip))] if any(outputs.values()) else []
    for option, output in outputs.items():
        if output is None:
            continue
        if any(_same_file(output, file) for file in files):
            raise UsageError(f"{output} is one of the clips; write to another file.")
        for other, path in used.items():
            if _same_file(output, path):
                raise UsageError(f"{option} {output} is also {other}; write to another file.")
        used[option] = output


def _files_of(clip: Path) -> tuple[Path, ...]:
    if os.path.isfile(clip):  # noqa: PTH113 - it raises nothing
        return (clip,)
    from vrt_lite.clip_files import files_of  # noqa: PLC0415 - only for numbered pictures

    return files_of(clip)


def _same_file(a: Path, b: Path) -> bool:
    """Return whether two paths name one file, which need not exist."""
    try:
        return a.resolve() == b.resolve() or a.samefile(b)
    except (OSError, ValueError):
        return False
