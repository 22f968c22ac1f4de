"""The stages of a run, each in a folder of its own, and what each learns from. Knows names and order; trains nothing.

RUN/new/                    the new model, where the recipe names no source
RUN/pretrain/model/         its tower taught to see, where the recipe says so
RUN/cold-start/model/       after the written traces
RUN/sample/traces.jsonl     traces of that model that were right
RUN/refine/model/           after those
RUN/grpo/model/             after GRPO
RUN/evaluate/STAGE/         outcomes, figures
RUN/STAGE/recipe.json       what the stage was begun with
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from train.cases import Case, Cases
from train.recipe import Recipe
from train.traces import ledger, read_rows
from vrt_lite.errors import UsageError
from vrt_lite.models.store import write_whole

if TYPE_CHECKING:
    from train.curriculum import Curriculum
    from train.footage.packages import Split
    from train.world import Lesson

Stage = Literal["cold-start", "refine", "grpo"]
STAGES: Final[tuple[Stage, ...]] = ("cold-start", "refine", "grpo")
_BEFORE: Final[dict[str, str]] = {"sample": "cold-start", "refine": "cold-start", "grpo": "refine"}
_OWN: Final[dict[str, str]] = {
    "pretrain": "pretrain",
    "cold-start": "cold_start",
    "sample": "rejection",
    "refine": "refine",
    "grpo": "grpo",
}
_FREE: Final = frozenset(("data.workers", "model.gradient_checkpointing", "rejection.queries"))
"""What may change between two legs: it changes no number, or only how many there are."""
_BEGUN: Final = "recipe.json"
_VOCABULARY_CASES: Final = 2_000
_FOOTAGE_CASES: Final = 10_000
_QUESTIONED: Final = 500_000_000
"""From where on test seeds are for examinations."""


def model_of(run: Path, stage: str) -> Path:
    """A stage's finished model; UsageError with the command that makes it."""
    folder = run / stage / "model"
    if not folder.is_dir():
        raise UsageError(f"{folder} is not there: finish the stage with python -m train {stage} RECIPE {run} first.")
    return folder


def start_of(run: Path, stage: str) -> Path:
    """The model that a stage begins with."""
    return model_of(run, _BEFORE[stage])


def hold_to(recipe: Recipe, run: Path, stage: str) -> None:
    """Note what a stage is begun with. UsageError if it was begun with something else: its legs are one training."""
    folder, told = run / stage, _told(recipe, stage)
    path = folder / _BEGUN
    if path.is_file() and any(other.name != _BEGUN for other in folder.iterdir()):
        begun: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if changed := next((name for name in told if name not in _FREE and begun.get(name) != told[name]), ""):
            raise UsageError(
                f"{folder} was begun with {changed} = {begun.get(changed)!r}, and the recipe now says "
                f"{told[changed]!r}. Put it back, or give another RUN."
            )
    elif os.environ.get("RANK", "0") == "0":  # torchrun's and accelerate's: one process writes for all
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, (json.dumps(told, indent=1) + "\n").encode())


def _told(recipe: Recipe, stage: str) -> dict[str, Any]:
    """What a stage's numbers depend on, by the names that the recipe's file has for it; plain JSON."""
    tables = {"model": recipe.model, "data": recipe.data, _OWN[stage]: getattr(recipe, _OWN[stage])}
    told = {f"{name}.{key}": value for name, table in tables.items() for key, value in asdict(table).items()}
    return json.loads(json.dumps({**told, "profile": recipe.profile.sha256}))


def traces_of(recipe: Recipe, run: Path) -> Path:
    """The kept traces; UsageError with the command that makes them, if they are not all there."""
    path = run / "sample" / "traces.jsonl"
    sampled = len(read_rows(ledger(path)))
    wanted = min(recipe.rejection.queries, len(cases_for(recipe, "sample")))
    if sampled < wanted:
        raise UsageError(
            f"{sampled} of {wanted} queries are sampled: finish python -m train sample RECIPE {run} first."
        )
    return path


def beginning(recipe: Recipe, run: Path, stage: Literal["pretrain", "cold-start"]) -> Path | str:
    """What a run's first stages begin with: the recipe's source, or a new model, made here if it is not there.

    The cold start of a recipe that pretrains begins with what came of that.
    """
    if stage == "cold-start" and recipe.pretrain.samples:
        return model_of(run, "pretrain")
    if recipe.model.source:
        return recipe.model.source
    folder = run / "new"
    if not (folder / "config.json").is_file():
        from train.policy.model import new  # noqa: PLC0415  torch, only where it is needed
        from train.world import TRAIN, World  # noqa: PLC0415

        new(recipe, folder, World(TRAIN, _VOCABULARY_CASES, hidden=recipe.data.hidden))
    return folder


def curriculum_for(
    recipe: Recipe, stage: Literal["pretrain", "cold-start"], *, device: str = "cpu"
) -> Curriculum | None:
    """The lessons of a stage whose recipe asks for examinations; None where it does not. Only the world has lessons."""
    own = recipe.pretrain if stage == "pretrain" else recipe.cold_start
    if not own.asked:
        return None
    if recipe.data.source != "world":
        raise UsageError(f"Recipe {recipe.name} asks for lessons, which {recipe.data.source} does not have.")
    from train.curriculum import ON_FOOTAGE, QUESTIONS, Curriculum  # noqa: PLC0415  torch
    from train.world import LESSONS, TEST, TRAIN, World  # noqa: PLC0415  NumPy

    def drawn(lesson: Lesson) -> World:
        footage = _footage(recipe, first=TRAIN, lesson=lesson)
        return World(TRAIN, own.samples, hidden=recipe.data.hidden, device=device, footage=footage, lesson=lesson)

    def questions(lesson: Lesson) -> list[Case]:
        plain = "strong" if lesson == "mixed" else lesson
        real = _footage(recipe, "test", first=_QUESTIONED, count=ON_FOOTAGE, lesson=plain) or ()
        return [*World(TEST + _QUESTIONED, QUESTIONS, device=device, lesson=plain), *real]

    return Curriculum(tuple(map(drawn, LESSONS)), questions)


def _footage(
    recipe: Recipe, split: Split = "train", *, first: int, count: int = _FOOTAGE_CASES, lesson: Lesson = "mixed"
) -> Cases | None:
    """Cases of the recipe's footage, if it has any."""
    if not recipe.data.footage:
        return None
    from train.footage.pairs import Footage  # noqa: PLC0415  the decoder

    return Footage(Path(recipe.data.footage), split, first=first, count=count, lesson=lesson)


def cases_for(recipe: Recipe, stage: str, count: int | None = None, *, device: str = "cpu") -> Cases:
    """What a stage learns from, or "test": seeds of the world of its own, or the recipe's set of pairs.

    `count` is how many seeds; the recipe's own where it is not given.
    """
    if recipe.data.source != "world":
        from train.published import published  # noqa: PLC0415  the decoder

        traces = Path(recipe.data.traces) if recipe.data.traces and stage in ("pretrain", "cold-start") else None
        return published(Path(recipe.data.source), traces)
    from train.world import GRPO, SAMPLE, TEST, TRAIN, World  # noqa: PLC0415  NumPy

    own = {
        "pretrain": (TRAIN, recipe.pretrain.samples),
        "cold-start": (TRAIN, recipe.cold_start.samples),
        "sample": (SAMPLE, recipe.rejection.queries),
        "refine": (SAMPLE, recipe.rejection.queries),
        "grpo": (GRPO, recipe.grpo.steps * recipe.grpo.queries * (1 + recipe.grpo.resamples)),
        "test": (TEST, 2_000),
    }
    first, size = own[stage]
    footage = None if stage == "test" else _footage(recipe, first=first)
    return World(first, count or size, hidden=recipe.data.hidden, device=device, footage=footage)
