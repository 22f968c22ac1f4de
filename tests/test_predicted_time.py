"""How long judging will take: the sums, what is kept of earlier judgements, and the range that is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import clips
import pytest
from backends.test_llamacpp import FILES

from bench import reply_texts
from bench.random_checkpoint import SHAPES, cut
from bench.random_pair import write_pair
from bench.scenes import picture
from bench.vrt_lite_side import VrtLiteSide
from vrt_lite.api import Judge
from vrt_lite.backends import read_memory
from vrt_lite.cli import run
from vrt_lite.fitting.memory_estimate import read_shape
from vrt_lite.fitting.time_estimate import MatrixSpeeds, count_work, estimate_seconds
from vrt_lite.forecast import predict, predict_shape
from vrt_lite.interfaces import TimeRange
from vrt_lite.models import ModelFiles, find
from vrt_lite.profile import default_profile
from vrt_lite.records.judgement import Judgement
from vrt_lite.runs.run_clock import RunClock
from vrt_lite.settings import Settings
from vrt_lite.show.words import format_range
from vrt_lite.tuning import keep_time, plan_engine, plan_shape

ROOT = Path(__file__).parents[1]
STAR, CIRCLE = (ROOT / "examples" / name for name in ("star.mp4", "circle.mp4"))


def test_the_work_is_what_a_real_verdict_took() -> None:
    """Two rounds at the 7B's shape, as measured: 4 pairs and 8 frames of one size; 3 761 and 9 386 tokens."""
    profile = default_profile()
    for pixels, cells, measured in ((200_704, 252, 3_761), (602_112, 720, 9_386)):
        encoded, read, _ = count_work(profile.with_max_pixels(pixels, tool_pixels=pixels), (1280, 720))
        assert encoded == 12 * cells
        assert read == pytest.approx(measured, rel=0.05)
    assert count_work(profile)[0] > count_work(profile, (1280, 720))[0]
    one_round = replace(profile, rounds=1)
    assert count_work(one_round, (1280, 720))[0] == 4 * 720
    assert count_work(replace(profile, max_new_tokens=10))[2] == 20


def test_the_time_is_the_arithmetic_of_the_shape(wide: ModelFiles) -> None:
    shape, profile = read_shape(wide), wide.profile
    kinds = {1}.union(*shape.matrices.values())
    speeds = MatrixSpeeds(dict.fromkeys(kinds, 1e9), dict.fromkeys(kinds, 1e10))
    seconds = estimate_seconds(shape, profile, speeds, (1280, 720))
    half = MatrixSpeeds(dict.fromkeys(kinds, 5e8), dict.fromkeys(kinds, 5e9))
    assert estimate_seconds(shape, profile, half, (1280, 720)) == pytest.approx(2 * seconds)
    assert estimate_seconds(shape, profile, speeds) > seconds
    slow_writing = MatrixSpeeds(dict.fromkeys(kinds, 5e8), speeds.many)
    written, weights = count_work(profile)[2], sum(shape.matrices["written"].values())
    more = estimate_seconds(shape, profile, slow_writing, (1280, 720)) - seconds
    assert more == pytest.approx(1.15 * written * weights / 1e9)


def test_a_range_in_words() -> None:
    ranges = [(1200, 3600), (0.4, 2), (50, 180), (5400, 9000), (1, 1)]
    words = [format_range(TimeRange(*seconds)) for seconds in ranges]
    assert words == ["20 to 60 min", "0.4 to 2 s", "50 s to 3 min", "1.5 to 2.5 h", "1 s"]
    assert TimeRange(2, 8).middle == 4
    assert TimeRange(2, 8).times(3) == TimeRange(6, 24)


@pytest.fixture(scope="module")
def judged() -> Judgement:
    with Judge("vrt-tiny-2", settings=Settings(cache=False)) as judge:
        return judge.compare(STAR, CIRCLE, prompt="A blue star moves up.")


def test_a_run_is_predicted_from_one_judgement_and_then_from_its_own(judged: Judgement) -> None:
    left = 30
    clock = RunClock(TimeRange(10, 40), lambda: left, jobs=2)
    assert (clock.predict(), clock.seconds_left()) == (TimeRange(150, 600), 300)
    for seconds in (3.0, 5.0):
        left -= 1
        timings = replace(judged.timings, vision=seconds, prefill=0.0, generate=0.0, other=0.0)
        clock.add(replace(judged, timings=timings))
    assert clock.seconds_left() == 28 * 4 / 2
    assert RunClock(None, lambda: 3).seconds_left() is None


def taking(judgement: Judgement, seconds: float) -> Judgement:
    timings = replace(judgement.timings, vision=seconds, prefill=0.0, generate=0.0, other=0.0)
    return replace(judgement, timings=timings)


def test_earlier_judgements_tell_most(judged: Judgement) -> None:
    files = find("vrt-tiny-2")
    plan = plan_engine(files, Settings())
    assert predict(files, plan, (480, 270)) is None
    keep_time(files, plan, taking(judged, 6.0))
    assert predict(files, plan, (480, 270)) == TimeRange(3.0, 12.0)
    keep_time(files, plan, taking(judged, 12.0))
    assert predict(files, plan, (480, 270)) == TimeRange(6.0 / 1.75, 21.0)
    for _ in range(8):  # the last ones count
        keep_time(files, plan, taking(judged, 1.5))
    assert predict(files, plan, (480, 270)) == TimeRange(1.5 / 1.5625, 1.5 * 1.5625)
    # Of clips of another size, with other settings, or of frames that were encoded before, it says nothing.
    assert predict(files, plan, (270, 270)) is None
    other = replace(plan, estimate=replace(plan.estimate, settings=replace(plan.settings, threads=1)))
    assert predict(files, other, (480, 270)) is None
    known = replace(judged.orders[0].rounds[0], frames_encoded=0)
    order = replace(judged.orders[0], rounds=(known, *judged.orders[0].rounds[1:]))
    keep_time(files, plan, taking(replace(judged, orders=(order,)), 100.0))
    assert predict(files, plan, (480, 270)) == TimeRange(1.5 / 1.5625, 1.5 * 1.5625)


def test_a_damaged_file_is_as_if_there_was_none(judged: Judgement, own_home: Path) -> None:
    files = find("vrt-tiny-2")
    plan = plan_engine(files, Settings())
    keep_time(files, plan, judged)
    [path] = (own_home / "speeds").iterdir()
    for text in ("", "[]", '{"format": 2}', path.read_text()[:-9], json.dumps([["a", 1]])):
        path.write_text(text)
        assert predict(files, plan, (480, 270)) is None
    keep_time(files, plan, judged)
    assert predict(files, plan, (480, 270))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    """A model that is no small one: two layers of the 3B's widths, with few words."""
    folder = tmp_path_factory.mktemp("wide")
    write_pair(folder, "wide", replace(cut(SHAPES["3b"], layers=2), rows=2048, tower=SHAPES["tiny"].tower))
    return find(folder)


def test_a_large_model_is_predicted_from_matrices(wide: ModelFiles, own_home: Path) -> None:
    plan = plan_engine(wide, Settings(max_pixels=200_704))
    first = predict(wide, plan, (1280, 720))
    assert first
    assert first.most == pytest.approx(4 * first.least)
    [kept] = (own_home / "speeds").iterdir()
    before = kept.read_bytes()
    assert predict(wide, plan, (1280, 720)) == first  # measured once
    assert kept.read_bytes() == before
    larger = predict(wide, plan_engine(wide, Settings()), (1280, 720))
    assert larger
    assert larger.least > first.least


def test_a_model_that_is_not_here_has_a_time_too(
    wide: ModelFiles, capsys: pytest.CaptureFixture[str], own_home: Path
) -> None:
    shape = read_shape(wide)
    plan = plan_shape(shape, wide.profile, Settings(), read_memory())
    assert predict_shape(shape, plan) == predict(wide, plan_engine(wide, Settings()))
    # Of a type that the engine cannot multiply nothing is known: its process ends.
    odd = replace(shape, matrices={**shape.matrices, "read": {9999: 1}})
    assert predict_shape(odd, plan) is None
    assert run(["estimate", "qwen2.5-vl-3b", "--json", "--gpu-layers", "0"]) == 0
    quants = json.loads(capsys.readouterr().out)["quants"]
    assert all(quant["seconds"]["most"] == pytest.approx(4 * quant["seconds"]["least"]) for quant in quants)
    assert run(["models"]) == 0
    assert any(" min to " in line or " to " in line for line in capsys.readouterr().out.splitlines())


def test_a_clip_that_cannot_be_read_is_not_predicted(tmp_path: Path, judged: Judgement) -> None:
    with Judge(FILES.name) as judge:
        assert judge.predict(tmp_path / "gone.mp4") is None
        clips.write_clip(tmp_path / "a.mp4", frames=8, size=(84, 56), gop=4)
        clips.write_clip(tmp_path / "b.mp4", frames=9, size=(84, 56), gop=4)
        judge.compare(tmp_path / "a.mp4", tmp_path / "b.mp4", prompt="A red square.")
        assert judge.predict(tmp_path / "a.mp4")
        (tmp_path / "a.mp4").write_bytes(b"nothing")
        assert judge.predict(tmp_path / "a.mp4") is None


def judge_thrice(files: ModelFiles, tmp_path: Path, *, pixels: int | None) -> Iterator[tuple[TimeRange | None, float]]:
    """What was said before each of three judgements of new clips, and the seconds that it took."""
    settings = Settings(max_pixels=pixels, cache=False)
    plan = plan_engine(files, settings)
    for number in range(3):
        paths = [tmp_path / f"{number}{name}.mp4" for name in "ab"]
        for clip, path in enumerate(paths, start=2 * number):
            drawn = [picture.__wrapped__(clip, index, (1280, 720)) for index in range(24)]
            clips.write_clip(path, frames=24, size=(1280, 720), pictures=drawn)
        said = predict(files, plan, (1280, 720))
        if pixels is None:
            with Judge(files.name, settings=settings, measures=False) as judge:
                judgement = judge.compare(*paths, prompt="A red square moving right.")
        else:  # random weights write noise
            side = VrtLiteSide(files.text, files.projector, profile=plan.profile, settings=plan.settings)
            with side, Judge(files.text.parent, backend=side, settings=settings, measures=False) as judge:
                side.set_replies(reply_texts.script(2))
                judgement = judge.compare(*paths, prompt=reply_texts.replies()["caption"])
            keep_time(files, plan, judgement)
        t = judgement.timings
        yield said, t.vision + t.prefill + t.generate + t.other


@pytest.mark.nightly
@pytest.mark.parametrize("pixels", [None, 100_352, 301_056])
def test_a_judgement_takes_as_long_as_was_said(pixels: int | None, tmp_path: Path) -> None:
    """The bundled judge; and two text layers and eight vision layers of the 7B's widths, at two sizes."""
    files = find("vrt-tiny-2")
    if pixels:
        write_pair(tmp_path / "cut", "cut", cut(SHAPES["7b"], layers=2, vision_layers=8))
        files = find(tmp_path / "cut")
    first, *others = judge_thrice(files, tmp_path, pixels=pixels)
    print(pixels, first, others)
    assert (first[0] is None) == (pixels is None)
    for said, took in others if pixels is None else (first, *others):
        assert said
        assert said.least <= took <= said.most
