"""Each measure moves the right way under a fault, and much less under what is harmless."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import numpy as np
import pytest
import scenes as drawn
from scenes import COLUMNS, FPS, ROWS, Pictures, scenes

from vrt_lite.measures.clip_measures import ClipMeasures, Collecting
from vrt_lite.measures.definitions import DEFINITIONS, comparable
from vrt_lite.video.planes import Planes

Change = Callable[[Pictures, float], Pictures]
FAULTS: Final[dict[str, tuple[Change, float]]] = {
    "blur": (drawn.blur, 2.0),
    "noise": (drawn.add_noise, 8.0),
    "blocks": (drawn.encode_low, 44.0),
    "bands": (drawn.posterise, 9.0),
    "flicker": (drawn.change_light, 8.0),
    "holds": (drawn.hold, 3.0),
    "jitter": (drawn.jitter, 4.0),
    "rows": (drawn.interlace, 2),
    "veil": (drawn.veil, 0.4),
    "bright": (drawn.expose, 3.0),
    "sharpening": (drawn.sharpen, 2.0),
    "stamp": (drawn.stamp, 60.0),
    "logo": (drawn.add_logo, 90.0),
    "lost blocks": (drawn.lose_blocks, 0.1),
    "skips": (drawn.skip, 4.0),
    "speed": (drawn.speed_up, 3.0),
    "loop": (drawn.repeat_part, 10),
    "turn": (drawn.turn_back, 24),
    "part": (drawn.light_a_part, 20.0),
    "refresh": (drawn.refresh, 1.2),
    "softening": (drawn.soften_slowly, 3.0),
    "vanishing": (drawn.vanish, 70.0),
    "wobble": (drawn.wobble, 5.0),
    "boiling": (drawn.boil, 12.0),
    "bending": (drawn.bend_a_part, 14.0),
}
MOVES: Final[dict[str, tuple[str, str, str]]] = {
    # measure: fault, scene, + or -
    "sharpness": ("blur", "shapes", "-"),
    "noise": ("noise", "sky", "+"),
    "gradient_1": ("blur", "texture", "+"),
    "gradient_2": ("blur", "shapes", "+"),
    "gradient_3": ("blur", "sky", "+"),
    "gradient_4": ("blur", "shapes", "+"),
    "detail": ("blur", "texture", "-"),
    "texture": ("blur", "texture", "-"),
    "evenness": ("bands", "texture", "-"),
    "detail_slope": ("sharpening", "texture", "+"),
    "edges": ("sharpening", "shapes", "+"),
    "seams": ("sharpening", "shapes", "+"),
    "halo": ("sharpening", "shapes", "+"),
    "blockiness": ("blocks", "texture", "+"),
    "grid_16": ("blocks", "sky", "+"),
    "comb": ("rows", "texture", "+"),
    "block_change": ("lost blocks", "texture", "+"),
    "grid_change": ("blocks", "shapes", "+"),
    "quiet_change": ("noise", "shapes", "+"),
    "banding": ("bands", "sky", "+"),
    "band_small": ("noise", "sky", "-"),
    "band_large": ("bands", "sky", "+"),
    "code_gaps": ("bands", "texture", "+"),
    "codes": ("bands", "texture", "-"),
    "top_code": ("bright", "texture", "+"),
    "contrast": ("veil", "texture", "-"),
    "brightness": ("veil", "texture", "+"),
    "dark": ("veil", "texture", "+"),
    "white": ("bright", "texture", "+"),
    "black": ("bright", "texture", "+"),
    "frozen": ("holds", "texture", "+"),
    "repeated": ("holds", "sky", "+"),
    "same": ("holds", "shapes", "+"),
    "interval": ("holds", "texture", "+"),
    "change": ("boiling", "shapes", "+"),
    "unevenness": ("speed", "texture", "+"),
    "alternation": ("holds", "texture", "+"),
    "jump": ("skips", "sky", "+"),
    "lone_jump": ("skips", "texture", "+"),
    "echo": ("loop", "texture", "+"),
    "return": ("turn", "texture", "-"),
    "detour": ("jitter", "sky", "-"),
    "flicker": ("flicker", "texture", "+"),
    "local_flicker": ("part", "texture", "+"),
    "fine": ("blur", "shapes", "-"),
    "fading": ("softening", "texture", "+"),
    "boiling": ("boiling", "shapes", "+"),
    "pulse": ("refresh", "texture", "+"),
    "largest_pulse": ("refresh", "shapes", "+"),
    "vanishing": ("vanishing", "texture", "+"),
    "shake": ("jitter", "texture", "+"),
    "jerk": ("jitter", "shapes", "+"),
    "zigzag": ("jitter", "texture", "-"),
    "near_flow": ("wobble", "texture", "+"),
    "near_change": ("boiling", "shapes", "+"),
    "far_flow": ("wobble", "texture", "+"),
    "far_twist": ("wobble", "texture", "+"),
    "far_change": ("boiling", "sky", "+"),
    "wavering": ("wobble", "texture", "+"),
    "spot_light": ("vanishing", "sky", "+"),
    "spot_motion": ("bending", "shapes", "+"),
    "spot_wavering": ("bending", "shapes", "+"),
    "fixed_edges": ("stamp", "texture", "+"),
    "fixed_corner": ("logo", "texture", "+"),
    "light_strokes": ("stamp", "texture", "+"),
    "dark_strokes": ("stamp", "texture", "+"),
}
COLOURS: Final = {"saturation", "colours", "cast", "tint", "white_point", "neutral"}
HARMLESS: Final[dict[str, Callable[[Pictures], Pictures]]] = {
    "recoded": lambda pictures: drawn.encode_low(pictures, 16),
    "mirrored": lambda pictures: [np.ascontiguousarray(picture[:, ::-1]) for picture in pictures],
    "trimmed": lambda pictures: pictures[5:],
    "brighter": lambda pictures: [np.minimum(picture, 249) + np.uint8(6) for picture in pictures],
}


def measure(pictures: Sequence[np.ndarray], *, fps: float = FPS, blue: int = 0, red: int = 0) -> ClipMeasures:
    """Measure pictures whose colour follows their luma, `blue` and `red` added."""
    collecting = Collecting([range(len(pictures))])
    for number, luma in enumerate(pictures):
        half = luma[::2, ::2].astype(int) - 128
        planes = [(128 + gain * half + cast).clip(0, 255).astype(np.uint8) for gain, cast in ((0.3, blue), (-0.2, red))]
        collecting.add(number, Planes(luma, planes[0], planes[1], True))
    return collecting.measure([number / fps for number in range(len(pictures))])


@cache
def shifts(scene: str, name: str) -> dict[str, float]:
    """By how much each measure changes with a fault, or with a harmless change, on the scale of comparison."""
    pictures = scenes()[scene]
    change = HARMLESS.get(name)
    changed = change(pictures) if change else FAULTS[name][0](pictures, FAULTS[name][1])
    clean, after = clean_values(scene), measure(changed).values
    return {key: comparable(key, after[key]) - comparable(key, clean[key]) for key in clean}


@cache
def clean_values(scene: str) -> dict[str, float]:
    return measure(scenes()[scene]).values


def test_every_measure_has_a_test() -> None:
    assert set(DEFINITIONS) == set(MOVES) | COLOURS | {"rows", "rate", "length"}
    assert set(DEFINITIONS) == set(clean_values("sky"))
    assert {fault for fault, _, _ in MOVES.values()} == set(FAULTS)


@pytest.mark.parametrize("name", MOVES)
def test_a_measure_moves_with_a_fault_and_not_with_harmless_changes(name: str) -> None:
    fault, scene, direction = MOVES[name]
    moved = shifts(scene, fault)[name] * (1 if direction == "+" else -1)
    assert moved > 0.02
    harmless = {each: abs(shifts(scene, each)[name]) for each in HARMLESS}
    assert max(harmless.values()) < 0.5 * moved, harmless


def test_colours_are_measured() -> None:
    pictures = scenes()["shapes"][:8]
    plain, tinted = measure(pictures).values, measure(pictures, blue=24, red=-30).values
    assert all(tinted[name] > plain[name] for name in ("cast", "tint", "white_point"))
    assert tinted["neutral"] < plain["neutral"]
    grey = [(96 + picture // 4).astype(np.uint8) for picture in pictures]
    faded = measure(grey).values
    assert faded["saturation"] < plain["saturation"]
    assert faded["colours"] < plain["colours"]


def test_size_rate_and_length_are_known() -> None:
    pictures = scenes()["sky"]
    values, slower = measure(pictures).values, measure(pictures[::2], fps=FPS / 2).values
    assert values["rows"] == pytest.approx(np.log(min(ROWS, COLUMNS) / 360))
    assert values["rate"] == pytest.approx(np.log(FPS / 24))
    assert values["length"] == 0
    assert slower["rate"] == pytest.approx(values["rate"] - np.log(2))
    assert slower["length"] == pytest.approx(-np.log(2))


@pytest.mark.parametrize("frames", [4, 9, 24, 48])
@pytest.mark.parametrize("scene", ["texture", "sky"])
def test_every_second_frame_repeated_is_half(scene: str, frames: int) -> None:
    pictures = drawn.hold(scenes()[scene][:frames], 2)
    for fps in (8, 24, 60):
        found = measure(pictures, fps=fps).values
        assert found["repeated"] == pytest.approx(100 * (frames // 2) / (frames - 1), abs=0.1)
        assert found["frozen"] == pytest.approx(1 / fps)


def test_what_stands_still_by_itself_is_not_repeated() -> None:
    still = [scenes()["sky"][0]] * 30
    noisy = drawn.add_noise(still, 2.0)
    for pictures in (still, noisy):
        found = measure(pictures).values
        assert found["repeated"] == found["frozen"] == 0
    stopping = [scenes()["texture"][min(int(20 * (1 - np.exp(-t / 9))), 47)] for t in range(48)]
    one, two = (scenes()["texture"][t].astype(float) for t in (0, 1))
    slow = [np.rint(one + (two - one) * t / 30).astype(np.uint8) for t in range(30)]
    assert measure(stopping).values["frozen"] > 0  # whole pixels: it stops at once
    assert measure(slow).values["repeated"] < 5


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_bands_of_one_level_count(levels: int) -> None:
    y, x = np.mgrid[:ROWS, :COLUMNS]
    smooth = 60 + 0.05 * x + 0.04 * y
    rng = np.random.default_rng(3)
    dithered = [np.floor(smooth + rng.random(smooth.shape)).astype(np.uint8) for _ in range(6)]
    banded = [(np.floor(smooth / levels) * levels).astype(np.uint8)] * 6
    assert 2 * measure(dithered).values["banding"] < measure(banded).values["banding"]


@pytest.mark.parametrize("shape", [(1, 1), (9, 2), (10, 11), (28, 400), (17, 17), (41, 1200)])
@pytest.mark.parametrize("frames", [1, 2, 3, 9])
def test_tiny_pictures_are_measured(shape: tuple[int, int], frames: int) -> None:
    rng = np.random.default_rng(0)
    found = measure([rng.integers(0, 256, shape).astype(np.uint8) for _ in range(frames)])
    assert set(found.values) == set(DEFINITIONS)
    assert all(np.isfinite(value) for value in found.values.values())
