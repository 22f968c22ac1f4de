from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrt_lite.protocol.messages import FrameRef
from vrt_lite.protocol.tags import Granted, Refused, read_call


def call(targets: object, name: object = "select_frames") -> str:
    return json.dumps({"name": name, "arguments": {"target_frames": targets}})


def test_frames_are_granted_in_the_order_asked_and_as_often() -> None:
    granted = read_call(call([50, 1, 96, 50]), workspace=48, limit=8)
    assert granted == Granted((FrameRef(1, 1), FrameRef(0, 0), FrameRef(1, 47), FrameRef(1, 1)))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("9" * 10_000, "not valid JSON"),
        ("[1, 2]", "not a JSON object"),
        (call([1], name="delete_files"), "does not name the one tool"),
        ('{"name": "select_frames", "arguments": [1]}', "no list of integers"),
        (call("1, 2"), "no list of integers"),
        (call([]), "no list of integers"),
        (call([0]), "outside 1 to 96"),
        (call([97]), "outside 1 to 96"),
        (call([10**30]), "outside 1 to 96"),
        (call([1.0]), "not an integer"),
        (call([float("nan")]), "not an integer"),
        (call([True]), "not an integer"),
        (call(["1"]), "not an integer"),
        (call(list(range(1, 10))), "asks for 9 frames; at most 8"),
        (call([1] * 1_000_000), "asks for 1000000 frames"),
    ],
)
def test_refusals(payload: str, reason: str) -> None:
    refused = read_call(payload, workspace=48, limit=8)
    assert isinstance(refused, Refused)
    assert reason in refused.reason


@given(st.text() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_read_is_total(payload: str) -> None:
    assert isinstance(read_call(payload, workspace=48, limit=8), Granted | Refused)
