"""The API of the store: runs, their export, the copies of their best clips, and votes on their pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from http import HTTPStatus
from itertools import chain
from typing import Any
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from vrt_lite.errors import UsageError
from vrt_lite.measures.flags import describe_flags
from vrt_lite.ranking.ladder import rate_group
from vrt_lite.ranking.rank_run import read_groups
from vrt_lite.ranking.winners import best_clips, copy_winners
from vrt_lite.runs.export import csv_lines, json_lines
from vrt_lite.runs.store import RunInfo, Store
from vrt_lite.show.comparisons import list_comparisons
from vrt_lite.web.endpoints import Endpoint
from vrt_lite.web.request_bodies import CopyBody, VoteBody
from vrt_lite.web.server_state import ServerState
from vrt_lite.web.votes import measure_agreement, read_votes, write_table

_MOST_PROMPT = 200


def list_runs(state: ServerState, search: str = "") -> dict[str, Any]:
    """List the runs of the store whose names or prompts have all words of `search`, the last used first."""
    words, found = search.casefold().split(), list[dict[str, Any]]()
    for info in state.store.runs():
        prompts = _list_prompts(info, state.store if words else None)
        text = f"{info.name} {info.kind} {' '.join(prompts)}".casefold()
        if all(word in text for word in words):
            more = f" (and {len(prompts) - 1} more)" if len(prompts) > 1 else ""
            told = {
                "name": info.name,
                "kind": info.kind,
                "prompt": "".join(prompts[:1])[:_MOST_PROMPT] + more,
                "updated": f"{datetime.fromtimestamp(info.updated).astimezone():%Y-%m-%d %H:%M}",
                "judgements": info.judgements,
                "failures": info.failures,
            }
            found.append(told)
    return {"runs": found}


def show_run(state: ServerState, run: str = "") -> dict[str, Any]:
    """Describe a run: what it is about, and what was found by now: a ranking's ladders, or the comparisons."""
    found = state.store.run(run)
    [info] = [info for info in state.store.runs() if info.name == found.name]
    told = asdict(info) | {"ladders": None}
    if found.kind == "rank":
        told["ladders"] = [rate_group(group).to_json() for group in read_groups(found)]
    if found.kind == "compare":
        told["comparisons"] = list(list_comparisons(found))
    return told


def export_run(state: ServerState, run: str = "", format: str = "csv") -> Response:  # noqa: A002
    """Export a run's judgements: as `csv`, or as `jsonl` with whole judgements."""
    found = state.store.run(run)
    match format:
        case "csv":
            return _send_file(csv_lines(found), f"{found.name}.csv", "text/csv")
        case "jsonl":
            return _send_file(json_lines(found), f"{found.name}.jsonl", "application/jsonl")
        case _:
            raise UsageError(f"The format {format[:20]!r} is neither csv nor jsonl.")


def copy_best(state: ServerState, body: CopyBody) -> dict[str, list[str]]:
    """Copy a ranking's best clips to the folder `best` of an allowed folder, numbered.

    The answer has where the copies are, and those of the clips that have a measured fault, in words.
    """
    run = state.store.run(body.run)
    if run.kind != "rank":
        raise UsageError(f"Run {run.name!r} is no ranking.")
    folder = state.clip_store.find_folder(body.folder) / "best"
    ladders = [rate_group(group) for group in read_groups(run)]
    chosen = [(ladder.group, best_clips(ladder, body.top)) for ladder in ladders]
    clips = list(chain.from_iterable(clips for _, clips in chosen))
    for path in (folder, *(clip.path for clip in clips)):
        state.clip_store.check_allowed(path)
    return {
        "copies": [str(path) for path in copy_winners(chosen, folder)],
        "flagged": [f"{clip.name} is flagged: {describe_flags(clip.flags)}" for clip in clips if clip.flags],
    }


def export_votes(state: ServerState, run: str = "") -> Response:
    """Export the votes on a run as a table that `vrt-lite eval` reads."""
    found = state.store.run(run)
    return _send_file(iter(list(write_table(found))), f"{found.name} votes.csv", "text/csv")


def vote(state: ServerState, body: VoteBody) -> dict[str, bool]:
    """Vote on a pair. The vote is on the disk when the answer comes."""
    state.ballots.vote(body.ticket, body.choice)
    return {"kept": True}


def show_next_pair(state: ServerState, run: str = "") -> dict[str, Any]:
    """Give the next pair of a run to vote on: where its sides are played, which are at random, and a ticket."""
    return state.ballots.next_pair(state.store.run(run), state.clip_store.make_address)


def show_agreement(state: ServerState, run: str = "") -> dict[str, Any]:
    """Compare the votes on a run with each judge."""
    found = state.store.run(run)
    return {"run": found.name, "votes": len(read_votes(found)), "judges": measure_agreement(found, state.store)}


ENDPOINTS = (
    Endpoint("GET", "/v1/runs", list_runs),
    Endpoint("GET", "/v1/run", show_run),
    Endpoint("GET", "/v1/run/export", export_run),
    Endpoint("POST", "/v1/run/copy", copy_best, body=CopyBody),
    Endpoint("GET", "/v1/votes", export_votes),
    Endpoint("POST", "/v1/votes", vote, body=VoteBody, status=HTTPStatus.CREATED),
    Endpoint("GET", "/v1/votes/next", show_next_pair),
    Endpoint("GET", "/v1/votes/agreement", show_agreement),
)


def _list_prompts(info: RunInfo, store: Store | None) -> list[str]:
    """List the prompts of a run; those of comparisons, which are in the `store` alone, if it is given."""
    if store and info.kind == "compare":
        return list(dict.fromkeys(result.prompt for result in store.run(info.name).results()))
    prompts = info.about.get("prompts", info.about.get("prompt") or [])
    return [prompts] if isinstance(prompts, str) else list(map(str, prompts))


def _send_file(lines: Iterator[str], name: str, kind: str) -> StreamingResponse:
    parts = (line.encode("utf-8", "backslashreplace") for line in lines)
    disposition = f"attachment; filename*=UTF-8''{quote(name.encode('utf-8', 'replace'), safe='')}"
    return StreamingResponse(parts, media_type=kind, headers={"content-disposition": disposition})
