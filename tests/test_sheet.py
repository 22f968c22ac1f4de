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


def packed(rgb: np.ndarray) -> np.ndarray:
    """One number a pixel."""
    return rgb[..., 0] << 16 | rgb[..., 1] << 8 | rgb[..., 2]


def drawn(shown: Judgement, path: Path) -> np.ndarray:
    sizes = (shown.inputs[0].shown_size, shown.inputs[1].shown_size)
    draw_sheet(shown, Colours(sizes), path)
    with Image.open(path) as image:
        assert image.format == "PNG"
        return packed(np.asarray(image.convert("RGB"), np.int32))


def box(picture: np.ndarray, frame: FrameRef) -> tuple[int, int, int, int] | None:
    """Left, top, width and height of a frame's colour; None if it is nowhere. It must fill its box."""
    rows, columns = np.nonzero(picture == packed(np.array(colour(frame), np.int32)))
    if not len(rows):
        return None
    found = (int(columns.min()), int(rows.min()), int(np.ptp(columns)) + 1, int(np.ptp(rows)) + 1)
    # The line around a frame lies over its last row and column at most.
    assert len(rows) == found[2] * found[3], f"{frame} is drawn more than once, or not as one picture"
    return found


def boxes(picture: np.ndarray, frames: list[FrameRef]) -> dict[FrameRef, tuple[int, int, int, int]]:
    found = {frame: box(picture, frame) for frame in frames}
    assert None not in found.values()
    return {frame: at for frame, at in found.items() if at}


def test_every_frame_once_in_rows_by_video(tmp_path: Path) -> None:
    picture = drawn(judgement([call(9, 10, 57), sure()], sizes=((252, 140), (252, 140))), tmp_path / "s.png")
    called = [FrameRef(0, 8), FrameRef(0, 9), FrameRef(1, 8)]
    found = boxes(picture, FIRST + called)
    assert {(width, height) for _, _, width, height in found.values()} == {(252, 140)}
    tops = [[found[frame][1] for frame in FIRST if frame.clip == clip] for clip in (0, 1)]
    assert len(set(tops[0])) == len(set(tops[1])) == 1
    assert tops[0][0] < tops[1][0] < found[called[0]][1] < found[called[2]][1]
    for index in (0, 16, 31, 47):
        assert found[FrameRef(0, index)][0] == found[FrameRef(1, index)][0]
    assert box(picture, FrameRef(1, 9)) is None


def test_both_orders_draw_the_same_frames_once(tmp_path: Path) -> None:
    # Exchanged, the judge's 9 is frame 9 of video 2.
    shown = judgement([call(9, 57), sure()], [call(57, 9), call(10), sure()])
    found = boxes(drawn(shown, tmp_path / "s.png"), [*FIRST, FrameRef(0, 8), FrameRef(1, 8), FrameRef(1, 9)])
    assert found[FrameRef(1, 9)][1] > found[FrameRef(1, 8)][1]


@pytest.mark.parametrize(
    ("size", "expected"),
    [((56, 56), (392, 392)), ((112, 84), (336, 252)), ((588, 336), (588, 336)), ((2800, 28), (1280, 13))],
)
def test_frames_are_enlarged_by_whole_steps(size: Size, expected: Size, tmp_path: Path) -> None:
    picture = drawn(judgement([sure()], sizes=(size, (252, 28))), tmp_path / "s.png")
    assert [at[2:] for at in boxes(picture, FIRST[:4]).values()] == [expected] * 4


@pytest.mark.parametrize("sizes", [((5600, 28), (28, 252)), ((28, 28), (588, 28)), ((28, 5600), (252, 28))])
def test_any_shape_stays_on_the_sheet(sizes: tuple[Size, Size], tmp_path: Path) -> None:
    picture = drawn(judgement([call(2, 3, 4, 5, 6, 7, 8, 9), sure()], sizes=sizes), tmp_path / "s.png")
    boxes(picture, [*FIRST, *(FrameRef(0, index) for index in range(1, 9))])
    assert picture.shape[1] < 2800


@pytest.mark.parametrize(
    "text", ["", "\x00\x1b[31m\u202e\udc80\n", "狐" * 3000, "x" * 8000, "word " * 1600, "\u0645" * 99]
)
def test_any_text_is_drawn(text: str, tmp_path: Path) -> None:
    shown = judgement([sure()], prompt=text, names=(text[:250] or "a", "b.mp4"), dimension=text)
    boxes(drawn(shown, tmp_path / "s.png"), FIRST)


def test_one_file_twice_has_a_sheet_without_frames(tmp_path: Path) -> None:
    picture = drawn(judgement(), tmp_path / "s.png")
    assert all(box(picture, frame) is None for frame in FIRST)


def test_a_sheet_replaces_the_last_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "s.png"
    target.write_text("old")
    drawn(judgement([sure()]), target)
    assert [path.name for path in tmp_path.iterdir()] == ["s.png"]


@pytest.mark.parametrize("target", ["missing/s.png", "folder"])
def test_what_cannot_be_written_is_one_line(target: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError) as caught:
        draw_sheet(judgement([sure()]), Colours(((252, 28), (252, 28))), tmp_path / target)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_what_no_sheet_can_be_is_refused_before_anything_is_judged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "s.jpg").write_text("a picture")
    for name, expected in (("s.jpg", "is a PNG. Give"), ("s", "is a PNG"), ("folder.png", "is a folder")):
        assert run(["compare", "no-such-clip.mp4", "no-such-clip.mp4", "--sheet", str(tmp_path / name)]) == 2
        message = capfd.readouterr().err
        assert str(tmp_path / name) in message
        assert expected in message
        with pytest.raises(UsageError, match=expected):
            draw_sheet(judgement([sure()]), Colours(((252, 28), (252, 28))), tmp_path / name)
    assert (tmp_path / "s.jpg").read_text() == "a picture"
    drawn(judgement([sure()]), tmp_path / "S.PNG")
