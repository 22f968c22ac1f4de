"""The command that scores clips, each by itself. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vrt_lite.cli.options import (
    FILE,
    fps_option,
    judge_options,
    print_json,
    print_text,
    prompt_options,
    read_prompt,
    read_settings,
)
from vrt_lite.cli.run_options import choose_jobs, jobs_option, open_run_judge, store_option
from vrt_lite.errors import ClipsError, UsageError

if TYPE_CHECKING:
    from vrt_lite.ranking.rank import Ranking
    from vrt_lite.settings import Remote

STATUS = """Exit status: 0 all clips are scored, 2 usage, 3 some clip cannot be used or has no score (the rest is
listed). 4 model missing, corrupt or mismatched, 5 out of memory, 7 the store cannot be used, 130 interrupted."""


@click.command(epilog=STATUS)
@click.argument("clips", metavar="CLIPS...", nargs=-1, required=True, type=FILE)
@prompt_options
@judge_options
@fps_option
@click.option("-r", "--recursive", is_flag=True, help="Take the videos of folders in folders too.")
@jobs_option
@click.option("--name", metavar="NAME", help="The run's name. [default: made from clips, prompts and judge]")
@store_option
@click.option("--csv", "as_csv", is_flag=True, help="Print the scores as CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print the scores as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Only the scores.")
@click.option("-v", "--verbose", count=True, help="-vv shows the engine's log.")
def score(
    clips: tuple[str, ...],
    *,
    prompt: str | None,
    prompt_file: Path | None,
    model: str | None,
    projector: Path | None,
    backend: Remote | None,
    fps: str | None,
    recursive: bool,
    jobs: int | None,
    name: str | None,
    store: Path | None,
    as_csv: bool,
    as_json: bool,
    quiet: bool,
    verbose: int,
    **options: Any,
) -> None:
    """Score CLIPS, each by itself, with a judge that does so.

    \b
    vrt-lite score renders/ --prompt "A fox runs through snow." --model NAME --csv
    vrt-lite score clips.csv --model NAME --json

    CLIPS are as for rank, and so is a table of clips with their own prompts. A line has a clip's raw scores, and the
    percentile of each: the per cent of the other clips of its folder or group that have less. Each clip is judged once.
    What was judged is kept, so that the same command goes on, and rank finds it.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from vrt_lite.ranking.entries import read_entries  # noqa: PLC0415
    from vrt_lite.ranking.rank import rank_clips  # noqa: PLC0415
    from vrt_lite.runs.store import Store  # noqa: PLC0415
    from vrt_lite.show.progress import RankingView, open_screen  # noqa: PLC0415

    jobs = choose_jobs(jobs, model, projector, backend)
    settings = read_settings(options, backend)
    groups = read_entries(clips, prompt=read_prompt(prompt, prompt_file), fps=fps, recursive=recursive)
    view = RankingView(open_screen(quiet=quiet or as_json or as_csv, live=verbose < 2))
    with (
        Store(store) as kept,
        open_run_judge(model, projector, backend, settings, kept, log=verbose > 1, quiet=quiet, jobs=jobs) as judge,
        view,
    ):
        judge.connect(view.observe)
        if not judge.pointwise:
            raise UsageError("This judge compares two clips and scores none by itself. Use: vrt-lite rank")
        ranking = rank_clips(groups, store=kept, judge=judge, watcher=view, name=name, jobs=jobs)
    _print(ranking, as_csv=as_csv, as_json=as_json)


def _print(ranking: Ranking, *, as_csv: bool, as_json: bool) -> None:
    """Print the scores. ClipsError if a clip has none."""
    from vrt_lite.ranking.clip_scores import list_scores, name_scores, score_lines  # noqa: PLC0415
    from vrt_lite.show.table import show_table  # noqa: PLC0415

    scored = [clip for ladder in ranking.ladders for clip in list_scores(ladder)]
    if as_json:
        print_json({"run": ranking.run, "judge": ranking.judge, "clips": [clip.to_json() for clip in scored]})
    elif as_csv:
        click.echo("".join(score_lines(scored)), nl=False)
    else:
        names = name_scores(scored)
        rows = [
            (clip.clip.name, *(f"{clip.scores[n]:.3g} ({clip.percentiles[n] or 0:.0f})" for n in names))
            for clip in scored
            if clip.scores
        ]
        show_table(("CLIP", *(f"{name} (%ile)" for name in names)), rows)
    for out in ranking.left_out:
        print_text(f"left out: {str(out.path)!r} {out.reason}", err=True)
    for clip in scored:
        if clip.error:
            print_text(f"no score: {clip.clip.name}: {clip.error}", err=True)
    if missing := sum(out.broken for out in ranking.left_out) + sum(bool(clip.error) for clip in scored):
        raise ClipsError(f"{missing} clip(s) have no score, as listed; all others do.")
