"""The stages of a run, each in a folder of its own, and what each learns from. Knows names and order; trains nothing.

RUN/new/                    the new model, where the recipe names no source
RUN/cold-start/model/       after the written traces
RUN/sample/traces.jsonl     traces of that model that were right
RUN/refine/model/           after those
RUN/grpo/model/             after GRPO
RUN/evaluate/STAGE/         outcomes, figures
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from train.cases import Cases
from train.recipe import Recipe
from train.traces import ledger, read_rows
from vrt_lite.errors import UsageError

Stage = Literal["cold-start", "refine", "grpo"]
STAGES: Final[tuple[Stage, ...]] = ("cold-start", "refine", "grpo")
_BEFORE: Final[dict[str, str]] = {"sample": "cold-start", "refine": "cold-start", "grpo": "refine"}
_VOCABULARY_CASES: Final = 2_000
_FOOTAGE_CASES: Final = 10_000


def model_of(run: Path, stage: str) -> Path:
    """A stage's finished model; UsageError with the command that makes it."""
    folder = run / stage / "model"
    if not folder.is_dir():
        raise UsageError(f"{folder} is not there: finish the stage with python -m train {stage} RECIPE {run} first.")
    return folder


def start_of(run: Path, stage: str) -> Path:
    """The model that a stage begins with."""
    return model_of(run, _BEFORE[stage])


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


def beginning(recipe: Recipe, run: Path) -> Path | str:
    """What the cold start begins with: the recipe's source, or a new model, made here if it is not there."""
    if recipe.model.source:
        return recipe.model.source
    folder = run / "new"
    if not (folder / "config.json").is_file():
        from train.policy.model import new  # noqa: PLC0415  torch, only where it is needed
        from train.world import TRAIN, World  # noqa: PLC0415

        new(recipe, folder, World(TRAIN, _VOCABULARY_CASES, hidden=recipe.data.hidden))
    return folder


def cases_for(recipe: Recipe, stage: str, count: int | None = None, *, device: str = "cpu") -> Cases:
    """What a stage learns from, or "test": seeds of the world of its own, or the recipe's set of pairs.

    `count` is how many seeds; the recipe's own where it is not given.
    """
    if recipe.data.source != "world":
        from train.published import published  # noqa: PLC0415  the decoder

        traces = Path(recipe.data.traces) if recipe.data.traces and stage == "cold-start" else None
        return published(Path(recipe.data.source), traces)
    from train.world import GRPO, SAMPLE, TEST, TRAIN, World  # noqa: PLC0415  NumPy

    own = {
        "cold-start": (TRAIN, recipe.cold_start.samples),
        "sample": (SAMPLE, recipe.rejection.queries),
        "refine": (SAMPLE, recipe.rejection.queries),
        "grpo": (GRPO, recipe.grpo.steps * recipe.grpo.queries * (1 + recipe.grpo.resamples)),
        "test": (TEST, 2_000),
    }
    first, size = own[stage]
    footage = None
    if recipe.data.footage and stage != "test":
        from train.footage.pairs import Footage  # noqa: PLC0415  the decoder

        footage = Footage(Path(recipe.data.footage), "train", first=first, count=_FOOTAGE_CASES)
    return World(first, count or size, hidden=recipe.data.hidden, device=device, footage=footage)
