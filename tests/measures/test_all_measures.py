"""Drawn faults: each measure moves the right way, and the preference that is made of all is right about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, get_args

import numpy as np
import pytest
import scenes as drawn
from scenes import COLUMNS, FAULTS, FPS, HARMLESS, ROWS, scenes

from vrt_lite.measures import MEASURES, MeasureName, compare_values
from vrt_lite.measures.clip_measures import LOOK, ClipMeasures, Collecting
from vrt_lite.measures.definitions import DEFINITIONS, comparable
from vrt_lite.measures.looks import compare_looks
from vrt_lite.measures.preference import load_heads, prefer_by_measures
from vrt_lite.protocol.report import MEASURED_KEYS
from vrt_lite.video.frame_conversion import Planes

SCENES = ("texture", "sky", "shapes")
MOVES: Final[dict[tuple[str, str], dict[str, str]]] = {
    # fault and scene: the measures that rise or fall
    ("blur", "shapes"): {"sharpness": "-", "gradient_2": "+", "gradient_4": "+", "fine": "-"},
    ("blur", "texture"): {"gradient_1": "+", "detail": "-", "texture": "-"},
    ("blur", "sky"): {"gradient_3": "+"},
    ("noise", "sky"): {"noise": "+", "band_small": "-"},
    ("noise", "shapes"): {"quiet_change": "+"},
    ("bands", "texture"): {"evenness": "-", "code_gaps": "+", "codes": "-"},
    ("bands", "sky"): {"banding": "+", "band_large": "+"},
    ("sharpening", "texture"): {"detail_slope": "+"},
    ("sharpening", "shapes"): {"edges": "+", "seams": "+", "halo": "+"},
    ("blocks", "texture"): {"blockiness": "+"},
    ("blocks", "sky"): {"grid_16": "+"},
    ("blocks", "shapes"): {"grid_change": "+"},
    ("rows", "texture"): {"comb": "+"},
    ("wide rows", "texture"): {"wide_comb": "+"},
    ("repeated rows", "texture"): {"steps": "-"},
    ("repeated rows", "shapes"): {"steps": "-"},
    ("double", "texture"): {"doubled": "+"},
    ("double", "shapes"): {"doubled": "+"},
    ("dots", "texture"): {"dots": "+"},
    ("dots", "sky"): {"dots": "+"},
    ("lost blocks", "texture"): {"block_change": "+"},
    ("bright", "texture"): {"top_code": "+", "white": "+", "black": "+"},
    ("veil", "texture"): {"contrast": "-", "brightness": "+", "dark": "+"},
    ("freeze", "texture"): {"frozen": "+"},
    ("holds", "sky"): {"repeated": "+"},
    ("holds", "shapes"): {"same": "+"},
    ("holds", "texture"): {"interval": "+", "alternation": "+"},
    ("boiling", "shapes"): {"change": "+", "boiling": "+", "near_change": "+"},
    ("boiling", "sky"): {"far_change": "+"},
    ("speed", "texture"): {"unevenness": "+"},
    ("skips", "sky"): {"jump": "+"},
    ("skips", "texture"): {"lone_jump": "+"},
    ("loop", "texture"): {"echo": "+"},
    ("turn", "texture"): {"return": "-"},
    ("jitter", "sky"): {"detour": "-"},
    ("jitter", "texture"): {"shake": "+", "zigzag": "-"},
    ("jitter", "shapes"): {"jerk": "+"},
    ("flicker", "texture"): {"flicker": "+"},
    ("part", "texture"): {"local_flicker": "+"},
    ("softening", "texture"): {"fading": "+"},
    ("refresh", "texture"): {"pulse": "+"},
    ("refresh", "shapes"): {"largest_pulse": "+"},
    ("vanishing", "texture"): {"vanishing": "+"},
    ("vanishing", "sky"): {"spot_light": "+"},
    ("wobble", "texture"): {"near_flow": "+", "far_flow": "+", "far_twist": "+", "wavering": "+"},
    ("bending", "shapes"): {"spot_motion": "+", "spot_wavering": "+"},
    ("stamp", "texture"): {"fixed_edges": "+", "light_strokes": "+", "dark_strokes": "+"},
    ("logo", "texture"): {"fixed_corner": "+"},
}
COLOURS: Final = {"saturation", "colours", "cast", "tint", "white_point", "neutral"}
SPOILED_COLOUR: Final[dict[str, tuple[Callable[[np.ndarray, int], np.ndarray], dict[str, str]]]] = {
    # what is done to both chroma planes at a time, and the measures that rise or fall
    "moved": (lambda plane, _: np.roll(plane, 5, 1), {"colour_shift": "+", "colour_lag": "+"}),
    "smeared": (lambda plane, _: drawn.blur([plane], 4.0)[0], {"colour_detail": "-"}),
    "noisy": (lambda plane, t: plane + np.random.default_rng(t).integers(-6, 7, plane.shape), {"colour_noise": "+"}),
    "drifting": (lambda plane, t: plane + np.uint8(20 + round(16 * math.sin(t / 8))), {"colour_drift": "+"}),
    "flickering": (lambda plane, t: plane + np.uint8(6 * (t % 2)), {"colour_flicker": "+"}),
}
OF_PLANES: Final = {name for _, moves in SPOILED_COLOUR.values() for name in moves}
HARMLESS_COLOUR: Final[dict[str, Callable[[np.ndarray, int], np.ndarray]]] = {
    "stronger": lambda plane, _: (128 + 1.15 * (plane.astype(int) - 128)).clip(0, 255).astype(np.uint8),
    "warmer": lambda plane, _: plane + np.uint8(4),
    "recoded": lambda plane, _: np.round(plane / 3) * 3,
}
SHOWN: Final[dict[MeasureName, tuple[str, float, set[MeasureName]]]] = {
    # measure: its fault, a strength above the plain one, and the others that it moves too, as it should
    "sharpness": ("blur", 4.0, {"noise", "banding"}),  # a blur takes noise away, and bands too
    "noise": ("noise", 16.0, {"sharpness", "banding"}),  # edges and bands drown in noise
    # A coarse encoding takes away fine detail, and noise first; it leaves flats with steps between them.
    "blockiness": ("blocks", 50.0, {"noise", "sharpness", "banding"}),
    "banding": ("bands", 14.0, {"noise"}),  # rounding a texture is noise
    "flicker": ("flicker", 20.0, {"banding"}),  # drawn slopes have steps of one level, and rounding moves them
    "repeated": ("holds", 6.0, {"frozen"}),
    "frozen": ("freeze", 30.0, {"repeated"}),
    "shake": ("jitter", 8.0, {"banding"}),  # and interpolation softens them
}
PLAIN = ("blur", "noise", "blocks", "bands", "flicker", "holds", "jitter", "veil", "lost blocks", "boiling", "wobble")
"""Faults that are drawn so strong that no judge may prefer them."""


def measure(
    pictures: Sequence[np.ndarray],
    *,
    fps: float = FPS,
    blue: int = 0,
    red: int = 0,
    spoil: Callable[[np.ndarray, int], np.ndarray] = lambda plane, _: plane,
) -> ClipMeasures:
    """Measure pictures whose colour follows their luma, `blue` and `red` added, and both planes spoiled."""
    collecting = Collecting([range(len(pictures))])
    for number, luma in enumerate(pictures):
        half = luma[::2, ::2].astype(int) - 128
        planes = [(128 + gain * half + cast).clip(0, 255).astype(np.uint8) for gain, cast in ((0.3, blue), (-0.2, red))]
        spoiled = [spoil(plane, number).astype(np.uint8) for plane in planes]
        collecting.add(number, Planes(luma, spoiled[0], spoiled[1], True))
    return collecting.measure([number / fps for number in range(len(pictures))])


@cache
def coded_scene(scene: str) -> drawn.Pictures:
    return drawn.encode(scenes()[scene], 14)


@cache
def measured(scene: str, change: str = "", strength: float = 0.0, *, coded: bool = False) -> ClipMeasures:
    """Measure a scene, changed; `coded` before that, as every file is."""
    pictures = coded_scene(scene) if coded else scenes()[scene]
    if change in HARMLESS:
        pictures = HARMLESS[change](pictures)
    elif change:
        fault, plain = FAULTS[change]
        pictures = fault(pictures, strength or plain)
    return measure(pictures)


def shift(name: str, scene: str, change: str) -> float:
    """By how much a measure changes, on the scale of comparison."""
    before, after = (measured(scene, each).values[name] for each in ("", change))
    return comparable(name, after) - comparable(name, before)


def test_every_measure_has_a_test() -> None:
    moved = {name for names in MOVES.values() for name in names}
    assert set(DEFINITIONS) == moved | COLOURS | OF_PLANES | {"rows", "rate", "length"} == set(measured("sky").values)
    assert {fault for fault, _ in MOVES} == set(FAULTS)
    assert set(SHOWN) == set(MEASURES) == set(get_args(MeasureName))


@pytest.mark.parametrize(("fault", "scene"), MOVES)
def test_measures_move_with_a_fault_and_not_with_harmless_changes(fault: str, scene: str) -> None:
    for name, direction in MOVES[fault, scene].items():
        moved = shift(name, scene, fault) * (1 if direction == "+" else -1)
        assert moved > 0.02, name
        harmless = {each: abs(shift(name, scene, each)) for each in HARMLESS}
        assert max(harmless.values()) < 0.5 * moved, (name, harmless)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_that_is_shown_moves_with_its_fault_and_most_others_stay(name: MeasureName, scene: str) -> None:
    fault, _, also = SHOWN[name]
    clean, faulty = measured(scene).values, measured(scene, fault).values
    better = {other: compare_values(other, (clean[other], faulty[other])).better for other in MEASURES}
    assert {other for other in MEASURES if better[other]} <= {name, *also}
    if (name, scene) != ("banding", "texture"):  # in a texture no bands can be seen
        assert better[name] == 1
        assert compare_values(name, (faulty[name], clean[name])).better == 2


@pytest.mark.parametrize("name", MEASURES)
def test_a_stronger_fault_moves_its_measure_more(name: MeasureName) -> None:
    fault, strong, _ = SHOWN[name]
    values = [
        m.values[name] for m in (measured("shapes"), measured("shapes", fault), measured("shapes", fault, strong))
    ]
    assert values == sorted(values, reverse=MEASURES[name].larger_is_better)


@pytest.mark.parametrize(("scene", "strength"), [("texture", 0), ("sky", 0), ("shapes", 0), ("shapes", 16.0)])
def test_noise_is_measured_in_levels(scene: str, strength: float) -> None:
    found = measured(scene, "noise", strength).values["noise"]
    assert found == pytest.approx(strength or FAULTS["noise"][1], rel=0.12)


def test_a_steady_pan_and_a_fade_are_no_fault() -> None:
    texture = scenes()["texture"]
    found = measure([(picture * (1 - 0.5 * t / len(texture))).astype(np.uint8) for t, picture in enumerate(texture)])
    assert found.values["flicker"] < 0.2 and found.values["shake"] < 0.05 and found.values["repeated"] == 0


def test_colours_are_measured() -> None:
    pictures = scenes()["shapes"][:8]
    plain, tinted = measure(pictures).values, measure(pictures, blue=24, red=-30).values
    assert all(tinted[name] > plain[name] for name in ("cast", "tint", "white_point"))
    assert tinted["neutral"] < plain["neutral"]
    grey = [(96 + picture // 4).astype(np.uint8) for picture in pictures]
    faded = measure(grey).values
    assert faded["saturation"] < plain["saturation"]
    assert faded["colours"] < plain["colours"]


def test_measures_of_colour_move_with_a_fault_and_not_with_harmless_changes() -> None:
    clean, pictures = measured("texture").values, scenes()["texture"]
    harmless = [measure(pictures, spoil=each).values for each in HARMLESS_COLOUR.values()]
    for spoil, moves in SPOILED_COLOUR.values():
        faulty = measure(pictures, spoil=spoil).values
        for name, direction in moves.items():
            before = comparable(name, clean[name])
            moved = (comparable(name, faulty[name]) - before) * (1 if direction == "+" else -1)
            assert moved > 0.1, name
            assert max(abs(comparable(name, each[name]) - before) for each in harmless) < 0.5 * moved, name


def test_size_rate_and_length_are_known() -> None:
    values, slower = measured("sky").values, measure(scenes()["sky"][::2], fps=FPS / 2).values
    assert values["rows"] == pytest.approx(np.log(min(ROWS, COLUMNS) / 360))
    assert values["rate"] == pytest.approx(np.log(FPS / 24))
    assert values["length"] == 0
    assert slower["rate"] == pytest.approx(values["rate"] - np.log(2))
    assert slower["length"] == pytest.approx(-np.log(2))


@pytest.mark.parametrize(("scene", "frames", "fps"), [("texture", 4, 8), ("sky", 9, 24), ("texture", 48, 60)])
def test_every_second_frame_repeated_is_half(scene: str, frames: int, fps: int) -> None:
    found = measure(drawn.hold(scenes()[scene][:frames], 2), fps=fps).values
    assert found["repeated"] == pytest.approx(100 * (frames // 2) / (frames - 1), abs=0.1)
    assert found["frozen"] == pytest.approx(1 / fps)


def test_what_stands_still_by_itself_is_not_repeated() -> None:
    still = [scenes()["sky"][0]] * 30
    for pictures in (still, drawn.add_noise(still, 2.0)):
        found = measure(pictures).values
        assert found["repeated"] == found["frozen"] == 0
    stopping = [scenes()["texture"][min(int(20 * (1 - np.exp(-t / 9))), 47)] for t in range(48)]
    assert measure(stopping).values["frozen"] > 0  # whole pixels: it stops at once
    one, two = (scenes()["texture"][t].astype(float) for t in (0, 1))
    slow = [np.rint(one + (two - one) * t / 30).astype(np.uint8) for t in range(30)]
    assert measure(slow).values["repeated"] < 5


def test_bands_of_one_level_count() -> None:
    y, x = np.mgrid[:ROWS, :COLUMNS]
    smooth = 60 + 0.05 * x + 0.04 * y
    rng = np.random.default_rng(3)
    dithered = measure([np.floor(smooth + rng.random(smooth.shape)).astype(np.uint8) for _ in range(6)])
    for levels in (1, 2, 3):
        banded = measure([(np.floor(smooth / levels) * levels).astype(np.uint8)] * 6)
        assert 2 * dithered.values["banding"] < banded.values["banding"]


@pytest.mark.parametrize("shape", [(1, 1), (9, 2), (10, 11), (28, 400), (17, 17), (41, 1200)])
@pytest.mark.parametrize("frames", [1, 3, 9])
def test_tiny_pictures_are_measured(shape: tuple[int, int], frames: int) -> None:
    rng = np.random.default_rng(0)
    found = measure([rng.integers(0, 256, shape).astype(np.uint8) for _ in range(frames)])
    assert set(found.values) == set(DEFINITIONS)
    assert all(np.isfinite(value) for value in found.values.values())


@pytest.mark.parametrize(
    ("scene", "change"), [("texture", ""), ("texture", "holds"), ("shapes", "recoded"), ("shapes", "noise")]
)
def test_exchanged_clips_exchange_the_answer(scene: str, change: str) -> None:
    one, two = measured("shapes"), measured(scene, change)
    given, turned = prefer_by_measures(one, two), prefer_by_measures(two, one).mirrored()
    assert given.winners == turned.winners
    for key in MEASURED_KEYS:
        assert given.odds[key] == turned.odds[key]
        assert math.isclose(sum(given.odds[key]), 1)


@pytest.mark.parametrize("change", ["", *HARMLESS])
@pytest.mark.parametrize("scene", SCENES[:2])
def test_equal_and_harmless_versions_have_no_winner(scene: str, change: str) -> None:
    said = prefer_by_measures(measured(scene, coded=True), measured(scene, change, coded=True))
    assert said.winners["OA"] in (0, None)
    assert said.same_scene
    assert not said.faults


@pytest.mark.parametrize("change", PLAIN)
@pytest.mark.parametrize("scene", ["texture", "shapes"])
def test_a_plain_fault_never_wins(scene: str, change: str) -> None:
    said = prefer_by_measures(measured(scene), measured(scene, change))
    assert said.winners["OA"] != 2
    assert said.odds["OA"][1] > said.odds["OA"][2]


@pytest.mark.parametrize(
    ("scene", "change", "names"),
    [
        ("sky", "noise", {"noise", "grain"}),  # the texture is noise itself: more of it has no sure winner overall
        ("shapes", "noise", {"noise", "grain"}),
        *((scene, "holds", {"stutter"}) for scene in SCENES),
    ],
)
def test_a_named_fault_is_that_of_the_faulty_clip(scene: str, change: str, names: set[str]) -> None:
    sure = replace(load_heads(), sure=0.0)
    clean, faulty = measured(scene), measured(scene, change)
    [fault] = prefer_by_measures(clean, faulty, heads=sure).faults
    assert fault.video == 2 and fault.name in names
    [turned] = prefer_by_measures(faulty, clean, heads=sure).faults
    assert turned == replace(fault, video=1)


def test_noise_over_a_texture_that_is_noise_is_not_preferred() -> None:
    said = prefer_by_measures(measured("texture"), measured("texture", "noise"))
    for _, clean, noisy in (said.odds["VQ"], said.odds["OA"]):
        assert clean > 5 * noisy


def test_looks_know_a_scene_again() -> None:
    bound = load_heads().same_look
    for one, two in zip(SCENES, ("sky", "shapes", "texture"), strict=True):
        for change in (*HARMLESS, "noise", "blur", "flicker", "veil"):
            assert compare_looks(measured(one).look, measured(one, change).look) > bound, (one, change)
        assert compare_looks(measured(one).look, measured(two).look) < bound
    grey = bytes([128] * math.prod(LOOK))
    assert compare_looks(grey, grey) == 0
