"""Everything that the server holds while it runs: the clips, the store, the engine's desk and its queue."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from starlette.requests import Request

from vrt_lite.disk import data_home
from vrt_lite.runs.store import Store
from vrt_lite.web.clip_shelf import ClipShelf
from vrt_lite.web.engine_desk import EngineDesk, JudgeChoice
from vrt_lite.web.engine_queue import EngineQueue
from vrt_lite.web.job_files import JobFiles
from vrt_lite.web.perform_job import perform_job
from vrt_lite.web.uploading import UploadGate
from vrt_lite.web.votes import VoteDesk


class ServerState:
    """What requests share. `store` is opened here, and closed with the rest."""

    def __init__(self, *, store: Path | None, folders: Sequence[Path], choice: JudgeChoice) -> None:
        self.store = Store(store)
        try:
            home = data_home()
            self.shelf = ClipShelf(folders, home / "uploads")
            self.gate = UploadGate(self.shelf)
            self.ballots = VoteDesk(self.store)
            self.desk = EngineDesk(self.store, self.shelf, choice)
            self.queue = EngineQueue(lambda job: perform_job(job, self.desk), JobFiles(home / "jobs"))
            self.desk.gives_way = self.queue.gives_way
        except BaseException:
            self.store.close()
            raise
        self._closing = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Stop the engine at its next event, and close the store. It may be called again."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self.queue.close()
                self.desk.close()
                self.store.close()


def state_of(request: Request) -> ServerState:
    """Return what the server of a request holds."""
    return request.app.state.server
