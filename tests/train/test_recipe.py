"""Recipes: what is left out, what is refused, and that the ones here can be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from train.recipe import Grpo, Supervised, load_recipe
from train.stages import check_recipe
from vrt_lite.errors import UsageError
from vrt_lite.profile import default_profile

TABLED = """
[data]
source = "tables"
cold_start = "c.csv"
traces = "t.jsonl"
sample = "s.csv"
grpo = "g.csv"
test = "e.csv"
"""
CONFIGS = Path(__file__).resolve().parents[2] / "train" / "configs"


def written(folder: Path, text: str) -> Path:
    path = folder / "some.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", sorted(p for p in CONFIGS.glob("*.toml") if not p.name.endswith(".profile.toml")))
def test_every_recipe_here_can_be_read(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.grpo.group == 8
    assert recipe.profile.name in recipe.name or recipe.profile == default_profile()


def test_what_is_left_out_is_the_papers(tmp_path: Path) -> None:
    recipe = load_recipe(written(tmp_path, ""))
    assert recipe.name == "some"
    assert recipe.profile == default_profile()
    assert recipe.cold_start == Supervised(
        samples=1_200, learning_rate=1.5e-6, warmup=0.2, batch=1, accumulation=256, betas=(0.9, 0.999)
    )
    assert (recipe.grpo.queries, recipe.grpo.steps_per_generation) == (64, 4)
    assert (recipe.grpo.alpha, recipe.grpo.gain, recipe.grpo.incentive, recipe.grpo.share) == (0.5, 0.2, 0.5, 0.2)
    assert (recipe.grpo.kl, recipe.grpo.learning_rate, recipe.grpo.group) == (0.01, 1e-6, Grpo().group)


def test_a_whole_number_may_stand_for_a_fraction(tmp_path: Path) -> None:
    recipe = load_recipe(written(tmp_path, "[cold_start]\nwarmup = 0\nbetas = [0, 1]"))
    assert recipe.cold_start.warmup == 0.0
    assert isinstance(recipe.cold_start.warmup, float)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[grpo]\nklx = 1", "grpo.klx is unknown; known are "),
        ("[grpo]\nsteps = 1.5", "grpo.steps = 1.5 is not a int"),
        ("[grpo]\nsteps = true", "grpo.steps = True is not a int"),
        ("[grpo]\nkl = -1", "grpo.kl = -1 is negative"),
        ('[model]\nprecision = "float8"', "model.precision = 'float8' is not one of float32, bfloat16"),
        ("model = 3", "model = 3 is not a table"),
        ('[cold_start]\nbetas = ["a"]', "cold_start.betas = ['a'] is not a list of numbers"),
        ("a = = b", "is not valid TOML"),
        ("[cold_start]\norders = 3", "cold_start.orders = 3 is not 1 or 2"),
        ("[refine]\norders = 2", "refine.orders = 2, but only the cold start learns both orders"),
        ("[pretrain]\nsamples = 2", "pretrain is unknown; known are cold_start, "),
        ('[data]\nsource = "pairs.csv"', "data.source = 'pairs.csv' is not one of world, tables"),
        ('[data]\ntest = "t.csv"', 'data.test is named, but data.source is "world": add source = "tables" to [data]'),
        (
            TABLED.replace("test", "#"),
            'data.source is "tables", but data.test is missing: name a table of pairs for each',
        ),
        (TABLED.replace("traces", "#"), "data.traces is missing"),
        ('[data]\nsource = "tables"', "data.cold_start, data.sample, data.grpo, data.test, data.traces are missing"),
        ("[launchers]\ngrpo = 3", "launchers.grpo = 3 is not a list of words"),
        ("[launchers]\ngrpo = [3]", "launchers.grpo = [3] is not a list of words"),
        ('[launchers]\ntest = ["torchrun"]', "launchers.test is unknown; known are cold_start, grpo, refine, sample"),
        (
            "[rejection]\nqueries = 10\nsamples = 2\nkept_a_query = 3\n[refine]\nsamples = 21",
            "refine.samples = 21 is more than the 20 traces that sampling can keep: rejection.queries = 10, times 2,",
        ),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        load_recipe(written(tmp_path, text))
    assert message in str(error.value)
    assert "some.toml" in str(error.value)


def test_refinement_may_ask_for_all_that_sampling_can_keep(tmp_path: Path) -> None:
    text = "[rejection]\nqueries = 10\nsamples = 4\nkept_a_query = 2\n[refine]\nsamples = 20"
    assert load_recipe(written(tmp_path, text)).refine.samples == 20


def test_a_recipe_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_recipe(tmp_path / "none.toml")


def test_a_stage_is_held_to_what_it_was_begun_with(tmp_path: Path) -> None:
    def begin(text: str, stage: str = "grpo") -> None:
        check_recipe(load_recipe(written(tmp_path, text)), tmp_path, stage)

    begin("")
    begin("[grpo]\nkl = 0.02\n")  # nothing was made of it yet
    (tmp_path / "grpo" / "log.jsonl").touch()
    begin("[grpo]\nkl = 0.02\n[data]\nworkers = 3\n[refine]\nsamples = 3\n")
    with pytest.raises(UsageError, match=r"started with grpo\.kl = 0\.02, and the recipe now has 0\.01"):
        begin("")
    with pytest.raises(UsageError, match=r"model\.shape"):
        begin("[grpo]\nkl = 0.02\n[model]\nshape = { layers = 3 }\n")
    begin("[rejection]\nqueries = 30_000\n", "sample")
    (tmp_path / "sample" / "traces.jsonl").touch()
    begin("[rejection]\nqueries = 40_000\n", "sample")


def test_a_stage_begun_before_a_setting_was_known_goes_on(tmp_path: Path) -> None:
    recipe = load_recipe(written(tmp_path, ""))
    check_recipe(recipe, tmp_path, "grpo")
    (tmp_path / "grpo" / "log.jsonl").touch()
    path = tmp_path / "grpo" / "recipe.json"
    known = json.loads(path.read_text("utf-8"))
    assert known.pop("data.sample") == ""
    path.write_text(json.dumps(known), encoding="utf-8")
    check_recipe(recipe, tmp_path, "grpo")
    path.write_text(json.dumps(known | {"data.sample": "s.csv"}), encoding="utf-8")
    with pytest.raises(UsageError, match=r"started with data\.sample = 's\.csv', and the recipe now has ''"):
        check_recipe(recipe, tmp_path, "grpo")
