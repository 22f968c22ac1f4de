"""Receives what a client sends, within bounds: how large it is, how slowly it comes, and how many send at once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from vrt_lite.errors import UsageError
from vrt_lite.web.clip_store import MOST_UPLOAD_BYTES, ClipStore
from vrt_lite.web.refusals import RefusedRequestError

MOST_JSON_BYTES: Final = 4 * 2**20
_MOST_AT_ONCE = 16
_SILENCE_SECONDS = 20.0
_LEAST_BYTES_A_SECOND = 100_000
_PART_BYTES = 2**20
_MOST_FIELDS = 16


class BodyReader:
    """Lets a bounded number of uploads in at once, and ends those that come too slowly."""

    def __init__(self, clip_store: ClipStore, *, silence_seconds: float = _SILENCE_SECONDS) -> None:
        self._clip_store = clip_store
        self._silence = silence_seconds
        self._running = 0

    async def take_clip(self, request: Request) -> str:
        """Take the body of a request as a clip; return its id. RefusedRequestError if it is not let in."""
        with self._one_more():
            name = request.query_params.get("name", "clip.mp4")
            parts = self._receive(request, MOST_UPLOAD_BYTES)
            return await self._clip_store.take(name, parts, announced=_read_length(request))

    async def take_form(self, request: Request) -> dict[str, Any]:
        """Take a form; return its fields. A file becomes a clip, and its field the id of the clip."""
        with self._one_more():
            parts = self._receive(request, 2 * MOST_UPLOAD_BYTES + MOST_JSON_BYTES)
            parser = MultiPartParser(request.headers, parts, max_files=2, max_fields=_MOST_FIELDS)
            try:
                form = await parser.parse()
            except (MultiPartException, KeyError, ValueError) as error:
                reason = getattr(error, "message", None) or "it is damaged"
                raise UsageError(f"The form cannot be read: {reason}. See /openapi.json.") from error
            return await self._keep_files(form)

    async def read_json(self, request: Request) -> bytes:
        """Read a body of JSON. A page of another site cannot send this type without being asked first."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RefusedRequestError(415, "type", "Send JSON, with Content-Type: application/json.")
        data = bytearray()
        async for part in self._receive(request, MOST_JSON_BYTES):
            data += part
        return bytes(data)

    async def _keep_files(self, form: FormData) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        try:
            for name, value in form.multi_items():
                if isinstance(value, UploadFile):
                    parts = _read_parts(value)
                    value = await self._clip_store.take(value.filename or "", parts, announced=value.size)  # noqa: PLW2901
                fields[name] = value
        finally:
            await form.close()
        return fields

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
        length = _read_length(request)
        if length is not None and length > most_bytes:
            raise RefusedRequestError(
                413, "too_large", f"The request is {length} bytes; at most {most_bytes} are taken."
            )
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


def _read_length(request: Request) -> int | None:
    text = request.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() else None


async def _read_parts(file: UploadFile) -> AsyncIterator[bytes]:
    while part := await file.read(_PART_BYTES):
        yield part


def _too_slow() -> RefusedRequestError:
    return RefusedRequestError(408, "slow", "The upload came too slowly, and was ended. Send it again.")
