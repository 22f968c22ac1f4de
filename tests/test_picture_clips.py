"""Animated GIF and WebP, and numbered pictures, are clips like any other: exact frames, times, and one line if hostile.

GIF is compared with FFmpeg's decoder, which vrt-lite does not use for it, and WebP and GIF with Pillow's own pass
through the whole file.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import struct
import sys
import time
import tracemalloc
import warnings
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from clips import cut, flip_bits, picture, read_index
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageSequence

from vrt_lite.cli import run
from vrt_lite.clip_files import MOST_PICTURES, add_rate, find_files
from vrt_lite.errors import UsageError, VideoError
from vrt_lite.protocol.messages import Odds
from vrt_lite.records.judgement import Judgement
from vrt_lite.runs.store import Store
from vrt_lite.video import open_clip

SIZE = (96, 64)


def sprites(mode: str = "RGBA") -> list[Image.Image]:
    """Twelve pictures with a moving disc; on nothing, so that disposal shows, or on black."""
    made = [Image.new(mode, SIZE) for _ in range(12)]
    for number, image in enumerate(made):
        ImageDraw.Draw(image).ellipse((4 + 5 * number, 12, 34 + 5 * number, 50), fill=(200, 20 * number, 40))
    return made


def save(path: Path, images: Sequence[Image.Image], **options: Any) -> Path:
    images[0].save(path, save_all=True, append_images=images[1:], **options)
    return path


def numbered(folder: Path, count: int = 12, *, first: int = 1, name: str = "%04d.png") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        Image.fromarray(picture(number)).save(folder / (name % (first + number)))
    return folder / name


def read_numbers(path: Path, indices: Sequence[int]) -> list[int]:
    with open_clip(path) as clip:
        shown = clip.frames(indices, size=(126, 70))
    return [read_index(shown[index]) for index in indices]


def rendered(path: Path) -> list[NDArray[np.uint8]]:
    """Pillow's own rendering of every frame, in order, on white."""
    frames: list[NDArray[np.uint8]] = []
    with Image.open(path) as image:
        for frame in ImageSequence.Iterator(image):
            white = Image.new("RGBA", image.size, "white")
            white.alpha_composite(frame.convert("RGBA"))
            frames.append(np.asarray(white.convert("RGB")))
    return frames


def decoded_by_ffmpeg(path: Path) -> list[NDArray[np.uint8]]:
    with av.open(str(path)) as opened:
        frames = [frame.to_ndarray(format="rgba").astype(np.int64) for frame in opened.decode(video=0)]
    return [(f[..., :3] * f[..., 3:] // 255 + 255 - f[..., 3:]).astype(np.uint8) for f in frames]


def refusal(path: Path) -> str:
    with pytest.raises(VideoError) as raised, open_clip(path):
        pass
    line = str(raised.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize("disposal", [0, 1, 2, 3])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_every_frame_of_a_gif_is_that_of_pillow_and_of_ffmpeg(tmp_path: Path, disposal: int, mode: str) -> None:
    path = save(tmp_path / "a.gif", sprites(mode), duration=50, disposal=disposal, loop=0)
    expected, of_ffmpeg = rendered(path), decoded_by_ffmpeg(path)
    assert len(expected) == len(of_ffmpeg) > 5
    assert_shown(path, expected)
    if disposal < 3 or mode == "RGBA":  # what was there before the first, opaque frame: each restores something else
        assert all(map(np.array_equal, expected, of_ffmpeg))


@pytest.mark.parametrize(
    "options", [{"lossless": True}, {"quality": 60, "kmin": 1, "kmax": 5}, {"minimize_size": True}]
)
def test_every_frame_of_a_webp_is_that_of_pillow(tmp_path: Path, options: dict[str, Any]) -> None:
    path = save(tmp_path / "a.webp", sprites(), duration=40, background=(9, 99, 9, 255), **options)
    expected = rendered(path)
    assert len(expected) > 5 and expected[0][0, 0].tolist() == [255, 255, 255]
    assert_shown(path, expected)


def assert_shown(path: Path, expected: Sequence[NDArray[np.uint8]]) -> None:
    """Check that each frame, asked for out of order, is the one expected."""
    with open_clip(path) as clip:
        assert clip.info.frames == len(expected)
        for index in random.Random(path.suffix).sample(range(len(expected)), len(expected)):
            assert np.array_equal(clip.frames([index], size=SIZE)[index], expected[index]), index


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_frame_times_are_those_of_the_file_and_of_browsers(tmp_path: Path, suffix: str) -> None:
    written = [40, 0, 10, 20, 250, 30]
    path = save(tmp_path / f"a.{suffix}", sprites()[:6], duration=written, loop=3)
    with open_clip(path) as clip:
        assert [round(clip.seconds(i), 6) for i in range(6)] == [0, 0.04, 0.14, 0.24, 0.26, 0.51]
        assert clip.ticks.tolist() == [0, 40, 140, 240, 260, 510]
        assert clip.info.variable_rate


def test_numbered_pictures_are_read_in_order_by_pattern_and_by_folder(tmp_path: Path) -> None:
    pattern = numbered(tmp_path / "shot", first=7)
    (tmp_path / "shot" / "notes.txt").write_text("made by hand")
    for path in (pattern, tmp_path / "shot"):
        with open_clip(path) as clip:
            assert (clip.info.frames, clip.info.fps, clip.info.path) == (12, 24, pattern)
            assert "24 a second are assumed" in clip.warnings[0]
            assert "under a second" in clip.warnings[1]
        assert read_numbers(path, [11, 3, 0]) == [11, 3, 0]
    assert read_numbers(numbered(tmp_path / "other", name="fox_%d_.jpg").parent, range(12)) == list(range(12))
    with open_clip(Path(f"{tmp_path / 'shot'}@8")) as clip:
        assert (clip.info.fps, clip.info.duration_seconds, clip.warnings) == (8, 1.5, ())
        assert clip.info.path == Path(f"{pattern}@8")


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    for number in (1, 2):
        Image.new("RGBA", SIZE, (255, 0, 0, 128)).save(tmp_path / f"{number}.png")
        Image.new("P", SIZE).save(tmp_path / f"key{number}.png", transparency=0)
    for name, colour in (("%d.png", [255, 127, 127]), ("key%d.png", [255, 255, 255])):
        with open_clip(tmp_path / name) as clip:
            assert clip.frames([1], size=SIZE)[1][0, 0].tolist() == colour
            assert "what is transparent in the clip is shown on white" in clip.warnings


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_what_the_measures_decode_of_a_transparent_animation_is_kept(tmp_path: Path, suffix: str) -> None:
    path = save(tmp_path / f"a.{suffix}", sprites(), duration=50)
    with open_clip(path) as clip, open_clip(path) as other:
        assert any("transparent" in line for line in clip.warnings)
        clip.keep_in_passing((0, 5), size=SIZE)
        assert len(list(clip.planes([range(12)]))) == 12
        assert {index for index, _ in clip._shown} == {0, 5}, "nothing is decoded once more"
        assert np.array_equal(clip.frames([5], size=SIZE)[5], other.frames([5], size=SIZE)[5])


def test_threads_that_read_pictures_leave_the_warnings_of_the_process_as_they_were(
    tmp_path: Path,
) -> None:
    """Two clips are opened at once; afterwards the caller's program ignored all warnings."""
    path, before, interval = numbered(tmp_path), list(warnings.filters), sys.getswitchinterval()

    def read() -> int:
        with open_clip(path) as clip:
            return len(clip.frames(range(12), size=SIZE))

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert [each.result() for each in [pool.submit(read) for _ in range(20)]] == [12] * 20
    finally:
        sys.setswitchinterval(interval)
    assert warnings.filters == before


def test_what_is_transparent_is_told_when_it_is_shown(tmp_path: Path) -> None:
    images = [Image.new("RGBA", SIZE, (9, 9, 200 + number, 255)) for number in range(3)]
    images.append(Image.new("RGBA", SIZE))
    path = save(tmp_path / "a.webp", images, duration=500, lossless=True)
    with open_clip(path) as clip:
        clip.frames([0, 1], size=SIZE)
        assert clip.warnings == ()
        assert clip.frames([3], size=SIZE)[3][0, 0].tolist() == [255, 255, 255]
        assert clip.warnings == ("what is transparent in the clip is shown on white",)


def test_the_key_is_of_all_bytes_and_the_frame_rate(tmp_path: Path) -> None:
    pattern = numbered(tmp_path / "a")
    copy = numbered(tmp_path / "b", first=101)
    with Store(tmp_path / "runs.sqlite") as store:
        key = store.digest(pattern)
        with open_clip(pattern) as clip:
            assert (
                clip.info.sha256
                == key
                == find_files(pattern).digest()
                == store.digest(tmp_path / "a")
                == store.digest(copy)
            )
        assert store.digest(Path(f"{pattern}@24")) == key != store.digest(Path(f"{pattern}@8"))
        third, fourth = (pattern.with_name(f"000{number}.png") for number in (3, 4))
        third.rename(tmp_path / "third.png")
        fourth.rename(third)
        (tmp_path / "third.png").rename(fourth)
        assert store.digest(pattern) != key, "two pictures were exchanged"


def test_a_frame_that_is_not_shown_is_not_decoded(tmp_path: Path) -> None:
    pattern = numbered(tmp_path)
    second = tmp_path / "0002.png"
    before, mark, after = second.read_bytes().partition(b"IDAT")
    second.write_bytes(before + mark + after[:4] + bytes(20) + after[24:])  # only decoding finds this
    assert read_numbers(pattern, [0, 5, 10]) == [0, 5, 10]
    with pytest.raises(VideoError, match=r"cannot be decoded at '0002\.png'"):
        read_numbers(pattern, [1])


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_memory_is_that_of_the_frames_shown(tmp_path: Path, suffix: str) -> None:
    images = [Image.fromarray(picture(number, (640, 360))) for number in range(20)]
    path = save(tmp_path / f"a.{suffix}", images, duration=50)
    tracemalloc.start()
    with open_clip(path) as clip:
        clip.frames([18], size=(64, 36))
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 640 * 360 * 4 + path.stat().st_size * 3


def make_gif(width: int, height: int, frames: int, *, left: int = 0, end: bytes = b";") -> bytes:
    """A GIF by its bytes: a screen of one size, and frames of one pixel."""
    one = b"!\xf9\x04\0\x05\0\0\0," + left.to_bytes(2, "little") + b"\0\0\x01\0\x01\0\0\x02\x02L\x01\0"
    screen = width.to_bytes(2, "little") + height.to_bytes(2, "little") + b"\x80\0\0" + bytes(6)
    return b"GIF89a" + screen + one * frames + end


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (make_gif(8, 8, 1), "is a still picture, no video"),
        (make_gif(8, 8, 5, end=b""), "is truncated"),
        (make_gif(8, 8, 5, end=b"\x07\x07"), "is truncated"),
        (make_gif(8, 8, 1, end=make_gif(8, 8, 1, left=8)[19:]), "its size is (9, 8), that of the first (8, 8)"),
        (make_gif(60000, 60000, 2), "exceeds limit"),
        (make_gif(1, 1, 20_001), "holds more than 20000 frames"),
        (make_gif(7000, 4000, 200), "holds more than 142 frames of 7000x4000"),
        (b"GIF89a", "truncated"),
        (b"RIFF\x04\0\0\0WEBP", "cannot be decoded"),
        (b"RIFF\xff\xff\xff\x7fWEBPVP8X", "truncated"),
        (b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\xff\xff\xff\xff\xff\xff", "cannot be decoded"),
    ],
)
def test_hostile_animations_end_in_one_line_at_once(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    started = time.monotonic()
    assert reason in refusal(path)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_a_damaged_animation_gives_frames_or_one_line(tmp_path: Path, suffix: str) -> None:
    whole = save(tmp_path / f"a.{suffix}", sprites(), duration=50)
    size = whole.stat().st_size
    for kept in [*range(16, size, size // 30), size - 1]:
        assert "truncated" in refusal(cut(whole, kept)), kept
    for seed in range(20):
        try:
            with open_clip(flip_bits(whole, flips=1 + seed % 8, seed=seed)) as clip:
                assert len(clip.frames(range(clip.info.frames), size=SIZE)) == clip.info.frames
        except VideoError as error:
            assert "\n" not in str(error)


def png(pixels: NDArray[Any], **options: Any) -> bytes:
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "png", **options)
    return written.getvalue()


def png_of_size(side: int) -> bytes:
    header = b"IHDR" + struct.pack(">II", side, side) + b"\x08\x02\0\0\0"
    chunk = b"\0\0\0\x0d" + header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + chunk + b"\0\0\0\0IDAT\x35\xaf\x06\x1e" + b"\0\0\0\0IEND\xaeB`\x82"


ANIMATED = png(picture(0), save_all=True, append_images=[Image.fromarray(picture(i)) for i in (1, 2)])


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (None, "has a gap: there is no number 2"),
        (png(np.zeros((8, 8), np.uint8)), "'0002.png' (its size is (8, 8), that of the first (252, 140))"),
        (png(picture(1))[:-30], "'0002.png' (image file is truncated"),
        (b"not a picture" * 9, "'0002.png' (cannot identify image file"),
        (b"", "'0002.png' (cannot identify image file"),
        (png_of_size(60_000), "'0002.png' (Image size (3600000000 pixels) exceeds limit"),
        (png(np.zeros((140, 252), np.uint16)), "'0002.png' (it is animated, or not of 8 bits"),
        (ANIMATED, "'0002.png' (it is animated, or not of 8 bits"),
    ],
    ids=["gap", "size", "cut", "text", "empty", "huge", "deep", "animated"],
)
def test_one_bad_picture_of_several_is_named(tmp_path: Path, second: bytes | None, reason: str) -> None:
    numbered(tmp_path, 3)
    (tmp_path / "0002.png").unlink()
    if second is not None:
        (tmp_path / "0002.png").write_bytes(second)
    with pytest.raises(VideoError) as raised, open_clip(tmp_path) as clip:
        clip.frames(range(3), size=SIZE)
    line = str(raised.value)
    assert "\n" not in line
    assert reason in line


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("one/%04d.png", "is a still picture, no video"),
        ("two", "is a folder of more than one clip: give"),
        ("none", "is a folder without numbered pictures"),
        ("two/a%d.png@0", "has a frame rate of 0"),
        ("two/a%d.png@1001", "has a frame rate of 1001"),
        ("two/%05d.png", "names no picture"),
        ("gone/%05d.png", "cannot be read: No such file"),
    ],
)
def test_names_of_no_numbered_pictures_are_refused(tmp_path: Path, name: str, reason: str) -> None:
    numbered(tmp_path / "one", 1)
    for other in ("a%d.png", "b%d.png"):
        numbered(tmp_path / "two", 2, name=other)
    (tmp_path / "none").mkdir()
    assert reason in refusal(tmp_path / name)


@pytest.mark.skipif(sys.platform == "win32", reason="no FIFO; links need rights")
def test_links_are_followed_to_plain_files_alone(tmp_path: Path) -> None:
    pattern, linked = numbered(tmp_path / "real", 3), tmp_path / "linked"
    linked.mkdir()
    for number in (1, 2, 3):
        (linked / f"{number}.png").symlink_to(pattern.with_name(f"{number:04d}.png"))
    assert read_numbers(linked, [0, 1, 2]) == [0, 1, 2]
    second = linked / "2.png"
    for spoil in (
        lambda: second.symlink_to("/dev/zero"),
        lambda: second.symlink_to("2.png"),
        lambda: os.mkfifo(second),
    ):
        second.unlink()
        spoil()
        assert re.search("has a picture, '2.png', that (is not a regular file|cannot be opened)", refusal(linked))
    with Store(tmp_path / "runs.sqlite") as store, pytest.raises(VideoError, match="not a regular file"):
        store.digest(linked)


@pytest.mark.nightly
def test_too_many_pictures_are_refused_without_reading_them(tmp_path: Path) -> None:
    for number in range(MOST_PICTURES + 1):
        (tmp_path / f"{number}.png").touch()
    started = time.monotonic()
    assert f"is {MOST_PICTURES + 1} pictures; at most {MOST_PICTURES} are read" in refusal(tmp_path)
    assert time.monotonic() - started < 5


def test_a_file_of_the_whole_name_is_that_file(tmp_path: Path) -> None:
    clip = save(tmp_path / "%04d.png@8", sprites(), format="GIF", duration=50)
    assert find_files(clip).files == (clip,)
    with open_clip(clip) as opened:
        assert opened.info.frames == 12
    assert add_rate([numbered(tmp_path / "a"), clip], "9") == [tmp_path / "a" / "%04d.png@9", clip]
    with pytest.raises(UsageError, match="their own times"):
        add_rate([clip], "9")


def compare(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    status = run(["compare", *map(str, arguments), "-p", "A blue star moves up.", "--no-measures", "--json"])
    return status, *capfd.readouterr()


def test_numbered_pictures_get_the_very_odds_that_they_get_as_a_video(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("star", "circle"):
        with open_clip(Path("examples") / f"{name}.mp4") as clip:
            pixels = clip.frames(range(clip.info.frames), size=(clip.info.width, clip.info.height))
        (tmp_path / name).mkdir()
        for number, rgb in pixels.items():
            Image.fromarray(rgb).save(tmp_path / name / f"{number:04d}.png")
    pictures = (tmp_path / "star" / "%04d.png", tmp_path / "circle", "--fps", "6.233766")
    odds: list[Odds | None] = []
    for arguments in (("examples/star.mp4", "examples/circle.mp4"), pictures):
        status, out, err = compare(capfd, *arguments)
        assert status == 0, err
        judgement = Judgement.from_json(json.loads(out))
        assert judgement.winner == 1
        odds.append(judgement.verdict.overall.odds)
    assert odds[0] and odds[0] == odds[1]


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (".webp", ("--fps", "8"), "--fps 8 is for numbered pictures"),
        ("", ("--fps", "0"), "--fps"),
        ("", ("--sheet", "a/0003.png"), "is also one of the clips"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    kind: str, options: tuple[str, ...], said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        save(Path(f"{name}.webp"), sprites(), duration=50)
        numbered(Path(name), 3)
    status, _, err = compare(capfd, f"a{kind}", f"b{kind}", *options)
    assert status == 2
    assert said in err.splitlines()[-1]
