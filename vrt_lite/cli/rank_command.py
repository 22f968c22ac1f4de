"""The commands that rank clips, or score each. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

import functools
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vrt_lite.cli.options import (
    FOLDER,
    ChosenJudge,
    ChosenRun,
    Real,
    clip_options,
    print_effort,
    print_json,
    print_text,
    report_options,
    take_prompt,
    take_run,
)
from vrt_lite.cli.report_command import WantedReport, take_report, write_run_report
from vrt_lite.errors import ClipsError, NoVerdictError, UsageError, VrtError, WorkerEndedError
from vrt_lite.stored_settings import Number

if TYPE_CHECKING:
    from collections.abc import Callable

    from vrt_lite.api import Judge
    from vrt_lite.records.ladders import Ranking

STATUS = """With --watch a new clip is judged when it is whole: a file that is still being written is waited for, and
deleted clips leave the ranking. Ctrl-C, or a spent --budget, ends it with the leaderboard and status 0.

Exit status: 0 all clips are ranked, 2 usage, 3 some clip cannot be used or read (the rest is ranked, if
two are left). 4 model missing, corrupt or mismatched, or the engine died at a pair (the rest is ranked). 5 out of
memory, 6 no pair got a verdict, 7 the store of runs cannot be used, 130 interrupted."""
_SCORE_STATUS = """Exit status: 0 all clips are scored, 2 usage, 3 some clip cannot be used or has no score (the rest is
listed). 4 model missing, corrupt or mismatched, 5 out of memory, 7 the store cannot be used, 130 interrupted."""


@click.command(epilog=STATUS)
@clip_options
@click.option("--watch", is_flag=True, help="Rank folders: judge new clips as they come, until Ctrl-C.")
@click.option(
    "--orders",
    type=click.Choice(["one", "both"]),
    default="both",
    help="one: judge each pair once, not with the clips exchanged too. Half the work. [default: both]",
)
@click.option("--budget", type=Number(1), help="At most N judgements, those of earlier calls included.")
@click.option(
    "--stop-at",
    metavar="P",
    type=Real(0.5, 1, min_open=True, max_open=True),
    help="Stop when each clip is better than the next with this probability. [default: 0.8 if pairs are chosen]",
)
@click.option("--exclude-flagged", is_flag=True, help="Leave out clips with a measured fault, such as stutter.")
@click.option("--top", type=Number(1), help="Name the K best clips of each group.")
@click.option("--then", metavar="NAME", help="Let this judge rank the best (--top, else 3) again, in both orders.")
@click.option("--copy-to", type=FOLDER, help="Copy the best there, numbered.")
@report_options
def rank(
    clips: tuple[str, ...],
    *,
    fps: str | None,
    recursive: bool,
    watch: bool,
    orders: str,
    budget: int | None,
    stop_at: float | None,
    exclude_flagged: bool,
    top: int | None,
    then: str | None,
    copy_to: Path | None,
    **options: Any,
) -> None:
    """Rank CLIPS made from one prompt, by comparing pairs of them.

    \b
    vrt-lite rank renders/ --prompt "A fox runs through snow."
    vrt-lite rank "takes/**/*.mp4" --prompt-file fox.txt --top 3 --copy-to best
    vrt-lite rank renders/ --model QUICK --top 3 --then vr-thinker-7b

    CLIPS are files, folders, patterns and numbered pictures (frames/%04d.png); or one table (.csv, .tsv, .jsonl) of
    clip, prompt and group, where groups are ranked apart. Its paths are relative to it; --prompt is for other rows.

    Up to 12 clips are judged pair by pair. For more, or with --budget or --stop-at, the judgement (one order of one
    pair) that tells most is next, until the order is certain. Every judgement is kept when it is made: after an
    interruption the same command goes on. A rating is in log odds; clips with a letter in common cannot be told apart.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    prompt, report, run = take_prompt(options), take_report(options), take_run(options)
    from vrt_lite.ranking.entries import Group, read_entries  # noqa: PLC0415
    from vrt_lite.ranking.rank import rank_clips  # noqa: PLC0415
    from vrt_lite.ranking.rank_run import Effort  # noqa: PLC0415

    if watch:
        rank_them = _watch(clips, prompt, fps=fps, recursive=recursive)
    else:
        groups = read_entries(clips, prompt=prompt, fps=fps, recursive=recursive)
        for line in (line for group in groups for line in group.left_out if not run.quiet):
            print_text(line, err=True)
        rank_them = functools.partial(rank_clips, groups)
    effort = Effort(both_orders=orders == "both", budget=budget, confidence=stop_at, exclude_flagged=exclude_flagged)
    ranking = _judge_and_rank(functools.partial(rank_them, effort=effort), run, watch=watch)
    if then:
        if not run.as_json:
            _show(ranking, run, top=None, copy_to=None)
        best = [(ladder, ladder.ranked[: top or 3]) for ladder in ranking.ladders]
        again = [Group(ladder.group, ladder.prompt, tuple(clip.path for clip in of)) for ladder, of in best]
        run = replace(run, judge=ChosenJudge(then, None, None, run.judge.settings), name=None)
        ranking = _judge_and_rank(functools.partial(rank_clips, again), run).after(ranking)
    _show(ranking, run, top=top, copy_to=copy_to)
    _finish(ranking, run, report)


def _watch(folders: tuple[str, ...], prompt: str, *, fps: str | None, recursive: bool) -> Callable[..., Ranking]:
    """Return what ranks the clips of folders as they come."""
    from vrt_lite.ranking.watch import FolderWatch, watch_folders  # noqa: PLC0415

    if recursive:
        raise UsageError("--watch looks at the folders that are named: leave out --recursive, or name each.")
    if fps is not None:
        raise UsageError(f"--fps {fps} is for numbered pictures, and --watch takes video files: leave out one of them.")
    return functools.partial(watch_folders, FolderWatch(folders), prompt=prompt)


def _judge_and_rank(rank_them: Callable[..., Ranking], run: ChosenRun, *, watch: bool = False) -> Ranking:
    """Rank with the judge of a run. After an interrupt or an error it says that the judgements are kept."""
    from vrt_lite.show.run_views import FolderView, RankingView  # noqa: PLC0415

    view = run.make_view(FolderView if watch else RankingView, quiet=run.as_json)
    try:
        return run.judge_with(view, rank_them)
    except (KeyboardInterrupt, VrtError):
        if view.done:
            click.echo(f"{view.done} judgement(s) are kept: the same command goes on from there.", err=True)
        raise


def _show(ranking: Ranking, run: ChosenRun, *, top: int | None, copy_to: Path | None) -> None:
    """Print the ranking and copy the winners, of which the flagged ones are named before."""
    from vrt_lite.measures.flags import describe_flags  # noqa: PLC0415
    from vrt_lite.ranking.winners import copy_winners  # noqa: PLC0415
    from vrt_lite.show.leaderboard import show_conclusions, show_ladders, show_winners  # noqa: PLC0415

    ladders, effort = ranking.ladders, run.judge.settings.effort
    chosen = [(ladder.group, ladder.ranked[: top or 1]) for ladder in ladders if top or copy_to]
    if not run.as_json:
        verbose = run.verbose > 0
        show_ladders(
            ladders, ranking.left_out, run=ranking.run, judge=ranking.judge, scope=ranking.scope, verbose=verbose
        )
        print_effort(effort)
        for clip in (clip for _, clips in chosen for clip in clips if clip.flags):
            end = "; it is copied all the same" if copy_to else ""
            words = f"{clip.name} is flagged: {describe_flags(clip.flags)}{end}."
            print_text(f"{words} --exclude-flagged leaves such clips out.", err=True)
    copies = copy_winners(chosen, copy_to) if copy_to else []
    if run.as_json:
        named = [{"group": group, "clips": [clip.path for clip in clips]} for group, clips in chosen]
        print_json({**ranking.to_json(), "effort": effort, "winners": named, "copies": copies})
        return
    show_winners(chosen, copies)
    show_conclusions(ladders)


def _finish(ranking: Ranking, run: ChosenRun, report: WantedReport | None) -> None:
    """Write the report. Raise an error with its exit status if nothing is ranked, or clips were left out."""
    if not any(ladder.standings for ladder in ranking.ladders):
        why = next((of.reason for ladder in ranking.ladders for of in ladder.unranked), "nothing was judged.")
        raise NoVerdictError(f"No pair got a verdict, so nothing is ranked: {why}")
    if report:
        write_run_report(report, ranking.run, run.store, quiet=run.quiet)
    retry = f"vrt-lite runs --retry {shlex.quote(ranking.run)}"
    again = f"the rest is ranked. To try again: {retry}, and then the same command."
    if ranking.died:
        raise WorkerEndedError(
            f"{ranking.died} judgement(s) are missing, as the engine died while it made them; {again}"
        )
    if broken := sum(out.broken for out in ranking.left_out):
        raise ClipsError(f"{broken} clip(s) cannot be used and are left out, as listed; all others are ranked.")
    if ranking.unread:
        raise ClipsError(f"{ranking.unread} judgement(s) are missing, as a clip could not be read; {again}")


@click.command(epilog=_SCORE_STATUS)
@clip_options
@click.option("--csv", "as_csv", is_flag=True, help="Print the scores as CSV.")
def score(clips: tuple[str, ...], *, fps: str | None, recursive: bool, as_csv: bool, **options: Any) -> None:
    """Score CLIPS, each by itself, with a judge that does so.

    \b
    vrt-lite score renders/ --prompt "A fox runs through snow." --model NAME --csv
    vrt-lite score clips.csv --model NAME --json

    CLIPS are as for rank, and so is a table of clips with their own prompts. A line has a clip's raw scores, and the
    percentile of each: the per cent of the other clips of its folder or group that have less. Each clip is judged once.
    What was judged is kept, so that the same command goes on, and rank finds it.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    prompt, run = take_prompt(options), take_run(options)
    from vrt_lite.ranking.clip_scores import list_scores, name_scores, score_lines  # noqa: PLC0415
    from vrt_lite.ranking.entries import read_entries  # noqa: PLC0415
    from vrt_lite.ranking.rank import rank_clips  # noqa: PLC0415
    from vrt_lite.show.run_views import RankingView  # noqa: PLC0415
    from vrt_lite.show.words import show_table  # noqa: PLC0415

    groups = read_entries(clips, prompt=prompt, fps=fps, recursive=recursive)

    def score_them(*, judge: Judge, **options: Any) -> Ranking:
        if not judge.pointwise:
            raise UsageError("This judge compares two clips and scores none by itself. Use: vrt-lite rank")
        return rank_clips(groups, judge=judge, **options)

    ranking = run.judge_with(run.make_view(RankingView, quiet=run.as_json or as_csv), score_them)
    scored = [clip for ladder in ranking.ladders for clip in list_scores(ladder)]
    if run.as_json:
        print_json({"run": ranking.run, "judge": ranking.judge, "clips": [clip.to_json() for clip in scored]})
    elif as_csv:
        click.echo("".join(score_lines(scored)), nl=False)
    else:
        names = name_scores(scored)
        rows = [
            (clip.name, *(f"{clip.scores[n].raw:.3g} ({clip.scores[n].percentile or 0:.0f})" for n in names))
            for clip in scored
            if clip.scores
        ]
        show_table(("CLIP", *(f"{name} (%ile)" for name in names)), rows)
    failed = [f"no score: {clip.name}: {clip.error}" for clip in scored if clip.error]
    for line in (*(f"left out: {str(out.path)!r} {out.reason}" for out in ranking.left_out), *failed):
        print_text(line, err=True)
    if missing := sum(out.broken for out in ranking.left_out) + len(failed):
        raise ClipsError(f"{missing} clip(s) have no score, as listed; all others do.")
