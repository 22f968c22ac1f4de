"""Animated GIF and WebP, and numbered pictures, are clips like any other: exact frames, times, and one line if hostile.

GIF is compared with FFmpeg's decoder, which vrt-lite does not use for it, and WebP and GIF with Pillow's own pass
through the whole file.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from clips import flip_bits, picture, read_index
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from vrt_lite.cli import run
from vrt_lite.clip_files import MOST_PICTURES, add_rate, digest_clip, find_pictures
from vrt_lite.errors import UsageError, VideoError
from vrt_lite.protocol.messages import Odds
from vrt_lite.records.judgement import Judgement
from vrt_lite.runs.store import Store
from vrt_lite.video import open_clip

SIZE = (96, 64)


def sprites(count: int = 12, *, alpha: bool = True) -> list[Image.Image]:
    """Pictures with a moving disc; with `alpha` on nothing, so that disposal shows."""
    made: list[Image.Image] = []
    for number in range(count):
        image = Image.new("RGBA" if alpha else "RGB", SIZE)
        left = 4 + 5 * number
        ImageDraw.Draw(image).ellipse((left, 12, left + 30, 50), fill=(200, 20 * number % 256, 40))
        made.append(image)
    return made


def save(path: Path, images: Sequence[Image.Image], **options: Any) -> Path:
    images[0].save(path, save_all=True, append_images=images[1:], **options)
    return path


def numbered(folder: Path, count: int = 30, *, first: int = 1, name: str = "%04d.png") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        Image.fromarray(picture(number)).save(folder / (name % (first + number)))
    return folder / name


def rendered(path: Path) -> list[NDArray[np.uint8]]:
    """Pillow's own rendering of every frame, in order, on white."""
    frames: list[NDArray[np.uint8]] = []
    with Image.open(path) as image:
        for number in range(getattr(image, "n_frames", 1)):
            image.seek(number)
            white = Image.new("RGBA", image.size, "white")
            white.alpha_composite(image.convert("RGBA"))
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
@pytest.mark.parametrize("alpha", [False, True])
def test_every_frame_of_a_gif_is_that_of_pillow_and_of_ffmpeg(tmp_path: Path, disposal: int, alpha: bool) -> None:
    path = save(tmp_path / "a.gif", sprites(alpha=alpha), duration=50, disposal=disposal, loop=0)
    expected, of_ffmpeg = rendered(path), decoded_by_ffmpeg(path)
    with open_clip(path) as clip:
        assert clip.info.frames == len(expected) == len(of_ffmpeg) > 5
        order = random.Random(disposal).sample(range(len(expected)), len(expected))
        for index in order:
            [got] = clip.frames([index], size=SIZE).values()
            assert np.array_equal(got, expected[index]), f"frame {index} is not Pillow's"
            if disposal < 3 or alpha:  # what was there before the first, opaque frame: each restores something else
                assert np.array_equal(got, of_ffmpeg[index]), f"frame {index} is not FFmpeg's"


@pytest.mark.parametrize(
    "options", [{"lossless": True}, {"quality": 60, "kmin": 1, "kmax": 5}, {"minimize_size": True}]
)
def test_every_frame_of_a_webp_is_that_of_pillow(tmp_path: Path, options: dict[str, Any]) -> None:
    path = save(tmp_path / "a.webp", sprites(), duration=40, background=(9, 99, 9, 255), **options)
    expected = rendered(path)
    with open_clip(path) as clip:
        assert clip.info.frames == len(expected) > 5
        for index in (7, 2, 11, 0, 3):
            assert np.array_equal(clip.frames([index], size=SIZE)[index], expected[index])
        assert np.array_equal(expected[0][0, 0], (255, 255, 255))


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_frame_times_are_those_of_the_file_and_of_browsers(tmp_path: Path, suffix: str) -> None:
    written = [40, 0, 10, 20, 250, 30]
    path = save(tmp_path / f"a.{suffix}", sprites(len(written)), duration=written, loop=3)
    with open_clip(path) as clip:
        assert [round(clip.seconds(i), 6) for i in range(6)] == [0, 0.04, 0.14, 0.24, 0.26, 0.51]
        assert clip.ticks.tolist() == [0, 40, 140, 240, 260, 510]
        assert clip.info.variable_rate


def test_numbered_pictures_are_read_in_order_by_pattern_and_by_folder(tmp_path: Path) -> None:
    pattern = numbered(tmp_path / "shot", first=7)
    (tmp_path / "shot" / "notes.txt").write_text("made by hand")
    for path in (pattern, tmp_path / "shot"):
        with open_clip(path) as clip:
            assert (clip.info.frames, clip.info.fps, clip.info.path) == (30, 24, pattern)
            assert "24 a second are assumed" in clip.warnings[0]
            assert len(clip.warnings) == 1
            assert {i: read_index(rgb) for i, rgb in clip.frames([29, 3, 0], size=(126, 70)).items()} == {
                0: 0,
                3: 3,
                29: 29,
            }
    with open_clip(Path(f"{tmp_path / 'shot'}@8")) as clip:
        assert (clip.info.fps, clip.info.duration_seconds, clip.warnings) == (8, 3.75, ())
        assert clip.info.path == Path(f"{pattern}@8")


def test_names_without_zeros_are_counted_as_numbers(tmp_path: Path) -> None:
    numbered(tmp_path / "shot", 12, name="fox_%d_.jpg")
    with open_clip(tmp_path / "shot") as clip:
        assert clip.info.path.name == "fox_%d_.jpg"
        assert [read_index(rgb) for rgb in clip.frames(range(12), size=(252, 140)).values()] == list(range(12))


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    for number in (1, 2):
        Image.new("RGBA", SIZE, (255, 0, 0, 128)).save(tmp_path / f"{number}.png")
        image = Image.new("P", SIZE)
        image.putpalette([0, 0, 0, 0, 255, 0])
        image.save(tmp_path / f"key{number}.png", transparency=0)
    with open_clip(tmp_path / "%d.png") as clip:
        assert clip.frames([0, 1], size=SIZE)[1][0, 0].tolist() == [255, 127, 127]
        assert clip.warnings[-1] == "what is transparent in the clip is shown on white"
    with open_clip(tmp_path / "key%d.png") as clip:
        assert clip.frames([0], size=SIZE)[0][0, 0].tolist() == [255, 255, 255]


def test_the_key_is_of_all_bytes_and_the_frame_rate(tmp_path: Path) -> None:
    pattern = numbered(tmp_path / "a")
    copy = numbered(tmp_path / "b", first=101)
    with Store(tmp_path / "runs.sqlite") as store:
        key = store.digest(pattern)
        with open_clip(pattern) as clip:
            assert clip.info.sha256 == key == digest_clip(pattern) == store.digest(tmp_path / "a") == store.digest(copy)
        assert store.digest(Path(f"{pattern}@24")) == key != store.digest(Path(f"{pattern}@8"))
        (tmp_path / "a" / "0003.png").replace(tmp_path / "third.png")
        (tmp_path / "a" / "0004.png").replace(tmp_path / "a" / "0003.png")
        (tmp_path / "third.png").replace(tmp_path / "a" / "0004.png")
        assert store.digest(pattern) != key, "two pictures were exchanged"


def test_a_frame_that_is_not_shown_is_not_decoded(tmp_path: Path) -> None:
    """The pictures between those asked for are broken inside, where only decoding finds it."""
    pattern = numbered(tmp_path)
    for number in set(range(1, 31)) - {1, 11, 21}:
        path = pattern.with_name(pattern.name % number)
        data = bytearray(path.read_bytes())
        at = data.index(b"IDAT") + 8
        data[at : at + 20] = bytes(20)
        path.write_bytes(data)
    with open_clip(pattern) as clip:
        assert [read_index(rgb) for rgb in clip.frames([0, 10, 20], size=(252, 140)).values()] == [0, 10, 20]
        with pytest.raises(VideoError, match=r"cannot be decoded at '0002\.png'"):
            clip.frames([1], size=(252, 140))


def test_memory_is_that_of_the_frames_shown(tmp_path: Path) -> None:
    images = [Image.fromarray(picture(number, (640, 360))) for number in range(30)]
    for path in (save(tmp_path / "a.gif", images, duration=50), save(tmp_path / "a.webp", images, duration=50)):
        tracemalloc.start()
        with open_clip(path) as clip:
            clip.frames([25], size=(64, 36))
            _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 12 * 640 * 360 * 4 + path.stat().st_size * 3, f"{path.name}: {peak}"


def make_gif(width: int, height: int, frames: int, *, left: int = 0, end: bytes = b";") -> bytes:
    """A GIF by its bytes: a screen of one size, and frames of one pixel."""
    one = b"!\xf9\x04\0\x05\0\0\0," + left.to_bytes(2, "little") + b"\0\0\x01\0\x01\0\0\x02\x02L\x01\0"
    screen = width.to_bytes(2, "little") + height.to_bytes(2, "little") + b"\x80\0\0" + bytes(6)
    return b"GIF89a" + screen + one * frames + end


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (make_gif(8, 8, 1), "is a still picture, no video"),
        (make_gif(8, 8, 5, end=b""), "ends after frame 5; the file is truncated"),
        (make_gif(8, 8, 5, end=b"\x07\x07"), "is damaged at byte"),
        (make_gif(8, 8, 5, left=8), "has a frame that is larger than the picture"),
        (make_gif(60000, 60000, 2), "is 60000x60000; allowed are"),
        (make_gif(0, 8, 2), "is 0x8; allowed are"),
        (make_gif(1, 1, 20_001), "holds more than 20000 frames"),
        (make_gif(7000, 4000, 200), "holds more than 142 frames of 7000x4000"),
        (b"GIF89a", "truncated"),
        (b"RIFF\x04\0\0\0WEBP", "is a still picture"),
        (b"RIFF\xff\xff\xff\x7fWEBPVP8X", "truncated"),
        (b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\xff\xff\xff\xff\xff\xff", "is 16777216x16777216; allowed are"),
    ],
)
def test_hostile_animations_end_in_one_line_at_once(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    started = time.monotonic()
    assert reason in refusal(path)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_a_cut_animation_is_never_judged(tmp_path: Path, suffix: str) -> None:
    whole = save(tmp_path / f"a.{suffix}", sprites(), duration=50)
    data = whole.read_bytes()
    for kept in [*range(16, len(data), max(len(data) // 60, 1)), len(data) - 1]:
        whole.write_bytes(data[:kept])
        assert "truncated" in refusal(whole), kept


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_flipped_bits_give_frames_or_one_line(tmp_path: Path, suffix: str) -> None:
    whole = save(tmp_path / f"a.{suffix}", sprites(), duration=50)
    for seed in range(40):
        rotten = flip_bits(whole, flips=1 + seed % 8, seed=seed)
        try:
            with open_clip(rotten) as clip:
                shown = clip.frames(range(clip.info.frames), size=SIZE)
        except VideoError as error:
            assert "\n" not in str(error)
        else:
            assert len(shown) == clip.info.frames


def test_the_index_counts_what_pillow_counts(tmp_path: Path) -> None:
    for suffix in ("gif", "webp"):
        path = save(tmp_path / f"a.{suffix}", sprites(9), duration=30)
        with Image.open(path) as image, open_clip(path) as clip:
            assert clip.info.frames == getattr(image, "n_frames", 0) == 9
    assert "is a still picture" in refusal(save(tmp_path / "still.webp", sprites(1)))


def broken_pictures(folder: Path) -> dict[str, str]:
    """Folders of numbered pictures with one fault each, and what is said of each."""
    for name in ("gap", "size", "cut", "text", "huge", "deep", "animated", "empty"):
        numbered(folder / name, 3)
    (folder / "gap" / "0002.png").unlink()
    Image.new("RGB", (8, 8)).save(folder / "size" / "0002.png")
    for name, data in (
        ("cut", (folder / "cut" / "0003.png").read_bytes()[:-9]),
        ("text", b"not a picture" * 9),
        ("empty", b""),
        ("huge", _png_header(60_000, 60_000)),
    ):
        (folder / name / "0003.png").write_bytes(data)
    Image.fromarray(np.zeros((140, 252), np.uint16)).save(folder / "deep" / "0002.png")
    save(folder / "animated" / "0002.png", [Image.fromarray(picture(i)) for i in range(3)])
    numbered(folder / "one", 1)
    numbered(folder / "two", 2, name="a%d.png")
    numbered(folder / "two", 2, name="b%d.png")
    (folder / "none").mkdir()
    return {
        "gap": "has a gap: there is no '0002.png'",
        "size": "has pictures of different sizes: '0001.png' is 252x140, '0002.png' is 8x8",
        "cut": "has a truncated picture, '0003.png'",
        "text": "has a picture that is no PNG and no JPEG: '0003.png'",
        "empty": "has a picture that is no PNG and no JPEG: '0003.png'",
        "huge": "has a picture of 60000x60000, '0003.png'; at most",
        "deep": "has a picture that is animated, or not of 8 bits: '0002.png'",
        "animated": "has a picture that is animated, or not of 8 bits: '0002.png'",
        "one/%04d.png": "is a single picture, no video",
        "two": "is a folder of more than one clip: give",
        "none": "is a folder without numbered pictures",
        "gap@0": "has a frame rate of 0",
        "gap@1001": "has a frame rate of 1001",
        "gap/%05d.png": "names no picture",
        "gone/%05d.png": "cannot be read: No such file",
    }


def _png_header(width: int, height: int) -> bytes:
    import zlib

    header = b"IHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x02\0\0\0"
    chunk = b"\0\0\0\x0d" + header + zlib.crc32(header).to_bytes(4, "big")
    return b"\x89PNG\r\n\x1a\n" + chunk + b"\0\0\0\0IDAT\x35\xaf\x06\x1e" + b"\0\0\0\0IEND\xaeB`\x82"


def test_faulty_numbered_pictures_end_in_one_line(tmp_path: Path) -> None:
    for name, reason in broken_pictures(tmp_path).items():
        assert reason in refusal(tmp_path / name), name


@pytest.mark.skipif(sys.platform == "win32", reason="no FIFO; links need rights")
def test_links_are_followed_to_plain_files_alone(tmp_path: Path) -> None:
    pattern = numbered(tmp_path / "real", 3)
    linked = tmp_path / "linked"
    linked.mkdir()
    for number in (1, 2, 3):
        (linked / f"{number}.png").symlink_to(pattern.with_name(f"{number:04d}.png"))
    with open_clip(linked) as clip:
        assert clip.info.frames == 3
    (linked / "2.png").unlink()
    (linked / "2.png").symlink_to("/dev/zero")
    assert "has a picture that is no regular file: '2.png'" in refusal(linked)
    (linked / "2.png").unlink()
    (linked / "2.png").symlink_to("2.png")
    assert "has a picture that is no regular file: '2.png'" in refusal(linked)
    (linked / "2.png").unlink()
    os.mkfifo(linked / "2.png")
    assert "has a picture that is no regular file" in refusal(linked)
    with Store(tmp_path / "runs.sqlite") as store, pytest.raises(VideoError, match="no regular file"):
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
    assert find_pictures(clip) is None
    with open_clip(clip) as opened:
        assert opened.info.frames == 12
    assert add_rate([numbered(tmp_path / "a"), clip], "9") == [tmp_path / "a" / "%04d.png@9", clip]
    with pytest.raises(UsageError, match="their own times"):
        add_rate([clip], "9")


PROMPT = "A blue star moves up."


def judged(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Judgement | None, str]:
    status = run(["compare", *arguments, "-p", PROMPT, "--no-measures", "--json"])
    out, err = capfd.readouterr()
    return status, Judgement.from_json(json.loads(out)) if out else None, err


def test_numbered_pictures_get_the_very_odds_that_they_get_as_a_video(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("star", "circle"):
        with open_clip(Path("examples") / f"{name}.mp4") as clip:
            pixels = clip.frames(range(clip.info.frames), size=(clip.info.width, clip.info.height))
        (tmp_path / name).mkdir()
        for number, rgb in pixels.items():
            Image.fromarray(rgb).save(tmp_path / name / f"{number:04d}.png")
    odds: list[Odds | None] = []
    pictures = (str(tmp_path / "star" / "%04d.png"), str(tmp_path / "circle"), "--fps", "6.233766")
    for arguments in (("examples/star.mp4", "examples/circle.mp4"), pictures):
        status, judgement, err = judged(capfd, *arguments)
        assert status == 0, err
        assert judgement
        assert judgement.winner == 1
        odds.append(judgement.verdict.overall.odds)
    assert odds[0] == odds[1]
    assert odds[0]


def test_options_that_do_not_fit_are_refused(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("star", "circle"):
        save(tmp_path / f"{name}.webp", sprites(), duration=50)
        numbered(tmp_path / name, 3)
    status, _, err = judged(capfd, str(tmp_path / "star.webp"), str(tmp_path / "circle.webp"), "--fps", "8")
    assert (status, err.count("\n")) == (2, 1)
    assert "--fps 8 is for numbered pictures" in err
    status, _, err = judged(capfd, str(tmp_path / "star"), str(tmp_path / "circle"), "--fps", "0")
    assert status == 2
    status, _, err = judged(
        capfd, str(tmp_path / "star"), str(tmp_path / "circle"), "--sheet", str(tmp_path / "star" / "0003.png")
    )
    assert status == 2
    assert "is one of the clips" in err
