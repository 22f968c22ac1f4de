"""Refusals of requests, and what each error is in HTTP."""

from __future__ import annotations

import errno
from http import HTTPStatus
from typing import Any, Final

from vrt_lite.errors import (
    BackendError,
    MissingClipError,
    ModelError,
    NoVerdictError,
    OutOfMemoryError,
    ShortageError,
    UsageError,
    VideoError,
    VrtError,
)


class RefusedRequestError(VrtError):
    """A request that is not served; `http_status` and `kind` say why. `retry_seconds` is when to try again, if ever."""

    def __init__(self, http_status: int, kind: str, message: str, *, retry_seconds: int | None = None) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.refusal = kind
        self.retry_seconds = retry_seconds


_STATUSES: Final[dict[type[VrtError], int]] = {
    UsageError: HTTPStatus.BAD_REQUEST,
    MissingClipError: HTTPStatus.NOT_FOUND,
    VideoError: HTTPStatus.UNPROCESSABLE_ENTITY,
    NoVerdictError: HTTPStatus.UNPROCESSABLE_ENTITY,
    ModelError: HTTPStatus.UNPROCESSABLE_ENTITY,
    OutOfMemoryError: HTTPStatus.SERVICE_UNAVAILABLE,
    ShortageError: HTTPStatus.SERVICE_UNAVAILABLE,
    BackendError: HTTPStatus.BAD_GATEWAY,
}
"""Every other error is a 500."""
_FULL_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def describe_error(error: BaseException) -> dict[str, Any]:
    """Describe an error for a client. Returns its HTTP status, its kind and one line."""
    if isinstance(error, RefusedRequestError):
        return {"status": error.http_status, "kind": error.refusal, "message": str(error)}
    if isinstance(error, VrtError):
        status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 500)
        return {"status": int(status), "kind": error.kind, "message": str(error)}
    reason = getattr(error, "strerror", None) or error  # without the name of a file
    if getattr(error, "errno", None) in _FULL_DISK:
        return {"status": 507, "kind": "disk", "message": f"This cannot be kept: {reason}."}
    message = f"Unexpected {type(error).__name__}: {reason}. Check this machine: vrt-lite doctor."
    return {"status": 500, "kind": "unexpected", "message": message}
