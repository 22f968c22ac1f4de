"""Keeps the jobs that are not done in files, so that a server that was killed can go on with them."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from vrt_lite.disk import write_file
from vrt_lite.runs.database import Owner, is_alive, new_owner
from vrt_lite.web.served_job import JobKind, ServedJob


class JobFiles:
    """A folder with a small file for each job that is not done. Several servers may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._owner = new_owner()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def keep(self, job: ServedJob) -> None:
        """Write a job's file: it is on the disk on return. Raises OSError."""
        about = {"id": job.id, "kind": job.kind, "request": job.request, "owner": asdict(self._owner)}
        write_file(self._path(job.id), json.dumps(about).encode())

    def forget(self, job: ServedJob) -> None:
        """Remove a job's file, if there is one."""
        with contextlib.suppress(OSError):
            self._path(job.id).unlink(missing_ok=True)

    def take_over(self) -> list[ServedJob]:
        """Return the jobs that servers have left which do not run any more; they are ours now, and paused."""
        found: list[ServedJob] = []
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                about = cast("dict[str, Any]", json.loads(path.read_bytes()))
                if is_alive(Owner(**about["owner"])):
                    continue
                job = ServedJob(cast("JobKind", about["kind"]), about["request"], id=path.stem)
                job.set_state("paused")
                self.keep(job)
                found.append(job)
        return found

    def _path(self, id: str) -> Path:  # noqa: A002
        return self._folder / f"{id}.json"
