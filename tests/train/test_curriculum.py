"""Lessons: what is drawn in each, when the next begins, and that a resumed run learns what the unbroken one does."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from coloured import PRETRAINED, RECIPE, case, cases  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from train.clip_views import clip_views  # noqa: E402
from train.curriculum import LOG, Curriculum, Syllabus  # noqa: E402
from train.lesson_rows import render  # noqa: E402
from train.policy.model import corpus, create_checkpoint, load  # noqa: E402
from train.policy.policy_tokenizer import learn  # noqa: E402
from train.policy.rendering import Renderer  # noqa: E402
from train.pretrain import _collect_statistics, pretrain  # noqa: E402
from train.supervised import supervise  # noqa: E402
from train.traces import replay  # noqa: E402
from train.world import LESSONS, World, scene  # noqa: E402
from train.world.defects import MOTION, VISUAL, Step  # noqa: E402
from train.world.labels import count_mismatches, points_of  # noqa: E402
from train.world.script import NAMES  # noqa: E402
from vrt_lite.profile import default_profile  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")

COUNT = 16
ASKED = replace(RECIPE.cold_start, samples=COUNT, asked=4, patience=4)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_checkpoint(RECIPE, tmp_path_factory.mktemp("curriculum") / "start", cases(8))


def curriculum(asked: list[str]) -> Curriculum:
    """Each lesson has cases of its own; `asked` gets the lesson of each examination."""

    def questions(lesson: Any) -> list[Any]:
        asked.append(lesson)
        return cases(2)

    return Curriculum(tuple([case(100 * n + k) for k in range(COUNT)] for n in range(len(LESSONS))), questions)


def test_a_lesson_ends_when_it_is_mastered_or_has_had_its_pairs() -> None:
    syllabus = Syllabus(2000, step=4, patience=300)
    ahead = 32 * 4

    def take(pairs: int, right: int) -> None:
        syllabus.take({"pairs": pairs, "lesson": LESSONS[len(syllabus.starts) - 1], "right": right, "of": 100})

    take(100, 94)
    assert syllabus.starts == [0]
    take(200, 95)
    assert syllabus.starts == [0, 200 + ahead]
    take(600, 10)
    assert syllabus.starts == [0, 200 + ahead]
    take(700, 10)
    assert syllabus.starts[2:] == [700 + ahead]
    take(800, 100)
    take(900, 100)
    assert len(syllabus.starts) == len(LESSONS)
    order = list(syllabus)
    assert [index % 2000 for index in order] == list(range(2000))
    learnt = [
        Counter(index // 2000 for index in order[begin:end]) for begin, end in ((0, 328), (328, 828), (1028, 2000))
    ]
    assert learnt[0] == {0: 328}
    assert learnt[1] == {1: 250, 0: 250}
    assert learnt[2] == {3: 486, 0: 162, 1: 162, 2: 162}
    for number in range(3):  # of either parity, because every second case of a lesson may be footage
        assert len({place % 2 for place, index in enumerate(order[1028:]) if index // 2000 == number}) == 2


def test_mastered_lessons_are_only_repeated() -> None:
    syllabus = Syllabus(400, step=4, patience=300, mastered=3)
    assert Counter(index // 400 for index in syllabus)[3] == 200
    syllabus.take({"pairs": 100, "lesson": "mixed", "right": 100, "of": 100})
    syllabus.begin()
    assert syllabus.starts == [0, 0, 0, 0]
    assert Counter(index // 400 for index in Syllabus(400, step=4, patience=300, mastered=9))[3] == 200
    first = Syllabus(2000, step=4, patience=300, mastered=1)
    first.take({"pairs": 200, "lesson": "clear", "right": 95, "of": 100})
    assert first.starts == [0, 0, 200 + 32 * 4]


@pytest.mark.parametrize("stage", ["pretrain", "cold-start"])
def test_a_resumed_curriculum_is_the_unbroken_one(
    start: Path, tmp_path: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("train.curriculum._AHEAD", 1)  # 16 cases are too few to look 32 steps ahead

    def run(name: str, **how: Any) -> tuple[bool, list[str]]:
        asked: list[str] = []
        if stage == "pretrain":
            recipe = replace(PRETRAINED, pretrain=replace(ASKED, learning_rate=2e-3))
            done = pretrain(recipe, cases(COUNT), start=start, run=tmp_path / name, curriculum=curriculum(asked), **how)
        else:
            options: Any = {"recipe_all": RECIPE, "curriculum": curriculum(asked)}
            done = supervise(ASKED, cases(COUNT), start=start, run=tmp_path / name, **options, **how)
        return done, asked

    assert run("whole") == (True, ["strong", "clear", "clear", "weak"])
    legs = []
    while not (found := run("legs", minutes=0))[0]:
        legs.append(found[1])
    assert len(legs) == 3
    names = ("whole", "legs")
    weights, rows = (
        [load_file(tmp_path / name / "model" / "model.safetensors") for name in names],
        [(tmp_path / name / LOG).read_text("utf-8").splitlines() for name in names],
    )
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert rows[0] == rows[1]
    assert [json.loads(row)["pairs"] for row in rows[0]] == [4, 8, 12, 16]
    assert json.loads(rows[0][0])["of"] == 2


def test_tokens_end_centred_and_as_long_as_words(start: Path, tmp_path: Path) -> None:
    assert pretrain(PRETRAINED, cases(8), start=start, run=tmp_path / "run")
    model, _ = load(RECIPE, tmp_path / "run" / "model", trainable=False)
    seen = [view for number in range(8) for view in clip_views(case(number), RECIPE.profile)]
    tokens = torch.cat(
        [
            model.model.visual(torch.from_numpy(v.patches), grid_thw=torch.from_numpy(v.grids)).pooler_output
            for v in seen
        ]
    )
    words = model.get_input_embeddings().weight.norm(dim=1).median()
    assert float(tokens.norm(dim=1).median()) == pytest.approx(float(words), rel=1e-4)
    assert float(tokens.mean(0).norm()) < 1e-4


def test_every_word_for_a_fault_is_taught(tmp_path: Path) -> None:
    """Rare ones as well: words from a few drawn cases alone would lack some."""
    profile, by_lesson = default_profile(), [World(0, 500, lesson=lesson) for lesson in LESSONS]
    tokenizer = learn(corpus(profile, by_lesson[-1][:200]), tmp_path / "tokenizer.json", rows=1024)
    known = set(
        _collect_statistics(by_lesson, list(clip_views(case(0), RECIPE.profile)), profile, tokenizer).word_ids.tolist()
    )
    for word in (*(NAMES[kind] for kind in VISUAL), *get_args(Step)):
        assert set(tokenizer.tokens(f" {word}", special=False)) <= known, word


@pytest.mark.parametrize(
    ("lesson", "levels", "parts"),
    [("strong", {3}, {2, 3}), ("clear", {2, 3}, {1, 2, 3}), ("weak", {1, 2, 3}, {1})],
)
def test_a_plain_lesson_has_one_fault(lesson: Any, levels: set[int], parts: set[int]) -> None:
    pairs = [scene(seed, lesson=lesson) for seed in range(400)]
    kinds = Counter(defect.kind for pair in pairs for clip in pair.clips for defect in clip.defects)
    assert set(kinds) == {*VISUAL, *MOTION}
    worse, mismatched, twins = Counter(), Counter(), Counter()
    for pair in pairs:
        a, b = pair.clips
        if a.looks != b.looks:
            wrong = [count_mismatches(pair.caption_looks, clip.looks) for clip in pair.clips]
            assert min(wrong) == 0
            assert max(wrong) in parts
            assert not a.defects + b.defects
            mismatched[wrong[0] > 0] += 1
            continue
        spotless = [replace(clip, defects=(), shots=clip.shots[:1]) for clip in pair.clips]
        equal = spotless[0] == spotless[1]
        twins[equal] += 1
        found = (*a.defects, *b.defects)
        if len(found) == 2:
            assert (equal, lesson) == (True, "weak")
            assert found[0].kind == found[1].kind
            assert {d.level for d in found} == {1, 3}
        else:
            assert len(found) == 1
            assert found[0].level in levels
            assert found[0].level > 1 or equal
        worse[points_of(pair)[0].total > points_of(pair)[1].total] += 1
    assert min(worse.values()) > 100
    assert twins[False] < twins[True] < 3 * twins[False]
    assert min(mismatched.values()) > 15
    tripods = [pair for pair in pairs if not any(s.camera.pan != (0.0, 0.0) for c in pair.clips for s in c.shots)]
    assert 80 < len(tripods) < 240
    assert sum(pair.clips[0].looks is not None for pair in tripods) > 40


@pytest.mark.parametrize("lesson", LESSONS)
def test_scripts_of_a_lesson_end_with_its_labels(lesson: Any) -> None:
    profile = default_profile()
    for example in World(0, 60, lesson=lesson):
        _, trial = replay(example, example.script, profile)
        assert {key: p.winner for key, p in trial.verdict.preferences.items()} == dict(example.labels)
        if lesson != "mixed":
            assert example.labels["OA"] != 0
            if example.labels["TA"]:
                assert (example.labels["VQ"], example.labels["MQ"], example.defects) == (0, 0, ())


def test_a_drawn_pair_is_learnt_in_both_orders(tmp_path: Path) -> None:
    profile, world = replace(RECIPE.profile, workspace=48, first_frames=4), World(0, 2, lesson="strong")
    renderer = Renderer(learn(corpus(profile, world), tmp_path / "tokenizer.json", rows=600), profile)
    for one in world:
        assert one.exchanged
        other = one.exchanged()
        assert dict(other.labels) == {key: (0, 2, 1)[choice] for key, choice in one.labels.items()}
        assert other.pair.durations == one.pair.durations[::-1]
        drawn = render(one, one.script, renderer, profile, orders=2)
        apart = render(one, one.script, renderer, profile) + render(other, other.script, renderer, profile)
        assert len(drawn) == len(apart)
        for row, same in zip(drawn, apart, strict=True):
            assert np.array_equal(row.ids, same.ids)
            assert np.array_equal(row.video_patches, same.video_patches)
            assert np.array_equal(row.image_patches, same.image_patches)
