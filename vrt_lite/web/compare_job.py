"""Compares two clips for a client: through the store, as a ranking does, so that nothing is judged twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from vrt_lite.judgement import Judgement
from vrt_lite.recording import add_warning, warn_of_one_order
from vrt_lite.runs.judging import Task, judge_all
from vrt_lite.runs.question import Result
from vrt_lite.runs.run import Run
from vrt_lite.runs.store import Store
from vrt_lite.settings import Source
from vrt_lite.show.pages.run_pairs import PairOfRun, read_pair
from vrt_lite.web.job_context import JobContext, name_daily_run
from vrt_lite.web.pair_watcher import PairWatcher
from vrt_lite.web.refusals import RefusedRequestError
from vrt_lite.web.request_bodies import CompareBody, read_body
from vrt_lite.web.served_job import ServedJob


def compare_clips(job: ServedJob, context: JobContext) -> dict[str, Any]:
    """Judge one or both orders; return the judgement's JSON, and where it is kept."""
    body = read_body(dict(job.request), CompareBody)
    clips = (context.clip_store.find(body.a), context.clip_store.find(body.b))
    judge = context.open_judge(body.model, body.options)
    judge.connect(lambda _: job.check_cancelled())
    watcher = PairWatcher(job)
    results: list[Result] = []

    def tasks() -> Any:
        orders = 2 if body.both_orders and not _are_same(clips, context.store) else 1
        for exchanged in range(orders):
            job.check_stopped()
            left = context.seconds and context.seconds * (orders - exchanged)
            job.add("progress", done=exchanged, most=orders, seconds_left=left)
            first, second = clips[::-1] if exchanged else clips
            watcher.begin_pair((first, second), judge, exchanged=bool(exchanged))
            yield Task(first, second, body.prompt)

    def keep(task: Task, result: Result, now: bool) -> None:
        results.append(result)
        if now:
            context.end_judgement(result.seconds)

    name = name_daily_run("comparisons")
    run = context.store.begin(name, kind="rank", about={})
    judge_all(tasks(), run, store=context.store, judge=judge, done=keep, observe=watcher.observe)
    judgement = join_results(run, results, clips, both_orders=body.both_orders)
    pair = results[0]
    return {"judgement": judgement.to_json(), "run": name, "first": pair.first, "second": pair.second}


def join_results(run: Run, results: list[Result], clips: tuple[Path, Path], *, both_orders: bool) -> Judgement:
    """Return the judgement of one or both orders, about these files. RefusedRequestError if there is none."""
    pair = PairOfRun(results[0].first, results[0].second, results[0].prompt)
    for result in results:
        pair.add(result)
    judgement = read_pair(run, pair)
    if judgement is None:
        failed = results[0]
        raise RefusedRequestError(404 if failed.failure == "missing_clip" else 422, failed.failure, failed.error)
    # The same content may have been judged before under another name.
    inputs = tuple(replace(clip, path=str(path)) for clip, path in zip(judgement.inputs, clips, strict=True))
    sources: dict[str, Source] = {**judgement.settings.sources, **({"both_orders": "option"} if both_orders else {})}
    settings = replace(judgement.settings, both_orders=both_orders, sources=sources)
    judgement = replace(judgement, inputs=inputs, settings=settings)
    if both_orders and len(judgement.orders) == 1 and len(results) == 2:
        judgement = add_warning(judgement, warn_of_one_order(judgement.orders[0].first))
    return judgement


def _are_same(clips: tuple[Path, Path], store: Store) -> bool:
    return store.digest(clips[0]) == store.digest(clips[1])
