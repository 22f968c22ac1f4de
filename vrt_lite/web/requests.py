"""Requests: their bodies as values, what is refused in one line that says where it is, and what an error is in HTTP."""

from __future__ import annotations

import errno
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

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
from vrt_lite.protocol.messages import LONGEST_PROMPT
from vrt_lite.reading import read_json, read_plain

_FULL_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MOST_BODY_BYTES: Final = 4 * 2**20
JobKind = Literal["compare", "rank", "rewards"]
_MOST_CLIPS = 2_000
Prompt = Annotated[str, Meta(max_length=LONGEST_PROMPT)]
ClipName = Annotated[str, Meta(min_length=1, max_length=4096, description="A path, or the id of an upload.")]
Count = Annotated[int, Meta(ge=1, le=10_000_000)]


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


class JudgeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a client may set about a judgement; what is left out is as the server was started."""

    preset: str | None = None
    workspace: Count | None = None
    first_frames: Count | None = None
    window: Count | None = None
    rounds: Count | None = None
    max_pixels: Count | None = None
    tool_max_pixels: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=10)] | None = None
    seed: Annotated[int, Meta(ge=0, lt=2**32)] | None = None


class JudgeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is asked of a judge. Without `wait` the answer is the job."""

    model: str | None = None
    both_orders: bool = True
    options: JudgeOptions = JudgeOptions()
    wait: bool = True


class CompareBody(JudgeBody, frozen=True, kw_only=True):
    """Compare two clips, named in JSON or sent as files in a form. Without `wait` the answer is the job."""

    kind: ClassVar[JobKind] = "compare"
    a: ClipName
    b: ClipName
    prompt: Prompt = ""
    both_orders: bool = False


class RankBody(JudgeBody, frozen=True, kw_only=True):
    """Rank clips; a folder stands for the videos in it. The answer is the job, unless `wait` is set.

    With `exclude_flagged` clips with a measured fault, such as stutter, are left out.
    """

    kind: ClassVar[JobKind] = "rank"
    clips: Annotated[tuple[ClipName, ...], Meta(min_length=1, max_length=_MOST_CLIPS)]
    prompt: Prompt = ""
    budget: Count | None = None
    confidence: Annotated[float, Meta(gt=0.5, lt=1)] | None = None
    exclude_flagged: bool = False
    name: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    wait: bool = False


class RewardsBody(JudgeBody, frozen=True, kw_only=True):
    """Give each clip made from a prompt a scalar: its strength, in log odds, in a ranking of these clips."""

    kind: ClassVar[JobKind] = "rewards"
    prompt: Prompt
    clips: Annotated[tuple[ClipName, ...], Meta(min_length=2, max_length=64)]
    budget: Count | None = None


BODIES: Final[dict[JobKind, type[JudgeBody]]] = {body.kind: body for body in (CompareBody, RankBody, RewardsBody)}
"""What is sent for a job of each kind."""


class VoteBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Vote on a pair by the ticket that came with it. The vote is on the disk when the answer comes.

    The choice is 1 for the left clip, 2 for the right one, 0 for no difference.
    """

    ticket: str
    choice: Annotated[int, Meta(ge=0, le=2)]


Body = TypeVar("Body", bound=msgspec.Struct)


def read_body(data: bytes | dict[str, Any], kind: type[Body], *, strict: bool = True) -> Body:
    """Read a body, JSON or plain data; UsageError for what is not allowed in it. Not `strict`: all may be text."""
    try:
        return read_json(data, kind) if isinstance(data, bytes) else read_plain(data, kind, strict=strict)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise UsageError(f"The request's body cannot be used: {error}. See /openapi.json.") from error
