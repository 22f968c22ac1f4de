"""Receives what a client sends, within bounds: how large it is, how slowly it comes, and how many send at once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from vrt_lite.errors import UsageError
from vrt_lite.web.form_parser import PartHead, parse_form
from vrt_lite.web.refusals import RefusedRequestError
from vrt_lite.web.request_bodies import MOST_BODY_BYTES
from vrt_lite.web.upload_folder import MOST_UPLOAD_BYTES, UploadDraft, UploadFolder

FORM: Final = "multipart/form-data"
_MOST_AT_ONCE = 16
_SILENCE_SECONDS = 20.0
_LEAST_BYTES_A_SECOND = 100_000
_MOST_FIELDS = 16
_MOST_FIELD_BYTES = 2**20


class BodyReader:
    """Lets a bounded number of uploads in at once, and ends those that come too slowly."""

    def __init__(self, uploads: UploadFolder, *, silence_seconds: float = _SILENCE_SECONDS) -> None:
        self._uploads = uploads
        self._silence = silence_seconds
        self._running = 0

    async def take_clip(self, request: Request) -> str:
        """Take the body of a request as a clip; return its id. RefusedRequestError if it is not let in.

        A form has a clip in its field `clip`: one file, or numbered pictures, with `fps` pictures a second.
        """
        if request.headers.get("content-type", "").startswith(FORM):
            _, clips = await self.take_form(request, ("clip",), borrow=False)
            if not clips:
                raise UsageError("The form has no file in its field `clip`. See /openapi.json.")
            return clips["clip"]
        with self._one_more(), self._uploads.begin() as draft:
            await self._make_room(request, MOST_UPLOAD_BYTES)
            draft.begin_file(request.query_params.get("name", "clip.mp4"))
            async for part in self._receive(request, MOST_UPLOAD_BYTES):
                await run_in_threadpool(draft.write, part)
            return await run_in_threadpool(draft.keep, "")

    async def take_form(
        self, request: Request, clips: tuple[str, ...], *, borrow: bool = True
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Take a form; return its fields that are text, and the ids of its clips: the files of the fields in `clips`.

        Several files of one field are numbered pictures; the field `fps` is their rate. `borrow` as in `keep`.
        """
        fields: dict[str, bytearray] = {}
        drafts: dict[str, UploadDraft] = {}
        most_bytes = len(clips) * MOST_UPLOAD_BYTES + MOST_BODY_BYTES
        with self._one_more(), contextlib.ExitStack() as stack:
            await self._make_room(request, most_bytes)
            draft, text = None, bytearray()
            parts = self._receive(request, most_bytes)
            async for part in parse_form(request.headers["content-type"], parts):
                if isinstance(part, PartHead):
                    draft, text = None, bytearray()
                    if part.file is None:
                        fields[part.field] = text
                    elif part.field in clips:
                        if part.field not in drafts:
                            drafts[part.field] = stack.enter_context(self._uploads.begin())
                        draft = drafts[part.field]
                        await run_in_threadpool(draft.begin_file, part.file)
                    else:
                        raise UsageError(f"The form has a file in {part.field[:40]!r}; allowed: {', '.join(clips)}.")
                elif draft:
                    await run_in_threadpool(draft.write, part)
                else:
                    text += part
                if len(fields) > _MOST_FIELDS or len(text) > _MOST_FIELD_BYTES:
                    raise UsageError("The form has too many fields, or one that is too long. See /openapi.json.")
            texts = {field: text.decode(errors="replace") for field, text in fields.items()}
            return texts, await run_in_threadpool(self._keep_all, drafts, texts.pop("fps", ""), borrow=borrow)

    async def read_json(self, request: Request) -> bytes:
        """Read a body of JSON. A page of another site cannot send this type without being asked first."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RefusedRequestError(415, "type", "Send JSON, with Content-Type: application/json.")
        data = bytearray()
        async for part in self._receive(request, MOST_BODY_BYTES):
            data += part
        return bytes(data)

    def _keep_all(self, drafts: dict[str, UploadDraft], fps: str, *, borrow: bool) -> dict[str, str]:
        """Keep all uploads of a form, or, after an error, none that would be given back."""
        kept: dict[str, str] = {}
        try:
            for field, draft in drafts.items():
                kept[field] = draft.keep(fps, borrow=borrow)
        except BaseException:
            if borrow:
                self._uploads.give_back(list(kept.values()))
            raise
        return kept

    async def _make_room(self, request: Request, most_bytes: int) -> None:
        """Make room for what a request announces. RefusedRequestError if that is too much: then nothing is removed."""
        await run_in_threadpool(self._uploads.make_room, _check_length(request, most_bytes))

    @contextlib.contextmanager
    def _one_more(self) -> Any:
        if self._running >= _MOST_AT_ONCE:
            raise RefusedRequestError(429, "uploads", "Too many uploads at once. Try again.", retry_seconds=5)
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    async def _receive(self, request: Request, most_bytes: int) -> AsyncGenerator[bytes, None]:
        """Yield what arrives. RefusedRequestError if it is more than that, stops coming, or comes too slowly."""
        _check_length(request, most_bytes)
        began, size = time.monotonic(), 0
        parts = request.stream()
        while True:
            try:
                part = await asyncio.wait_for(anext(parts), self._silence)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise _too_slow() from None
            except ClientDisconnect:
                raise RefusedRequestError(400, "cut_short", "The upload was cut short.") from None
            size += len(part)
            if size > most_bytes:
                raise RefusedRequestError(413, "too_large", f"At most {most_bytes} bytes are taken.")
            if time.monotonic() - began > 3 * self._silence + size / _LEAST_BYTES_A_SECOND:
                raise _too_slow()
            yield part


def _check_length(request: Request, most_bytes: int) -> int:
    """Return the bytes that a request announces, 0 if it does not. RefusedRequestError for more than that."""
    length = int(request.headers.get("content-length", 0))
    if length > most_bytes:
        raise RefusedRequestError(413, "too_large", f"The request is {length} bytes; at most {most_bytes} are taken.")
    return length


def _too_slow() -> RefusedRequestError:
    return RefusedRequestError(408, "slow", "The upload came too slowly, and was ended. Send it again.")
