"""Every kind of bad input of a video file, and that what is shown is exactly what was asked for."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import clips
import numpy as np
import pytest
from av.stream import Disposition
from av.video.reformatter import VideoReformatter
from clips import cut, flip_bits, grey_frames, picture, read_index, write_clip
from PIL import Image

from vrt_lite.errors import MissingClipError, VideoError
from vrt_lite.video import frame_conversion, open_clip, reader
from vrt_lite.video.frame_conversion import EXACT, Conversion, find_conversion

SMALL = (126, 70)
OPEN_GOP = {"x264-params": "open-gop=1:keyint=8:bframes=3:b-adapt=0"}
REFRESH = {"x264-params": "intra-refresh=1:keyint=8:bframes=0"}
LOSSLESS: Any = {"codec": "libx264rgb", "pix_fmt": "rgb24", "options": {"qp": "0"}}


def numbers(path: Path | str, indices: list[int] | None = None) -> list[int]:
    with open_clip(path) as clip:
        asked = list(range(clip.info.frames)) if indices is None else indices
        shown = clip.frames(asked, size=SMALL)
        return [read_index(shown[index]) for index in asked]


def refusal(path: Path | str) -> str:
    with pytest.raises(VideoError) as caught, open_clip(path):
        pass
    message = str(caught.value)
    assert "\n" not in message
    assert repr(str(path)).replace("://", ":/") in message.replace("://", ":/")
    assert caught.value.status == 3
    return message


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


@pytest.fixture(scope="module")
def plain(folder: Path) -> Path:
    return write_clip(folder / "plain.mp4", faststart=True, audio_seconds=4)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("x264.mp4", {}),
        ("x264.mkv", {}),
        ("x264.avi", {}),
        ("x264.ts", {}),
        ("x264.mov", {"pix_fmt": "yuv444p"}),
        ("x264-10.mp4", {"pix_fmt": "yuv420p10le"}),
        ("open-gop.mp4", {"options": OPEN_GOP}),
        ("open-gop.ts", {"options": OPEN_GOP}),
        ("refresh.mp4", {"options": REFRESH}),
        ("refresh.ts", {"options": REFRESH}),
        ("x265.mp4", {"codec": "libx265", "options": {"x265-params": "log-level=none"}}),
        ("mpeg4.avi", {"codec": "mpeg4"}),
        ("mpeg4.mp4", {"codec": "mpeg4"}),
        ("mpeg2.ts", {"codec": "mpeg2video", "fps": 25}),
        ("mjpeg.avi", {"codec": "mjpeg", "pix_fmt": "yuvj420p"}),
        ("ffv1.mkv", {"codec": "ffv1"}),
        ("vp8.webm", {"codec": "libvpx"}),
        ("vp9.webm", {"codec": "libvpx-vp9", "options": {"deadline": "realtime", "cpu-used": "8"}}),
        ("fragments.mp4", {"movflags": "frag_keyframe+empty_moov"}),
        ("late.mp4", {"pts": range(30, 78)}),
        ("negative.mkv", {"pts": range(-9, 39), "bframes": 0, "muxer": {"avoid_negative_ts": "disabled"}}),
        ("twice.mkv", {"codec": "ffv1", "pts": [number // 2 for number in range(48)]}),
    ],
)
def test_any_frame_is_the_one_a_full_decode_shows(folder: Path, name: str, how: dict[str, Any]) -> None:
    path = write_clip(folder / name, **how)
    converter = VideoReformatter()
    with av.open(str(path)) as container:
        decoded = container.decode(video=0)
        truth = [converter.reformat(frame, format="rgb24", interpolation=EXACT).to_ndarray() for frame in decoded]
    assert [read_index(rgb) for rgb in truth] == list(range(48))
    chance = random.Random(name)
    asks = ([chance.randrange(24, 48)], [chance.randrange(24)], chance.sample(range(48), 5), range(48))
    with open_clip(path) as kept:
        assert kept.info.frames == 48
        for asked in asks:
            with open_clip(path) as fresh:
                for clip in (fresh, kept):
                    shown = clip.frames(asked, size=(252, 140))
                    assert shown.keys() == set(asked)
                    assert all(np.array_equal(shown[index], truth[index]) for index in asked)


def test_what_is_known_and_what_it_costs(plain: Path) -> None:
    with open_clip(plain) as clip:
        info = clip.info
        assert (info.width, info.height, info.frames, info.fps, info.duration_seconds) == (252, 140, 48, 16, 3)
        assert (info.variable_rate, info.dynamic_range, clip.warnings, info.path) == (False, "sdr", (), plain)
        assert info.size_bytes == plain.stat().st_size and len(info.sha256) == 64
        assert len(clip.ticks) == 48 and clip.seconds(24) == 1.5
        shown = clip.frames([40], size=SMALL)[40]
        assert shown.shape == (70, 126, 3) and shown.dtype == np.uint8 and not shown.flags.writeable
        assert (decoded := clip._reader._decoded) <= 8  # one for the opening; not the 40 before, nor the 7 after
        assert clip.frames([40], size=SMALL)[40] is shown and clip._reader._decoded == decoded
        assert clip.decode_seconds > 0 and clip.resize_seconds > 0
        for outside in ([0, 48], [-1]):
            with pytest.raises(ValueError, match=r"0\.\.47"):
                clip.frames(outside, size=SMALL)


def test_a_long_clip_costs_what_is_shown(folder: Path) -> None:
    path = write_clip(folder / "long.mp4", frames=1000, size=(64, 48), gop=32, options={"preset": "ultrafast"})
    with open_clip(path) as clip:
        shown = clip.frames([0, 333, 666, 999], size=(64, 48))
        assert [read_index(rgb) for rgb in shown.values()] == [0, 333, 666, 999]
        assert clip._reader._decoded < 4 * 32


def test_resize_is_one_bicubic_of_the_stored_pixels(folder: Path) -> None:
    path = write_clip(folder / "lossless.mp4", frames=3, sar=Fraction(4, 3), **LOSSLESS)
    with open_clip(path) as clip:
        assert (clip.info.width, clip.info.height) == (336, 140)
        shown = clip.frames([2], size=(100, 60))[2]
    expected = Image.fromarray(picture(2)).resize((100, 60), Image.Resampling.BICUBIC)
    assert np.array_equal(shown, np.asarray(expected))


def test_frames_kept_in_passing_are_those_that_frames_gives(plain: Path) -> None:
    with open_clip(plain) as one, open_clip(plain) as other:
        one.keep_in_passing((0, 7, 23), size=(56, 56))
        assert [index for index, _ in one.planes([range(24)])] == list(range(24))
        assert {index for index, _ in one._shown} == {0, 7, 23}, "nothing is decoded twice"
        kept, decoded = (clip.frames((0, 7, 23), size=(56, 56)) for clip in (one, other))
        assert all((kept[index] == decoded[index]).all() for index in (0, 7, 23))


@pytest.mark.skipif(sys.platform == "win32", reason="there an open file cannot be replaced")
def test_a_clip_that_is_replaced_while_it_is_read_is_not_taken_for_the_first(
    plain: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measures of the second would be kept as those of the first."""
    clip, second = tmp_path / "clip.mp4", write_clip(folder / "second.mp4", frames=12)

    def replace() -> None:
        shutil.copy(second, tmp_path / "new")
        (tmp_path / "new").replace(clip)

    def replace_and_find(*given: Any) -> Conversion:
        replace()
        return find_conversion(*given)

    shutil.copy(plain, clip)
    with open_clip(clip) as opened:
        replace()
        assert read_index(opened.frames([23], size=SMALL)[23]) == 23
        with pytest.raises(VideoError, match="changed while it was read"):
            next(opened.planes([range(24)]))
        clip.unlink()
        with pytest.raises(VideoError, match="No such file"):
            next(opened.planes([range(24)]))
    shutil.copy(plain, clip)
    monkeypatch.setattr("vrt_lite.video.find_conversion", replace_and_find)
    with pytest.raises(VideoError, match="changed while it was read"):
        open_clip(clip)


def test_planes_are_of_one_size_and_say_their_range(folder: Path) -> None:
    with open_clip(write_clip(folder / "full.avi", frames=4, codec="mjpeg", pix_fmt="yuvj420p")) as clip:
        assert [planes.full_range for _, planes in clip.planes([range(4)])] == [True] * 4
    sizes = {0: (252, 140), 12: (126, 70)}
    parts = [
        write_clip(folder / f"{first}.ts", frames=12, size=size, pts=range(first, first + 12), bframes=0)
        for first, size in sizes.items()
    ]
    joined = folder / "joined.ts"
    joined.write_bytes(b"".join(part.read_bytes() for part in parts))
    with open_clip(joined) as clip:
        found = [planes for _, planes in clip.planes([range(clip.info.frames)])]
    assert len(found) > 12
    assert {planes.luma.shape for planes in found} == {(140, 252)}
    assert not any(planes.full_range for planes in found)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("first.mp4", {"faststart": True, "audio_seconds": 4}),
        ("last.mp4", {}),
        ("pieces.mp4", {"movflags": "frag_keyframe+empty_moov"}),
        ("dash.mp4", {"movflags": "frag_keyframe+empty_moov+default_base_moof+dash"}),
        ("whole.mkv", {}),
        ("whole.webm", {"codec": "libvpx"}),
        ("whole.avi", {}),
        ("whole.ts", {}),
    ],
)
def test_every_cut_is_noticed(folder: Path, name: str, how: dict[str, Any]) -> None:
    path = write_clip(folder / name, **how)
    with open_clip(path) as clip:
        whole = clip.ticks.tolist()
    size, chance, refused, warned = path.stat().st_size, random.Random(2), [], 0
    cuts = [size - 1, *range(size - 400, size, 37), *(chance.randrange(8, size) for _ in range(20))]
    for kept in [*cuts, size // 2, size // 2 // 188 * 188]:  # the last is between two packets of a transport stream
        try:
            with open_clip(cut(path, kept)) as clip:
                complete = clip.ticks.tolist() == whole  # of the first only sound is missing
                assert complete or (name != "first.mp4" and "does not say how long" in clip.warnings[0])
                warned += not complete
        except VideoError as error:
            assert "truncated" in str(error)
            refused.append(str(error))
    assert len(refused) > 16
    assert "truncated" in refusal(cut(path, size // 2 // 188 * 188 + 100))
    assert warned or name != "whole.ts"
    assert any("of 48" in line for line in refused) or name != "first.mp4"


def test_flipped_bits_never_crash(folder: Path) -> None:
    kinds = {"mp4": "libx264", "mkv": "libx264", "avi": "mpeg4", "ts": "libx264", "webm": "libvpx"}
    paths = [
        write_clip(folder / f"fuzz.{kind}", size=(64, 48), codec=codec, faststart=kind == "mp4")
        for kind, codec in kinds.items()
    ]
    outcomes = {"fine": 0, "warned": 0, "refused": 0}
    for seed in range(90, 190):  # these find all that many more find
        header = 1500 if seed % 3 == 0 else None  # a third of them in the header only
        broken = flip_bits(paths[seed % len(paths)], flips=1 + seed % 40, seed=seed, last_byte=header)
        try:
            with open_clip(broken) as clip:
                last = clip.info.frames - 1
                shown = clip.frames({0, last // 3, last // 2, last}, size=(32, 24))
                assert all(rgb.shape == (24, 32, 3) for rgb in shown.values())
                outcomes["warned" if clip.warnings else "fine"] += 1
        except VideoError as error:
            assert "\n" not in str(error)
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 3, outcomes


def test_damage_is_counted_then_refused(folder: Path) -> None:
    path = write_clip(folder / "damage.mp4", faststart=True, gop=48)
    at = path.read_bytes().index(b"mdat") + 4  # up to the end
    with open_clip(flip_bits(path, flips=12, seed=3, first_byte=at + 2000)) as clip:
        clip.frames(range(48), size=SMALL)
        assert any("decoded frames are damaged" in line for line in clip.warnings)
    worse = flip_bits(path, flips=3000, seed=3, first_byte=at)
    with pytest.raises(VideoError, match=r"damaged|decod"), open_clip(worse) as clip:
        clip.frames(range(48), size=SMALL)


def test_a_lost_frame_is_replaced_by_its_neighbour(folder: Path) -> None:
    path = write_clip(folder / "lost.avi", codec="mjpeg", pix_fmt="yuvj420p")
    lost = packet_at(path, 20)
    path.write_bytes(path.read_bytes().replace(lost, bytes(len(lost))))
    with open_clip(path) as clip:
        shown = clip.frames([20, 30], size=SMALL)
        assert read_index(shown[20]) in (19, 21) and read_index(shown[30]) == 30
        assert any("frame 20 cannot be decoded; frame " in line for line in clip.warnings)


UNKNOWN = "no video of a known kind"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (random.Random(5).randbytes(9000), UNKNOWN),
        (b"hello " * 500, UNKNOWN),
        (b"ffconcat version 1.0\nfile 'plain.mp4'\n", UNKNOWN),
        (b"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\nplain.mp4\n#EXT-X-ENDLIST\n", UNKNOWN),
        (b'<?xml version="1.0"?><MPD><BaseURL>plain.mp4</BaseURL></MPD>', UNKNOWN),
        (b"v=0\nc=IN IP4 127.0.0.1\nm=video 9 RTP/AVP 96\n", UNKNOWN),
    ],
    ids=["empty", "random", "text", "concat", "hls", "dash", "sdp"],
)
def test_what_is_no_video_or_a_list_of_them_is_refused(plain: Path, tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(data.replace(b"plain.mp4", plain.as_posix().encode()))
    assert said in refusal(path)


def test_addresses_are_never_followed(plain: Path) -> None:
    for address in ("http://localhost/a.mp4", "HTTPS://x/y", "rtmp://x", "file://etc/passwd", "data://x"):
        assert "URL" in refusal(address) and "download it first" in refusal(address)
    for name in (f"concat:{plain}|{plain}", f"subfile,,start,0,end,9,,:{plain}", "pipe:0", "-i"):
        assert "cannot be opened" in refusal(name) or "URL" in refusal(name)


def test_what_is_no_file_or_has_no_moving_picture_is_refused(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path)
    assert "not a possible file name" in refusal(f"{tmp_path}/a\0b.mp4")
    missing = tmp_path / "missing.mp4"
    with pytest.raises(MissingClipError) as caught, open_clip(missing):
        pass
    assert (caught.value.path, caught.value.kind) == (missing, "missing_clip")
    assert refusal(missing) == str(caught.value) == f"{str(missing)!r} {caught.value.reason}"
    assert "cannot be opened: " in caught.value.reason
    assert "holds no video track" in refusal(clips.write_audio_only(tmp_path / "sound.mp4"))
    song: dict[str, Any] = {
        "codec": "mjpeg",
        "pix_fmt": "yuvj420p",
        "frames": 1,
        "audio_seconds": 1,
        "disposition": Disposition.attached_pic,
    }
    assert "holds no video track" in refusal(write_clip(tmp_path / "song.mp4", **song))
    for kind, said in (("png", "is a still picture"), ("gif", "is a still picture"), ("jpeg", UNKNOWN)):
        Image.fromarray(picture(3)).save(tmp_path / "still.mp4", format=kind)
        assert said in refusal(tmp_path / "still.mp4")


@pytest.mark.skipif(sys.platform == "win32", reason="no FIFO")
def test_pipes_and_devices_are_refused_without_opening(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mp4")
    assert "is not a regular file" in refusal(tmp_path / "pipe.mp4")
    assert "is not a regular file" in refusal("/dev/zero")


@pytest.mark.skipif(sys.platform == "win32", reason="names that Windows does not allow")
def test_odd_names_are_names(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["-x.mp4", "pipe:0", "concat:a|b", "http:clip", "%d.mp4", "a\nb\u202e[red].mp4", "é🎬 $(x).mp4"]
    for name in [*names, *([] if sys.platform == "darwin" else ["bad\udcff"])]:  # macOS wants UTF-8
        Path(name).write_bytes(plain.read_bytes())
        assert numbers(name, [7]) == [7]
        with open_clip(name) as clip:
            assert clip.info.path == Path(name)
    Path("a\nb").write_bytes(b"no")
    refusal("a\nb")


JUMPING = {"frames": 5, "fps": 24, "pts": [0, 1, 2, 100, 101]}


@pytest.mark.parametrize(
    ("name", "how", "fps", "variable"),
    [
        ("one.mp4", {"frames": 1}, 16, False),
        ("three.mkv", {"frames": 3}, 16, False),
        ("jumping.mp4", JUMPING, 4 / (101 / 24), True),
        ("jumping.mkv", JUMPING, 4 / (101 / 24), True),
        ("rounded24.mkv", {"fps": 24}, 24, False),
        ("rounded30.mkv", {"fps": 30}, 30, False),
        ("dropped.mkv", {"fps": 30, "pts": [*range(20), *range(24, 52)]}, 47 / (51 / 30), True),
    ],
)
def test_times_are_those_of_the_file(folder: Path, name: str, how: dict[str, Any], fps: float, variable: bool) -> None:
    path = write_clip(folder / name, **how)
    frames, pts = how.get("frames", 48), how.get("pts", range(48))
    with open_clip(path) as clip:
        assert (clip.info.frames, clip.info.variable_rate) == (frames, variable)
        assert clip.info.fps == pytest.approx(fps, rel=0.01 if frames == 3 else 1e-3)
        last = frames - 1
        assert clip.seconds(last) == pytest.approx(pts[last] / how.get("fps", 16), abs=1e-3)
        assert any("under a second" in line for line in clip.warnings) == (frames < 4)
    assert numbers(path) == list(range(frames))


def packet_at(path: Path, index: int) -> bytes:
    with av.open(str(path)) as container:
        return bytes([packet for packet in container.demux(video=0) if packet.size][index])


def test_a_frame_that_vp8_only_decodes_others_by_is_not_shown(folder: Path) -> None:
    path = write_clip(folder / "alt-ref.webm", codec="libvpx")
    packet = packet_at(path, 20)
    hidden = bytes([packet[0] & ~0x10]) + packet[1:]  # the bit that shows it
    path.write_bytes(path.read_bytes().replace(packet, hidden))
    assert numbers(path) == [*range(20), *range(21, 48)]


def test_an_edit_list_hides_frames(folder: Path) -> None:
    path = write_clip(folder / "edit.mp4", pts=range(-5, 43), muxer={"avoid_negative_ts": "disabled"})
    assert numbers(path) == list(range(5, 48))


def test_the_same_picture_in_any_orientation(folder: Path) -> None:
    shown: list[np.ndarray] = []
    for rotation in (0, 90, 180, 270):
        for mirror, flip in ((False, False), (True, False), (False, True), (True, True)):
            path = folder / f"turn{rotation}{mirror}{flip}.mp4"
            write_clip(path, frames=3, rotation=rotation, mirror=mirror, flip=flip, **LOSSLESS)
            with open_clip(path) as clip:
                assert (clip.info.width, clip.info.height) == (252, 140)
                shown.append(clip.frames([2], size=(100, 60))[2])
    assert read_index(shown[0]) == 2
    assert all(np.array_equal(shown[0], other) for other in shown)
    with open_clip(write_clip(folder / "sar.mp4", frames=2, sar=Fraction(1, 2), rotation=90)) as clip:
        # Stored 140 wide and 252 high, pixels half as wide as high: 70x252, turned 252x70.
        assert (clip.info.width, clip.info.height) == (252, 70)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("depth", [8, 10])
@pytest.mark.parametrize(
    ("code", "kr", "kb"), [(5, 0.299, 0.114), (1, 0.2126, 0.0722), (9, 0.2627, 0.0593), (2, 0.299, 0.114)]
)
def test_matrix_range_and_depth(tmp_path: Path, code: int, kr: float, kb: float, depth: int, full: bool) -> None:
    target = np.array([0.8, 0.35, 0.2])
    y = target @ [kr, 1 - kr - kb, kb]
    chroma = np.array([(target[2] - y) / (1 - kb) / 2, (target[0] - y) / (1 - kr) / 2])
    unit, top = 1 << (depth - 8), (1 << depth) - 1
    limited = [(16 + 219 * y) * unit, *((128 + 224 * chroma) * unit)]
    codes = [y * top, *(chroma * top + 128 * unit)] if full else limited
    frame = av.VideoFrame(64, 64, "yuv444p" if depth == 8 else "yuv444p10le")
    for plane, value in zip(frame.planes, codes, strict=True):
        kind = np.dtype("u1" if depth == 8 else "<u2")
        plane.update(np.full(plane.buffer_size // kind.itemsize, round(value), kind).tobytes())
    frame.color_range, frame.colorspace = (2 if full else 1), code
    path = write_clip(
        tmp_path / "colour.mp4", frames=1, size=(64, 64), pix_fmt=frame.format.name, pictures=[frame],
        options={"qp": "0"}, colour={"colorspace": code, "color_range": 2 if full else 1},
    )  # fmt: skip
    with open_clip(path) as clip:
        shown = clip.frames([0], size=(8, 8))[0]
    assert np.abs(shown[4, 4] - target * 255).max() <= 1.5


def test_wide_gamut_sdr_keeps_its_colours() -> None:
    saturated = np.array([[[0.5, 0.2, 0.1]]])
    wide = (saturated**2.4 @ np.linalg.inv(frame_conversion._TO_709).T) ** (1 / 2.4)
    narrow = frame_conversion.to_sdr(wide.astype(np.float32), "sdr")
    assert np.abs(narrow[0, 0] - saturated[0, 0] * 255).max() <= 1


def pq_signal(nits: float) -> float:
    m1, m2, c1, c2, c3 = 0.1593017578125, 78.84375, 0.8359375, 18.8515625, 18.6875
    power = (nits / 10000) ** m1
    return ((c1 + c2 * power) / (1 + c3 * power)) ** m2


def hlg_signal(nits: float) -> float:
    scene = (nits / 1000) ** (1 / 1.2)  # a grey: luminance is the channel
    return (3 * scene) ** 0.5 if scene <= 1 / 12 else 0.17883277 * np.log(12 * scene - 0.28466892) + 0.55991073


def curve(nits: float) -> float:
    """The documented tone curve and display coding, written a second time."""
    light = nits / 203
    if light > 0.6:
        light = 0.6 + 0.4 * (1 - np.exp(-(light - 0.6) / 0.4))
    return 255 * light ** (1 / 2.4)


def write_hdr(path: Path, signals: list[float], transfer: int, primaries: int) -> Path:
    colour = {"color_trc": transfer, "color_primaries": primaries, "colorspace": 9, "color_range": 1}
    size, pictures = (64 * len(signals), 64), grey_frames(signals)
    return write_clip(path, size=size, pix_fmt="yuv420p10le", pictures=pictures, options={"qp": "4"}, colour=colour)


@pytest.mark.parametrize(("name", "code", "signal"), [("pq", 16, pq_signal), ("hlg", 18, hlg_signal)])
def test_hdr_is_tone_mapped(tmp_path: Path, name: str, code: int, signal: Callable[[float], float]) -> None:
    nits = [0, 5, 26, 100, 203, 400, 1000]
    path = write_hdr(tmp_path / "hdr.mp4", [signal(value) if value else 0.0 for value in nits], code, 9)
    with open_clip(path) as clip:
        assert clip.info.dynamic_range == name
        assert any(f"HDR ({name.upper()})" in line for line in clip.warnings)
        shown = clip.frames([1], size=(16 * len(nits), 16))[1]
    greys = shown[8, 8::16].astype(float)
    assert np.abs(greys - greys[:, :1]).max() <= 2  # grey stays grey
    assert np.abs(greys[:, 0] - [curve(value) for value in nits]).max() <= 3
    assert greys[4, 0] == pytest.approx(239, abs=3)  # reference white
    assert greys[4, 0] - 255 * signal(203) > 40  # read as if it were SDR it would be washed out
    assert (np.diff(greys[:, 0]) > 0).all()


def test_what_cannot_be_tone_mapped_is_refused(tmp_path: Path) -> None:
    assert "primaries" in refusal(write_hdr(tmp_path / "p3.mp4", [0.2, 0.5], 16, 12))


def test_too_many_pixels(tmp_path: Path) -> None:
    """The frames alone claim them, and then the container too."""
    path = write_clip(tmp_path / "huge.avi", frames=3, codec="mjpeg", pix_fmt="yuvj420p", size=(1272, 1272))
    frames_claim = path.read_bytes().replace((1272).to_bytes(2, "big") * 2, (8192).to_bytes(2, "big") * 2)
    path.write_bytes(frames_claim)
    message = refusal(path)
    assert "decod" in message or "8192x8192" in message
    path.write_bytes(frames_claim.replace((1272).to_bytes(4, "little"), (8192).to_bytes(4, "little")))
    message = refusal(path)
    assert "8192x8192" in message and "33177600" in message and "ffmpeg" in message


def test_too_many_frames(plain: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(reader, "MAX_FRAMES", 47)
    with monkeypatch.context() as patch:
        patch.setattr(reader.Reader, "_packets", None)  # its index is enough: nothing is read
        assert "holds more than" in refusal(plain)
    assert "holds more than" in refusal(write_clip(folder / "long.mkv"))  # known only while reading
    monkeypatch.setattr(reader, "MAX_FRAMES", 49)
    assert numbers(plain, [1]) == [1]


def test_nothing_is_printed(plain: Path) -> None:
    broken = flip_bits(plain, flips=300, seed=9, first_byte=9000)
    code = (
        "import sys; from vrt_lite.video import open_clip; from vrt_lite.errors import VideoError\n"
        "for path in sys.argv[1:]:\n"
        "    try: clip = open_clip(path); clip.frames(range(clip.info.frames), size=(64, 48)); clip.close()\n"
        "    except VideoError: pass\n"
    )
    command = [sys.executable, "-c", code, str(broken), str(plain), str(cut(plain, 9000))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
