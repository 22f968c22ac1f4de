"""The contact sheet: every frame that the judge saw is on it once, at its own pixels, and nothing makes it fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from judgements import Colours, Size, call, colour, judgement, sure
from PIL import Image

from vrt_lite.cli import run
from vrt_lite.errors import UsageError
from vrt_lite.protocol.messages import FrameRef
from vrt_lite.records.judgement import Judgement
from vrt_lite.show.sheet import draw_sheet

FIRST = [FrameRef(clip, index) for clip in (0, 1) for index in (0, 16, 31, 47)]
Box = tuple[int, int, int, int]


def packed(rgb: np.ndarray) -> np.ndarray:
    """One number a pixel."""
    return rgb[..., 0] << 16 | rgb[..., 1] << 8 | rgb[..., 2]


def drawn(shown: Judgement, path: Path) -> np.ndarray:
    draw_sheet(shown, Colours((shown.inputs[0].shown_size, shown.inputs[1].shown_size)), path)
    with Image.open(path) as image:
        assert image.format == "PNG"
        return packed(np.asarray(image.convert("RGB"), np.int32))


def boxes(picture: np.ndarray, frames: list[FrameRef]) -> dict[FrameRef, Box]:
    """Left, top, width and height of each frame's colour that is there. It must fill its box."""
    found: dict[FrameRef, Box] = {}
    for frame in frames:
        rows, columns = np.nonzero(picture == packed(np.array(colour(frame), np.int32)))
        if len(rows):
            box = (int(columns.min()), int(rows.min()), int(np.ptp(columns)) + 1, int(np.ptp(rows)) + 1)
            assert len(rows) == box[2] * box[3], f"{frame} is drawn more than once, or not as one picture"
            found[frame] = box
    return found


def all_boxes(picture: np.ndarray, frames: list[FrameRef]) -> dict[FrameRef, Box]:
    found = boxes(picture, frames)
    assert list(found) == frames
    return found


def test_every_frame_once_in_rows_by_video(tmp_path: Path) -> None:
    picture = drawn(judgement([call(9, 10, 57), sure()], sizes=((252, 140), (252, 140))), tmp_path / "s.png")
    called = [FrameRef(0, 8), FrameRef(0, 9), FrameRef(1, 8)]
    found = all_boxes(picture, FIRST + called)
    assert {box[2:] for box in found.values()} == {(252, 140)}
    [top], [below] = ({found[frame][1] for frame in FIRST if frame.clip == clip} for clip in (0, 1))
    assert top < below < found[called[0]][1] < found[called[2]][1]
    for index in (0, 16, 31, 47):
        assert found[FrameRef(0, index)][0] == found[FrameRef(1, index)][0]
    assert not boxes(picture, [FrameRef(1, 9)])


def test_both_orders_draw_the_same_frames_once(tmp_path: Path) -> None:
    # Exchanged, the judge's 9 is frame 9 of video 2.
    shown = judgement([call(9, 57), sure()], [call(57, 9), call(10), sure()])
    found = all_boxes(drawn(shown, tmp_path / "s.png"), [*FIRST, FrameRef(0, 8), FrameRef(1, 8), FrameRef(1, 9)])
    assert found[FrameRef(1, 9)][1] > found[FrameRef(1, 8)][1]


@pytest.mark.parametrize(
    ("size", "expected"),
    [((56, 56), (392, 392)), ((112, 84), (336, 252)), ((588, 336), (588, 336)), ((2800, 28), (1280, 13))],
)
def test_frames_are_enlarged_by_whole_steps(size: Size, expected: Size, tmp_path: Path) -> None:
    picture = drawn(judgement([sure()], sizes=(size, (252, 28))), tmp_path / "s.png")
    assert [box[2:] for box in all_boxes(picture, FIRST[:4]).values()] == [expected] * 4


@pytest.mark.parametrize("sizes", [((5600, 28), (28, 252)), ((28, 5600), (588, 28))])
def test_any_shape_stays_on_the_sheet(sizes: tuple[Size, Size], tmp_path: Path) -> None:
    picture = drawn(judgement([call(2, 3, 4, 5, 6, 7, 8, 9), sure()], sizes=sizes), tmp_path / "s.png")
    all_boxes(picture, [*FIRST, *(FrameRef(0, index) for index in range(1, 9))])
    assert picture.shape[1] < 2800


@pytest.mark.parametrize(
    "text", ["", "\x00\x1b[31m\u202e\udc80\n", "狐" * 3000, "x" * 8000, "word " * 1600, "\u0645" * 99]
)
def test_any_text_is_drawn(text: str, tmp_path: Path) -> None:
    shown = judgement([sure()], prompt=text, names=(text[:250] or "a", "b.mp4"), dimension=text)
    all_boxes(drawn(shown, tmp_path / "s.png"), FIRST)


def test_one_file_twice_has_a_sheet_without_frames_which_replaces_the_last(tmp_path: Path) -> None:
    (tmp_path / "S.PNG").write_text("old")
    assert not boxes(drawn(judgement(), tmp_path / "S.PNG"), FIRST)
    assert [path.name for path in tmp_path.iterdir()] == ["S.PNG"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("s.jpg", "cannot be written: a sheet is a PNG. Give a name that ends in .png."),
        ("s", "a sheet is a PNG"),
        ("folder.png", "is no regular file"),
        ("missing/s.png", "cannot be written"),
    ],
)
def test_what_no_sheet_can_be_is_refused_in_one_line_before_anything_is_judged(
    name: str, expected: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "s.jpg").write_text("a picture")
    path = tmp_path / name
    assert run(["compare", "no-such-clip.mp4", "no-such-clip.mp4", "--sheet", str(path)]) == 2
    with pytest.raises(UsageError) as caught:
        draw_sheet(judgement([sure()]), Colours(((252, 28), (252, 28))), path)
    for message in (capfd.readouterr().err.strip(), str(caught.value)):
        assert str(path) in message
        assert expected in message
        assert "\n" not in message
    assert sorted(kept.name for kept in tmp_path.iterdir()) == ["folder.png", "s.jpg"]
    assert (tmp_path / "s.jpg").read_text() == "a picture"
