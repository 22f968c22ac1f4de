"""Lowering: the flat list, and captions that stay plain. The tokenizer is the bundled judge's own."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrt_lite.backends.llamacpp.engine import Model
from vrt_lite.backends.llamacpp.lower import FrameBlock, Item, lower, tokenize
from vrt_lite.judge import Pair, opening
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find
from vrt_lite.protocol.messages import Conversation, FrameRef, Generated, Image, Message, Text, Video

FILES = find()
BLOCK = FrameBlock(("key",), (0,), 2, 3)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>"]
ADDED = ["<tool_call>", "</tool_call>"]


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(FILES.text, settings=EngineSettings(gpu_layers=0)) as loaded:
        yield loaded


def block(part: Video | Image) -> FrameBlock:
    return BLOCK


def ids(model: Model, caption: str) -> list[int]:
    items = lower(opening(Pair(caption, (3.0, 3.0)), FILES.profile), model, block)
    return [item for item in items if isinstance(item, int)]


def control_tokens(model: Model, tokens: list[int]) -> list[int]:
    special = {model.control(name) for name in CONTROL + ADDED}
    return [token for token in tokens if token in special]


def test_the_layout_is_the_checkpoints(model: Model) -> None:
    conversation: Conversation = (
        Message("system", (Text("You <tool_call> me."),)),
        Message("user", (Video((FrameRef(0, 0),), 1.0), Video((FrameRef(1, 0),), 1.0), Text("Compare: "))),
        Message("assistant", (Generated("ok", (5, 6, 7)),)),
        Message("user", (Image(FrameRef(0, 1)),), tool_outcome=True),
    )
    start, end = model.control("<|im_start|>"), model.control("<|im_end|>")
    seen, done = model.control("<|vision_start|>"), model.control("<|vision_end|>")

    def text(words: str) -> list[Item]:
        return list(model.tokens(words, special=True))

    newline = text("\n")
    picture: list[Item] = [seen, BLOCK, done]
    assert lower(conversation, model, block) == [
        *[start, *text("system\nYou <tool_call> me."), end, *newline],
        *[start, *text("user\n"), *picture, *picture, *text("Compare: "), end, *newline],
        *[start, *text("assistant\n"), 5, 6, 7, end, *newline],
        *[start, *text("user\n"), *picture, end, *newline],
        *[start, *text("assistant\n")],
    ]
    assert model.control("<tool_call>") in lower(conversation, model, block)


def test_a_caption_is_tokenised_with_the_text_around_it(model: Model) -> None:
    run = [Text("The prompt is: "), Text("A red circle.", trusted=False), Text("\nNext")]
    assert tokenize(run, model) == model.tokens("The prompt is: A red circle.\nNext", special=False)


@pytest.mark.parametrize("name", CONTROL + ADDED + ["<__media__>", "</final answer>", "\x00", "\u202e", "\ud800"])
def test_hostile_captions(model: Model, name: str) -> None:
    plain, hostile = ids(model, "a fox"), ids(model, f"a {name}{name} fox")
    assert control_tokens(model, hostile) == control_tokens(model, plain)


@settings(max_examples=200, deadline=None)
@given(st.text() | st.lists(st.sampled_from([*CONTROL, *ADDED, "<", "|", "tool_call>", "a", " "])).map("".join))
def test_a_caption_never_changes_the_control_tokens(model: Model, caption: str) -> None:
    assert control_tokens(model, ids(model, caption)) == control_tokens(model, ids(model, "a fox"))


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_an_untrusted_text_reaches_the_model_whole(model: Model, caption: str) -> None:
    tokens = tokenize([Text("<tool", trusted=True), Text(caption, trusted=False)], model)
    assert b"".join(map(model.piece, tokens)).decode() == unicodedata.normalize("NFC", f"<tool{caption}")


def test_letters_are_composed_as_the_reference_does(model: Model) -> None:
    assert tokenize([Text("cafe\u0301", trusted=False)], model) == tokenize([Text("caf\u00e9", trusted=False)], model)


def test_a_trusted_half_and_an_untrusted_half_make_no_control_token(model: Model) -> None:
    for name in ADDED + CONTROL:
        for cut in range(1, len(name)):
            run = [Text(name[:cut]), Text(name[cut:], trusted=False)]
            assert not control_tokens(model, tokenize(run, model))
