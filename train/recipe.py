"""A recipe: all settings of a training, read from a TOML file.

A setting that is not in the file has VR-Thinker's published value (arXiv 2510.10518v4), if there is one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from vrt_lite.errors import UsageError
from vrt_lite.profile import Profile, default_profile, load_profile

Precision = Literal["float32", "bfloat16"]
Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Name = Annotated[str, Meta(min_length=1)]


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class StartingModel(_Part):
    """The checkpoint to begin with, a folder or a hub id, and how it learns. `lora_rank` 0 trains every weight."""

    source: Name
    seed: int = 0
    precision: Precision = "bfloat16"
    lora_rank: Whole = 0
    tower: bool = True
    gradient_checkpointing: bool = False


class Tables(_Part):
    """Tables of labelled pairs that `vrt-lite eval` reads, none of which share a pair; `traces` are of `cold_start`."""

    cold_start: Name
    traces: Name
    sample: Name
    grpo: Name
    test: Name
    workers: Whole = 0


class Supervised(_Part):
    """Cold start and refinement. A step has `step` samples of all processes, `batch` of them at once in each."""

    samples: Count = 1_200
    epochs: Count = 1
    step: Count = 256
    batch: Count = 1
    learning_rate: Rate = 1.5e-6
    warmup: Share = 0.2
    weight_decay: Rate = 0.0


class Rejection(_Part):
    """Sampling from the cold start's model: one trace of a query is kept, if it is well-formed and right in all."""

    queries: Count = 20_000
    samples: Count = 4


class Reward(_Part):
    """Format + accuracy (alpha) + CoT gain (k) + exploratory incentive (eta, omega)."""

    alpha: Share = 0.5
    k: Rate = 0.2
    eta: Rate = 0.5
    omega: Share = 0.2


class Grpo(_Part):
    """GRPO. The rollouts of one policy are learned in `steps_per_generation` steps, with ratios clipped to 1 +- `clip`.

    A query whose group teaches nothing is replaced, at most `resamples` times. Each process learns from `batch` rows of
    a step at a time.
    """

    steps: Count = 300
    queries: Count = 64
    group: Annotated[int, Meta(ge=2)] = 8
    steps_per_generation: Count = 4
    learning_rate: Rate = 1e-6
    kl: Rate = 0.01
    clip: Share = 0.2
    resamples: Whole = 9
    batch: Count = 1
    reward: Reward = Reward()


class Rollouts(_Part):
    """How the replies of sampling and GRPO are drawn. Each process writes those of `batch` trials at a time."""

    batch: Count = 64
    temperature: Annotated[float, Meta(gt=0)] = 1.0


class Running(_Part):
    """Checkpoints every `save_steps`, of which the last `keep` stay, and who is told of the figures."""

    save_steps: Count = 20
    keep: Count = 1
    logging_steps: Count = 1
    report_to: tuple[str, ...] = ("none",)


class TrainingRecipe(_Part):
    """A whole training. `profile` is how the judge talks: its file's name, beside the recipe; VR-Thinker's without."""

    model: StartingModel
    data: Tables
    name: str = ""
    profile: Profile = field(default_factory=default_profile)
    cold_start: Supervised = Supervised()
    sample: Rejection = Rejection()
    refine: Supervised = Supervised(samples=20_000)
    grpo: Grpo = Grpo()
    rollouts: Rollouts = Rollouts()
    running: Running = Running()


def load_recipe(path: Path) -> TrainingRecipe:
    """Read a recipe; tables and models are named as seen from the working folder. UsageError names file and key."""
    try:
        table = msgspec.toml.decode(path.read_bytes())
        named = table.pop("profile", "")
        recipe = msgspec.convert({"name": path.stem, **table}, TrainingRecipe)
    except OSError as error:
        raise UsageError(f"Recipe {path} cannot be read: {error.strerror}.") from error
    except msgspec.ValidationError as error:
        raise UsageError(f"Recipe {path}: {str(error).replace('`$.', '`')}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"Recipe {path} is not valid TOML: {error}.") from error
    how = recipe.grpo
    if recipe.refine.samples > recipe.sample.queries:
        raise UsageError(
            f"Recipe {path}: refine.samples = {recipe.refine.samples} is more than sample.queries = "
            f"{recipe.sample.queries}, of each of which at most one trace is kept."
        )
    if recipe.running.save_steps % how.steps_per_generation:
        raise UsageError(
            f"Recipe {path}: running.save_steps = {recipe.running.save_steps} is not a multiple of "
            f"grpo.steps_per_generation = {how.steps_per_generation}, so that a checkpoint would lack its rollouts."
        )
    return msgspec.structs.replace(recipe, profile=load_profile(path.parent / named)) if named else recipe
