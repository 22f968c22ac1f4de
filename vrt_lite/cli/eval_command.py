"""The command that compares a judge with a labelled set. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vrt_lite.cli.options import (
    FILE,
    FOLDER,
    ChosenRun,
    print_effort,
    print_json,
    print_text,
    report_options,
    run_options,
    take_run,
)
from vrt_lite.cli.report_command import WantedReport, take_report, write_run_report
from vrt_lite.errors import ClipsError, NoVerdictError, UsageError, WorkerEndedError
from vrt_lite.stored_settings import Number

if TYPE_CHECKING:
    from vrt_lite.evaluation.evaluate import Evaluation
    from vrt_lite.evaluation.sets import LabelledSet, Place

STATUS = """Exit status: 0 done, whatever the accuracy; 2 usage, 3 no clip of the set is there, 4 model
or set missing or out of reach, or the engine died at a pair. 5 out of memory, 6 no pair got a verdict, 7 store,
130 interrupted."""

_MOST_NAMED = 3


@click.command("eval", epilog=STATUS)
@click.argument("labelled", metavar="SET", type=FILE)
@click.option("--from", "folder", type=FOLDER, help="Where SET, or its clips, lie.")
@click.option("--split", metavar="NAME", help="Which split: of genai-bench test_v1, test or unifiedreward.")
@click.option("--pull", is_flag=True, help="Fetch SET from the Hugging Face hub first, or what is missing of it.")
@click.option("--limit", type=Number(1), help="Only the first N pairs.")
@click.option("--sample", type=Number(1), help="Only N pairs, drawn by --seed.")
@click.option("--budget", type=Number(0), help="At most N judgements now; call again for more.")
@click.option(
    "--order",
    type=click.Choice(["given", "swapped", "random", "both"]),
    default="given",
    help="Which clip is shown first: A is given, B is swapped; its effect is reported. [default: given]",
)
@run_options
@report_options
@click.option("--plots", type=FOLDER, help="Draw the figures as PNG files.")
def evaluate(
    labelled: str,
    *,
    split: str | None,
    folder: Path | None,
    pull: bool,
    limit: int | None,
    sample: int | None,
    budget: int | None,
    order: Any,
    plots: Path | None,
    **options: Any,
) -> None:
    """Compare a judge with a labelled SET of pairs.

    \b
    vrt-lite eval genai-bench --from ./GenAI-Bench --model ./vr-thinker-7b
    vrt-lite eval videogen-rewardbench --pull --sample 500
    vrt-lite eval pairs.csv --plots figures

    SET is genai-bench, videogen-rewardbench or mj-bench-video, a folder with one of them, or a table in CSV or JSONL.
    A table has the columns a, b (clips), prompt, and one or more of overall, TA, VQ, MQ; id, group if you like. Clips
    are absolute paths, or relative to the table; numbered pictures are frames/%04d.png@8, 8 a second. A label is A, B
    or same, or 1, 2, 0; empty is no label. The splits of genai-bench are test_v1, test and unifiedreward.

    Every judgement is kept when it is made: the same call resumes where it stopped. The network is used with --pull
    and --backend only. --seed also draws the sample and the random order.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    report, run = take_report(options), take_run(options)
    from vrt_lite.evaluation import evaluate as evaluation  # noqa: PLC0415
    from vrt_lite.evaluation.sets import choose_pairs, read_set  # noqa: PLC0415
    from vrt_lite.show.run_views import EvaluationView  # noqa: PLC0415

    if plots:
        from vrt_lite.show.evaluation_sections import check_plots  # noqa: PLC0415

        check_plots()
    found = read_set(_find_set(labelled, split, folder, pull=pull, quiet=run.quiet))
    if not run.quiet:
        _name_broken_rows(found)
    settings = run.judge.settings
    selection = evaluation.PairSelection(order, limit, sample, settings.seed, budget)
    if not settings.preset:
        run = replace(run, judge=replace(run.judge, settings=replace(settings, preset=found.place.layout.preset)))
    pairs = choose_pairs(found.pairs, limit=limit, sample=sample, seed=settings.seed)
    view = run.make_view(partial(EvaluationView, total=len(pairs) * (2 if order == "both" else 1)))
    made = run.judge_with(view, partial(evaluation.evaluate, found, selection))
    _print_figures(made, run, plots=plots)
    _finish(made, run, report)


def _name_broken_rows(found: LabelledSet) -> None:
    """Print the first rows of the table that cannot be read, and how many more there are."""
    broken = [row.reason for row in found.left_out if row.kind == "broken"]
    for reason in broken[:_MOST_NAMED]:
        print_text(f"left out: {reason}", err=True)
    if len(broken) > _MOST_NAMED:
        print_text(f"and {len(broken) - _MOST_NAMED} more of these: the report lists them", err=True)


def _find_set(labelled: str, split: str | None, folder: Path | None, *, pull: bool, quiet: bool) -> Place:
    """Find the set; with `pull`, fetch it first."""
    from vrt_lite.evaluation.fetching import fetch_set, find_set  # noqa: PLC0415
    from vrt_lite.evaluation.sets import find_set_name, layouts_of  # noqa: PLC0415

    if pull:
        from vrt_lite.show.screen import CountedWork  # noqa: PLC0415

        name = find_set_name(labelled)
        if name is None or folder is not None:
            raise UsageError(
                "--pull fetches a set by its name, to where vrt-lite keeps it: leave out --from and paths."
            )
        layout = layouts_of(name, split)[0]
        with CountedWork("asking the hub", quiet=quiet) as progress:
            fetch_set(layout, progress=progress)
        split = layout.split
    return find_set(labelled, split=split, folder=folder)


def _print_figures(made: Evaluation, run: ChosenRun, *, plots: Path | None) -> None:
    """Print the figures; with `plots`, draw them to that folder."""
    from vrt_lite.show.evaluation_sections import draw_plots, show_figures  # noqa: PLC0415

    effort = run.judge.settings.effort
    if run.as_json:
        print_json({**made.figures.to_json(), "effort": effort})
    else:
        show_figures(made.figures, judge=made.judge, run=made.run)
        print_effort(effort)
    if plots:
        for drawn in draw_plots(made.figures, plots) or ["nothing: no pair is both labelled and judged"]:
            print_text(f"drawn: {drawn}", err=True)


def _finish(made: Evaluation, run: ChosenRun, report: WantedReport | None) -> None:
    """Write the report. Raise an error with its exit status if every pair failed, or the engine died."""
    pairs, counts = made.figures.pairs, made.figures.failures.counts
    if report and pairs.judged:
        write_run_report(report, made.run, run.store, quiet=run.quiet)
    if died := counts.get("engine died"):
        raise WorkerEndedError(
            f"The engine died at {died} pair(s), as listed; the rest is judged. To try again: vrt-lite runs --retry "
            f"{shlex.quote(made.run)}, and then the same command."
        )
    if pairs.judged or not counts:
        return
    if counts.get("no verdict"):
        raise NoVerdictError(f"None of {pairs.failed} pairs got a verdict; the first reason is above.")
    raise ClipsError(f"The clips of {pairs.failed} pairs are missing or broken. Give their folder with --from FOLDER.")
