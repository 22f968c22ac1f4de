"""Opens the judge of a run of many pairs, which the commands rank and eval judge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vrt_lite.cli.options import open_judge

if TYPE_CHECKING:
    from vrt_lite.api import Judge
    from vrt_lite.runs.judge_process import JudgeProcess
    from vrt_lite.runs.store import Store
    from vrt_lite.settings import Remote, Settings


def open_run_judge(
    model: str | None,
    projector: Path | None,
    backend: Remote | None,
    settings: Settings,
    store: Store,
    *,
    verbose: int,
    quiet: bool,
    jobs: int,
) -> Judge | JudgeProcess:
    """Open the judge of a run, as `open_judge` does. On this machine its engine gets a process of its own.

    With several jobs it does not: the threads that judge share the engine.
    """
    from vrt_lite.runs.judge_process import Digests, JudgeProcess, LocalJudge  # noqa: PLC0415

    digests, log = Digests(store.digest), verbose > 1
    judge = open_judge(model, projector, backend, settings, digest=digests, verbose=log, quiet=quiet, jobs=jobs)
    if backend or jobs > 1:
        return judge
    return JudgeProcess(judge, LocalJudge(model, projector, settings, log, digests.known), prints=log)
