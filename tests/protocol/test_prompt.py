from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vrt_lite.profile import default_profile, presets
from vrt_lite.protocol.messages import Dimension, plain, render_user, show_key
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


def test_there_is_a_golden_prompt_for_each_preset() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(presets())


@pytest.mark.parametrize("preset", presets())
def test_a_preset_reads_as_published_with_its_keys(preset: str) -> None:
    user = render(CAPTION, Settings(preset=preset))
    assert user.encode() == (GOLDEN / f"{preset}.txt").read_bytes()
    assert [user.count(f"({key})**: ") for key in ("TA", "VQ", "MQ")] == [1, 1, 1]


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
