"""The measures move with the fault that they are for, and stay with the others, in pictures of several kinds."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from clips import write_clip
from PIL import Image
from scenes import COLUMNS, FAULTS, FPS, ROWS, Pictures, scenes

from vrt_lite import Judge, Settings
from vrt_lite.measures import MEASURES, MeasuredPair, MeasureName, compare_values, find_contradictions
from vrt_lite.measures.clip_measures import MOST_FRAMES, RUNS, ClipMeasures, Collecting, choose_runs, measure_clip
from vrt_lite.protocol.messages import Choice
from vrt_lite.protocol.verdict import Verdict, make_verdict, prefer
from vrt_lite.video import open_clip
from vrt_lite.video.planes import Planes

SCENES = ("texture", "sky", "shapes")
HIDDEN = {("banding", "texture")}
"""In a texture no bands can be seen."""
ALSO_MOVES = {
    "sharpness": {"noise", "banding"},  # a blur takes noise away, and bands too
    "noise": {"sharpness", "banding"},  # edges and bands drown in noise
    # A coarse encoding takes away fine detail, and noise first; it leaves flats with steps between them.
    "blockiness": {"noise", "sharpness", "banding"},
    "flicker": {"banding"},  # drawn slopes have steps of one level, and rounding moves them
    "shake": {"banding"},  # and interpolation softens them
    "banding": {"noise"},  # rounding a texture is noise
    "repeated": {"frozen"},
    "frozen": {"repeated"},
}
"""By the measure of a fault: the others that it moves too, as it should."""


@cache
def measured(scene: str, fault: str = "", strength: float = 0.0) -> dict[MeasureName, float]:
    pictures: Pictures = scenes()[scene]
    if fault:
        pictures = FAULTS[fault][0](pictures, strength)
    return shown(measure_luma(pictures).values)


def shown(values: Mapping[str, float]) -> dict[MeasureName, float]:
    return {name: values[name] for name in MEASURES}


def measure_luma(pictures: Pictures) -> ClipMeasures:
    collecting = Collecting([range(len(pictures))])
    for number, picture in enumerate(pictures):
        grey = np.full((picture.shape[0] // 2, picture.shape[1] // 2), 128, np.uint8)
        collecting.add(number, Planes(picture, grey, grey, True))
    return collecting.measure([number / FPS for number in range(len(pictures))])


def test_every_measure_has_a_fault() -> None:
    assert set(MEASURES) == set(FAULTS) == set(get_args(MeasureName))


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_moves_with_its_fault(name: MeasureName, scene: str) -> None:
    if (name, scene) in HIDDEN:
        pytest.skip("this fault cannot be seen here")
    values = [measured(scene)[name], *(measured(scene, name, strength)[name] for strength in FAULTS[name][1])]
    better = [1 if earlier > later else -1 for earlier, later in pairwise(values)]
    assert better == [1 if MEASURES[name].larger_is_better else -1] * len(better), values
    assert compare_values(name, (values[0], values[-1])).better == 1
    assert compare_values(name, (values[-1], values[0])).better == 2


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_leaves_the_other_measures(fault: str, scene: str) -> None:
    clean, faulty = measured(scene), measured(scene, fault, FAULTS[fault][1][1])
    others = set(MEASURES) - {fault} - ALSO_MOVES.get(fault, set())
    moved = {
        name: (clean[name], faulty[name]) for name in others if compare_values(name, (clean[name], faulty[name])).better
    }
    assert moved == {}


def test_noise_is_measured_in_levels() -> None:
    for scene in SCENES:
        for strength in FAULTS["noise"][1]:
            assert measured(scene, "noise", strength)["noise"] == pytest.approx(strength, rel=0.12)


def test_a_steady_pan_and_a_fade_are_no_fault() -> None:
    texture = scenes()["texture"]
    faded = [(picture * (1 - 0.5 * t / len(texture))).astype(np.uint8) for t, picture in enumerate(texture)]
    found = shown(measure_luma(faded).values)
    assert found["flicker"] < 0.2
    assert found["shake"] < 0.05
    assert found["repeated"] == 0


def made(folder: Path, name: str, pictures: Pictures, *, gop: int = 250) -> Path:
    colours = (np.repeat(picture[..., None], 3, axis=2) for picture in pictures)
    options = {"crf": "12"}
    return write_clip(
        folder / name, frames=len(pictures), fps=FPS, size=(COLUMNS, ROWS), gop=gop, pictures=colours, options=options
    )


def test_compare_measures_both_clips(tmp_path: Path) -> None:
    clean, worse = scenes()["sky"], FAULTS["sharpness"][0](scenes()["sky"], 3.0)
    a, b = made(tmp_path, "a.mp4", clean), made(tmp_path, "b.mp4", worse, gop=12)
    with Judge(settings=Settings(cache=False), measures=False) as judge:
        plain = judge.compare(a, b)
    with Judge(settings=Settings(cache=False)) as judge:
        given = judge.compare(a, b)
        turned = judge.compare(b, a)
    assert plain.measures is None
    assert "measures" not in plain.to_json()
    assert given.measures is not None and turned.measures is not None
    by_name = {pair.name: pair for pair in given.measures}
    assert list(by_name) == list(MEASURES)
    assert by_name["sharpness"].better == 1
    assert [pair.mirrored() for pair in turned.measures] == list(given.measures)
    # The judge is told what was measured, which decides.
    assert given.orders[0].rounds[0].report != plain.orders[0].rounds[0].report
    assert given.measured and turned.measured and not plain.measured
    assert given.verdict.preferences["VQ"] == given.measured.preferences["VQ"]
    assert turned.measured == given.measured.mirrored()
    assert turned.verdict == given.verdict.mirrored()
    assert type(given).from_json(given.to_json()).measures == given.measures


def test_a_clip_is_measured_while_another_thread_reads_it(tmp_path: Path) -> None:
    path = made(tmp_path, "a.mp4", scenes()["shapes"])
    with open_clip(path) as clip:
        alone = measure_clip(clip)
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(measure_clip, clip)
            clip.frames(range(48), size=(252, 140))
        assert beside.result() == alone
    assert (alone.frames_measured, alone.frames) == (48, 48)


def test_the_same_pictures_measure_the_same_in_any_file(tmp_path: Path) -> None:
    """A video file, an animation, numbered pictures and a rotated file of the same pictures measure alike."""
    pictures = scenes()["texture"][:12]
    colours = [np.repeat(picture[..., None], 3, axis=2) for picture in pictures]
    size, lossless = (COLUMNS, ROWS), {"qp": "0"}
    plain = write_clip(tmp_path / "a.mkv", frames=12, fps=FPS, size=size, pictures=colours, options=lossless)
    deep = write_clip(
        tmp_path / "b.mkv", frames=12, fps=FPS, size=size, pictures=colours, options=lossless, pix_fmt="yuv420p10le"
    )
    full = write_clip(
        tmp_path / "c.mkv", frames=12, fps=FPS, size=size, pictures=colours, options=lossless, pix_fmt="yuvj420p"
    )
    rgb = write_clip(
        tmp_path / "d.mkv",
        frames=12,
        fps=FPS,
        size=size,
        pictures=colours,
        options=lossless,
        codec="libx264rgb",
        pix_fmt="rgb24",
    )
    Image.fromarray(colours[0]).save(
        tmp_path / "e.webp",
        save_all=True,
        append_images=[Image.fromarray(c) for c in colours[1:]],
        duration=round(1000 / FPS),
        lossless=True,
    )
    found = []
    for path in (plain, deep, full, rgb, tmp_path / "e.webp"):
        with open_clip(path) as clip:
            found.append(measure_clip(clip))
    for other in found[1:]:
        for name in MEASURES:
            assert compare_values(name, (found[0].values[name], other.values[name])).better == 0, name
        for name in ("contrast", "dark", "brightness", "gradient_1", "detail", "change", "far_change"):
            assert other.values[name] == pytest.approx(found[0].values[name], rel=0.05, abs=0.02), name
        looks = [np.frombuffer(each.look, np.uint8).astype(int) for each in (found[0], other)]
        assert np.abs(looks[0] - looks[1]).max() < 4


def test_a_turned_clip_looks_upright(tmp_path: Path) -> None:
    looks = []
    for rotation in (0, 90, 180, 270):
        path = write_clip(tmp_path / f"{rotation}.mp4", frames=8, rotation=rotation)
        with open_clip(path) as clip:
            looks.append(np.frombuffer(measure_clip(clip).look, np.uint8).astype(int))
    assert all(np.abs(look - looks[0]).max() < 12 for look in looks)


@pytest.mark.parametrize("gop", [1, 40, 250])
def test_of_a_long_clip_runs_are_measured_and_the_record_says_so(tmp_path: Path, gop: int) -> None:
    path = write_clip(tmp_path / "long.mp4", frames=900, fps=30, size=(64, 48), gop=gop, options={"sc_threshold": "0"})
    with open_clip(path) as clip:
        runs = choose_runs(clip)
        found = measure_clip(clip)
    assert 1 < len(runs) <= RUNS
    assert all(one.stop <= two.start for one, two in pairwise(runs))
    assert runs[0].start == 0 and runs[-1].stop > 0.6 * 900
    assert found.frames == 900
    assert found.frames_measured == sum(map(len, runs)) <= MOST_FRAMES


def test_a_damaged_clip_is_measured_as_far_as_it_decodes(tmp_path: Path) -> None:
    path = made(tmp_path, "a.mp4", scenes()["shapes"], gop=8)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4000] = bytes(4000)
    path.write_bytes(data)
    with open_clip(path) as clip:
        found = measure_clip(clip)
    assert 8 <= found.frames_measured <= 48


def test_a_plain_contradiction_is_said() -> None:
    measures = tuple(compare_values(name, values) for name, values in VALUES.items())
    better: dict[str, Choice] = {"VQ": 1, "MQ": 2}
    assert find_contradictions(verdict(VQ=2, MQ=2), measures, better) == (
        "In VQ the judge prefers video 2, but video 2 is measured as far blurrier (sharpness 0.21 against 0.60 of 1) "
        "and far noisier (noise 9.0 against 2.0 levels).",
    )
    tie, other = find_contradictions(verdict(VQ=0, MQ=0), measures, better)
    assert tie.startswith("In VQ the judge calls a tie, but video 2 is measured as far blurrier")
    assert other == "In MQ the judge calls a tie, but video 1 is measured as worse."
    assert find_contradictions(verdict(VQ=1, MQ=2), measures, better) == ()
    assert find_contradictions(verdict(VQ=2, MQ=1), measures, {}) == ()
    overall: dict[str, Choice] = {"OA": 1}
    assert find_contradictions(verdict(VQ=0, MQ=0), (), overall) == (
        "Overall the judge calls a tie, but video 2 is measured as worse.",
    )


VALUES: dict[MeasureName, tuple[float | None, float | None]] = {
    "sharpness": (0.6, 0.21),
    "noise": (2.0, 9.0),
    "flicker": (0.2, 1.6),
    "shake": (None, 0.4),
}


def test_a_measure_that_one_clip_lacks_is_not_compared() -> None:
    assert compare_values("shake", (None, 0.4)) == MeasuredPair("shake", MEASURES["shake"].unit, (None, 0.4), None)


def verdict(*, VQ: int, MQ: int) -> Verdict:  # noqa: N803 - the dimensions' keys
    preferences = {"TA": prefer(0), "VQ": prefer(2 if VQ == 2 else 1 if VQ else 0), "OA": prefer(0)}
    return make_verdict({**preferences, "MQ": prefer(2 if MQ == 2 else 1 if MQ else 0)}, "final")
