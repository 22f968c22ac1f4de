"""What is measured of clips in files: alike in any file, kept once it is measured, compared, and put in words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clips import write_clip
from PIL import Image
from scenes import COLUMNS, FPS, ROWS, Pictures, blur, scenes

from vrt_lite import Judge, Settings
from vrt_lite.cli import run
from vrt_lite.measures import MEASURES, MeasuredPair, compare_values, find_contradictions
from vrt_lite.measures import kept as module
from vrt_lite.measures.clip_measures import MOST_FRAMES, RUNS, ClipMeasures, choose_runs, measure_clip
from vrt_lite.measures.flags import Flag, describe_flags, find_flags
from vrt_lite.measures.kept import KeptMeasures, list_files, measures_folder
from vrt_lite.protocol.messages import Choice
from vrt_lite.protocol.verdict import Verdict, make_verdict, prefer
from vrt_lite.video import open_clip


def make_clip(path: Path, pictures: Pictures, **how: Any) -> Path:
    colours = [np.repeat(picture[..., None], 3, axis=2) for picture in pictures]
    how = {"options": {"crf": "12"}, "gop": 250, **how}
    return write_clip(path, frames=len(pictures), fps=FPS, size=(COLUMNS, ROWS), pictures=colours, **how)


def measure(path: Path) -> ClipMeasures:
    with open_clip(path) as clip:
        return measure_clip(clip)


def look(measures: ClipMeasures) -> np.ndarray:
    return np.frombuffer(measures.look, np.uint8).astype(int)


def test_compare_measures_both_clips_and_keeps_what_it_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sky = scenes()["sky"][:16]
    a = make_clip(tmp_path / "a.mp4", sky)
    b = make_clip(tmp_path / "b.mp4", blur(sky, 3.0), gop=12)
    with Judge(settings=Settings(cache=False), measures=False) as judge:
        plain = judge.compare(a, b)
    with Judge(settings=Settings(cache=False)) as judge:
        given, turned = judge.compare(a, b), judge.compare(b, a)
    assert plain.measures is None and "measures" not in plain.to_json()
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

    assert not list(list_files(measures_folder()))
    with Judge(settings=Settings()) as judge:
        first = judge.compare(a, b)
        assert len(list(list_files(measures_folder()))) == 2
        for path in list_files(measures_folder()):
            os.utime(path, (1, 1))
        again = judge.compare(a, b)
    assert given.measures == first.measures == again.measures
    assert all(path.stat().st_mtime > 1 for path in list_files(measures_folder()))
    assert run(["cache"]) == 0
    assert "measures of 2 clips" in capsys.readouterr().out
    assert run(["cache", "--clear"]) == 0
    assert not list(list_files(measures_folder()))


def test_a_clip_is_measured_while_another_thread_reads_it(tmp_path: Path) -> None:
    with open_clip(make_clip(tmp_path / "a.mp4", scenes()["shapes"])) as clip:
        alone = measure_clip(clip)
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(measure_clip, clip)
            clip.frames(range(48), size=(252, 140))
        assert beside.result() == alone
    assert (alone.frames_measured, alone.frames) == (48, 48)


def write_webp(path: Path, pictures: Pictures) -> Path:
    first, *others = (Image.fromarray(picture).convert("RGB") for picture in pictures)
    first.save(path, save_all=True, append_images=others, duration=round(1000 / FPS), lossless=True)
    return path


def test_the_same_pictures_measure_the_same_in_any_file(tmp_path: Path) -> None:
    pictures = scenes()["texture"][:12]
    ways: Sequence[dict[str, str]] = (
        {},
        {"pix_fmt": "yuv420p10le"},
        {"pix_fmt": "yuvj420p"},
        {"codec": "libx264rgb", "pix_fmt": "rgb24"},
    )
    files = [make_clip(tmp_path / f"{i}.mkv", pictures, options={"qp": "0"}, **way) for i, way in enumerate(ways)]
    plain, *others = map(measure, (*files, write_webp(tmp_path / "a.webp", pictures)))
    for other in others:
        for name in MEASURES:
            assert compare_values(name, (plain.values[name], other.values[name])).better == 0, name
        for name in ("contrast", "dark", "brightness", "gradient_1", "detail", "change", "far_change"):
            assert other.values[name] == pytest.approx(plain.values[name], rel=0.05, abs=0.02), name
        assert np.abs(look(plain) - look(other)).max() < 4


def test_a_turned_clip_looks_upright(tmp_path: Path) -> None:
    turns = (0, 90, 180, 270)
    looks = [look(measure(write_clip(tmp_path / f"{turn}.mp4", frames=4, rotation=turn))) for turn in turns]
    assert all(np.abs(each - looks[0]).max() < 12 for each in looks)


@pytest.mark.parametrize("gop", [1, 40, 250])
def test_of_a_long_clip_runs_are_measured_and_the_record_says_so(tmp_path: Path, gop: int) -> None:
    options = {"sc_threshold": "0", "preset": "ultrafast"}
    path = write_clip(tmp_path / "long.mp4", frames=900, fps=30, size=(64, 48), gop=gop, options=options)
    with open_clip(path) as clip:
        runs = choose_runs(clip)
        found = measure_clip(clip)
    assert 1 < len(runs) <= RUNS
    assert all(one.stop <= two.start for one, two in pairwise(runs))
    assert runs[0].start == 0 and runs[-1].stop > 0.6 * 900
    assert found.frames == 900
    assert found.frames_measured == sum(map(len, runs)) <= MOST_FRAMES


def test_a_damaged_clip_is_measured_as_far_as_it_decodes(tmp_path: Path) -> None:
    path = make_clip(tmp_path / "a.mp4", scenes()["shapes"], gop=8)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4000] = bytes(4000)
    path.write_bytes(data)
    assert 8 <= measure(path).frames_measured <= 48


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> ClipMeasures:
    return measure(write_clip(tmp_path_factory.mktemp("clip") / "a.mp4", frames=9))


def test_what_is_kept_comes_back_and_a_damaged_or_foreign_file_counts_as_absent(
    tmp_path: Path, measured: ClipMeasures
) -> None:
    kept = KeptMeasures(tmp_path / "new" / "folder")
    kept.put("a" * 64, measured)
    assert KeptMeasures(tmp_path / "new" / "folder").get("a" * 64) == measured
    (path,) = list_files(tmp_path / "new" / "folder")
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole[:200] + b"7" + whole[201:], b"\xff" * len(whole), whole + b" "):
        path.write_bytes(damaged)
        assert kept.get("a" * 64) is None
    path.rename(path.with_name(path.name.replace("a" * 64, "b" * 64)))
    assert kept.get("b" * 64) is None
    kept.put("a" * 64, replace(measured, values={"sharpness": 1.0}))
    assert kept.get("a" * 64) is None


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path, measured: ClipMeasures) -> None:
    (tmp_path / "file").write_text("")
    kept = KeptMeasures(tmp_path / "file" / "folder")
    kept.put("a" * 64, measured)
    assert kept.get("a" * 64) is None


def test_the_oldest_are_deleted(tmp_path: Path, measured: ClipMeasures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 2)
    for number, letter in enumerate("abcd"):
        KeptMeasures(tmp_path).put(letter * 64, measured)
        os.utime(next(tmp_path.glob(f"{letter}*")), (number, number))
    (tmp_path / "own notes.measures").write_text("stays")
    KeptMeasures(tmp_path).put("e" * 64, measured)
    assert sorted(path.name[0] for path in list_files(tmp_path)) == ["c", "d", "e"]
    assert (tmp_path / "own notes.measures").exists()


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


def verdict(**winners: Choice) -> Verdict:
    return make_verdict({key: prefer(winner) for key, winner in {"OA": 0, **winners}.items()}, "final")


def test_a_plain_contradiction_is_said() -> None:
    values = {"sharpness": (0.6, 0.21), "noise": (2.0, 9.0), "flicker": (0.2, 1.6), "shake": (None, 0.4)}
    measures = tuple(compare_values(name, pair) for name, pair in values.items())
    assert measures[-1] == MeasuredPair("shake", MEASURES["shake"].unit, (None, 0.4), None)
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
