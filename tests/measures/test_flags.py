from __future__ import annotations

import pytest

from vrt_lite.measures import MEASURES
from vrt_lite.measures.flags import Flag, describe_flags, find_flags


@pytest.mark.parametrize(
    ("values", "flags"),
    [
        ({"repeated": 59.6}, (Flag("stutter", "repeated 60 %"),)),
        ({"repeated": 14.9}, ()),
        ({"frozen": 1.25, "flicker": 4.0}, (Flag("freeze", "frozen 1.25 s"), Flag("flicker", "flicker 4.0 levels"))),
        ({"sharpness": 0.0, "noise": 90.0}, ()),
        ({"repeated": None}, ()),
        ({}, ()),
    ],
)
def test_a_flag_is_a_measured_fault_from_its_bound_on(values: dict[str, float | None], flags: tuple[Flag, ...]) -> None:
    assert find_flags(values) == flags


def test_a_clip_of_every_fault_names_each_once() -> None:
    flags = find_flags(dict.fromkeys(MEASURES, 1e6))
    assert len({flag.fault for flag in flags}) == len(flags) == 3
    assert describe_flags(flags).startswith("repeated 1000000 %, frozen 1000000 s, ")
    assert describe_flags(()) == ""
