"""An MP4 that claims to hold millions of samples is refused before FFmpeg makes room for them."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.container import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream
from clips import read_index, write_clip
from mp4_boxes import Boxes, inside, put, put_together, tables, take_apart

from vrt_lite.errors import VideoError
from vrt_lite.video import open_clip, reader
from vrt_lite.video.container import read_packets

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


SAMPLES = "claims to hold more than 6000000 samples"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (claim_samples, SAMPLES),
        (claim_in_sound, SAMPLES),
        (claim_in_uncompressed_sound, SAMPLES),
        (claim_after_another_first_box, SAMPLES),
        (claim_outside_the_tables, SAMPLES),
        (claim_in_many_tracks, SAMPLES),
        (claim_by_edits, "has more than 5000 edits"),
        (repeat_samples_by_edits, SAMPLES),
        (add_tracks, "cannot be opened"),  # FFmpeg calls more than a thousand a lack of memory
        (hide_the_index, SAMPLES),
        (compress_the_index, "has a compressed index"),
        (add_empty_boxes, "has more than 1000000 boxes"),
        (add_empty_boxes_inside, "has more than 1000000 boxes"),
    ],
)
def test_a_claim_beyond_reason_is_refused(tmp_path: Path, change: Callable[[Boxes], None], reason: str) -> None:
    boxes = take_apart(write_clip(tmp_path / "good.mp4", audio_seconds=3).read_bytes())
    change(boxes)
    path = tmp_path / "claims.mp4"
    path.write_bytes(put_together(boxes))
    with pytest.raises(VideoError, match=reason):
        open_clip(path)


@pytest.mark.parametrize("change", [claim_by_a_run, claim_by_many_runs])
def test_a_claim_of_a_fragment_is_refused(tmp_path: Path, change: Callable[[Boxes], None]) -> None:
    clip = write_clip(tmp_path / "good.mp4", movflags="frag_keyframe+empty_moov")
    boxes = take_apart(clip.read_bytes())
    change(boxes)
    path = tmp_path / "claims.mp4"
    path.write_bytes(put_together(boxes))
    with pytest.raises(VideoError, match=SAMPLES):
        open_clip(path)


MEASURE = """
import resource, sys
from vrt_lite.video import VideoError, open_clip
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    open_clip(sys.argv[1])
except VideoError:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // (1024 if sys.platform == "linux" else 2**20))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the most memory of a process is read otherwise there")
@pytest.mark.parametrize("samples", [5_900_000, MANY])
def test_the_memory_for_a_claim_is_bounded(tmp_path: Path, samples: int) -> None:
    boxes = take_apart(write_clip(tmp_path / "good.mp4").read_bytes())
    put(tables(boxes), b"stsz", 0, 1, samples)
    put(tables(boxes), b"stsc", 0, 1, 1, samples, 1)
    path = tmp_path / "claims.mp4"
    path.write_bytes(put_together(boxes))
    command = [sys.executable, "-c", MEASURE, str(path)]
    megabytes = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert megabytes < 1000


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
    packets = 0

    def count_packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
        nonlocal packets
        for packet in read_packets(container, stream):
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
        monkeypatch.setattr(reader, "read_packets", count_packets)
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
