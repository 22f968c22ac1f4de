"""The command that scores clips, each by itself. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vrt_lite.cli.options import clip_options, print_json, print_text, take_prompt, take_run
from vrt_lite.errors import ClipsError, UsageError

if TYPE_CHECKING:
    from vrt_lite.api import Judge
    from vrt_lite.records.ladders import Ranking

STATUS = """Exit status: 0 all clips are scored, 2 usage, 3 some clip cannot be used or has no score (the rest is
listed). 4 model missing, corrupt or mismatched, 5 out of memory, 7 the store cannot be used, 130 interrupted."""


@click.command(epilog=STATUS)
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
    from vrt_lite.show.table import show_table  # noqa: PLC0415

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
