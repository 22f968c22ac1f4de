"""Recipes: what is left out, what is refused, and that the ones here can be read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from train.recipe import Grpo, Reward, Supervised, TrainingRecipe, load_recipe
from vrt_lite.errors import UsageError
from vrt_lite.profile import default_profile

LEAST = """
[model]
source = "somewhere"

[data]
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


def test_the_recipe_here_has_the_papers_values() -> None:
    """Every number of it is also the default; what differs from VR-Thinker is the model and the machine."""
    recipe = load_recipe(CONFIGS / "vr-thinker-7b.toml")
    assert recipe.profile == default_profile()
    defaults = TrainingRecipe(model=recipe.model, data=recipe.data)
    for part in ("cold_start", "refine", "grpo"):
        assert getattr(recipe, part) == getattr(defaults, part), part
    assert recipe.sample == msgspec.structs.replace(defaults.sample, queries=40_000)
    lines = (CONFIGS / "vr-thinker-7b.toml").read_text("utf-8").splitlines()
    assert len(lines) <= 60, "not one screen"


def test_what_is_left_out_is_the_papers(tmp_path: Path) -> None:
    recipe = load_recipe(written(tmp_path, LEAST))
    assert recipe.name == "some"
    assert recipe.profile == default_profile()
    assert recipe.cold_start == Supervised(samples=1_200, learning_rate=1.5e-6, warmup=0.2, step=256)
    assert recipe.grpo == Grpo(queries=64, group=8, kl=0.01, learning_rate=1e-6, steps_per_generation=4)
    assert recipe.grpo.reward == Reward(alpha=0.5, k=0.2, eta=0.5, omega=0.2)


def test_a_part_has_at_most_ten_settings() -> None:
    parts = [kind for kind in msgspec.structs.fields(TrainingRecipe) if isinstance(kind.type, type)]
    kinds = [TrainingRecipe, *(part.type for part in parts if issubclass(part.type, msgspec.Struct))]
    assert len(kinds) == 9
    assert {kind.__name__: len(kind.__struct_fields__) for kind in kinds if len(kind.__struct_fields__) > 10} == {}


def test_a_profile_lies_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('name = "own"\nrounds = 2\n', encoding="utf-8")
    recipe = load_recipe(written(tmp_path, f'profile = "own.toml"\n{LEAST}\n[cold_start]\nwarmup = 0'))
    assert (recipe.profile.name, recipe.profile.rounds) == ("own", 2)
    assert recipe.cold_start.warmup == 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[grpo]\nsteps = -1", "Expected `int` >= 1 - at `grpo.steps`"),
        ("[grpo]\ngroup = 1", "Expected `int` >= 2 - at `grpo.group`"),
        ("[grpo]\nstepz = 1", "unknown field `stepz` - at `grpo`"),
        ("[grpo]\nsteps = 'x'", "Expected `int`, got `str` - at `grpo.steps`"),
        ("[grpo]\nsteps = true", "Expected `int`, got `bool`"),
        ("[grpo.reward]\nalpha = 1.5", "<= 1.0 - at `grpo.reward.alpha`"),
        ("[running]\nsave_steps = 0", "Expected `int` >= 1 - at `running.save_steps`"),
        ("[rollouts]\ntemperature = 0", "> 0.0 - at `rollouts.temperature`"),
        ("[world]\nsize = 1", "unknown field `world`"),
        ("[refine]\nsamples = 9\n[sample]\nqueries = 8", "refine.samples = 9 is more than sample.queries = 8"),
        ("[running]\nsave_steps = 6", "save_steps = 6 is not a multiple of grpo.steps_per_generation = 4"),
        ("[grpo", "is not valid TOML"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_recipe(written(tmp_path, f"{LEAST}\n{text}"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value) and "some.toml" in str(caught.value)
