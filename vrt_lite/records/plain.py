"""Makes plain data of a record."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def to_plain(record: object) -> Any:
    """Return dicts, lists, texts and numbers, as JSON has them; a path is a text."""
    return json.loads(json.dumps(msgspec.to_builtins(record, enc_hook=str)))  # msgspec's JSON has no lone surrogates
