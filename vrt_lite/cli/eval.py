"""The command that holds a judge to a labelled set. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vrt_lite.cli.options import judging, open_judge_of, settings_of
from vrt_lite.errors import UsageError

if TYPE_CHECKING:
    from vrt_lite.evaluation.evaluate import Choice, Judging
    from vrt_lite.evaluation.sets import LabelledSet, Place
    from vrt_lite.runs.store import Store

STATUS = """\b
Exit status: 0 done, whatever the accuracy; 2 usage, 3 no clip of the set is there, 4 model
or set missing or out of reach, 5 out of memory, 6 no pair got a verdict, 7 store, 130 interrupted."""


@click.command("eval", epilog=STATUS)
@click.argument("labelled", metavar="SET")
@click.option(
    "--from", "folder", metavar="FOLDER", type=click.Path(path_type=Path), help="Where SET, or its clips, lie."
)
@click.option("--split", metavar="NAME", help="Which split: of genai-bench test_v1, test or unifiedreward.")
@click.option("--pull", is_flag=True, help="Fetch SET from the Hugging Face hub first, or what is missing of it.")
@click.option("--limit", metavar="N", type=click.IntRange(1), help="Only the first N pairs.")
@click.option("--sample", metavar="N", type=click.IntRange(1), help="Only N pairs, drawn by --seed.")
@click.option("--budget", metavar="N", type=click.IntRange(0), help="At most N judgements now; call again for more.")
@click.option(
    "--order",
    type=click.Choice(["given", "swapped", "random", "both"]),
    default="given",
    help="Which clip is shown first: A is given, B is swapped; its effect is reported. [default: given]",
)
@judging
@click.option(
    "--jobs", metavar="N", type=click.IntRange(1, 1024), default=1, help="Pairs at once; with --backend only."
)
@click.option("--store", "file", metavar="FILE", type=click.Path(path_type=Path), help="Keep the run in this file.")
@click.option("--name", metavar="NAME", help="The run's name. [default: the same for the same call]")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
@click.option("--plots", metavar="DIR", type=click.Path(path_type=Path), help="Draw the figures as PNG files.")
@click.option("-q", "--quiet", is_flag=True, help="Only the figures.")
@click.option("-v", "--verbose", count=True, help="-vv shows the engine's log.")
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
    model: str | None,
    projector: Path | None,
    backend: Any,
    jobs: int,
    file: Path | None,
    name: str | None,
    as_json: bool,
    plots: Path | None,
    quiet: bool,
    verbose: int,
    **options: Any,
) -> None:
    """Hold a judge to a labelled SET of pairs: accuracy, what it costs, and where it fails.

    \b
    vrt-lite eval genai-bench --from ./GenAI-Bench --model ./vr-thinker-7b
    vrt-lite eval videogen-rewardbench --pull --sample 500
    vrt-lite eval genai-bench --split test --from ./GenAI-Bench
    vrt-lite eval mj-bench-video --from ./MJ-BENCH-VIDEO --order both
    vrt-lite eval pairs.csv --plots figures

    SET is genai-bench, videogen-rewardbench or mj-bench-video, a folder with one of them, or a table of pairs: CSV or
    JSONL with the columns a, b (clips: absolute, or relative to the table's folder), prompt, and one or more of
    overall, TA, VQ, MQ (A, B or same; or 1, 2, 0; empty: no label); id and group if you like.

    The splits of genai-bench are test_v1 (the authors' leaderboard; taken if it is there), test (other papers' tables)
    and unifiedreward (UnifiedReward's data.json). Published figures are shown beside the same split only.

    Every judgement is kept when it is made: the same call goes on where it stopped. The network is used with --pull
    and --backend alone. --seed also draws the sample and the random order.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    if jobs > 1 and backend is None:
        raise UsageError(f"--jobs {jobs} needs a server (--backend URL): on this machine one pair is judged at a time.")
    from vrt_lite.display import view  # noqa: PLC0415
    from vrt_lite.evaluation.evaluate import Choice, Judging  # noqa: PLC0415
    from vrt_lite.evaluation.sets import read  # noqa: PLC0415
    from vrt_lite.runs.store import Store  # noqa: PLC0415

    place = _place(labelled, split, folder, pull=pull, quiet=quiet)
    found = read(place)
    choice = Choice(order, limit, sample, options["seed"], budget)
    settings = settings_of({**options, "preset": options["preset"] or place.layout.preset})
    with (
        Store(file) as store,
        open_judge_of(model, projector, backend, settings, verbose > 1, store, quiet=quiet) as judge,
    ):
        own = judge.files.name if judge.files else None
        called = own or getattr(backend, "served_model", None) or model or "the server's model"
        if judge.server:
            judge.server.connect(view(quiet=quiet, live=False).observe)
        who = Judging(judge, judge.key(), called, jobs)
        figures = _judged(found, choice, who, store, name, quiet=quiet, live=verbose < 2)
    _print(figures, as_json=as_json)
    if plots:
        from vrt_lite.evaluation.plots import draw_plots  # noqa: PLC0415

        for path in draw_plots(figures, plots):
            click.echo(f"drawn: {path}", err=True)
    _refuse_nothing(figures)


def _place(labelled: str, split: str | None, folder: Path | None, *, pull: bool, quiet: bool) -> Place:
    """The set that is meant, fetched if that was asked for."""
    from vrt_lite.display import safe  # noqa: PLC0415
    from vrt_lite.evaluation.layouts import named, splits_of  # noqa: PLC0415
    from vrt_lite.evaluation.sets import locate  # noqa: PLC0415

    name = named(labelled)
    if pull and (name is None or folder is not None):
        raise UsageError("--pull fetches a set by its name, to where vrt-lite keeps it: leave out --from and paths.")
    if name is None:
        return locate(Path(labelled), split=split, clips=folder)
    if folder is not None:
        return locate(folder, name=name, split=split)
    from vrt_lite.evaluation.fetching import bring, set_folder  # noqa: PLC0415

    layout = splits_of(name, split)[0]
    if pull:
        here = bring(layout, say=lambda line: None if quiet else click.echo(safe(line), err=True))
        return locate(here, name=name, split=layout.split)
    here = set_folder(name)
    if not here.is_dir():
        size = f" ({layout.megabytes / 1000:g} GB)" if layout.megabytes else ""
        asked = f"{name} --split {split}" if split else name
        fetch = f", or fetch it{size}: vrt-lite eval {asked} --pull" if layout.repository else "."
        raise UsageError(f"{name} is not here. Give a copy with --from FOLDER{fetch}")
    return locate(here, name=name, split=split)


def _judged(
    found: LabelledSet, choice: Choice, judging: Judging, store: Store, name: str | None, *, quiet: bool, live: bool
) -> dict[str, Any]:
    from vrt_lite.display import safe  # noqa: PLC0415
    from vrt_lite.evaluation import evaluate as driver  # noqa: PLC0415
    from vrt_lite.evaluation.progress import Progress  # noqa: PLC0415
    from vrt_lite.evaluation.sets import choose  # noqa: PLC0415

    pairs = choose(found.pairs, limit=choice.limit, sample=choice.sample, seed=choice.seed)
    run = driver.begin(name or driver.run_name(found, choice, judging.key), found, choice, judging=judging, store=store)
    if not quiet:
        click.echo(safe(f"run {run.name}: {len(pairs)} pairs of {found.place.layout.called}"), err=True)
    total = len(pairs) * (2 if choice.order == "both" else 1)
    with Progress(None if quiet else sys.stderr, total=total, live=live) as progress:
        return driver.evaluate(found, pairs, choice, run=run, store=store, judging=judging, progress=progress)


def _print(figures: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        import json  # noqa: PLC0415

        click.echo(json.dumps(figures, indent=2))
    else:
        from vrt_lite.evaluation.summary import show_figures  # noqa: PLC0415

        show_figures(figures, stream=sys.stdout)


def _refuse_nothing(figures: dict[str, Any]) -> None:
    """An evaluation in which every pair failed is none: its figures are shown, and it ends with a status."""
    from vrt_lite.errors import NoVerdictError, VideoError  # noqa: PLC0415

    pairs, counts = figures["pairs"], figures["failures"]["counts"]
    if pairs["judged"] or not counts:
        return
    if counts.get("no verdict"):
        raise NoVerdictError(f"None of {pairs['failed']} pairs got a verdict; the first reason is above.")
    raise VideoError(
        f"The clips of {pairs['failed']} pairs are missing or broken. Give their folder with --from FOLDER."
    )
