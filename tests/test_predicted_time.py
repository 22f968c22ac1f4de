"""How long judging will take: the sums, what is kept of earlier judgements, and the prediction beside the clock."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import clips
import pytest
from backends.test_llamacpp import FILES

from bench.random_checkpoint import SHAPES, cut
from bench.random_pair import write_pair
from bench.side import Job, run
from vrt_lite.api import Judge
from vrt_lite.backends import describe_machine
from vrt_lite.fitting.predicted_time import (
    Course,
    Habits,
    JudgementWork,
    Prediction,
    RunForecast,
    Stages,
    UnitCosts,
    count_encoded_tokens,
    count_work,
    measure_stages,
)
from vrt_lite.fitting.time_left import TimeLeft
from vrt_lite.interfaces import Encoding, Predicted, Prefill, Wrote
from vrt_lite.judgement import Judgement
from vrt_lite.models import ModelFiles, find
from vrt_lite.profile import default_profile
from vrt_lite.settings import Settings
from vrt_lite.tuning import Speed, Tuning, plan_engine, save_tuning
from vrt_lite.tuning.kept_costs import read_costs
from vrt_lite.tuning.prediction import learn, predict

WORK = JudgementWork(clip=1000, called=500, text=800, written=400)
COSTS = UnitCosts(encode=0.25, read=0.125, write=0.5, other=1.0, source="estimated")
PREDICTION = Prediction(WORK, COSTS, kept_states=2)
ROOT = Path(__file__).parents[1]
STAR, CIRCLE = (ROOT / "examples" / name for name in ("star.mp4", "circle.mp4"))
FACTOR = 1.5


def test_the_work_is_what_a_real_verdict_took() -> None:
    """Two rounds at the 7B's shape, as measured: 4 pairs and 8 frames of one size; 3 761 and 9 386 tokens."""
    profile = default_profile()
    for pixels, cells, read in ((200_704, 252, 3_761), (602_112, 720, 9_386)):
        work = count_work(profile.with_max_pixels(pixels, tool_pixels=pixels), Habits(), (1280, 720))
        assert 2 * work.clip + work.called == 12 * cells
        assert work.text + 2 * work.clip + work.called == pytest.approx(read, rel=0.05)
    assert count_work(profile, Habits()).clip > count_work(profile, Habits(), (1280, 720)).clip
    assert count_work(replace(profile, rounds=1), Habits()).called == 0


def test_nothing_is_counted_twice() -> None:
    course = Course(PREDICTION)
    assert course.add("a", "b") == Stages(encode=625.0, read=412.5, write=200.0, other=1.0)
    assert course.add("b", "a") == Stages(encode=0.0, read=412.5, write=200.0, other=1.0)
    assert course.add("a", "c") == Stages(encode=375.0, read=287.5, write=200.0, other=1.0)
    course.add("c", "a")  # the engine keeps two clips' tokens: of c and a
    assert course.add("b", "c").read == 412.5
    assert PREDICTION.predict_seconds() == 1238.5
    # The other order asks for the same frames of clips that are open: nothing but reading and writing.
    assert PREDICTION.predict_seconds(both_orders=True) == 1238.5 + 612.5


def all_pairs(count: int) -> list[tuple[str, str]]:
    return [order for i, j in combinations(map(str, range(count)), 2) for order in ((i, j), (j, i))]


@pytest.mark.parametrize("wrong", [Stages(3.0, 2.0, 4.0, 9.0), Stages(0.25, 0.5, 0.5, 8.0)])
def test_the_first_judgement_corrects_every_stage(wrong: Stages) -> None:
    """However wrong the prediction was: the encoding of the first judgement says nothing of the rest."""
    tasks = all_pairs(6)
    truth = Course(PREDICTION)
    took = [truth.add(*task).combined_with(wrong, float.__mul__) for task in tasks]
    forecast = RunForecast(PREDICTION)
    assert forecast.predict_seconds(tasks) != pytest.approx(sum(stages.total for stages in took), rel=1 / 3)
    forecast.add(*tasks[0], took[0])
    assert forecast.predict_seconds(tasks[1:]) == pytest.approx(sum(stages.total for stages in took[1:]))


def test_of_a_server_only_the_mean_is_known() -> None:
    forecast = RunForecast(None, jobs=4)
    assert forecast.predict_seconds(all_pairs(3)) is None
    forecast.add("a", "b", Stages(other=10.0))
    forecast.add("b", "a", Stages(other=30.0))
    assert forecast.predict_seconds(all_pairs(3)[2:]) == pytest.approx(20.0)


def test_the_time_left_follows_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    left = TimeLeft(Predicted(seconds=100.0, pair=10.0, read=0.02, write=0.5))
    assert left.seconds() == 100.0
    left.observe(Encoding(0, 4))
    now = 10.0
    left.observe(Encoding(1, 4))  # half as fast as predicted: 10 of 100 in the time of 10
    assert left.seconds() == 90.0
    now = 80.0
    left.observe(Encoding(4, 4))
    assert left.seconds() == 120.0
    left.observe(Prefill(0, 1000))
    assert left.seconds() == 120.0
    now = 120.0
    left.observe(Prefill(1000, 1000))
    assert left.seconds() == 80.0
    for _ in range(200):
        left.observe(Wrote("x"))
    assert left.seconds() is None  # it writes more than was predicted


@pytest.fixture(scope="module")
def judged() -> Judgement:
    with Judge("vrt-tiny-2", settings=Settings(cache=False)) as judge:
        return judge.compare(STAR, CIRCLE, prompt="A blue star moves up.")


def test_the_count_of_a_judgement_is_that_of_the_engine(judged: Judgement) -> None:
    profile = find("vrt-tiny-2").profile
    patches = 4 + (8 if profile.tool_form == "image" else 4)
    assert count_encoded_tokens(judged, profile) == patches * 9 * 5  # frames of 252x140
    work = count_work(profile, Habits(), (480, 270))
    assert 2 * work.clip + work.called == patches * 9 * 5
    read = work.text + 2 * work.clip + work.called
    assert 1 / FACTOR < read / judged.counters.tokens_prefilled < FACTOR


def test_earlier_judgements_tell_most(judged: Judgement) -> None:
    files = find("vrt-tiny-2")
    plan = plan_engine(files, Settings())
    for _ in range(6):
        learn(files, plan, judged)
    kept = read_costs(files, plan.settings, describe_machine())
    assert kept is not None
    assert kept.judgements == 6
    prediction = predict(files, plan, (480, 270))
    assert prediction is not None
    assert prediction.costs.source == "measured"
    took = measure_stages(judged)
    assert prediction.predict_seconds() == pytest.approx(took.total, rel=0.25)  # the text is counted by its letters
    other = replace(plan, estimate=replace(plan.estimate, settings=replace(plan.settings, threads=1)))
    assert read_costs(files, other.settings, describe_machine()) is None


def test_a_damaged_file_is_as_if_there_was_none(judged: Judgement, own_home: Path) -> None:
    files = find("vrt-tiny-2")
    plan = plan_engine(files, Settings())
    learn(files, plan, judged)
    [path] = (own_home / "speeds").iterdir()
    for text in ("", "[]", '{"format": 2}', path.read_text()[:-9], json.dumps({"format": 1, "costs": "x"})):
        path.write_text(text)
        assert read_costs(files, plan.settings, describe_machine()) is None
        assert predict(files, plan) is not None


def test_what_was_tuned_is_used() -> None:
    files, machine = find("vrt-tiny-2"), describe_machine()
    speed = Speed(pair_seconds=4.5, prefill=100.0, decode=10.0)
    tuning = Tuning(
        threads=None,
        repack=False,
        flash_attention=None,
        ubatch=256,
        kv_type="f16",
        projector=files.projector.name,
        speed=speed,
        default_speed=speed,
    )
    save_tuning(tuning, files, machine)
    prediction = predict(files, plan_engine(files, Settings()))
    assert prediction is not None
    assert prediction.costs.source == "tuned"
    assert (prediction.costs.read, prediction.costs.write) == (0.01, 0.1)
    tokens = files.profile.max_pixels // 784
    assert prediction.costs.encode * tokens == pytest.approx(4.5)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    """A model that is no small one: two layers of the 3B's widths, with few words."""
    folder = tmp_path_factory.mktemp("wide")
    write_pair(folder, "wide", replace(cut(SHAPES["3b"], layers=2), rows=2048, tower=SHAPES["tiny"].tower))
    return find(folder)


def test_a_large_model_is_predicted_from_matrices(wide: ModelFiles, own_home: Path) -> None:
    plan = plan_engine(wide, Settings(max_pixels=200_704))
    first = predict(wide, plan, (1280, 720))
    assert first is not None
    assert first.costs.source == "estimated"
    assert all(value > 0 for value in (first.costs.encode, first.costs.read, first.costs.write))
    [kept] = (own_home / "speeds").iterdir()
    before = kept.read_bytes()
    assert predict(wide, plan, (1280, 720)) == first  # measured once
    assert kept.read_bytes() == before
    larger = predict(wide, plan_engine(wide, Settings()), (1280, 720))
    assert larger is not None
    assert larger.predict_seconds() > first.predict_seconds()


@pytest.mark.nightly
@pytest.mark.parametrize("pixels", [200_704, 602_112])
def test_a_cut_7b_takes_as_long_as_predicted(pixels: int, tmp_path: Path) -> None:
    """Two text layers and eight vision layers of the 7B's widths, and given words, as random weights write none."""
    write_pair(tmp_path, "cut", cut(SHAPES["7b"], layers=2, vision_layers=8))
    files = find(tmp_path)
    plan = plan_engine(files, Settings(max_pixels=pixels))
    prediction = predict(files, plan, (1280, 720))
    assert prediction is not None
    job = Job("ours", str(files.text), str(files.projector), ((0, 1, 2),), describe_machine().cpus, pixels)
    took = run(job)["judgements"][0]["whole"]
    assert 1 / FACTOR < prediction.predict_seconds() / took < FACTOR


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["vrt-tiny-0", "vrt-tiny-2"])
def test_the_bundled_judges_take_as_long_as_predicted(name: str, tmp_path: Path) -> None:
    from examples.ladder import PROMPT, write_ladder

    paths = write_ladder(tmp_path)
    with Judge(name, settings=Settings(cache=False, both_orders=True)) as judge:
        judge.compare(paths[0], paths[4], prompt=PROMPT)  # loaded once
        prediction = judge.predict(paths[0])
        assert prediction is not None
        began = time.monotonic()
        for pair in ((0, 1), (2, 3)):
            judge.compare(*(paths[number] for number in pair), prompt=PROMPT)
        took = (time.monotonic() - began) / 2
    assert 1 / FACTOR < prediction.predict_seconds(both_orders=True) / took < FACTOR


def test_a_clip_that_cannot_be_read_is_not_predicted(tmp_path: Path) -> None:
    with Judge(FILES.name) as judge:
        assert judge.predict(tmp_path / "gone.mp4") is None
        clips.write_clip(tmp_path / "a.mp4", frames=8, size=(84, 56), gop=4)
        assert judge.predict(tmp_path / "a.mp4") is not None
