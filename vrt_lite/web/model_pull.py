"""Pulls a model for the page of judges, and tells how far it is."""

from __future__ import annotations

import time
from threading import Lock
from typing import Any

from vrt_lite.errors import VrtError
from vrt_lite.web.job_context import JobContext
from vrt_lite.web.request_bodies import PullBody, read_body
from vrt_lite.web.served_job import ServedJob

_TELL_SECONDS = 0.25


class JobTransfer:
    """Tells a job how a pull goes. A cancelled pull stops at the next bytes; what has arrived whole is kept."""

    def __init__(self, job: ServedJob) -> None:
        self._job = job
        self._lock = Lock()
        self._words, self._done, self._total, self._told = "", 0, 0, 0.0

    def say(self, line: str) -> None:
        """Tell a line."""
        self._job.add("log", line=line)

    def begin(self, words: str, total: int) -> None:
        """Begin anew with this much work, in bytes."""
        with self._lock:
            self._words, self._done, self._total = words, 0, total

    def advance(self, count: int) -> None:
        """Add to what has arrived. StoppedError if the job was cancelled."""
        self._job.check_cancelled()
        with self._lock:
            self._done += count
            if time.monotonic() - self._told < _TELL_SECONDS and self._done < self._total:
                return
            self._told = time.monotonic()
            done = min(max(self._done, 0), self._total)
        self._job.add("progress", done=done, most=self._total, words=self._words)


def pull_model(job: ServedJob, context: JobContext) -> dict[str, Any]:
    """Pull a model; return its name."""
    from vrt_lite.models.quants import total_memory  # noqa: PLC0415
    from vrt_lite.pulling import pull  # noqa: PLC0415

    body = read_body(dict(job.request), PullBody)
    try:
        pulled = pull(body.model, memory_bytes=total_memory(), progress=JobTransfer(job))
    except VrtError:
        job.check_cancelled()  # the client of the hub makes an error of its own of whatever stops it
        raise
    return {"model": pulled.manifest.name}
