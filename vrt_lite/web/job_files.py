"""Keeps the jobs that are not done in files, so that a server that was killed can go on with them."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import msgspec

from vrt_lite.disk import locked, write_file
from vrt_lite.errors import UsageError
from vrt_lite.runs.database import Owner, is_alive, new_owner
from vrt_lite.web.request_bodies import MOST_BODY_BYTES, read_body
from vrt_lite.web.served_job import KINDS, ServedJob

_BODIES = {kind: body for body, kind in KINDS.items()}
_ID = re.compile(r"[0-9a-f]{16}")


class _KeptJob(msgspec.Struct):
    kind: Literal["compare", "rank", "rewards"]
    request: dict[str, Any]
    owner: Owner


class JobFiles:
    """A folder with a small file for each job that is not done. Several servers may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._owner = new_owner()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def keep(self, job: ServedJob) -> None:
        """Write a job's file: it is on the disk on return. Raises OSError."""
        about = {"kind": job.kind, "request": job.request, "owner": asdict(self._owner)}
        write_file(self._path(job), json.dumps(about).encode())

    def forget(self, job: ServedJob) -> None:
        """Remove a job's file, if there is one."""
        with contextlib.suppress(OSError):
            self._path(job).unlink(missing_ok=True)

    def take_over(self) -> list[ServedJob]:
        """Return the jobs that servers have left which do not run any more; they are ours now, and paused.

        A damaged file, and one that is no file, is left as it is.
        """
        with locked("jobs"):  # of two servers one gets a job
            return list(self._take_over())

    def _take_over(self) -> Iterator[ServedJob]:
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError, UsageError):
                if not _ID.fullmatch(path.stem) or not path.is_file() or path.stat().st_size > 2 * MOST_BODY_BYTES:
                    continue
                about = msgspec.json.decode(path.read_bytes(), type=_KeptJob)
                if not is_alive(about.owner):
                    job = ServedJob(read_body(about.request, _BODIES[about.kind]), id=path.stem, state="paused")
                    self.keep(job)
                    yield job

    def _path(self, job: ServedJob) -> Path:
        return self._folder / f"{job.id}.json"
