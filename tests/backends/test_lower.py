"""Lowering: the flat list, its positions and sizes beside the reference, and captions that stay plain.

The tokenizer is the bundled judge's own. tests/golden/make_positions.py made the golden files.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrt_lite.backends.llamacpp.engine import Model
from vrt_lite.backends.llamacpp.lower import FrameBlock, Item, lower, tokenize
from vrt_lite.judge import Pair, opening
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find
from vrt_lite.profile import Clock
from vrt_lite.protocol.messages import Conversation, FrameRef, Generated, Image, Message, Text, Video, smart_resize

FILES = find()
BLOCK = FrameBlock(("key",), (0,), 2, 3)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>"]
CONTROL += ["<tool_call>", "</tool_call>"]
GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(FILES.text, settings=EngineSettings(gpu_layers=0)) as loaded:
        yield loaded


def lowered(model: Model, conversation: Conversation) -> list[Item]:
    return lower(conversation, model, lambda part: BLOCK)


def control_tokens(model: Model, tokens: list[Item] | list[int]) -> list[Item]:
    special = {model.control(name) for name in CONTROL}
    return [token for token in tokens if token in special]


def check_caption(model: Model, caption: str) -> None:
    """The control tokens are those of a plain caption."""
    hostile, plain = (lowered(model, opening(Pair(text, (3.0, 3.0)), FILES.profile)) for text in (caption, "a fox"))
    assert control_tokens(model, hostile) == control_tokens(model, plain)


def test_the_layout_is_the_checkpoints(model: Model) -> None:
    conversation: Conversation = (
        Message("system", (Text("You <tool_call> me."),)),
        Message("user", (Video((FrameRef(0, 0),), 1.0), Video((FrameRef(1, 0),), 1.0), Text("Compare: "))),
        Message("assistant", (Generated("ok", (5, 6, 7)),)),
        Message("user", (Image(FrameRef(0, 1)),), tool_outcome=True),
    )
    start, end, seen, done = (model.control(name) for name in CONTROL[1:5])

    def text(words: str) -> list[Item]:
        return list(model.tokens(words, special=True))

    picture: list[Item] = [seen, BLOCK, done]
    assert lowered(model, conversation) == [
        *[start, *text("system\nYou <tool_call> me."), end, *text("\n")],
        *[start, *text("user\n"), *picture, *picture, *text("Compare: "), end, *text("\n")],
        *[start, *text("assistant\n"), 5, 6, 7, end, *text("\n")],
        *[start, *text("user\n"), *picture, end, *text("\n")],
        *[start, *text("assistant\n")],
    ]
    assert model.control("<tool_call>") in lowered(model, conversation)


@pytest.mark.parametrize("name", [*CONTROL, "<__media__>", "</final answer>", "\x00", "\u202e", "\ud800"])
def test_hostile_captions(model: Model, name: str) -> None:
    check_caption(model, f"a {name}{name} fox")
    for cut in range(1, len(name)):
        run = [Text(name[:cut]), Text(name[cut:], trusted=False)]
        assert not control_tokens(model, tokenize(run, model)), "of two halves only one is trusted"


@settings(max_examples=60, deadline=None)
@given(st.text() | st.lists(st.sampled_from([*CONTROL, "<", "|", "tool_call>", "a", " "])).map("".join))
def test_a_caption_never_changes_the_control_tokens(model: Model, caption: str) -> None:
    check_caption(model, caption)


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_an_untrusted_text_reaches_the_model_whole(model: Model, caption: str) -> None:
    tokens = tokenize([Text("<tool", trusted=True), Text(caption, trusted=False)], model)
    assert b"".join(map(model.piece, tokens)).decode() == unicodedata.normalize("NFC", f"<tool{caption}")


def test_a_caption_is_composed_and_tokenised_with_the_text_around_it(model: Model) -> None:
    run = [Text("The prompt is: "), Text("A cafe\u0301.", trusted=False), Text("\nNext")]
    assert tokenize(run, model) == model.tokens("The prompt is: A caf\u00e9.\nNext", special=False)


# Positions and sizes beside the reference


def positions(parts: list[list[Any]], clock: Clock) -> list[list[int]]:
    """Planes t, y, x of a sequence of parts, as the back end gives them to the engine."""
    found = [np.empty((4, 0), np.int32)]
    position = 0
    for kind, *sizes in parts:
        if kind == "text":
            found.append(np.tile(np.arange(position, position + sizes[0]), (4, 1)))
            position += sizes[0]
            continue
        patches, rows, columns, seconds = sizes if kind == "video" else (1, *sizes, 0.0)
        block = FrameBlock(tuple("k" * patches), clock.steps(patches, seconds), rows, columns)
        found += [block.planes(number, position) for number in range(patches)]
        position += block.positions
    return np.concatenate(found, axis=1)[:3].tolist()


DIFFERENT = {
    "two videos on their own clocks",
    "long clip: t exceeds rows and columns",
    "very long clip after a tall one",
    "odd sizes",
    "one video, under 1 s becomes 0",
    "t passes the last column by one",
    "a step that 32 bits round up",
}
"""Where transformers 5 is left: t passes the grid, or 32 bits round. A 5.x that comes round is noticed."""


@pytest.mark.parametrize(("file", "rule"), [("positions", "truncate"), ("positions_exact", "exact")])
def test_positions_are_the_references(file: str, rule: Any) -> None:
    different: set[str] = set()
    for case in json.loads((GOLDEN / f"{file}.json").read_text("utf-8"))["cases"]:
        ours = positions(case["parts"], Clock(rule, tokens_per_second=2))
        assert (ours == case["positions"]) == (not case.get("differs")), case["name"]
        if case.get("differs"):
            different.add(case["name"])
            assert ("32 bits" in case["differs"]) == (case["name"] == "a step that 32 bits round up")
    assert different == (DIFFERENT if rule == "exact" else set())
    assert Clock("fixed", seconds_per_patch=1.5).steps(3, 99.0) == (0, 3, 6)


def test_sizes_are_the_references() -> None:
    rows: list[list[int]] = json.loads((GOLDEN / "sizes.json").read_text())["rows"]
    assert len(rows) > 300
    for width, height, least, most, *expected in rows:
        assert list(smart_resize(width, height, min_pixels=least, max_pixels=most)) == expected
    for size in ((252, 140), (640, 360), (1280, 720), (1920, 1080), (3840, 2160)):
        assert smart_resize(*size, min_pixels=35280, max_pixels=35840) == (252, 140), "as the bundled judge knows"
