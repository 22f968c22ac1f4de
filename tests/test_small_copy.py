"""Small copies of clips: every frame at its own time, upright, small, and nothing else of the file."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from clips import picture_frames, read_index, write_clip

from vrt_lite.errors import VideoError
from vrt_lite.video import open_clip
from vrt_lite.video.encoding import LONGEST_SIDE, MOST_FRAMES, SmallCopy, write_small_copy


def copy_of(path: Path) -> tuple[SmallCopy, Path]:
    """A copy, and the file that it was written to."""
    with open_clip(path) as clip:
        copy = write_small_copy(clip)
    target = path.with_name("copy.mp4")
    target.write_bytes(copy.data)
    return copy, target


def test_each_frame_is_there_at_its_time(tmp_path: Path) -> None:
    pts = [0, 1, 2, 5, 6, 9, 14, 15, 16, 20]
    path = write_clip(tmp_path / "a.mp4", frames=10, pts=pts)
    copy, target = copy_of(path)
    assert (copy.width, copy.height, copy.step) == (252, 140, 1)
    with open_clip(path) as clip, open_clip(target) as copied:
        assert not copied.warnings
        shown = copied.frames(range(10), size=(252, 140))
        assert [read_index(shown[index]) for index in range(10)] == list(range(10))
        given, kept = ([of.seconds(index) for index in range(10)] for of in (clip, copied))
        assert kept == pytest.approx(given, abs=1e-3)
        original = clip.frames([4], size=(252, 140))[4].astype(int)
        assert np.abs(shown[4] - original).mean() < 4


def test_a_large_clip_becomes_small_and_stays_upright(tmp_path: Path) -> None:
    copy, target = copy_of(write_clip(tmp_path / "a.mp4", frames=3, size=(540, 960), rotation=90))
    assert (copy.width, copy.height) == (270, LONGEST_SIDE)
    with open_clip(target) as copied:
        assert read_index(copied.frames([2], size=(270, 480))[2]) == 2


def test_noise_gets_coarser_then_smaller_until_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(1)
    noise = (chance.integers(0, 256, (480, 480, 3), np.uint8) for _ in range(3))
    path = write_clip(tmp_path / "a.mp4", size=(480, 480), frames=3, pictures=noise)
    for most, side in ((60_000, LONGEST_SIDE), (2_000, LONGEST_SIDE // 2)):
        monkeypatch.setattr("vrt_lite.video.encoding.MOST_BYTES", most)
        copy, target = copy_of(path)
        assert len(copy.data) <= most < path.stat().st_size
        assert (copy.width, copy.height) == (side, side)
        with open_clip(target) as copied:
            assert copied.info.frames == 3
    monkeypatch.setattr("vrt_lite.video.encoding.MOST_BYTES", 600)
    with pytest.raises(VideoError, match=r"cannot be copied into 0\.0006 MB"):
        copy_of(path)


def test_of_a_long_clip_every_third_frame_is_taken(tmp_path: Path) -> None:
    frames = 2 * MOST_FRAMES + 1
    copy, target = copy_of(write_clip(tmp_path / "a.mp4", frames=frames, fps=30, size=(32, 32)))
    assert copy.step == 3
    with open_clip(target) as copied:
        assert copied.info.frames == len(range(0, frames, 3))
        assert copied.seconds(100) == pytest.approx(10, abs=1e-3)


def test_neither_sound_nor_metadata_gets_into_it(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4", size=(64, 48), audio_seconds=3)
    tagged = tmp_path / "b.mp4"
    with av.open(str(path)) as read, av.open(str(tagged), "w") as out:
        out.metadata["comment"] = "the secret prompt"
        streams: dict[int, Any] = {of.index: out.add_stream_from_template(of) for of in read.streams}
        for packet in read.demux():
            if packet.dts is not None:
                packet.stream = streams[packet.stream.index]
                out.mux(packet)
    assert b"the secret prompt" in tagged.read_bytes()
    copy, target = copy_of(tagged)
    assert b"secret" not in copy.data
    with av.open(str(target)) as copied:
        assert [of.type for of in copied.streams] == ["video"]


def test_a_clip_that_rots_has_no_copy(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4", gop=48, pictures=picture_frames(48, (252, 140)))
    data = bytearray(path.read_bytes())
    at = data.index(b"mdat") + 3000
    data[at:] = bytes(itertools.islice(itertools.cycle(b"\xff\x00\x37"), len(data) - at))
    path.write_bytes(data)
    with pytest.raises(VideoError, match=r"a\.mp4"):
        copy_of(path)
