"""How large a judge sees a clip's frames: the checkpoint's own ranges, a user's limits, and the warnings about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from clips import write_clip

from vrt_lite.api import Judge
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.errors import UsageError, VideoError
from vrt_lite.pair_frames import PairFrames, workspace_of
from vrt_lite.profile import PIXELS_PER_TOKEN, default_profile, parse_profile
from vrt_lite.protocol.messages import FrameRef
from vrt_lite.settings import Settings
from vrt_lite.video import open_clip

CALL = '<tool_call>{"name": "select_frames", "arguments": {"target_frames": [3, 50]}}</tool_call>'
FINAL = "<final answer>TA=1, VQ=1, MQ=1, OA=1</final answer>"
PROFILE = default_profile()


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("sizes")
    return (
        write_clip(folder / "hd.mp4", frames=5, size=(1920, 1080)),
        write_clip(folder / "sd.mp4", frames=6, size=(848, 480)),
    )


@pytest.mark.parametrize(
    ("size", "shown", "tokens", "called"),
    [
        ((1920, 1080), (1008, 560), 720, (840, 448)),
        ((1280, 720), (1008, 560), 720, (840, 448)),
        ((848, 480), (840, 476), 510, (840, 476)),
        ((1080, 1920), (560, 1008), 720, (448, 840)),
        ((64, 64), (336, 336), 144, (336, 336)),
        ((320, 180), (448, 252), 144, (448, 252)),
    ],
)
def test_vr_thinker_sees_what_the_script_of_its_card_shows(
    size: tuple[int, int], shown: tuple[int, int], tokens: int, called: tuple[int, int]
) -> None:
    """And frames of a call within the limit that Pixel-Reasoner has for a video's frames."""
    assert (PROFILE.min_pixels, PROFILE.max_pixels) == (128 * PIXELS_PER_TOKEN, 768 * PIXELS_PER_TOKEN)
    assert (PROFILE.tool_min_pixels, PROFILE.tool_max_pixels) == (128 * PIXELS_PER_TOKEN, 512 * PIXELS_PER_TOKEN)
    assert PROFILE.frame_size(*size, called=False) == shown
    assert PROFILE.frame_size(*size, called=True) == called
    assert shown[0] * shown[1] == tokens * PIXELS_PER_TOKEN


def test_a_picture_that_is_too_narrow_is_refused_with_its_name(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "thin.mp4", frames=2, size=(4096, 16))
    with open_clip(path) as clip, pytest.raises(VideoError, match="is 4096x16, which is too narrow") as caught:
        workspace_of(clip, PROFILE)
    assert caught.value.path == path


def test_a_tools_frames_are_decoded_at_their_own_size(clips: tuple[Path, Path]) -> None:
    profile = PROFILE.with_max_pixels(PROFILE.max_pixels, tool_pixels=200 * PIXELS_PER_TOKEN)
    with open_clip(clips[0]) as a, open_clip(clips[1]) as b:
        frames = PairFrames((a, b), (workspace_of(a, profile), workspace_of(b, profile)))
        asked = [FrameRef(0, 0), FrameRef(0, 0, called=True), FrameRef(1, 9, called=True), FrameRef(1, 9)]
        shapes = [pixels.shape for pixels in frames.pixels(asked)]
    assert shapes == [(560, 1008, 3), (280, 504, 3), (280, 504, 3), (476, 840, 3)]


def test_both_sizes_stand_in_the_judgement(clips: tuple[Path, Path]) -> None:
    with Judge(backend=ScriptedBackend([CALL, FINAL]), settings=Settings(tool_max_pixels=20_000)) as judge:
        judgement = judge.compare(*clips, prompt="p")
    inputs = judgement.to_json()["inputs"]
    assert [clip["shown_size"] for clip in inputs] == [[252, 140], [224, 140]]
    assert [clip["tool_size"] for clip in inputs] == [[168, 84], [168, 84]]
    assert judgement.settings.tool_max_pixels == 20_000


@pytest.mark.parametrize(
    ("settings", "warns"),
    [
        (Settings(), ""),
        (
            Settings(max_pixels=20_000),
            "frames of at most 20000 pixels instead of 35840, "
            "asked-for frames of at most 20000 pixels instead of 35840",
        ),
        (Settings(tool_max_pixels=20_000), "asked-for frames of at most 20000 pixels instead of 35840"),
        (Settings(max_pixels=40_000), ""),
    ],
)
def test_a_users_smaller_limit_warns_that_the_judge_sees_less(
    clips: tuple[Path, Path], settings: Settings, warns: str
) -> None:
    with Judge(backend=ScriptedBackend([FINAL]), settings=settings) as judge:
        warnings = judge.compare(*clips, prompt="p").warnings
    found = [warning for warning in warnings if "detail" in warning]
    assert found == ([f"The judge sees less detail than its profile gives it: {warns}."] if warns else [])


def test_one_file_twice_has_no_such_warning(clips: tuple[Path, Path]) -> None:
    with Judge(backend=ScriptedBackend([]), settings=Settings(max_pixels=20_000)) as judge:
        assert not [w for w in judge.compare(clips[0], clips[0], prompt="p").warnings if "detail" in w]


def test_a_limit_bounds_a_tools_frames_unless_they_have_their_own() -> None:
    both = Settings(max_pixels=50_000).applied_to(PROFILE)
    assert (both.max_pixels, both.min_pixels, both.tool_max_pixels, both.tool_min_pixels) == (50_000,) * 4
    apart = Settings(max_pixels=50_000, tool_max_pixels=300_000).applied_to(PROFILE)
    assert (apart.max_pixels, apart.tool_max_pixels, apart.tool_min_pixels) == (50_000, 300_000, 128 * 784)
    with pytest.raises(UsageError, match="tool_min_pixels = 700 and tool_max_pixels = 700"):
        Settings(tool_max_pixels=700).applied_to(PROFILE)


def test_a_profiles_range_is_for_all_frames_unless_it_names_two() -> None:
    one = parse_profile("min_pixels = 4000\nmax_pixels = 9000\n", "here")
    assert (one.tool_min_pixels, one.tool_max_pixels) == (4000, 9000)
    two = parse_profile("max_pixels = 300000\ntool_max_pixels = 200000\n", "here")
    assert two == replace(PROFILE, max_pixels=300_000, tool_max_pixels=200_000)
