"""Every kind of bad input of a video file, and that what is shown is exactly what was asked for."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from vrt_lite.errors import MissingClipError, VideoError
from vrt_lite.video import EXACT, open_clip, reader, tonemap

SMALL = (126, 70)
X265 = {"x265-params": "log-level=none"}
OPEN_GOP = {"x264-params": "open-gop=1:keyint=8:bframes=3:b-adapt=0"}
LOSSLESS: Any = {"codec": "libx264rgb", "pix_fmt": "rgb24", "options": {"qp": "0"}}
REFRESH = {"x264-params": "intra-refresh=1:keyint=8:bframes=0"}


def numbers(path: Path, indices: range | list[int] | None = None) -> list[int]:
    with open_clip(path) as clip:
        asked = range(clip.info.frames) if indices is None else indices
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


# --- what is right ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("x264.mp4", {}),
        ("x264.mkv", {}),
        ("x264.avi", {}),
        ("x264.ts", {}),
        ("x264.mov", {"pix_fmt": "yuv444p"}),
        ("x264-10.mp4", {"pix_fmt": "yuv420p10le"}),
        ("open-gop.mp4", {"options": OPEN_GOP}),
        ("open-gop.ts", {"options": OPEN_GOP}),
        ("x265.mp4", {"codec": "libx265", "options": X265}),
        ("mpeg4.avi", {"codec": "mpeg4"}),
        ("mpeg4.mp4", {"codec": "mpeg4"}),
        ("mpeg2.ts", {"codec": "mpeg2video", "fps": 25}),
        ("mjpeg.avi", {"codec": "mjpeg", "pix_fmt": "yuvj420p"}),
        ("ffv1.mkv", {"codec": "ffv1"}),
        ("vp8.webm", {"codec": "libvpx"}),
        ("alt-ref.webm", {"codec": "libvpx", "options": {"auto-alt-ref": "1", "lag-in-frames": "16"}}),
        ("vp9.webm", {"codec": "libvpx-vp9", "options": {"deadline": "realtime", "cpu-used": "8"}}),
        ("fragments.mp4", {"movflags": "frag_keyframe+empty_moov"}),
        ("late.mp4", {"pts": range(30, 78)}),
        ("negative.mkv", {"pts": range(-9, 39), "bframes": 0, "muxer": {"avoid_negative_ts": "disabled"}}),
    ],
)
def test_any_frame_is_the_one_a_full_decode_shows(folder: Path, name: str, settings: dict[str, object]) -> None:
    path = write_clip(folder / name, **settings)  # pyright: ignore[reportArgumentType]
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        converter = VideoReformatter()
        truth = [
            converter.reformat(frame, format="rgb24", interpolation=EXACT).to_ndarray()
            for frame in container.decode(stream)
        ]
    assert [read_index(rgb) for rgb in truth] == list(range(48))
    chance = random.Random(name)
    for count in (1, 1, 2, 5):
        asked = chance.sample(range(48), count)
        with open_clip(path) as clip:
            assert clip.info.frames == 48
            shown = clip.frames(asked, size=(252, 140))
        for index in asked:
            assert np.array_equal(shown[index], truth[index]), index
    assert numbers(path) == list(range(48))


@pytest.mark.parametrize("suffix", ["mp4", "ts"])
def test_gradual_refresh_without_keyframes(folder: Path, suffix: str) -> None:
    path = write_clip(folder / f"refresh.{suffix}", options=REFRESH)
    for index in range(48):
        assert numbers(path, [index]) == [index]


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(st.lists(st.integers(0, 47), max_size=8), min_size=1, max_size=4))
def test_any_calls_in_any_order(plain: Path, asked: list[list[int]]) -> None:
    with open_clip(plain) as clip:
        for indices in asked:
            shown = clip.frames(indices, size=SMALL)
            assert {index: read_index(rgb) for index, rgb in shown.items()} == {index: index for index in indices}
        with pytest.raises(ValueError, match=r"0\.\.47"):
            clip.frames([0, 48], size=SMALL)
        with pytest.raises(ValueError, match=r"0\.\.47"):
            clip.frames([-1], size=SMALL)


def test_what_is_known_and_what_it_costs(plain: Path) -> None:
    with open_clip(plain) as clip:
        info = clip.info
        assert (info.width, info.height, info.frames, info.fps, info.duration_seconds) == (252, 140, 48, 16, 3)
        assert (info.variable_rate, info.dynamic_range, info.warnings, info.path) == (False, "sdr", (), plain)
        assert info.size_bytes == plain.stat().st_size and len(info.sha256) == 64
        assert len(clip.ticks) == 48 and clip.seconds(24) == 1.5
        shown = clip.frames([40], size=SMALL)[40]
        assert shown.shape == (70, 126, 3) and shown.dtype == np.uint8 and not shown.flags.writeable
        assert clip._reader._decoded <= 8  # one for the opening; not the 40 before, nor the 7 after
        decoded = clip._reader._decoded
        assert clip.frames([40], size=SMALL)[40] is shown and clip._reader._decoded == decoded
        assert clip.decode_seconds > 0 and clip.resize_seconds > 0


def test_resize_is_one_bicubic_of_the_stored_pixels(folder: Path) -> None:
    path = write_clip(folder / "lossless.mp4", frames=3, sar=Fraction(4, 3), **LOSSLESS)
    with open_clip(path) as clip:
        assert (clip.info.width, clip.info.height) == (336, 140)
        shown = clip.frames([2], size=(100, 60))[2]
    expected = Image.fromarray(picture(2)).resize((100, 60), Image.Resampling.BICUBIC)
    assert np.array_equal(shown, np.asarray(expected))


def test_two_clips_in_two_threads(plain: Path, folder: Path) -> None:
    paths = [plain, write_clip(folder / "other.mkv", codec="mpeg4")]
    found: dict[int, list[int]] = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: numbers(paths[n % 2])}), args=()) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: list(range(48)) for n in range(4)}


# --- row 1: cut short ------------------------------------------------------------------------------


def test_every_cut_of_an_index_first_mp4_is_noticed(plain: Path) -> None:
    size, chance = plain.stat().st_size, random.Random(1)
    with open_clip(plain) as clip:
        whole = clip.ticks.tolist()
    kinds: set[str] = set()
    for kept in [size - 1, size - 2, size - 9, *(chance.randrange(1, size) for _ in range(60))]:
        path = cut(plain, kept)
        try:
            with open_clip(path) as clip:
                assert clip.ticks.tolist() == whole  # only sound is missing
                kinds.add("whole")
        except VideoError as error:
            assert "truncated" in str(error) or kept < 8
            kinds.add("of 48" if "of 48" in str(error) else "other")
    assert kinds == {"whole", "of 48", "other"}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("last.mp4", {}),
        ("pieces.mp4", {"movflags": "frag_keyframe+empty_moov"}),
        ("dash.mp4", {"movflags": "frag_keyframe+empty_moov+default_base_moof+dash"}),
        ("cut.mkv", {}),
        ("cut.webm", {"codec": "libvpx"}),
        ("cut.avi", {}),
    ],
)
def test_other_containers_cut(folder: Path, name: str, settings: dict[str, object]) -> None:
    path = write_clip(folder / name, **settings)  # pyright: ignore[reportArgumentType]
    size, chance = path.stat().st_size, random.Random(2)
    refused = 0
    for kept in [*range(size - 400, size, 11), *(chance.randrange(1, size) for _ in range(30))]:
        try:
            with open_clip(cut(path, kept)) as clip:
                assert clip.info.frames == 48 or "does not say how long" in clip.info.warnings[0]
        except VideoError:
            refused += 1
    assert refused >= 25
    assert "truncated" in refusal(cut(path, size // 2))


def test_a_transport_stream_cut_inside_a_packet(folder: Path) -> None:
    path = write_clip(folder / "cut.ts")
    assert "truncated" in refusal(cut(path, path.stat().st_size // 2 // 188 * 188 + 100))
    with open_clip(cut(path, path.stat().st_size // 2 // 188 * 188)) as clip:
        assert "does not say how long" in clip.info.warnings[0]


def test_longer_sound_is_not_a_cut(folder: Path) -> None:
    with open_clip(write_clip(folder / "sound.mp4", audio_seconds=9, faststart=True)) as clip:
        assert clip.info.warnings == () and clip.info.duration_seconds == 3


# --- row 2: bit rot --------------------------------------------------------------------------------


def test_flipped_bits_never_crash(folder: Path) -> None:
    paths = [
        write_clip(folder / "fuzz.mp4", size=(64, 48), faststart=True),
        write_clip(folder / "fuzz.mkv", size=(64, 48)),
        write_clip(folder / "fuzz.avi", size=(64, 48), codec="mpeg4"),
        write_clip(folder / "fuzz.ts", size=(64, 48)),
        write_clip(folder / "fuzz.webm", size=(64, 48), codec="libvpx"),
    ]
    outcomes = {"fine": 0, "warned": 0, "refused": 0}
    for seed in range(300):
        path = paths[seed % len(paths)]
        header = 1500 if seed % 3 == 0 else None  # a third of them in the header only
        broken = flip_bits(path, flips=1 + seed % 40, seed=seed, last_byte=header)
        try:
            with open_clip(broken) as clip:
                last = clip.info.frames - 1
                shown = clip.frames({0, last // 3, last // 2, last}, size=(32, 24))
                assert all(rgb.shape == (24, 32, 3) for rgb in shown.values())
                outcomes["warned" if clip.warnings else "fine"] += 1
        except VideoError as error:
            assert "\n" not in str(error)
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 10, outcomes


def test_damage_is_counted_then_refused(folder: Path) -> None:
    path = write_clip(folder / "damage.mp4", faststart=True, gop=48)
    at, size = clips.top_level_boxes(path)["mdat"]
    with open_clip(flip_bits(path, flips=12, seed=3, first_byte=at + 2000, last_byte=at + size)) as clip:
        clip.frames(range(48), size=SMALL)
        assert any("decoded frames are damaged" in line for line in clip.warnings)
    worse = flip_bits(path, flips=3000, seed=3, first_byte=at + 8, last_byte=at + size)
    with pytest.raises(VideoError, match=r"damaged|decod"), open_clip(worse) as clip:
        clip.frames(range(48), size=SMALL)


def test_a_lost_frame_is_replaced_by_its_neighbour(folder: Path) -> None:
    path = write_clip(folder / "lost.avi", codec="mjpeg", pix_fmt="yuvj420p")
    with av.open(str(path)) as container:
        lost = [packet for packet in container.demux(video=0) if packet.size][20]
        start, size = lost.pos or 0, lost.size
    data = bytearray(path.read_bytes())
    data[start : start + size] = bytes(size)
    path.write_bytes(data)
    with open_clip(path) as clip:
        shown = clip.frames([20, 30], size=SMALL)
        assert read_index(shown[20]) in (19, 21) and read_index(shown[30]) == 30
        assert any("frame 20 cannot be decoded; frame " in line for line in clip.warnings)


# --- rows 3, 9, 15: what is no clip, and names -----------------------------------------------------


def test_what_is_no_video(folder: Path, tmp_path: Path) -> None:
    def saved(name: str, data: bytes) -> Path:
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    assert "is empty" in refusal(saved("empty.mp4", b""))
    assert "no video of a known kind" in refusal(saved("random.mp4", random.Random(5).randbytes(9000)))
    assert "no video of a known kind" in refusal(saved("text.mp4", b"hello " * 500))
    assert "is a folder" in refusal(tmp_path)
    assert "cannot be opened: " in refusal(tmp_path / "missing.mp4")
    with pytest.raises(MissingClipError) as missing, open_clip(tmp_path / "missing.mp4"):
        pass
    assert (missing.value.path, missing.value.kind) == (tmp_path / "missing.mp4", "missing_clip")
    assert str(missing.value) == f"{str(tmp_path / 'missing.mp4')!r} {missing.value.reason}"
    assert "not a possible file name" in refusal(str(tmp_path) + "/a\0b.mp4")
    assert "holds no video track" in refusal(clips.write_audio_only(tmp_path / "sound.mp4"))
    for kind in ("png", "gif", "jpeg"):
        Image.fromarray(picture(3)).save(tmp_path / f"still.{kind}")
        expected = "no video of a known kind" if kind == "jpeg" else "is a still picture, no video"
        assert expected in refusal((tmp_path / f"still.{kind}").rename(tmp_path / "still.mp4"))


@pytest.mark.skipif(sys.platform == "win32", reason="no FIFO")
def test_pipes_and_devices_are_refused_without_opening(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mp4")
    assert "is not a regular file" in refusal(tmp_path / "pipe.mp4")
    assert "is not a regular file" in refusal("/dev/zero")


def test_cover_art_is_no_video(tmp_path: Path) -> None:
    art = write_clip(tmp_path / "art.mp4", codec="mjpeg", pix_fmt="yuvj420p", frames=1)
    song = tmp_path / "song.mp4"
    with av.open(str(art)) as source, av.open(str(song), "w") as out:
        cover = out.add_stream_from_template(source.streams.video[0])
        cover.disposition = Disposition.attached_pic
        sound = out.add_stream("aac", rate=8000, layout="mono")
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = cover
                out.mux(packet)
        clips._mux_silence(out, sound, 1)
    assert "holds no video track" in refusal(song)


def test_lists_and_addresses_are_never_followed(plain: Path, tmp_path: Path) -> None:
    lists = {
        "concat.mp4": f"ffconcat version 1.0\nfile '{plain.as_posix()}'\n",
        "hls.mp4": f"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n{plain.as_posix()}\n#EXT-X-ENDLIST\n",
        "dash.mp4": f'<?xml version="1.0"?><MPD><BaseURL>{plain.as_posix()}</BaseURL></MPD>',
        "sdp.mp4": "v=0\nc=IN IP4 127.0.0.1\nm=video 9 RTP/AVP 96\n",
    }
    for name, text in lists.items():
        (tmp_path / name).write_text(text)
        assert "no video of a known kind" in refusal(tmp_path / name)
    for address in ("http://localhost/a.mp4", "HTTPS://x/y", "rtmp://x", "file:///etc/passwd", "data://x"):
        assert "URL" in refusal(address) and "download it first" in refusal(address)
    for path in (f"concat:{plain}|{plain}", f"subfile,,start,0,end,9,,:{plain}", "pipe:0", "-i"):
        assert "cannot be opened" in refusal(path) or "URL" in refusal(path)


@pytest.mark.skipif(sys.platform == "win32", reason="names that Windows does not allow")
def test_odd_names_are_names(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [
        "-x.mp4",
        "pipe:0",
        "concat:a|b",
        "http:clip",
        "%d.mp4",
        "a\nb\u202e[red].mp4",
        "é🎬 $(x).mp4",
        *([] if sys.platform == "darwin" else ["bad\udcff"]),  # macOS wants UTF-8
    ]
    for name in names:
        Path(name).write_bytes(plain.read_bytes())
        assert numbers(Path(name), [7]) == [7]
        with open_clip(name) as clip:
            assert clip.info.path == Path(name)
    Path("a\nb").write_bytes(b"no")
    refusal("a\nb")


# --- rows 4, 5: few frames, odd clocks -------------------------------------------------------------


def test_few_frames(folder: Path) -> None:
    with open_clip(write_clip(folder / "one.mp4", frames=1)) as clip:
        assert (clip.info.frames, clip.info.fps, clip.info.variable_rate) == (1, 16, False)
        assert "under a second" in clip.info.warnings[0]
        assert read_index(clip.frames([0], size=SMALL)[0]) == 0
    with open_clip(write_clip(folder / "three.mkv", frames=3)) as clip:
        assert clip.info.frames == 3 and "under a second" in clip.info.warnings[0]


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_timestamps_not_the_declared_rate(folder: Path, suffix: str) -> None:
    path = write_clip(folder / f"vfr.{suffix}", frames=5, fps=24, pts=[0, 1, 2, 100, 101])
    with open_clip(path) as clip:
        assert clip.info.variable_rate
        assert clip.info.fps == pytest.approx(4 / (101 / 24), rel=1e-3)
        assert clip.seconds(3) == pytest.approx(100 / 24, abs=1e-3)
    assert numbers(path) == [0, 1, 2, 3, 4]


def test_rounded_timestamps_are_a_constant_rate(folder: Path) -> None:
    for fps in (24, 30):
        with open_clip(write_clip(folder / f"cfr{fps}.mkv", fps=fps)) as clip:
            assert not clip.info.variable_rate and clip.info.fps == pytest.approx(fps, rel=1e-3)
    with open_clip(write_clip(folder / "dropped.mkv", fps=30, pts=[*range(20), *range(24, 52)])) as clip:
        assert clip.info.variable_rate


def test_an_edit_list_hides_frames(folder: Path) -> None:
    path = write_clip(folder / "edit.mp4", pts=range(-5, 43), muxer={"avoid_negative_ts": "disabled"})
    assert numbers(path) == list(range(5, 48))


def test_repeated_timestamps(folder: Path) -> None:
    path = write_clip(folder / "twice.mkv", codec="ffv1", pts=[number // 2 for number in range(48)])
    assert numbers(path) == list(range(48))


# --- row 6: orientation and pixel shape ------------------------------------------------------------


def test_the_same_picture_in_any_orientation(folder: Path) -> None:
    shown: list[np.ndarray] = []
    for rotation in (0, 90, 180, 270):
        for mirror, flip in ((False, False), (True, False), (False, True), (True, True)):
            path = folder / f"turn{rotation}{mirror}{flip}.mp4"
            write_clip(path, frames=6, rotation=rotation, mirror=mirror, flip=flip, **LOSSLESS)
            with open_clip(path) as clip:
                assert (clip.info.width, clip.info.height) == (252, 140)
                shown.append(clip.frames([5], size=(100, 60))[5])
    assert read_index(shown[0]) == 5
    for other in shown[1:]:
        assert np.array_equal(shown[0], other)


def test_turned_pixel_shape(folder: Path) -> None:
    with open_clip(write_clip(folder / "sar.mp4", sar=Fraction(1, 2), rotation=90)) as clip:
        # Stored 140 wide and 252 high, pixels half as wide as high: 70x252, turned 252x70.
        assert (clip.info.width, clip.info.height) == (252, 70)


# --- row 7: colour ---------------------------------------------------------------------------------

MATRICES = {
    "601": (5, 0.299, 0.114),
    "709": (1, 0.2126, 0.0722),
    "2020": (9, 0.2627, 0.0593),
    "none": (2, 0.299, 0.114),
}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("depth", [8, 10])
@pytest.mark.parametrize("matrix", list(MATRICES))
def test_matrix_range_and_depth(tmp_path: Path, matrix: str, depth: int, full: bool) -> None:
    code, kr, kb = MATRICES[matrix]
    target = np.array([0.8, 0.35, 0.2])
    y = target @ [kr, 1 - kr - kb, kb]
    chroma = np.array([(target[2] - y) / (1 - kb) / 2, (target[0] - y) / (1 - kr) / 2])
    unit = 1 << (depth - 8)
    top = (1 << depth) - 1
    limited = [(16 + 219 * y) * unit, *((128 + 224 * chroma) * unit)]
    codes = [y * top, *(chroma * top + 128 * unit)] if full else limited
    frame = av.VideoFrame(64, 64, "yuv444p" if depth == 8 else "yuv444p10le")
    for plane, value in zip(frame.planes, codes, strict=True):
        words = np.full(plane.buffer_size * 8 // (8 if depth == 8 else 16), round(value), "u1" if depth == 8 else "<u2")
        plane.update(words.tobytes())
    frame.color_range, frame.colorspace = (2 if full else 1), code
    path = write_clip(
        tmp_path / "colour.mp4", frames=1, size=(64, 64), pix_fmt=frame.format.name, pictures=[frame],
        options={"qp": "0"}, colour={"colorspace": code, "color_range": 2 if full else 1},
    )  # fmt: skip
    with open_clip(path) as clip:
        shown = clip.frames([0], size=(8, 8))[0]
    assert np.abs(shown[4, 4] - target * 255).max() <= 1.5


def test_wide_gamut_sdr_keeps_its_colours(tmp_path: Path) -> None:
    saturated = np.array([[[0.5, 0.2, 0.1]]])
    wide = (saturated**2.4 @ np.linalg.inv(tonemap._TO_709).T) ** (1 / 2.4)
    narrow = tonemap.to_sdr(wide.astype(np.float32), "sdr")
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


@pytest.mark.parametrize(("name", "code", "signal"), [("pq", 16, pq_signal), ("hlg", 18, hlg_signal)])
def test_hdr_is_tone_mapped(tmp_path: Path, name: str, code: int, signal: Callable[[float], float]) -> None:
    nits = [0, 5, 26, 100, 203, 400, 1000]
    path = write_clip(
        tmp_path / f"{name}.mp4", size=(64 * len(nits), 64), pix_fmt="yuv420p10le",
        pictures=grey_frames([signal(value) if value else 0.0 for value in nits]), options={"qp": "4"},
        colour={"color_trc": code, "color_primaries": 9, "colorspace": 9, "color_range": 1},
    )  # fmt: skip
    with open_clip(path) as clip:
        assert clip.info.dynamic_range == name
        assert any(f"HDR ({name.upper()})" in line for line in clip.info.warnings)
        shown = clip.frames([1], size=(16 * len(nits), 16))[1]
    greys = shown[8, 8::16].astype(float)
    assert np.abs(greys - greys[:, :1]).max() <= 2  # grey stays grey
    assert np.abs(greys[:, 0] - [curve(value) for value in nits]).max() <= 3
    assert greys[4, 0] == pytest.approx(239, abs=3)  # reference white
    assert greys[4, 0] - 255 * signal(203) > 40  # read as if it were SDR it would be washed out
    assert (np.diff(greys[:, 0]) > 0).all()


def test_what_cannot_be_tone_mapped_is_refused(tmp_path: Path) -> None:
    path = write_clip(
        tmp_path / "p3.mp4", size=(128, 64), pix_fmt="yuv420p10le", pictures=grey_frames([0.2, 0.5]),
        colour={"color_trc": 16, "color_primaries": 12, "colorspace": 9, "color_range": 1},
    )  # fmt: skip
    assert "primaries" in refusal(path)


# --- row 8: size -----------------------------------------------------------------------------------


def test_too_many_pixels(tmp_path: Path) -> None:
    path = tmp_path / "huge.avi"
    code = (  # in a process of its own: in this one FFmpeg may not allocate so much
        "import sys, av, clips; from pathlib import Path\n"
        "huge = [av.VideoFrame(8192, 8192, 'yuvj420p')]\n"
        "clips.write_clip(Path(sys.argv[1]), codec='mjpeg', pix_fmt='yuvj420p', size=(8192, 8192), pictures=huge)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], cwd=Path(clips.__file__).parent, check=True, timeout=120)
    message = refusal(path)
    assert "8192x8192" in message and "33177600" in message and "ffmpeg" in message
    lying = path.read_bytes().replace((8192).to_bytes(4, "little"), (64).to_bytes(4, "little"))
    path.write_bytes(lying)
    assert "decod" in refusal(path) or "8192x8192" in refusal(path)


def test_too_many_frames(plain: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(reader, "MAX_FRAMES", 47)
    assert "holds more than" in refusal(plain)
    assert "holds more than" in refusal(write_clip(folder / "long.mkv"))  # known only while reading
    monkeypatch.setattr(reader, "MAX_FRAMES", 49)
    assert numbers(plain, [1]) == [1]


def test_a_long_clip_costs_what_is_shown(folder: Path) -> None:
    path = write_clip(folder / "long.mp4", frames=4000, size=(64, 48), gop=32, options={"preset": "ultrafast"})
    with open_clip(path) as clip:
        shown = clip.frames([0, 1333, 2666, 3999], size=(64, 48))
        assert [read_index(rgb) for rgb in shown.values()] == [0, 1333, 2666, 3999]
        assert clip._reader._decoded < 4 * 32


# --- and quiet -------------------------------------------------------------------------------------


def test_nothing_is_printed(plain: Path) -> None:
    broken = flip_bits(plain, flips=300, seed=9, first_byte=9000)
    code = (
        "import sys; from vrt_lite.video import open_clip; from vrt_lite.errors import MissingClipError, VideoError\n"
        "for path in sys.argv[1:]:\n"
        "    try: clip = open_clip(path); clip.frames(range(clip.info.frames), size=(64, 48)); clip.close()\n"
        "    except VideoError: pass\n"
    )
    command = [sys.executable, "-c", code, str(broken), str(plain), str(cut(plain, 9000))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_frames_kept_in_passing_are_those_that_frames_gives(tmp_path: Path) -> None:
    path = clips.write_clip(tmp_path / "a.mp4", frames=24)
    with open_clip(path) as one, open_clip(path) as other:
        one.keep_in_passing((0, 7, 23), size=(56, 56))
        assert [index for index, _ in one.planes([range(24)])] == list(range(24))
        assert {index for index, _ in one._shown} == {0, 7, 23}, "nothing is decoded twice"
        kept, decoded = (clip.frames((0, 7, 23), size=(56, 56)) for clip in (one, other))
        assert kept.keys() == decoded.keys()
        assert all((kept[index] == decoded[index]).all() for index in kept)
