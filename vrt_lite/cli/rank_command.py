"""The command that ranks clips. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

import contextlib
import functools
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vrt_lite.cli.options import (
    PATH,
    ChosenJudge,
    ChosenRun,
    clip_options,
    print_effort,
    print_json,
    print_text,
    report_options,
)
from vrt_lite.errors import ClipsError, NoVerdictError, UsageError, VrtError, WorkerEndedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from vrt_lite.cli.report_writing import WantedReport
    from vrt_lite.records.ladders import RankedClip, Ranking
    from vrt_lite.show.run_views import RankingView

STATUS = """With --watch a new clip is judged when it is whole: a file that is still being written is waited for, and
deleted clips leave the ranking. Ctrl-C, or a spent --budget, ends it with the leaderboard and status 0.

Exit status: 0 all clips are ranked, 2 usage, 3 some clip cannot be used or read (the rest is ranked, if
two are left). 4 model missing, corrupt or mismatched, or the engine died at a pair (the rest is ranked). 5 out of
memory, 6 no pair got a verdict, 7 the store of runs cannot be used, 130 interrupted."""


@click.command(epilog=STATUS)
@clip_options
@click.option("--watch", is_flag=True, help="Rank folders: judge new clips as they come, until Ctrl-C.")
@click.option(
    "--orders",
    type=click.Choice(["one", "both"]),
    default="both",
    help="one: judge each pair once, not with the clips exchanged too. Half the work. [default: both]",
)
@click.option(
    "--budget", metavar="N", type=click.IntRange(1), help="At most N judgements, those of earlier calls included."
)
@click.option(
    "--stop-at",
    metavar="P",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
    help="Stop when each clip is better than the next with this probability. [default: 0.8 if pairs are chosen]",
)
@click.option("--exclude-flagged", is_flag=True, help="Leave out clips with a measured fault, such as stutter.")
@click.option("--top", metavar="K", type=click.IntRange(1), help="Name the K best clips of each group.")
@click.option("--then", metavar="NAME", help="Let this judge rank the best (--top, else 3) again, in both orders.")
@click.option("--copy-to", metavar="DIR", type=PATH, help="Copy the best there, numbered.")
@report_options
def rank(
    clips: tuple[str, ...],
    *,
    prompt: str,
    fps: str | None,
    recursive: bool,
    run: ChosenRun,
    watch: bool,
    orders: str,
    budget: int | None,
    stop_at: float | None,
    exclude_flagged: bool,
    top: int | None,
    then: str | None,
    copy_to: Path | None,
    report: WantedReport | None,
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
    rank_them, view_of = (_choose_watching if watch else _choose_ranking)(
        clips, prompt, fps=fps, copy_to=copy_to, quiet=run.quiet, recursive=recursive
    )
    from vrt_lite.ranking.rank_run import Effort  # noqa: PLC0415

    effort = Effort(both_orders=orders == "both", budget=budget, confidence=stop_at, exclude_flagged=exclude_flagged)
    ranking = _judge_and_rank(functools.partial(rank_them, effort=effort), run, view_of)
    if then:
        ranking = _rank_again(ranking, then, top or 3, run)
    _show(ranking, run, top=top, copy_to=copy_to)
    _finish(ranking, run, report)


def _judge_and_rank(rank_them: Callable[..., Ranking], run: ChosenRun, view_of: type[RankingView]) -> Ranking:
    """Rank with the judge of a run."""
    from vrt_lite.runs.store import Store  # noqa: PLC0415

    view = view_of(run.open_screen(quiet=run.as_json))
    with _saying_what_is_kept(view), Store(run.store) as store, run.open_judge(store) as judge, view:
        judge.connect(view.observe)
        return rank_them(store=store, judge=judge, watcher=view, name=run.name, jobs=run.jobs)


def _rank_again(before: Ranking, model: str, top: int, run: ChosenRun) -> Ranking:
    """Rank the best clips again, by another judge on this machine and in both orders. Prints the first ranking."""
    from vrt_lite.ranking.entries import Group  # noqa: PLC0415
    from vrt_lite.ranking.rank import rank_clips  # noqa: PLC0415
    from vrt_lite.show.run_views import RankingView  # noqa: PLC0415

    if not run.as_json:
        _show(before, run, top=None, copy_to=None)
    best = [(ladder, ladder.ranked[:top]) for ladder in before.ladders]
    groups = [Group(ladder.group, ladder.prompt, tuple(clip.path for clip in clips)) for ladder, clips in best]
    judge = ChosenJudge(model, None, None, run.judge.settings)
    second = replace(run, judge=judge, jobs=judge.choose_jobs(None), name=None)
    return _judge_and_rank(functools.partial(rank_clips, groups), second, RankingView).after(before)


@contextlib.contextmanager
def _saying_what_is_kept(view: RankingView) -> Generator[None]:
    """Say after an interrupt or an error that the judgements are kept."""
    try:
        yield
    except (KeyboardInterrupt, VrtError):
        if view.done:
            click.echo(f"{view.done} judgement(s) are kept: the same command goes on from there.", err=True)
        raise


def _choose_ranking(
    clips: Sequence[str], prompt: str, *, fps: str | None, copy_to: Path | None, quiet: bool, recursive: bool
) -> tuple[Callable[..., Ranking], type[RankingView]]:
    """Read what to rank. Returns what ranks it, and its view. Unless `quiet`, prints what folders hold beside clips."""
    from vrt_lite.ranking.entries import read_entries  # noqa: PLC0415
    from vrt_lite.ranking.rank import rank_clips  # noqa: PLC0415
    from vrt_lite.show.run_views import RankingView  # noqa: PLC0415

    groups = read_entries(clips, prompt=prompt, fps=fps, recursive=recursive)
    _check_inputs([group.prompt for group in groups], copy_to)
    for line in (line for group in groups for line in group.left_out if not quiet):
        print_text(line, err=True)
    return functools.partial(rank_clips, groups), RankingView


def _choose_watching(
    folders: Sequence[str], prompt: str, *, fps: str | None, copy_to: Path | None, quiet: bool, recursive: bool
) -> tuple[Callable[..., Ranking], type[RankingView]]:
    """Return what ranks the clips of folders as they come, and its view."""
    from vrt_lite.ranking.folder_watch import FolderWatch  # noqa: PLC0415
    from vrt_lite.ranking.watch import watch_folders  # noqa: PLC0415
    from vrt_lite.show.run_views import FolderView  # noqa: PLC0415

    if recursive:
        raise UsageError("--watch looks at the folders that are named: leave out --recursive, or name each.")
    if fps is not None:
        raise UsageError(f"--fps {fps} is for numbered pictures, and --watch takes video files: leave out one of them.")
    _check_inputs([prompt], copy_to)
    return functools.partial(watch_folders, FolderWatch(folders), prompt=prompt), FolderView


def _check_inputs(prompts: Sequence[str], copy_to: Path | None) -> None:
    """Raise UsageError for a prompt that is too long, and a folder that no winner can be copied to."""
    from vrt_lite.protocol.messages import LONGEST_PROMPT  # noqa: PLC0415
    from vrt_lite.ranking.winners import check_folder  # noqa: PLC0415

    longest = max(map(len, prompts))
    if longest > LONGEST_PROMPT:
        raise UsageError(f"A prompt has {longest} characters; at most {LONGEST_PROMPT} are allowed. Shorten it.")
    if copy_to:
        check_folder(copy_to)


def _show(ranking: Ranking, run: ChosenRun, *, top: int | None, copy_to: Path | None) -> None:
    """Print the ranking and copy the winners."""
    from vrt_lite.ranking.winners import copy_winners  # noqa: PLC0415
    from vrt_lite.show.leaderboard import show_conclusions, show_ladders, show_winners  # noqa: PLC0415

    effort = run.judge.settings.effort
    chosen = [(ladder.group, ladder.ranked[: top or 1]) for ladder in ranking.ladders if top or copy_to]
    if run.as_json:
        named = [{"group": group, "clips": [str(clip.path) for clip in clips]} for group, clips in chosen]
        copies = [str(path) for path in copy_winners(chosen, copy_to)] if copy_to else []
        print_json({**ranking.to_json(), "effort": effort, "winners": named, "copies": copies})
        return
    show_ladders(
        ranking.ladders,
        ranking.left_out,
        run=ranking.run,
        judge=ranking.judge,
        scope=ranking.scope,
        verbose=run.verbose > 0,
    )
    print_effort(effort)
    _warn_of_flagged(chosen, copied=copy_to is not None)
    show_winners(chosen, copy_winners(chosen, copy_to) if copy_to else [])
    show_conclusions(ranking.ladders)


def _warn_of_flagged(chosen: Sequence[tuple[str, Sequence[RankedClip]]], *, copied: bool) -> None:
    """Name the flagged clips among the winners, before they are copied."""
    from vrt_lite.measures.flags import describe_flags  # noqa: PLC0415

    for clip in (clip for _, clips in chosen for clip in clips if clip.flags):
        end = "; it is copied all the same" if copied else ""
        print_text(
            f"{clip.name} is flagged: {describe_flags(clip.flags)}{end}. --exclude-flagged leaves such clips out.",
            err=True,
        )


def _finish(ranking: Ranking, run: ChosenRun, report: WantedReport | None) -> None:
    """Write the report. Raise an error with its exit status if nothing is ranked, or clips were left out."""
    if not any(ladder.standings for ladder in ranking.ladders):
        why = next((of.reason for ladder in ranking.ladders for of in ladder.unranked), "nothing was judged.")
        raise NoVerdictError(f"No pair got a verdict, so nothing is ranked: {why}")
    if report:
        from vrt_lite.cli.report_writing import write_run_report  # noqa: PLC0415

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
