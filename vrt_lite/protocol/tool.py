"""Judges a tool call: the frames it asks for, or why it is refused.

Knows `select_frames(target_frames)` and its limits. Refuses to know messages and pixels. A refusal is
data for the next round; its text holds numbers of ours only, never what the model wrote.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import cast

from vrt_lite.protocol.frames import FrameRef, from_number

NAME = "select_frames"
ARGUMENT = "target_frames"


@dataclass(frozen=True, slots=True)
class Granted:
    """The frames of a good call, in the order asked."""

    frames: tuple[FrameRef, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A bad call. `reason` completes the sentence "The tool call …"."""

    reason: str


def read(payload: str, *, workspace: int, limit: int) -> Granted | Refused:
    """Read the JSON of one call. Never raises; `workspace` is the frames a video, `limit` the frames a call."""
    try:
        call: object = json.loads(payload)
    except (ValueError, RecursionError):
        return Refused("is not valid JSON")
    if not isinstance(call, dict):
        return Refused("is not a JSON object with a name and arguments")
    fields = cast(dict[str, object], call)
    if fields.get("name") != NAME:
        return Refused(f"does not name the one tool there is, {NAME}")
    arguments = fields.get("arguments")
    targets = cast(dict[str, object], arguments).get(ARGUMENT) if isinstance(arguments, dict) else None
    if not isinstance(targets, list) or not targets:
        return Refused(f"has no list of integers under arguments.{ARGUMENT}")
    numbers = cast(list[object], targets)
    if len(numbers) > limit:
        return Refused(f"asks for {len(numbers)} frames; at most {limit} are allowed in one call")
    frames: list[FrameRef] = []
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            return Refused("holds a frame index that is not an integer")
        if not 1 <= number <= 2 * workspace:
            return Refused(f"holds a frame index outside 1 to {2 * workspace}")
        frames.append(from_number(number, workspace))
    if len(set(frames)) < len(frames):
        return Refused("names a frame twice")
    return Granted(tuple(frames))
