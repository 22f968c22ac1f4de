"""What the judge is shown: the prompt, the frames by number and by time, and what stays in its memory window."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vrt_lite.profile import default_profile, presets
from vrt_lite.protocol.messages import (
    Dimension,
    FrameRef,
    Generated,
    Image,
    Message,
    Text,
    Video,
    apply_window,
    evenly_spaced,
    from_number,
    plain,
    render_user,
    sample_workspace,
    show_key,
    shown_first,
)
from vrt_lite.settings import Settings

PROFILE = default_profile()
CAPTION = "A cinematic shot of a waterfall in a lush forest."
GOLDEN = Path(__file__).parent.parent / "golden" / "prompts"


def render(caption: str, settings: Settings | None = None) -> str:
    profile = settings.applied_to(PROFILE) if settings else PROFILE
    return plain(
        render_user(profile.user_prompt, caption=caption, dimensions=profile.dimensions, workspace=profile.workspace)
    )


@pytest.mark.parametrize(
    ("text", "length", "digest"),
    [
        (render(CAPTION), 1897, "2de0379bfddefb4bc640a68d263dbff787f8f47996970b87fb9ecab568a81341"),
        (PROFILE.system_prompt, 785, "fc7f800b05af7362a09a76bca8be45497c73cd688c17200f5496a0c854ce99b4"),
    ],
    ids=["user", "system"],
)
def test_prompts_are_the_checkpoints_byte_for_byte(text: str, length: int, digest: str) -> None:
    assert (len(text), hashlib.sha256(text.encode()).hexdigest()) == (length, digest)


@pytest.mark.parametrize("preset", presets())
def test_a_preset_reads_as_published_with_its_keys(preset: str) -> None:
    user = render(CAPTION, Settings(preset=preset))
    assert user.encode() == (GOLDEN / f"{preset}.txt").read_bytes()
    assert [user.count(f"({key})**: ") for key in ("TA", "VQ", "MQ")] == [1, 1, 1]
    assert {path.stem for path in GOLDEN.iterdir()} == set(presets())


def test_a_users_own_wording_shows_its_key() -> None:
    """The answer's format has the keys alone: a name without its key tells the judge nothing."""
    own = {"VQ": Dimension("Sharpness", "how crisp"), "MQ": Dimension("Flow (MQ)", "how even")}
    user = render("a fox", Settings(preset="mj-bench-video", dimensions=own))
    assert "1. **Alignment (TA)**: " in user
    assert "2. **Sharpness (VQ)**: how crisp\n3. **Flow (MQ)**: how even\n" in user
    assert show_key("VQ", Dimension("Motion (MQ)", "x")).name == "Motion (MQ) (VQ)"


@given(st.text())
@example("{n} {caption} {dim_name_1} {x}")
def test_a_caption_stands_as_it_is(caption: str) -> None:
    assert f"The prompt is: {caption}\n" in render(caption)


def test_only_what_a_user_wrote_is_untrusted() -> None:
    own = {**PROFILE.dimensions, "VQ": Dimension("Sharpness", "how crisp")}
    parts = render_user(PROFILE.user_prompt, caption="a fox", dimensions=own, workspace=48)
    untrusted = {part.text for part in parts if not part.trusted}
    assert {"a fox", "Sharpness"} <= untrusted and "96" not in untrusted


def test_first_frames_of_the_published_workspace() -> None:
    assert shown_first(48, 4, 1) == tuple(FrameRef(1, index) for index in (0, 16, 31, 47))


@given(total=st.integers(1, 5000), count=st.integers(1, 300))
def test_even_spacing_is_numpys(total: int, count: int) -> None:
    expected = np.round(np.linspace(0, total - 1, count)).astype(int).tolist()
    assert list(evenly_spaced(total, count)) == expected


@given(
    total=st.integers(4, 3000), count=st.integers(4, 100), step=st.integers(1, 5000), start=st.integers(-(10**9), 10**9)
)
def test_constant_rate_workspace_is_even_spacing(total: int, count: int, step: int, start: int) -> None:
    ticks = [start + i * step for i in range(total)]
    assert sample_workspace(ticks, count, 4) == evenly_spaced(total, count)


def test_a_rate_that_the_time_base_rounds_is_constant() -> None:
    ticks = [round(i * 1000 / 29.97) for i in range(300)]  # milliseconds, as Matroska keeps them
    assert sample_workspace(ticks, 48, 4) == evenly_spaced(300, 48)


@given(ticks=st.lists(st.integers(0, 10**6), min_size=4, max_size=60, unique=True).map(sorted))
def test_every_position_takes_the_nearest_frame(ticks: list[int]) -> None:
    """At a constant rate even spacing by index decides, which agrees to within the rounding of one tick."""
    targets = np.linspace(ticks[0], ticks[-1], 11)
    for target, index in zip(targets, sample_workspace(ticks, 11, 4), strict=True):
        assert abs(ticks[index] - target) <= min(abs(tick - target) for tick in ticks) + 1


@pytest.mark.parametrize(("total", "shown"), [(1, [0, 0, 0, 0]), (2, [0, 1, 1, 1]), (3, [0, 1, 2, 2])])
def test_a_clip_with_fewer_frames_than_shown_repeats_its_last(total: int, shown: list[int]) -> None:
    workspace = sample_workspace([i * 40 for i in range(total)], 48, 4)
    assert [workspace[ref.index] for ref in shown_first(48, 4, 0)] == shown
    assert len(workspace) == 48 and sorted(workspace) == list(workspace)


def test_numbers_run_over_both_videos() -> None:
    refs = [from_number(number, 48) for number in range(1, 97)]
    assert refs == [FrameRef(clip, index) for clip in (0, 1) for index in range(48)]
    assert [ref.number(48) for ref in refs] == [*range(1, 97)]
    for number in (0, 97, -1):
        with pytest.raises(ValueError, match="outside 1 to 96"):
            from_number(number, 48)


@pytest.mark.parametrize(("outcomes", "window", "gone"), [(0, 1, 0), (1, 0, 1), (1, 1, 0), (4, 1, 3), (4, 5, 0)])
def test_only_frames_of_old_outcomes_go_and_a_stand_in_takes_their_place(outcomes: int, window: int, gone: int) -> None:
    def conversation(stand_in: tuple[Text, ...], hidden: int) -> tuple[Message, ...]:
        messages = [Message("user", (Video((FrameRef(0, 0), FrameRef(0, 47)), 1.0), Text("task")))]
        for i in range(outcomes):
            messages.append(Message("assistant", (Generated(f"snapshot {i}"),)))
            frames = stand_in if i < hidden else (Image(FrameRef(0, i)), Image(FrameRef(1, i)))
            messages.append(Message("user", (Text("frames:"), *frames), tool_outcome=True))
        return tuple(messages)

    whole = conversation((), 0)
    assert apply_window(whole, window=window, stand_in="(gone)") == conversation((Text("(gone)"),), gone)
    assert apply_window(whole, window=window, stand_in="") == conversation((), gone)
