from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from vrt_lite.profile import default_profile
from vrt_lite.protocol.prompt import Dimension, plain, render_user

PROFILE = default_profile()


def render(caption: str) -> str:
    return plain(
        render_user(PROFILE.user_prompt, caption=caption, dimensions=PROFILE.dimensions, workspace=PROFILE.workspace)
    )


def test_prompts_are_the_checkpoints_byte_for_byte() -> None:
    user = render("A cinematic shot of a waterfall in a lush forest.")
    assert len(user) == 1897
    assert hashlib.sha256(user.encode()).hexdigest() == (
        "2de0379bfddefb4bc640a68d263dbff787f8f47996970b87fb9ecab568a81341"
    )
    assert len(PROFILE.system_prompt) == 785
    assert hashlib.sha256(PROFILE.system_prompt.encode()).hexdigest() == (
        "fc7f800b05af7362a09a76bca8be45497c73cd688c17200f5496a0c854ce99b4"
    )


@given(st.text())
def test_a_caption_stands_as_it_is(caption: str) -> None:
    assert f"The prompt is: {caption}\n" in render(caption)


def test_placeholders_in_a_caption_stay_text() -> None:
    assert "The prompt is: {n} {caption} {dim_name_1} {x}\n" in render("{n} {caption} {dim_name_1} {x}")


def test_only_what_a_user_wrote_is_untrusted() -> None:
    own = {**PROFILE.dimensions, "VQ": Dimension("Sharpness", "how crisp")}
    parts = render_user(PROFILE.user_prompt, caption="a fox", dimensions=own, workspace=48)
    untrusted = [part.text for part in parts if not part.trusted]
    assert "a fox" in untrusted
    assert "Sharpness" in untrusted
    assert "96" not in untrusted
