"""How long judging will take, and which better judge is named for this machine."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import clips
import pytest
from terminals import Terminal

from bench import reply_texts
from bench.random_checkpoint import SHAPES, cut
from bench.random_pair import write_pair
from bench.scenes import picture
from bench.vrt_lite_side import VrtLiteSide
from vrt_lite.api import Judge
from vrt_lite.backends import read_memory
from vrt_lite.fitting import choose_plan
from vrt_lite.fitting.memory_estimate import count_work, read_shape
from vrt_lite.forecast import estimate_seconds, keep_time, predict
from vrt_lite.interfaces import TimeRange
from vrt_lite.model_list import list_model
from vrt_lite.models import ModelFiles, find
from vrt_lite.models.library import ListedModel, recipes
from vrt_lite.profile import default_profile
from vrt_lite.records.judgement import Judgement
from vrt_lite.runs.judging import RunClock
from vrt_lite.settings import Settings
from vrt_lite.show import show_verdict
from vrt_lite.show.better_judge import UNKNOWN, keep_candidates, suggest_judge
from vrt_lite.show.words import format_range
from vrt_lite.tuning import plan_engine

STAR, CIRCLE = (Path(__file__).parents[1] / "examples" / name for name in ("star.mp4", "circle.mp4"))
TINY = find("vrt-tiny-2")
SIZE = (480, 270)
GB = 10**9


def candidate(
    name: str, memory_bytes: int, seconds: TimeRange | None, answers: str = "TA, VQ, MQ, overall"
) -> ListedModel:
    return ListedModel(name=name, state="", disk_bytes=0, memory_bytes=memory_bytes, seconds=seconds, answers=answers)


BEST = candidate("best", 8 * GB, TimeRange(3000, 12_000))
QUICK = candidate("quick", 3 * GB, TimeRange(120, 300), "a clip: VQ")
UNTIMED = candidate("untimed", 8 * GB, None)


@pytest.fixture(scope="module")
def judged() -> Judgement:
    with Judge(TINY.name, settings=Settings(cache=False)) as judge:
        return judge.compare(STAR, CIRCLE, prompt="A blue star moves up.")


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    """A model that is no small one: two layers of the 3B's widths, with few words."""
    folder = tmp_path_factory.mktemp("wide")
    write_pair(folder, "wide", replace(cut(SHAPES["3b"], layers=2), rows=2048, tower=SHAPES["tiny"].tower))
    return find(folder)


def test_the_work_is_what_a_real_verdict_took() -> None:
    """Two rounds at the 7B's shape, as measured: 4 pairs and 8 frames of one size; 3 761 and 9 386 tokens."""
    profile = default_profile()
    for pixels, cells, measured in ((200_704, 252, 3_761), (602_112, 720, 9_386)):
        sized = profile.with_max_pixels(pixels, tool_pixels=pixels)
        encoded, read, _ = count_work(sized.for_size(1280, 720))
        assert encoded == 12 * cells
        assert read == pytest.approx(measured, rel=0.05)
    assert count_work(profile)[0] > count_work(profile.for_size(1280, 720))[0]
    assert count_work(replace(profile, rounds=1).for_size(1280, 720))[0] == 4 * 720
    assert count_work(replace(profile, max_new_tokens=10))[2] == 20


def test_the_time_is_the_arithmetic_of_the_shape(wide: ModelFiles) -> None:
    shape, profile = read_shape(wide), wide.profile

    def seconds(one: float, many: float, size: tuple[int, int] = (1280, 720)) -> float:
        return estimate_seconds(shape, profile.for_size(*size), (one, many))

    usual = seconds(1e9, 1e10)
    assert seconds(5e8, 5e9) == pytest.approx(2 * usual)
    assert seconds(1e9, 1e10, (480, 270)) < usual
    written = count_work(profile)[2]
    weights = shape.matrices["layers"] + shape.matrices["output"]
    assert seconds(5e8, 1e10) - usual == pytest.approx(1.15 * written * weights / 1e9)


def test_a_range_in_words() -> None:
    ranges = [(1200, 3600), (0.4, 2), (50, 180), (5400, 9000), (1, 1)]
    words = [format_range(TimeRange(*seconds)) for seconds in ranges]
    assert words == ["20 to 60 min", "0.4 to 2 s", "50 s to 3 min", "1.5 to 2.5 h", "1 s"]
    assert (TimeRange(2, 8).middle, TimeRange(2, 8).times(3)) == (4, TimeRange(6, 24))


def taking(judgement: Judgement, seconds: float) -> Judgement:
    timings = replace(judgement.timings, vision=seconds, prefill=0.0, generate=0.0, other=0.0)
    return replace(judgement, timings=timings)


def test_a_run_is_predicted_from_one_judgement_and_then_from_its_own() -> None:
    clock = RunClock(TimeRange(10, 40), jobs=2)
    assert (clock.predict(30), clock.seconds_left(30)) == (TimeRange(150, 600), 300)
    for seconds in (3.0, 5.0):
        clock.add(seconds)
    assert clock.seconds_left(28) == 28 * 4 / 2
    assert RunClock(None).seconds_left(3) is None


def test_earlier_judgements_tell_most(judged: Judgement, own_home: Path) -> None:
    plan = plan_engine(TINY, Settings())
    assert predict(plan, SIZE) is None
    keep_time(plan, taking(judged, 6.0))
    assert predict(plan, SIZE) == TimeRange(3.0, 12.0)
    keep_time(plan, taking(judged, 12.0))
    assert predict(plan, SIZE) == TimeRange(6.0 / 1.75, 21.0)
    for _ in range(8):  # the last ones count
        keep_time(plan, taking(judged, 1.5))
    assert predict(plan, SIZE) == TimeRange(1.5 / 1.5625, 1.5 * 1.5625)
    # Of clips of another size, with other settings, or of frames that were encoded before, it says nothing.
    assert predict(plan, (270, 270)) is None
    other = plan_engine(TINY, Settings(threads=1))
    assert predict(other, SIZE) is None
    known = replace(judged.orders[0].rounds[0], frames_encoded=0)
    order = replace(judged.orders[0], rounds=(known, *judged.orders[0].rounds[1:]))
    keep_time(plan, taking(replace(judged, orders=(order,)), 100.0))
    assert predict(plan, SIZE) == TimeRange(1.5 / 1.5625, 1.5 * 1.5625)
    # A damaged file is as if there was none.
    [path] = (own_home / "speeds").iterdir()
    for text in ("", "[]", '{"format": 2}', path.read_text()[:-9], json.dumps(["a", 1])):
        path.write_text(text)
        assert predict(plan, SIZE) is None
    keep_time(plan, judged)
    assert predict(plan, SIZE)


def test_a_large_model_is_predicted_from_matrices(wide: ModelFiles, own_home: Path) -> None:
    plan = plan_engine(wide, Settings(max_pixels=200_704))
    first = predict(plan, (1280, 720))
    assert first
    assert first.most == pytest.approx(4 * first.least)
    kept = {path: path.read_bytes() for path in (own_home / "speeds").iterdir()}
    assert predict(plan, (1280, 720)) == first  # measured once
    assert kept == {path: path.read_bytes() for path in (own_home / "speeds").iterdir()}
    larger = predict(plan_engine(wide, Settings()), (1280, 720))
    assert larger
    assert larger.least > first.least
    # One that is not here has a time too.
    shape = read_shape(wide)
    plan = choose_plan(shape, wide.profile, Settings(), read_memory())
    assert predict(plan) == predict(plan_engine(wide, Settings()))


def test_a_clip_that_cannot_be_read_is_not_predicted(tmp_path: Path) -> None:
    one, other = (clips.write_clip(tmp_path / f"{n}.mp4", frames=n, size=(84, 56), gop=4) for n in (8, 9))
    with Judge("vrt-tiny-0") as judge:
        assert judge.predict(tmp_path / "gone.mp4") is None
        judge.compare(one, other, prompt="A red square.")
        assert judge.predict(one)
        one.write_bytes(b"nothing")
        assert judge.predict(one) is None


@pytest.mark.parametrize(
    ("models", "free_gb", "named"),
    [
        ([BEST, QUICK], 2, ""),
        ([BEST, QUICK], 6, "quick, 2 to 5 min a clip: vrt-lite pull quick"),
        ([BEST, QUICK], 9, "quick, 2 to 5 min a clip: vrt-lite pull quick"),  # an hour and more is too long
        ([BEST], 9, "best, 50 min to 3.3 h a pair: vrt-lite pull best"),  # unless all take as long
        ([BEST, replace(BEST, name="alike", seconds=TimeRange(2900, 11_000))], 9, "vrt-lite pull best"),
        ([replace(BEST, seconds=TimeRange(600, 1200)), QUICK], 9, "best, 10 to 20 min a pair: vrt-lite pull best"),
        ([UNTIMED, QUICK], 9, "memory: untimed: vrt-lite pull untimed"),
        ([], 9, ""),
    ],
)
def test_the_best_that_fits_is_named(models: list[ListedModel], free_gb: int, named: str) -> None:
    line = suggest_judge(models, free_gb * GB)
    assert line.endswith(named)
    assert (f" {free_gb}.00 GB of free memory" in line) == bool(line) == bool(named)


def test_a_judge_that_is_here_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vrt_lite.show.better_judge.find_stored", lambda name: name == "quick")
    line = suggest_judge([QUICK], 9 * GB)
    assert line == "A larger judge is here: quick, 2 to 5 min a clip: --model quick"


def test_it_stands_once_under_a_verdict_on_a_terminal(judged: Judgement, monkeypatch: pytest.MonkeyPatch) -> None:
    def lines(*, model: str = TINY.name, advise: bool = True, stream: io.StringIO | None = None) -> list[str]:
        to = stream or Terminal()
        with redirect_stdout(to):
            show_verdict(replace(judged, model=replace(judged.model, name=model)), advise=advise)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", to.getvalue())
        return [line for line in plain.splitlines() if "arger judge" in line]

    monkeypatch.setenv("COLUMNS", "200")
    # What each takes here is not added up after a verdict: until it is known, the line says how to know it.
    assert lines() == [UNKNOWN]
    assert lines(advise=False) == lines(stream=io.StringIO()) == lines(model="vr-thinker-7b") == []
    keep_candidates([list_model("vr-thinker-7b"), list_model("videoreward-2b")])
    said = lines()
    assert len(said) <= 1  # a small machine has none
    assert not said or any(said[0].endswith(f": vrt-lite pull {name}") for name in recipes())


def judge_thrice(files: ModelFiles, tmp_path: Path, *, pixels: int | None) -> Iterator[tuple[TimeRange | None, float]]:
    """What was said before each of three judgements of new clips, and the seconds that it took."""
    settings = Settings(max_pixels=pixels, cache=False)
    plan = plan_engine(files, settings)
    for number in range(3):
        paths = [tmp_path / f"{number}{name}.mp4" for name in "ab"]
        for clip, path in enumerate(paths, start=2 * number):
            drawn = [picture.__wrapped__(clip, index, (1280, 720)) for index in range(24)]
            clips.write_clip(path, frames=24, size=(1280, 720), pictures=drawn)
        said = predict(plan, (1280, 720))
        if pixels is None:
            with Judge(files.name, settings=settings, measures=False) as judge:
                judgement = judge.compare(*paths, prompt="A red square moving right.")
        else:  # random weights write noise
            side = VrtLiteSide(files.text, files.projector, profile=plan.profile, settings=plan.settings)
            with side, Judge(files.text.parent, backend=side, settings=settings, measures=False) as judge:
                side.set_replies(reply_texts.script(2))
                judgement = judge.compare(*paths, prompt=reply_texts.replies()["caption"])
            keep_time(plan, judgement)
        t = judgement.timings
        yield said, t.vision + t.prefill + t.generate + t.other


@pytest.mark.nightly
@pytest.mark.parametrize("pixels", [None, 100_352, 301_056])
def test_a_judgement_takes_as_long_as_was_said(pixels: int | None, tmp_path: Path) -> None:
    """The bundled judge; and two text layers and eight vision layers of the 7B's widths, at two sizes."""
    files = TINY
    if pixels:
        write_pair(tmp_path / "cut", "cut", cut(SHAPES["7b"], layers=2, vision_layers=8))
        files = find(tmp_path / "cut")
    first, *others = judge_thrice(files, tmp_path, pixels=pixels)
    print(pixels, first, others)
    assert (first[0] is None) == (pixels is None)
    for said, took in others if pixels is None else (first, *others):
        assert said
        assert said.least <= took <= said.most
