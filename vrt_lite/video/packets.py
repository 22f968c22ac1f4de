"""The packets of a video stream, their times, and keyframes by their times."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream
from numpy.typing import NDArray


def read_packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
    """Yield the stream's packets; not the empty ones, which repeat a frame (AVI) or mark the end (PyAV)."""
    try:
        yield from (packet for packet in container.demux(stream) if packet.size)
    except IndexError:
        # PyAV 18.1 fails after the last packet, when it flushes a stream that appeared while reading (damaged MPEG-TS).
        return


def stamp_of(packet: Packet[VideoStream]) -> int | None:
    """Return when a packet is shown, else when it is decoded; None if neither is known or plausible."""
    stamp = packet.dts if packet.pts is None else packet.pts
    return stamp if stamp is not None and abs(stamp) < 1 << 62 else None


class KeyTimes:
    """Finds keyframes by their times, given in the order of decoding."""

    def __init__(self, stamps: NDArray[np.int64]) -> None:
        self._times, self._first, self._counts = np.unique(stamps, return_index=True, return_counts=True)

    def find(self, stamp: int | None) -> int | None:
        """Return which keyframe has this time; None if none has it, or several."""
        if stamp is None:
            return None
        at = int(self._times.searchsorted(stamp))
        known = at < len(self._times) and self._times[at] == stamp and self._counts[at] == 1
        return int(self._first[at]) if known else None
