"""Takes an MP4 apart into its boxes, and puts it together again."""

from __future__ import annotations

import struct

Boxes = list[tuple[bytes, "bytes | Boxes"]]
_PARENTS = frozenset((b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"moof", b"traf"))


def take_apart(data: bytes) -> Boxes:
    boxes: Boxes = []
    at = 0
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + size]
        boxes.append((kind, take_apart(body) if kind in _PARENTS else body))
        at += size
    return boxes


def put_together(boxes: Boxes) -> bytes:
    parts: list[bytes] = []
    for kind, body in boxes:
        data = body if isinstance(body, bytes) else put_together(body)
        parts.append(struct.pack(">I4s", 8 + len(data), kind) + data)
    return b"".join(parts)


def inside(boxes: Boxes, *kinds: bytes, track: int = 0) -> Boxes:
    """The boxes inside the first box of these kinds, or in another track."""
    for kind in kinds:
        found = [body for name, body in boxes if name == kind]
        body = found[track if kind == b"trak" else 0]
        assert isinstance(body, list)
        boxes = body
    return boxes


def put(boxes: Boxes, kind: bytes, *numbers: int) -> None:
    """Give a table new content: these numbers, of 32 bits."""
    at = next((i for i, (name, _) in enumerate(boxes) if name == kind), len(boxes))
    boxes[at : at + 1] = [(kind, struct.pack(f">{len(numbers)}I", *numbers))]


def tables(boxes: Boxes, track: int = 0) -> Boxes:
    return inside(boxes, b"moov", b"trak", b"mdia", b"minf", b"stbl", track=track)
