"""The record of work that is going on: its JSON is what clients of the server and its pages are told."""

from __future__ import annotations

import msgspec


class Progress(msgspec.Struct, frozen=True):
    """How far work has come: `done` of at most `most` judgements, or bytes of a model, which `words` name.

    A ranking takes fewer judgements if the order is certain before. `seconds_left` is None until known.
    """

    done: int
    most: int
    seconds_left: float | None = None
    words: str = ""
