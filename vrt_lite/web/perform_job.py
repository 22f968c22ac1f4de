"""Does a job, in a thread of the queue."""

from __future__ import annotations

from typing import Any

from vrt_lite.errors import VideoError
from vrt_lite.web.job_context import JobContext
from vrt_lite.web.refusals import RefusedRequestError, describe_error
from vrt_lite.web.served_job import ServedJob


def perform_job(job: ServedJob, context: JobContext) -> dict[str, Any]:
    """Do a job; return its result as plain data. Raises what the judge raises, and StoppedError."""
    match job.kind:
        case "compare":
            from vrt_lite.web.compare_job import compare_clips as work  # noqa: PLC0415
        case "rank":
            from vrt_lite.web.rank_job import rank_folder as work  # noqa: PLC0415
        case "rewards":
            from vrt_lite.web.rank_job import reward_clips as work  # noqa: PLC0415
        case "pull":
            from vrt_lite.web.model_pull import pull_model as work  # noqa: PLC0415
    try:
        return work(job, context)
    except VideoError as error:
        told = describe_error(error)
        message = context.clip_store.uploads.hide(told["message"])
        raise RefusedRequestError(told["status"], told["kind"], message) from error
