"""The video decoders that PyAV was built with."""

from __future__ import annotations

from collections.abc import Iterable

import av


def list_missing_decoders(names: Iterable[str]) -> list[str]:
    """Those of the `names` that PyAV cannot decode."""
    return [name for name in names if not _is_decodable(name)]


def _is_decodable(name: str) -> bool:
    try:
        return av.Codec(name, "r").is_decoder
    except ValueError:  # UnknownCodecError
        return False
