"""The API of the store: runs, their export, the copies of their best clips, and votes on their pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from vrt_lite.clip_files import is_clip_there
from vrt_lite.errors import UsageError
from vrt_lite.measures.flags import describe_flags
from vrt_lite.ranking.ladder import rate_group
from vrt_lite.ranking.rank_run import read_groups
from vrt_lite.ranking.winners import best_clips, copy_winners
from vrt_lite.runs.export import csv_lines, json_lines
from vrt_lite.runs.store import RunInfo, Store
from vrt_lite.show.comparisons import list_comparisons
from vrt_lite.show.pages.render_templates import make_visible
from vrt_lite.web.json_answer import JsonAnswer
from vrt_lite.web.refusals import RefusedRequestError
from vrt_lite.web.request_bodies import CopyBody, VoteBody, read_body
from vrt_lite.web.server_state import ServerState, state_of
from vrt_lite.web.votes import count_pairs, find_clips, measure_agreement, read_votes, write_table

_MOST_PROMPT = 200


def list_run_routes() -> list[Route]:
    """List the routes about runs."""
    return [
        Route("/v1/runs", list_runs, methods=["GET"]),
        Route("/v1/run", show_run, methods=["GET"]),
        Route("/v1/run/export", export_run, methods=["GET"]),
        Route("/v1/run/copy", copy_best, methods=["POST"]),
        Route("/v1/votes", export_votes, methods=["GET"]),
        Route("/v1/votes", vote, methods=["POST"]),
        Route("/v1/votes/next", show_next_pair, methods=["GET"]),
        Route("/v1/votes/agreement", show_agreement, methods=["GET"]),
    ]


async def list_runs(request: Request) -> Response:
    """List the runs, the last used first."""
    search = request.query_params.get("search", "")
    state = state_of(request)
    return JsonAnswer({"runs": await state.slow_work.do(list_runs_found, state.store, search)})


async def show_run(request: Request) -> Response:
    """Describe a run: what it is about, and what was found by now: a ranking's ladders, or the comparisons."""
    state = state_of(request)
    return JsonAnswer(await state.slow_work.do(_describe_run, state, _name_of(request)))


async def export_run(request: Request) -> Response:
    """Export a run's judgements as CSV or JSON lines."""
    form = request.query_params.get("format", "csv")
    if form not in ("csv", "jsonl"):
        raise UsageError(f"The format {form[:20]!r} is neither csv nor jsonl.")
    run = await run_in_threadpool(state_of(request).store.run, _name_of(request))
    lines = csv_lines(run) if form == "csv" else json_lines(run)
    kind = "text/csv" if form == "csv" else "application/jsonl"
    return _send_file(lines, f"{run.name}.{form}", kind)


async def copy_best(request: Request) -> Response:
    """Copy the best clips of a ranking to the folder `best` of an allowed folder, numbered."""
    state = state_of(request)
    body = read_body(await state.body_reader.read_json(request), CopyBody)
    return JsonAnswer(await state.slow_work.do(_copy, state, body))


async def export_votes(request: Request) -> Response:
    """Export the votes of a run as a table."""
    state = state_of(request)
    run = await run_in_threadpool(state.store.run, _name_of(request))
    lines = await state.slow_work.do(lambda: list(write_table(run)))
    return _send_file(iter(lines), f"{run.name} votes.csv", "text/csv")


async def show_next_pair(request: Request) -> Response:
    """Give the next pair to vote on: where its sides are played, and a ticket."""
    state = state_of(request)
    return JsonAnswer(await run_in_threadpool(_find_next_pair, state, _name_of(request)))


async def vote(request: Request) -> Response:
    """Keep a vote."""
    state = state_of(request)
    body = read_body(await state.body_reader.read_json(request), VoteBody)
    await run_in_threadpool(state.ballots.vote, body.ticket, body.choice)
    return JsonAnswer({"kept": True}, 201)


async def show_agreement(request: Request) -> Response:
    """Compare the votes with each judge."""
    state = state_of(request)
    return JsonAnswer(await state.slow_work.do(_describe_agreement, state, _name_of(request)))


def list_runs_found(store: Store, search: str) -> list[dict[str, Any]]:
    """List the runs whose names or prompts have all words, as plain data."""
    words = search.casefold().split()
    found: list[dict[str, Any]] = []
    for info in store.runs():
        prompts = _list_prompts(info)
        if words and info.kind == "compare":
            prompts = list(dict.fromkeys(result.prompt for result in store.run(info.name).results()))
        text = f"{info.name} {info.kind} {' '.join(prompts)}".casefold()
        if all(word in text for word in words):
            prompt = prompts[0][:_MOST_PROMPT] if prompts else ""
            found.append(
                {
                    "name": info.name,
                    "kind": info.kind,
                    "prompt": make_visible(prompt) + (f" (and {len(prompts) - 1} more)" if len(prompts) > 1 else ""),
                    "updated": _format_time(info.updated),
                    "judgements": info.judgements,
                    "failures": info.failures,
                }
            )
    return found


def _list_prompts(info: RunInfo) -> list[str]:
    prompt, prompts = info.about.get("prompt"), info.about.get("prompts")
    if isinstance(prompt, str):
        return [prompt] if prompt else []
    return [str(one) for one in cast("list[Any]", prompts)] if isinstance(prompts, list) else []


def _format_time(seconds: float) -> str:
    from datetime import datetime  # noqa: PLC0415

    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M}"


def _describe_run(state: ServerState, name: str) -> dict[str, Any]:
    run = state.store.run(name)
    [info] = [info for info in state.store.runs() if info.name == run.name]
    told = asdict(info) | {"ladders": None}
    if run.kind == "rank":
        told["ladders"] = [rate_group(group).to_json() for group in read_groups(run)]
    if run.kind == "compare":
        told["comparisons"] = [pair.to_json() for pair in list_comparisons(run)]
    return told


def _describe_agreement(state: ServerState, name: str) -> dict[str, Any]:
    run = state.store.run(name)
    return {"run": run.name, "votes": len(read_votes(run)), "judges": measure_agreement(run, state.store)}


def _copy(state: ServerState, body: CopyBody) -> dict[str, list[str]]:
    """Copy; return where the copies are, and those of the clips that have a measured fault, in words."""
    run = state.store.run(body.run)
    if run.kind != "rank":
        raise UsageError(f"Run {run.name!r} is no ranking.")
    folder = state.clip_store.find_folder(body.folder) / "best"
    if not state.clip_store.is_allowed(folder):
        raise RefusedRequestError(403, "path", f"{str(folder)!r} is in no allowed folder.")
    ladders = [rate_group(group) for group in read_groups(run)]
    chosen = [(ladder.group, best_clips(ladder, body.top)) for ladder in ladders]
    for clip in chain.from_iterable(clips for _, clips in chosen):
        if not state.clip_store.is_allowed(clip.path):
            raise RefusedRequestError(403, "path", f"{clip.name!r} is in no allowed folder.")
    flagged = [clip for _, clips in chosen for clip in clips if clip.flags]
    return {
        "copies": [str(path) for path in copy_winners(chosen, folder)],
        "flagged": [make_visible(f"{clip.name} is flagged: {describe_flags(clip.flags)}") for clip in flagged],
    }


def _find_next_pair(state: ServerState, name: str) -> dict[str, Any]:
    run = state.store.run(name)
    addresses = {sha256: _make_address(state, path) for sha256, path in find_clips(run).items()}
    told: dict[str, Any] = {"pairs": count_pairs(run), "votes": len(read_votes(run)), "ticket": None}
    if found := state.ballots.next_pair(run, addresses.get):
        ticket, pair = found
        sides = [addresses[pair.first], addresses[pair.second]]
        left, right = sides[::-1] if pair.exchanged else sides
        told |= {"ticket": ticket, "prompt": make_visible(pair.prompt), "left": left, "right": right}
    return told


def _make_address(state: ServerState, path: Path) -> str:
    return state.clip_store.make_address(path) if is_clip_there(path) else ""


def _name_of(request: Request) -> str:
    return request.query_params.get("run", "")


def _send_file(lines: Iterator[str], name: str, kind: str) -> StreamingResponse:
    parts = (line.encode("utf-8", "backslashreplace") for line in lines)
    disposition = f"attachment; filename*=UTF-8''{quote(name.encode('utf-8', 'replace'), safe='')}"
    return StreamingResponse(parts, media_type=kind, headers={"content-disposition": disposition})
