"""Reads plain data and JSON as the type that is expected, and describes types, in any thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import RLock
from typing import Any, Final, TypeVar

import msgspec

_T = TypeVar("_T")
_LOCK: Final = RLock()
"""msgspec inspects a type when it is first used, and stores an unfinished result in the type. A second thread that uses
the type meanwhile crashes the process (msgspec 0.22)."""


def read_plain(
    data: Any, kind: type[_T], *, strict: bool = True, dec_hook: Callable[[type, Any], Any] | None = None
) -> _T:
    """As `msgspec.convert`."""
    with _LOCK:
        return msgspec.convert(data, kind, strict=strict, dec_hook=dec_hook)


def read_json(data: bytes | str, kind: type[_T]) -> _T:
    """As `msgspec.json.decode`."""
    with _LOCK:
        return msgspec.json.decode(data, type=kind)


def describe_types(kinds: Iterable[Any], *, ref_template: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """As `msgspec.json.schema_components`."""
    with _LOCK:
        return msgspec.json.schema_components(kinds, ref_template=ref_template)
