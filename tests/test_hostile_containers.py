"""An MP4 that claims to hold millions of samples gets no room for them."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

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


def claim_samples(boxes: Boxes, track: int = 0, *, samples: int = MANY, in_chunk: int = MANY) -> None:
    put(tables(boxes, track), b"stsz", 0, 1, samples)
    put(tables(boxes, track), b"stsc", 0, 1, 1, in_chunk, 1)


def claim_in_uncompressed_sound(boxes: Boxes) -> None:
    claim_samples(boxes, 1, in_chunk=2**31 - 1)
    put(tables(boxes, 1), b"stts", 0, 1, MANY, 1)


def claim_outside_the_tables(boxes: Boxes) -> None:
    claim_samples(boxes)
    table = tables(boxes)
    [sizes] = [box for box in table if box[0] == b"stsz"]
    table.remove(sizes)
    inside(boxes, b"moov", b"trak").insert(0, sizes)


def repeat_tracks(boxes: Boxes, times: int) -> None:
    index = inside(boxes, b"moov")
    index.extend([box for box in index if box[0] == b"trak"] * times)


def claim_in_many_tracks(boxes: Boxes) -> None:
    put(tables(boxes), b"stsz", 0, 1, 700_000)
    repeat_tracks(boxes, 9)


def repeat_by_edits(boxes: Boxes, edits: int) -> None:
    put(inside(boxes, b"moov", b"trak", b"edts"), b"elst", 0, edits, *(3000, 0, 0x10000) * edits)


def repeat_samples_by_edits(boxes: Boxes) -> None:
    put(tables(boxes), b"stsz", 0, 1, 10_000)
    repeat_by_edits(boxes, 1000)


def claim_by_a_run(boxes: Boxes) -> None:
    put(inside(boxes, b"moof", b"traf"), b"trun", 0, MANY)


def claim_by_many_runs(boxes: Boxes) -> None:
    inside(boxes, b"moof", b"traf").extend([(b"trun", struct.pack(">2I", 0, 100_000))] * 100)


def replace_index(boxes: Boxes, kind: bytes, change: Callable[[bytes], bytes]) -> None:
    [at] = [number for number, (name, _) in enumerate(boxes) if name == b"moov"]
    index = boxes[at][1]
    assert isinstance(index, list)
    boxes[at] = (kind, change(put_together(index)))


def compress_index(index: bytes) -> bytes:
    whole = zlib.compress(put_together([(b"moov", index)]) + bytes(20_000_000))
    return put_together([(b"cmov", put_together([(b"dcom", b"zlib"), (b"cmvd", struct.pack(">I", 2**31) + whole)]))])


def hide_the_index(boxes: Boxes) -> None:
    claim_samples(boxes)
    replace_index(boxes, b"free", bytes)


def claim_after_another_first_box(boxes: Boxes) -> None:
    boxes.insert(0, (b"udta", b""))
    claim_samples(boxes)


def add_boxes(index: bytes) -> bytes:
    return index + put_together([(b"skip", b"")]) * 1_100_000


WHOLE, NOTHING, UNKNOWN = "48 frames", "holds no video frames", "cannot be opened"
CLAIMS: dict[str, tuple[Callable[[Boxes], None], str, int]] = {
    # name: how the boxes are changed, what comes of it, and the most megabytes that it may take
    "samples": (claim_samples, NOTHING, 60),
    "samples of sound": (partial(claim_samples, track=1), WHOLE, 60),
    "samples of uncompressed sound": (claim_in_uncompressed_sound, WHOLE, 60),
    "another first box": (claim_after_another_first_box, NOTHING, 60),
    "outside of the tables": (claim_outside_the_tables, NOTHING, 60),
    "many tracks": (claim_in_many_tracks, UNKNOWN, 60),
    "samples repeated by edits": (repeat_samples_by_edits, "no decodable frame|ends after frame|48000 frames", 60),
    "tracks": (partial(repeat_tracks, times=1000), UNKNOWN, 60),
    "hidden index": (hide_the_index, NOTHING, 60),
    "compressed index": (partial(replace_index, kind=b"moov", change=compress_index), UNKNOWN, 60),
    "empty boxes inside": (partial(replace_index, kind=b"moov", change=add_boxes), WHOLE, 60),
    "empty boxes": (lambda boxes: boxes.extend([(b"free", b"")] * 1_100_000), WHOLE, 60),
    "below the limit": (partial(claim_samples, samples=5_900_000, in_chunk=5_900_000), NOTHING, 60),
    "pieces: a run": (claim_by_a_run, UNKNOWN, 60),
    "edits": (partial(repeat_by_edits, edits=500_000), "holds more than 2000000 frames", 160),
    "pieces: many runs": (claim_by_many_runs, UNKNOWN, 160),
}
MEASURE = """
import resource, sys
from vrt_lite.video import VideoError, open_clip
def most_megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (10 if sys.platform == "linux" else 20)
before = most_megabytes()
for path in sys.argv[1:]:
    try:
        with open_clip(path) as clip:
            said = f"{clip.info.frames} frames"
    except VideoError as error:
        said = error.reason
    print(most_megabytes() - before, said)
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Open all in one process, those that may take most last; the most megabytes until then, and what is said."""
    folder = tmp_path_factory.mktemp("claims")
    whole = write_clip(folder / "whole.mp4", audio_seconds=3).read_bytes()
    in_pieces = write_clip(folder / "pieces.mp4", movflags="frag_keyframe+empty_moov").read_bytes()
    paths = [folder / f"{number}.mp4" for number in range(len(CLAIMS))]
    for path, (name, (change, _, _)) in zip(paths, CLAIMS.items(), strict=True):
        boxes = take_apart(in_pieces if name.startswith("pieces") else whole)
        change(boxes)
        path.write_bytes(put_together(boxes))
    done = subprocess.run([sys.executable, "-c", MEASURE, *paths], check=True, capture_output=True, text=True)
    return dict(zip(CLAIMS, done.stdout.splitlines(), strict=True))


@pytest.mark.skipif(sys.platform == "win32", reason="FFmpeg's limit is not found there: the worker's memory is limited")
@pytest.mark.parametrize("name", CLAIMS)
def test_the_memory_for_a_claim_is_bounded(outcomes: dict[str, str], name: str) -> None:
    _, outcome, most_megabytes = CLAIMS[name]
    megabytes, _, said = outcomes[name].partition(" ")
    assert re.search(outcome, said)
    assert int(megabytes) < most_megabytes


def test_a_long_clip_with_uncompressed_sound_is_opened(tmp_path: Path) -> None:
    """A sample of such sound is one value of each channel: two minutes have more than the limit of samples."""
    path = tmp_path / "long.mov"
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=1)
        video.width, video.height, video.pix_fmt = 56, 56, "yuv420p"
        sound = container.add_stream("pcm_u8", rate=48_000, layout="mono")
        picture = av.VideoFrame.from_ndarray(np.zeros((56, 56, 3), np.uint8))
        values = av.AudioFrame.from_ndarray(np.zeros((1, 48_000), np.uint8), format="u8", layout="mono")
        values.sample_rate = 48_000
        for second in range(130):
            picture.pts, values.pts = second, second * 48_000
            container.mux(video.encode(picture))
            container.mux(sound.encode(values))
        container.mux(video.encode())
    assert 130 * 48_000 > 6_000_000
    with open_clip(path) as clip:
        assert clip.info.frames == 130


def test_frames_of_equal_times_are_found_without_reading_the_file_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No time leads to one keyframe alone: the file is read in order once for each call, not once for each frame."""
    packets: list[None] = []
    read = Reader._packets

    def count_packets(reader: Reader) -> Iterator[Packet[VideoStream]]:
        for packet in read(reader):
            packets.append(None)
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
    assert len(packets) < 5 * frames


def test_an_index_that_is_marked_as_free_space_is_found_as_before(tmp_path: Path) -> None:
    """FFmpeg finds such an index too: hiding it would otherwise get round the limit."""
    path = write_clip(tmp_path / "hidden.mp4")
    boxes = take_apart(path.read_bytes())
    replace_index(boxes, b"free", bytes)
    path.write_bytes(put_together(boxes))
    with av.open(str(path)) as container:
        assert container.streams.video[0].frames == 48
