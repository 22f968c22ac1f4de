"""An MP4 that claims to hold millions of samples gets no room for them."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.packet import Packet
from av.video.stream import VideoStream
from clips import read_index, write_clip
from mp4_boxes import Boxes, inside, put, put_together, tables, take_apart

from vrt_lite.video import open_clip
from vrt_lite.video.reader import Reader

MANY = 60_000_000


def claim_samples(boxes: Boxes, track: int = 0) -> None:
    put(tables(boxes, track), b"stsz", 0, 1, MANY)
    put(tables(boxes, track), b"stsc", 0, 1, 1, MANY, 1)


def claim_in_sound(boxes: Boxes) -> None:
    claim_samples(boxes, track=1)


def claim_in_uncompressed_sound(boxes: Boxes) -> None:
    claim_samples(boxes, track=1)
    put(tables(boxes, 1), b"stsc", 0, 1, 1, 2**31 - 1, 1)
    put(tables(boxes, 1), b"stts", 0, 1, MANY, 1)


def claim_after_another_first_box(boxes: Boxes) -> None:
    boxes.insert(0, (b"udta", b""))
    claim_samples(boxes)


def claim_outside_the_tables(boxes: Boxes) -> None:
    claim_samples(boxes)
    table = tables(boxes)
    at = next(i for i, (kind, _) in enumerate(table) if kind == b"stsz")
    inside(boxes, b"moov", b"trak").insert(0, table.pop(at))


def claim_in_many_tracks(boxes: Boxes) -> None:
    put(tables(boxes), b"stsz", 0, 1, 700_000)
    index = inside(boxes, b"moov")
    index.extend([box for box in index if box[0] == b"trak"] * 9)


def claim_by_edits(boxes: Boxes) -> None:
    put(inside(boxes, b"moov", b"trak", b"edts"), b"elst", 0, 500_000, *(3000, 0, 0x10000) * 500_000)


def repeat_samples_by_edits(boxes: Boxes) -> None:
    put(tables(boxes), b"stsz", 0, 1, 10_000)
    put(inside(boxes, b"moov", b"trak", b"edts"), b"elst", 0, 1000, *(3000, 0, 0x10000) * 1000)


def add_tracks(boxes: Boxes) -> None:
    index = inside(boxes, b"moov")
    index.extend([box for box in index if box[0] == b"trak"][:1] * 2000)


def claim_by_a_run(boxes: Boxes) -> None:
    put(inside(boxes, b"moof", b"traf"), b"trun", 0, MANY)


def claim_by_many_runs(boxes: Boxes) -> None:
    inside(boxes, b"moof", b"traf").extend([(b"trun", struct.pack(">2I", 0, 100_000))] * 100)


def compress_the_index(boxes: Boxes) -> None:
    at = next(i for i, (kind, _) in enumerate(boxes) if kind == b"moov")
    index = zlib.compress(put_together(boxes[at : at + 1]) + bytes(20_000_000))
    packed = put_together([(b"dcom", b"zlib"), (b"cmvd", struct.pack(">I", 2**31) + index)])
    boxes[at] = (b"moov", put_together([(b"cmov", packed)]))


def hide_the_index(boxes: Boxes) -> None:
    claim_samples(boxes)
    at = next(i for i, (kind, _) in enumerate(boxes) if kind == b"moov")
    boxes[at] = (b"free", boxes[at][1])


def add_empty_boxes(boxes: Boxes) -> None:
    boxes.extend([(b"free", b"")] * 1_100_000)


def add_empty_boxes_inside(boxes: Boxes) -> None:
    inside(boxes, b"moov").extend([(b"skip", b"")] * 1_100_000)


def claim_below_the_limit(boxes: Boxes) -> None:
    put(tables(boxes), b"stsz", 0, 1, 5_900_000)
    put(tables(boxes), b"stsc", 0, 1, 1, 5_900_000, 1)


WHOLE = "48 frames"
MEASURE = """
import sys
from vrt_lite.video import VideoError, open_clip
def most_megabytes():
    if sys.platform == "win32":
        import psutil
        return psutil.Process().memory_info().peak_wset >> 20
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (10 if sys.platform == "linux" else 20)
before = most_megabytes()
try:
    with open_clip(sys.argv[1]) as clip:
        print(clip.info.frames, "frames")
except VideoError as error:
    print(error.reason)
print(most_megabytes() - before)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="FFmpeg's limit is not found there: the worker's memory is limited")
@pytest.mark.parametrize(
    ("change", "outcome", "megabytes"),
    [
        (claim_samples, "holds no video frames", 60),
        (claim_in_sound, WHOLE, 60),
        (claim_in_uncompressed_sound, WHOLE, 60),
        (claim_after_another_first_box, "holds no video frames", 60),
        (claim_outside_the_tables, "holds no video frames", 60),
        (claim_in_many_tracks, "cannot be opened", 60),
        (claim_by_edits, "holds more than 2000000 frames", 160),
        (repeat_samples_by_edits, "no decodable frame|ends after frame|48000 frames", 60),
        (add_tracks, "cannot be opened", 60),
        (hide_the_index, "holds no video frames", 60),
        (compress_the_index, "cannot be opened", 60),
        (add_empty_boxes, WHOLE, 60),
        (add_empty_boxes_inside, WHOLE, 60),
        (claim_below_the_limit, "holds no video frames", 60),
        (claim_by_a_run, "cannot be opened", 60),
        (claim_by_many_runs, "cannot be opened", 160),
    ],
)
def test_the_memory_for_a_claim_is_bounded(
    tmp_path: Path, change: Callable[[Boxes], None], outcome: str, megabytes: int
) -> None:
    in_pieces = change in (claim_by_a_run, claim_by_many_runs)
    options: Any = {"movflags": "frag_keyframe+empty_moov"} if in_pieces else {"audio_seconds": 3}
    boxes = take_apart(write_clip(tmp_path / "good.mp4", **options).read_bytes())
    change(boxes)
    path = tmp_path / "claims.mp4"
    path.write_bytes(put_together(boxes))
    command = [sys.executable, "-c", MEASURE, str(path)]
    said, more = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert re.search(outcome, said)
    assert int(more) < megabytes


def test_a_long_clip_with_uncompressed_sound_is_opened(tmp_path: Path) -> None:
    """A sample of such sound is one value of each channel: two minutes have more than the limit of samples."""
    path = tmp_path / "long.mov"
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=1)
        video.width, video.height, video.pix_fmt = 56, 56, "yuv420p"
        sound = container.add_stream("pcm_u8", rate=48_000, layout="mono")
        for second in range(130):
            picture = av.VideoFrame.from_ndarray(np.zeros((56, 56, 3), np.uint8))
            picture.pts = second
            container.mux(video.encode(picture))
            values = av.AudioFrame.from_ndarray(np.zeros((1, 48_000), np.uint8), format="u8", layout="mono")
            values.sample_rate, values.pts = 48_000, second * 48_000
            container.mux(sound.encode(values))
        container.mux(video.encode())
    assert 130 * 48_000 > 6_000_000
    with open_clip(path) as clip:
        assert clip.info.frames == 130


def test_frames_of_equal_times_are_found_without_reading_the_file_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No time leads to one keyframe alone: the file is read in order, once for each call, and not once for each frame.

    Every keyframe of such a clip, with 176 000 of them, was compared with all others, for each frame that was shown.
    """
    packets, read = 0, Reader._packets

    def count_packets(reader: Reader) -> Iterator[Packet[VideoStream]]:
        nonlocal packets
        for packet in read(reader):
            packets += 1
            yield packet

    frames = 300
    whole = write_clip(tmp_path / "whole.mp4", frames=frames, size=(56, 56), gop=2, bframes=0)
    equal = tmp_path / "equal.mkv"
    with av.open(str(whole)) as source, av.open(str(equal), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for number, packet in enumerate(packet for packet in source.demux(video=0) if packet.size):
            packet.stream, packet.time_base = stream, Fraction(1, 16)
            packet.pts = packet.dts = number // 6
            target.mux(packet)
    with open_clip(equal) as clip:
        monkeypatch.setattr(Reader, "_packets", count_packets)
        chosen = [*range(0, frames, 10), frames - 1]
        shown = clip.frames(chosen, size=(56, 56))
    assert [read_index(picture) for picture in shown.values()] == chosen
    assert packets < 5 * frames


def test_an_index_that_is_marked_as_free_space_is_found_as_before(tmp_path: Path) -> None:
    """FFmpeg finds such an index too: hiding it would otherwise get round the limit."""
    boxes = take_apart(write_clip(tmp_path / "good.mp4").read_bytes())
    at = next(i for i, (kind, _) in enumerate(boxes) if kind == b"moov")
    boxes[at] = (b"free", boxes[at][1])
    path = tmp_path / "hidden.mp4"
    path.write_bytes(put_together(boxes))
    with av.open(str(path)) as container:
        assert container.streams.video[0].frames == 48
