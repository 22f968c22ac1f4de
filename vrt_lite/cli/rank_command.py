"""The command that ranks clips. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

import contextlib
import functools
import shlex
from dataclasses import replace
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
    report_options,
)
from vrt_lite.cli.run_options import choose_jobs, jobs_option, open_run_judge, print_effort, store_option
from vrt_lite.errors import ClipsError, NoVerdictError, UsageError, VrtError, WorkerEndedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from vrt_lite.api import Judge
    from vrt_lite.cli.report_writing import WantedReport
    from vrt_lite.ranking.clip_groups import RankedClip
    from vrt_lite.ranking.rank import Ranking
    from vrt_lite.settings import EffortName, Remote, Settings
    from vrt_lite.show.progress import RankingView

STATUS = """With --watch a new clip is judged when it is whole: a file that is still being written is waited for, and
deleted clips leave the ranking. Ctrl-C, or a spent --budget, ends it with the leaderboard and status 0.

Exit status: 0 all clips are ranked, 2 usage, 3 some clip cannot be used or read (the rest is ranked, if
two are left). 4 model missing, corrupt or mismatched, or the engine died at a pair (the rest is ranked). 5 out of
memory, 6 no pair got a verdict, 7 the store of runs cannot be used, 130 interrupted."""


@click.command(epilog=STATUS)
@click.argument("clips", metavar="CLIPS...", nargs=-1, required=True, type=FILE)
@prompt_options
@judge_options
@fps_option
@click.option("-r", "--recursive", is_flag=True, help="Take the videos of folders in folders too.")
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
@click.option("--copy-to", metavar="DIR", type=click.Path(path_type=Path), help="Copy the best there, numbered.")
@report_options
@jobs_option
@click.option("--name", metavar="NAME", help="The run's name. [default: made from clips, prompts and judge]")
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print the ranking as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Only the leaderboard.")
@click.option("-v", "--verbose", count=True, help="-vv shows the engine's log.")
def rank(
    clips: tuple[str, ...],
    *,
    prompt: str | None,
    prompt_file: Path | None,
    model: str | None,
    projector: Path | None,
    backend: Remote | None,
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
    report: WantedReport | None,
    jobs: int | None,
    name: str | None,
    store: Path | None,
    as_json: bool,
    quiet: bool,
    verbose: int,
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
    jobs = choose_jobs(jobs, model, projector, backend)
    settings = read_settings(options, backend)
    rank_them, view_of = (_choose_watching if watch else _choose_ranking)(
        clips, read_prompt(prompt, prompt_file), fps=fps, copy_to=copy_to, quiet=quiet, recursive=recursive
    )
    from vrt_lite.ranking.rank_run import Effort  # noqa: PLC0415
    from vrt_lite.show.progress import open_screen  # noqa: PLC0415

    effort = Effort(both_orders=orders == "both", budget=budget, confidence=stop_at, exclude_flagged=exclude_flagged)
    rank_them = functools.partial(rank_them, effort=effort, name=name)
    view = view_of(open_screen(quiet=quiet or as_json, live=verbose < 2))
    opening = functools.partial(open_run_judge, model, projector, backend, settings, log=verbose > 1, quiet=quiet)
    ranking = _judge_and_rank(rank_them, opening, store, view, jobs)
    if then:
        ranking = _rank_again(ranking, then, top or 3, settings, store, as_json=as_json, quiet=quiet)
    _finish(ranking, settings.effort, report, store, top=top, copy_to=copy_to, as_json=as_json, quiet=quiet)


def _judge_and_rank(
    rank_them: Callable[..., Ranking],
    opening: Callable[..., Judge],
    store: Path | None,
    view: RankingView,
    jobs: int,
) -> Ranking:
    """Rank with the judge that `opening` opens."""
    from vrt_lite.runs.store import Store  # noqa: PLC0415

    with _saying_what_is_kept(view), Store(store) as kept, opening(kept, jobs=jobs) as judge, view:
        judge.connect(view.observe)
        return rank_them(store=kept, judge=judge, watcher=view, jobs=jobs)


def _rank_again(
    before: Ranking, model: str, top: int, settings: Settings, store: Path | None, *, as_json: bool, quiet: bool
) -> Ranking:
    """Rank the best clips again, by another judge on this machine and in both orders. Prints the first ranking."""
    from vrt_lite.ranking.entries import Group  # noqa: PLC0415
    from vrt_lite.ranking.rank import rank_clips  # noqa: PLC0415
    from vrt_lite.ranking.winners import best_clips  # noqa: PLC0415
    from vrt_lite.show.progress import RankingView, open_screen  # noqa: PLC0415

    if not as_json:
        _show(before, settings.effort, top=None, copy_to=None, as_json=False)
    best = [(ladder, best_clips(ladder, top)) for ladder in before.ladders]
    groups = [Group(ladder.group, ladder.prompt, tuple(clip.path for clip in clips)) for ladder, clips in best]
    view, jobs = RankingView(open_screen(quiet=quiet or as_json)), choose_jobs(None, model, None, None)
    opening = functools.partial(open_run_judge, model, None, None, settings, log=False, quiet=quiet)
    again = _judge_and_rank(functools.partial(rank_clips, groups), opening, store, view, jobs)
    return replace(again, before=before)


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
    from vrt_lite.show.progress import RankingView  # noqa: PLC0415

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
    from vrt_lite.show.watching import FolderView  # noqa: PLC0415

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


def _show(ranking: Ranking, effort: EffortName, *, top: int | None, copy_to: Path | None, as_json: bool) -> None:
    """Print the ranking and copy the winners."""
    from vrt_lite.ranking.winners import best_clips, copy_winners  # noqa: PLC0415
    from vrt_lite.show.leaderboard import show_conclusions, show_ladders, show_winners  # noqa: PLC0415

    chosen = [(ladder.group, best_clips(ladder, top or 1)) for ladder in ranking.ladders if top or copy_to]
    if as_json:
        named = [{"group": group, "clips": [str(clip.path) for clip in clips]} for group, clips in chosen]
        copies = [str(path) for path in copy_winners(chosen, copy_to)] if copy_to else []
        print_json({**ranking.to_json(), "effort": effort, "winners": named, "copies": copies})
    else:
        show_ladders(ranking.ladders, ranking.left_out, run=ranking.run, judge=ranking.judge, scope=ranking.scope)
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


def _finish(
    ranking: Ranking,
    effort: EffortName,
    report: WantedReport | None,
    store: Path | None,
    *,
    top: int | None,
    copy_to: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print the ranking, copy the winners and write the report.

    Raise an error with its exit status if nothing is ranked, or clips were left out.
    """
    _show(ranking, effort, top=top, copy_to=copy_to, as_json=as_json)
    if not any(ladder.standings for ladder in ranking.ladders):
        why = next((why for ladder in ranking.ladders for _, why in ladder.unranked), "nothing was judged.")
        raise NoVerdictError(f"No pair got a verdict, so nothing is ranked: {why}")
    if report:
        from vrt_lite.cli.report_writing import write_run_report  # noqa: PLC0415

        write_run_report(report, ranking.run, store, quiet=quiet)
    if ranking.died:
        raise WorkerEndedError(
            f"{ranking.died} judgement(s) are missing, as the engine died while it made them; the rest is ranked. To "
            f"try again: vrt-lite runs --retry {shlex.quote(ranking.run)}, and then the same command."
        )
    if broken := sum(out.broken for out in ranking.left_out):
        raise ClipsError(f"{broken} clip(s) cannot be used and are left out, as listed; all others are ranked.")
    if ranking.unread:
        raise ClipsError(
            f"{ranking.unread} judgement(s) are missing, as a clip could not be read; the rest is ranked. To try "
            f"again: vrt-lite runs --retry {shlex.quote(ranking.run)}, and then the same command."
        )
