"""Compares two clips for a client: through the store, as a ranking does, so that nothing is judged twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from vrt_lite.records.joining import add_warning, warn_of_one_order
from vrt_lite.records.judgement import Judgement
from vrt_lite.records.pairs import Result, join_results
from vrt_lite.runs.history import begin_daily_run
from vrt_lite.runs.judging import Task, judge_all
from vrt_lite.runs.run import Run
from vrt_lite.settings import Source
from vrt_lite.show import list_verdict
from vrt_lite.web.job_context import JobContext
from vrt_lite.web.pair_watcher import PairWatcher
from vrt_lite.web.refusals import RefusedRequestError
from vrt_lite.web.request_bodies import CompareBody, read_body
from vrt_lite.web.served_job import ServedJob

_NAME = re.compile(r"""^(['"]).*?\1 """)


def compare_clips(job: ServedJob, context: JobContext) -> dict[str, Any]:
    """Judge one or both orders; return the judgement's JSON, the same in words, and where it is kept."""
    body = read_body(dict(job.request), CompareBody)
    clips = (context.clip_store.find(body.a), context.clip_store.find(body.b))
    watcher = PairWatcher(job, context.clip_store.make_address)
    results: dict[int, Result] = {}
    with context.lend_judge(job, body) as (judge, store):
        orders = 2 if body.both_orders and store.digest(clips[0]) != store.digest(clips[1]) else 1

        def list_tasks() -> Iterator[Task | None]:
            for exchanged in range(orders):
                job.check_stopped()
                left = context.seconds and context.seconds * (orders - exchanged)
                job.add("progress", done=exchanged, most=orders, seconds_left=left)
                first, second = clips[::-1] if exchanged else clips
                watcher.begin_pair((first, second), judge, exchanged=bool(exchanged))
                yield Task(first, second, body.prompt, exchanged)
            while len(results) < orders:  # someone else is judging the same
                job.check_stopped()
                yield None

        def keep(task: Task, result: Result, now: bool) -> None:
            results[task.label] = result
            if now:
                context.end_judgement(result.seconds)

        run = begin_daily_run(store, judge)
        judge_all(list_tasks(), run, store=store, judge=judge, done=keep, observe=watcher.observe)
        in_order = [result for _, result in sorted(results.items())]
        judgement = read_judgement(run, in_order, clips, both_orders=body.both_orders)
    return {"judgement": judgement.to_json(), "lines": list_verdict(judgement), "run": run.name}


def read_judgement(run: Run, results: list[Result], clips: tuple[Path, Path], *, both_orders: bool) -> Judgement:
    """Return the judgement of one or both orders, about these files. RefusedRequestError if there is none."""
    [pair] = join_results(results)
    judgement = run.read_pair(pair)
    if judgement is None:
        failed = results[0]
        # It may have been judged before, for someone else: their names are not told.
        message = _NAME.sub("A clip ", failed.error)
        raise RefusedRequestError(404 if failed.failure == "missing_clip" else 422, failed.failure, message)
    # The same content may have been judged before under another name.
    inputs = tuple(replace(clip, path=str(path)) for clip, path in zip(judgement.inputs, clips, strict=True))
    sources: dict[str, Source] = {**judgement.settings.sources, **({"both_orders": "option"} if both_orders else {})}
    settings = replace(judgement.settings, both_orders=both_orders, sources=sources)
    judgement = replace(judgement, inputs=inputs, settings=settings)
    if both_orders and len(judgement.orders) == 1 and len(results) == 2:
        judgement = add_warning(judgement, warn_of_one_order(judgement.orders[0].first))
    return judgement
