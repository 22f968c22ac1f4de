"""Receives what a client sends, within bounds: how large it is, how slowly it comes, and how many send at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, MultipartState, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from vrt_lite.errors import UsageError
from vrt_lite.web.requests import MOST_BODY_BYTES, Body, RefusedRequestError, read_body
from vrt_lite.web.upload_folder import MOST_UPLOAD_BYTES, UploadDraft, UploadFolder

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

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

    async def take_clips(self, request: Request, *fields: str) -> dict[str, str]:
        """Take the clips that a request sends, and keep them; return the id of each, by its field.

        A form has each clip in a field of its own: one file, or numbered pictures, `fps` a second. Its other fields,
        which are text, are returned too. A body that is no form is the first clip itself. RefusedRequestError or
        UsageError for all else: then nothing is left of it.
        """
        most_bytes = len(fields) * MOST_UPLOAD_BYTES + MOST_BODY_BYTES
        if self._running >= _MOST_AT_ONCE:
            raise RefusedRequestError(429, "uploads", "Too many uploads at once. Try again.", retry_seconds=5)
        self._running += 1
        draft = UploadDraft(self._uploads)
        try:
            # What is too large is refused before anything is removed for it.
            await run_in_threadpool(self._uploads.make_room, _check_length(request, most_bytes))
            form = _Form(draft, fields, request.headers["content-type"]) if _sends_form(request) else None
            if form is None:
                draft.begin_file(fields[0], request.query_params.get("name", "clip.mp4"))
            async for part in self._receive(request, most_bytes):
                await run_in_threadpool(form.read if form else draft.write, part)
            texts = form.end() if form else {}
            ids = await run_in_threadpool(draft.keep, texts.pop("fps", ""))
            return texts | ids
        except FormParserError as error:
            raise UsageError(f"The form cannot be read: {error}. See /openapi.json.") from error
        finally:
            self._running -= 1
            await run_in_threadpool(draft.remove)

    async def read(self, request: Request, kind: type[Body], *fields: str) -> Body:
        """Read a body as this type: JSON, or a form with clips in these `fields` if there are any.

        A page of another site cannot send JSON without being asked first.
        """
        if fields and _sends_form(request):
            return read_body(await self.take_clips(request, *fields), kind, strict=False)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RefusedRequestError(415, "type", "Send JSON, with Content-Type: application/json.")
        return read_body(b"".join([part async for part in self._receive(request, MOST_BODY_BYTES)]), kind)

    async def _receive(self, request: Request, most_bytes: int) -> AsyncGenerator[bytes, None]:
        """Yield what arrives. RefusedRequestError if it is more than that, stops coming, or comes too slowly."""
        _check_length(request, most_bytes)
        began, size = time.monotonic(), 0
        parts = request.stream()
        while True:
            try:
                part = await asyncio.wait_for(anext(parts, None), self._silence)
                if time.monotonic() - began > 3 * self._silence + size / _LEAST_BYTES_A_SECOND:
                    raise TimeoutError
            except TimeoutError:
                text = "The upload came too slowly, and was ended. Send it again."
                raise RefusedRequestError(408, "slow", text) from None
            if part is None:
                return
            size += len(part)
            if size > most_bytes:
                raise RefusedRequestError(413, "too_large", f"At most {most_bytes} bytes are taken.")
            yield part


class _Form:
    """A form (multipart/form-data) while it arrives: a file in it goes straight to its place."""

    def __init__(self, draft: UploadDraft, clips: tuple[str, ...], content_type: str) -> None:
        self._draft = draft
        self._clips = clips
        self._headers: dict[bytes, bytes] = {}
        self._name = self._value = b""
        self._texts: dict[str, bytearray] = {}
        self._text: bytearray | None = None
        _, options = parse_options_header(content_type)
        callbacks: MultipartCallbacks = {
            "on_part_begin": self._headers.clear,
            "on_header_field": self._add_name,
            "on_header_value": self._add_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._begin_part,
            "on_part_data": self._write,
        }
        self._parser = MultipartParser(options.get(b"boundary", b""), callbacks)
        self.read = self._parser.write
        """Read more of it: FormParserError for what is no form, UsageError for a part that is not allowed."""

    def end(self) -> dict[str, str]:
        """Return the fields that are text. UsageError if the form has no end, or no file."""
        if self._parser.state != MultipartState.END or not self._draft.folders:
            raise UsageError(f"The form has no end, or no file; allowed: {', '.join(self._clips)}. See /openapi.json.")
        return {field: text.decode(errors="replace") for field, text in self._texts.items()}

    def _add_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _begin_part(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        field, file = (
            options[name].decode(errors="replace") if name in options else None for name in (b"name", b"filename")
        )
        if field is None:
            raise UsageError("The form cannot be read: a part has no name. See /openapi.json.")
        self._text = None
        if file is None:
            self._text = self._texts[field] = bytearray()
            self._check_texts()
        elif field in self._clips:
            self._draft.begin_file(field, file)
        else:
            raise UsageError(f"The form has a file in {field[:40]!r}; allowed: {', '.join(self._clips)}.")

    def _write(self, data: bytes, start: int, end: int) -> None:
        if self._text is None:
            self._draft.write(data[start:end])
            return
        self._text += data[start:end]
        self._check_texts()

    def _check_texts(self) -> None:
        if len(self._texts) > _MOST_FIELDS or len(self._text or b"") > _MOST_FIELD_BYTES:
            raise UsageError("The form has too many fields, or one that is too long. See /openapi.json.")


def _check_length(request: Request, most_bytes: int) -> int:
    """Return the bytes that a request announces, 0 if it does not. RefusedRequestError for more than that."""
    length = int(request.headers.get("content-length", 0))
    if length > most_bytes:
        raise RefusedRequestError(413, "too_large", f"The request is {length} bytes; at most {most_bytes} are taken.")
    return length


def _sends_form(request: Request) -> bool:
    return request.headers.get("content-type", "").startswith("multipart/form-data")
