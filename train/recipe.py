"""A recipe: all settings of a training, read from a TOML file.

A setting that is not in the file has VR-Thinker's published value (paper, section on training), if there is one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_type_hints

from vrt_lite.errors import UsageError
from vrt_lite.profile import Profile, default_profile, load_profile

Precision = Literal["float32", "bfloat16"]
Source = Literal["world", "tables"]
TableKey = Literal["cold_start", "sample", "grpo", "test"]
TABLES: Final[tuple[TableKey, ...]] = get_args(TableKey)
"""The tables of pairs that a recipe names, as keys of `data`. No pair may be in two of them."""


@dataclass(frozen=True, slots=True)
class NewModelShape:
    """A new model's shape. Used if `source` is empty."""

    layers: int = 6
    width: int = 256
    heads: int = 4
    kv_heads: int = 2
    feed_forward: int = 768
    rope_section: tuple[int, ...] = (8, 12, 12)
    vocabulary: int = 1024
    tower_depth: int = 6
    tower_width: int = 192
    tower_heads: int = 3
    tower_feed_forward: int = 512
    tower_full: tuple[int, ...] = (1, 3, 5)


@dataclass(frozen=True, slots=True)
class ModelRecipe:
    """The model at the start: a checkpoint's folder or hub id, or a new model. `lora_rank` 0 trains every weight."""

    source: str = ""
    shape: NewModelShape = NewModelShape()
    seed: int = 0
    precision: Precision = "bfloat16"
    lora_rank: int = 0
    gradient_checkpointing: bool = False


@dataclass(frozen=True, slots=True)
class Data:
    """The training data: the world, or tables of labelled pairs that `vrt-lite eval` reads.

    Training, sampling, GRPO and tests have separate ranges of seeds of the world, so that they never share a clip. They
    have separate tables, too, which must not share a pair (`train.pair_tables`); `traces` are written for the pairs of
    `cold_start`, and refinement learns what was sampled from `sample`.

    `hidden` is the share of pairs whose evidence the first frames do not show. `footage` is a folder of clips, and
    every `footage_every`th pair of the world comes from there instead.
    """

    source: Source = "world"
    cold_start: str = ""
    traces: str = ""
    sample: str = ""
    grpo: str = ""
    test: str = ""
    footage: str = ""
    footage_every: int = 5
    hidden: float = 0.35
    workers: int = 0


@dataclass(frozen=True, slots=True)
class Supervised:
    """Cold start and refinement. `samples` are pairs; the tower learns at `tower_share` of the rate, with 0 not at all.

    With `orders` 2 the cold start learns each pair in both orders in the same step.
    """

    samples: int = 1_200
    learning_rate: float = 1.5e-6
    warmup: float = 0.2
    batch: int = 1
    accumulation: int = 256
    betas: tuple[float, ...] = (0.9, 0.999)
    weight_decay: float = 0.0
    tower_share: float = 1.0
    epochs: int = 1
    orders: int = 1


@dataclass(frozen=True, slots=True)
class Rejection:
    """Sampling from a stage's model; a trace is kept if its format and all its judgements are right."""

    queries: int = 20_000
    samples: int = 4
    kept_a_query: int = 1
    temperature: float = 1.0
    batch: int = 16


@dataclass(frozen=True, slots=True)
class Grpo:
    """GRPO with the paper's reward: format + accuracy (alpha) + CoT gain (k) + exploratory incentive (eta, omega).

    The rollouts of one policy are learned in `steps_per_generation` steps, with ratios clipped to 1 +- `clip`. A query
    whose group teaches nothing is replaced, at most `resamples` times. Each process writes `rollouts` at a time, and
    learns from `batch` of their segments at a time.
    """

    steps: int = 200
    queries: int = 64
    steps_per_generation: int = 4
    group: int = 8
    learning_rate: float = 1e-6
    kl: float = 0.01
    clip: float = 0.2
    temperature: float = 1.0
    alpha: float = 0.5
    gain: float = 0.2
    incentive: float = 0.5
    share: float = 0.2
    resamples: int = 9
    rollouts: int = 64
    batch: int = 1


@dataclass(frozen=True, slots=True)
class Launchers:
    """The words with which `train all` starts each stage on several processes, before "-m train STAGE …".

    For example `["accelerate", "launch", "--config_file", "train/configs/fsdp.yaml"]`. Without any, Python starts it.
    """

    cold_start: tuple[str, ...] = ()
    sample: tuple[str, ...] = ()
    refine: tuple[str, ...] = ()
    grpo: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """A whole training. `profile` sets the model's protocol."""

    name: str
    profile: Profile
    model: ModelRecipe = ModelRecipe()
    data: Data = Data()
    cold_start: Supervised = Supervised()
    rejection: Rejection = Rejection()
    refine: Supervised = field(default_factory=lambda: Supervised(samples=20_000))
    grpo: Grpo = Grpo()
    launchers: Launchers = Launchers()


_T = TypeVar("_T")


def load_recipe(path: Path) -> TrainingRecipe:
    """Read a recipe. The UsageError for a bad recipe names file, key, value and what is allowed.

    `profile` names a profile's TOML file beside the recipe; the default is VR-Thinker's profile.
    """
    try:
        with path.open("rb") as file:
            table: dict[str, Any] = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"Recipe {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"Recipe {path} is not valid TOML: {error}.") from error
    named = table.pop("profile", "")
    profile = load_profile(path.parent / named) if named else default_profile()
    try:
        recipe = _build(TrainingRecipe, {"name": path.stem, **table, "profile": profile}, "")
        _check_consistency(recipe)
        _check_tables(recipe.data)
    except (TypeError, ValueError) as error:
        raise UsageError(f"Recipe {path}: {error}.") from error
    return recipe


def _check_consistency(recipe: TrainingRecipe) -> None:
    """Raise ValueError for settings that exclude each other: a stage cannot need more than the one before it makes."""
    if not recipe.data.footage_every:
        raise ValueError("data.footage_every = 0 is not at least 1; leave data.footage out to learn without footage")
    if recipe.cold_start.orders not in (1, 2):
        raise ValueError(f"cold_start.orders = {recipe.cold_start.orders} is not 1 or 2")
    if recipe.refine.orders != 1:
        raise ValueError(
            f"refine.orders = {recipe.refine.orders}, but only the cold start learns both orders: leave it out"
        )
    how, needed = recipe.rejection, recipe.refine.samples
    most = how.queries * min(how.samples, how.kept_a_query)
    if needed > most:
        raise ValueError(
            f"refine.samples = {needed} is more than the {most} traces that sampling can keep: rejection.queries = "
            f"{how.queries}, times {min(how.samples, how.kept_a_query)}, the lesser of rejection.samples and "
            "rejection.kept_a_query"
        )


def _check_tables(data: Data) -> None:
    """Raise ValueError if a table of pairs is missing, or is named beside the world."""
    names = (*TABLES, "traces")
    if data.source == "world":
        if named := next((name for name in names if getattr(data, name)), ""):
            raise ValueError(f'data.{named} is named, but data.source is "world": add source = "tables" to [data]')
        return
    if missing := [f"data.{name}" for name in names if not getattr(data, name)]:
        raise ValueError(
            f'data.source is "tables", but {", ".join(missing)} {"are" if len(missing) > 1 else "is"} missing: name a '
            "table of pairs for each of cold_start, sample, grpo and test, none in two of them, and the traces of "
            "cold_start"
        )


def _build(kind: type[_T], values: Mapping[str, Any], prefix: str) -> _T:
    """Build a dataclass from a table, with each value in the type of its field."""
    hints = get_type_hints(kind)
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(values) - set(known)):
        raise ValueError(f"{prefix}{unknown[0]} is unknown; known are {', '.join(sorted(known))}")
    if missing := [n for n, f in known.items() if n not in values and f.default is f.default_factory is MISSING]:
        raise ValueError(f"{prefix}{missing[0]} is missing")
    return kind(**{name: _value(hints[name], value, f"{prefix}{name}") for name, value in values.items()})


def _value(kind: Any, value: Any, name: str) -> Any:
    if isinstance(value, Profile):
        return value
    if hasattr(kind, "__dataclass_fields__"):
        if not isinstance(value, dict):
            raise ValueError(f"{name} = {value!r} is not a table")
        return _build(kind, value, f"{name}.")
    if choices := get_args(kind) if kind in (Precision, Source) else ():
        if value not in choices:
            raise ValueError(f"{name} = {value!r} is not one of {', '.join(choices)}")
        return value
    if kind in (int, float, bool, str):
        allowed = (int, float) if kind is float else kind
        if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{name} = {value!r} is not a {kind.__name__}")
        if not isinstance(value, str) and value < 0:
            raise ValueError(f"{name} = {value!r} is negative")
        return kind(value)
    element, what = (str, "words") if get_args(kind)[0] is str else (int | float, "numbers")
    if not isinstance(value, list) or not all(isinstance(v, element) for v in value):
        raise ValueError(f"{name} = {value!r} is not a list of {what}")
    return tuple(value)
