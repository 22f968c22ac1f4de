"""Parses a form (multipart/form-data) while it arrives, so that a file in it goes straight to its place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from vrt_lite.errors import UsageError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_MOST_HEADER_BYTES: Final = 16 * 2**10


@dataclass(frozen=True, slots=True)
class PartHead:
    """The beginning of a part: the name of its field, and of its file; None for a field that is text."""

    field: str
    file: str | None


async def parse_form(content_type: str, body: AsyncIterator[bytes]) -> AsyncIterator[PartHead | bytes]:
    """Yield the head of each part, and then its bytes as they arrive. UsageError for a damaged form."""
    _, options = parse_options_header(content_type)
    if not options.get(b"boundary"):
        raise UsageError("The form's Content-Type has no boundary. Let the client make the form.")
    found: list[PartHead | bytes] = []
    reader = _PartReader(found)
    try:
        parser = MultipartParser(options[b"boundary"], reader.callbacks())
        async for data in body:
            parser.write(data)
            for part in found:
                yield part
            found.clear()
    except (FormParserError, ValueError) as error:
        raise UsageError(f"The form cannot be read: {error}. See /openapi.json.") from error
    if not reader.ended:
        raise UsageError("The form cannot be read: it has no end. See /openapi.json.")


class _PartReader:
    """What the parser calls: it adds heads and bytes to `found`."""

    def __init__(self, found: list[PartHead | bytes]) -> None:
        self._found = found
        self._headers: dict[bytes, bytes] = {}
        self._name, self._value, self._size = b"", b"", 0
        self.ended = False

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._headers.clear,
            "on_part_data": self._add_data,
            "on_header_field": self._add_name,
            "on_header_value": self._add_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_end": self._end,
        }

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self._found.append(bytes(data[start:end]))

    def _add_name(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._name += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._value += data[start:end]

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > _MOST_HEADER_BYTES:
            raise FormParserError("a part has too many headers")

    def _end_header(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        if b"name" not in options:
            raise FormParserError("a part has no name")
        file = options.get(b"filename")
        self._size = 0
        self._found.append(
            PartHead(options[b"name"].decode(errors="replace"), None if file is None else file.decode(errors="replace"))
        )

    def _end(self) -> None:
        self.ended = True
