"""Describes the API in OpenAPI 3.1, from the types that read its requests and the judgement's own schema."""

from __future__ import annotations

from typing import Any

import msgspec

from vrt_lite import __version__
from vrt_lite.judgement import Judgement
from vrt_lite.web.request_bodies import CompareBody, CopyBody, PullBody, RankBody, RewardsBody, VoteBody

_JSON = "application/json"
_BODIES = (CompareBody, RankBody, RewardsBody, PullBody, CopyBody, VoteBody)
_QUERIES = {
    "run": "The name of a run.",
    "path": "An allowed folder, or one in it. Without it, the allowed folders.",
    "name": "The name of the clip's file.",
    "search": "Words that the names and prompts of the runs hold.",
    "format": "csv or jsonl.",
}
_JOB: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "kind": {"enum": ["compare", "rank", "rewards", "pull"]},
        "state": {"enum": ["queued", "running", "paused", "done", "failed", "cancelled"]},
        "created": {"type": "number", "description": "Unix seconds."},
        "request": {"type": "object"},
        "progress": {"type": ["object", "null"]},
        "result": {"type": ["object", "null"]},
        "error": {"type": ["object", "null"]},
    },
}
_ERROR: dict[str, Any] = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"kind": {"type": "string"}, "message": {"type": "string"}},
            "required": ["kind", "message"],
        }
    },
    "required": ["error"],
}
_PICTURES = "Or a form (multipart/form-data): several files in its field `clip` are numbered pictures, `fps` a second."
_FORM = "a form may have them as files a and b. With Accept: text/event-stream the answer is the events."
_OPERATIONS: tuple[tuple[str, str, str, str, str, tuple[str, ...]], ...] = (
    ("post", "/v1/compare", f"Compare two clips; {_FORM}", "CompareBody", "Judgement", ()),
    ("post", "/v1/rank", "Rank clips, or the videos of a folder.", "RankBody", "Job", ()),
    ("post", "/v1/rewards", "Give each clip of a prompt a scalar, in log odds.", "RewardsBody", "", ()),
    ("post", "/v1/clips", f"Send a clip, its bytes as the body; the answer has its id. {_PICTURES}", "", "", ("name",)),
    ("get", "/v1/folders", "List folders and clips.", "", "", ("path",)),
    ("get", "/v1/models", "List the models that are here, or can be pulled.", "", "", ()),
    ("post", "/v1/models/pull", "Pull a model that this project knows by name.", "PullBody", "Job", ()),
    ("get", "/v1/jobs", "List the jobs, the newest first.", "", "", ()),
    ("get", "/v1/jobs/{id}", "Describe a job: its state, and its result once it has ended.", "", "Job", ()),
    ("delete", "/v1/jobs/{id}", "Cancel a job. What it has judged is kept.", "", "Job", ()),
    ("get", "/v1/jobs/{id}/events", "Follow a job (text/event-stream), after Last-Event-ID.", "", "", ()),
    ("post", "/v1/jobs/{id}/pause", "Pause a job after its present judgement.", "", "Job", ()),
    ("post", "/v1/jobs/{id}/resume", "Go on with a paused job.", "", "Job", ()),
    ("get", "/v1/runs", "List the runs of the store, the last used first.", "", "", ("search",)),
    ("get", "/v1/run", "Describe a run.", "", "", ("run",)),
    ("get", "/v1/run/export", "Export a run's judgements.", "", "", ("run", "format")),
    ("post", "/v1/run/copy", "Copy a ranking's best clips to an allowed folder.", "CopyBody", "", ()),
    ("get", "/v1/votes", "Export the votes as a table that `vrt-lite eval` reads.", "", "", ("run",)),
    ("get", "/v1/votes/next", "Give the next pair to vote on, its sides at random.", "", "", ("run",)),
    ("post", "/v1/votes", "Vote on a pair.", "VoteBody", "", ()),
    ("get", "/v1/votes/agreement", "Compare the votes with each judge.", "", "", ("run",)),
)
"""Method, path, what it does, the schema of its body and of its answer ("" for any object), and its query."""


def make_description() -> dict[str, Any]:
    """Make the description as plain data."""
    _, schemas = msgspec.json.schema_components((*_BODIES, Judgement), ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for method, path, words, body, answer, query in _OPERATIONS:
        paths.setdefault(path, {})[method] = _describe_operation(path, words, body, answer, query)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "vrt-lite",
            "version": __version__,
            "description": "Compares generated videos on this machine. A clip is named by its absolute path in an "
            "allowed folder, or by the id that POST /v1/clips gave.",
        },
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Job": _JOB, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe_operation(path: str, words: str, body: str, answer: str, query: tuple[str, ...]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "query", "description": _QUERIES[name], "schema": {"type": "string"}} for name in query
    ]
    if "{id}" in path:
        parameters.append({"name": "id", "in": "path", "required": True, "schema": {"type": "string"}})
    told: dict[str, Any] = {
        "summary": words,
        "responses": {
            "2XX": {"description": "It is done, or has begun.", "content": _content(answer)},
            "4XX": {"description": "It is refused; 429 has Retry-After.", "content": _content("Error")},
        },
    }
    if body:
        told["requestBody"] = {"required": True, "content": _content(body)}
    return told | ({"parameters": parameters} if parameters else {})


def _content(schema: str) -> dict[str, Any]:
    return {_JSON: {"schema": {"$ref": f"#/components/schemas/{schema}"} if schema else {"type": "object"}}}
