"""The stages of a run, their folders, and the cases that each learns from.

RUN/new/                    the new model, if the recipe has no source
RUN/cold-start/model/       the model after the written traces
RUN/sample/traces.jsonl     right traces of that model
RUN/refine/model/           the model after those traces
RUN/grpo/model/             the model after GRPO
RUN/evaluate/STAGE/         outcomes, figures
RUN/STAGE/recipe.json       the settings with which the stage was started
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

from train.pair_tables import Part, check_tables
from train.recipe import TableKey, TrainingRecipe
from train.step_sizes import is_first_process
from train.traces import ledger, read_rows
from train.training_cases import Cases
from vrt_lite.disk import file_sha256, write_file
from vrt_lite.errors import UsageError
from vrt_lite.evaluation.sets import locate_set

Stage = Literal["cold-start", "refine", "grpo"]
STAGES: Final[tuple[Stage, ...]] = ("cold-start", "refine", "grpo")
_BEFORE: Final[dict[str, str]] = {"sample": "cold-start", "refine": "cold-start", "grpo": "refine"}
_OWN: Final[dict[str, str]] = {
    "cold-start": "cold_start",
    "sample": "rejection",
    "refine": "refine",
    "grpo": "grpo",
}
_FREE: Final = frozenset(("data.workers", "data.test", "model.gradient_checkpointing", "rejection.queries"))
"""Settings that may change between two legs, because they change no result, or only the number of results."""
_TABLES: Final[dict[str, TableKey]] = {
    "cold-start": "cold_start",
    "sample": "sample",
    "refine": "sample",
    "grpo": "grpo",
    "test": "test",
    "calibrate": "test",
}
"""The table of a recipe's `data` from which a stage has its pairs."""
TRAINED: Final = ("cold-start", "sample", "refine", "grpo")
_PARTS: Final[dict[str, Part]] = {"test": "report", "calibrate": "fit"}
_SETTINGS_FILE: Final = "recipe.json"
_VOCABULARY_CASES: Final = 2_000
_FOOTAGE_CASES: Final = 1_000_000
"""More than a stage draws, so that no pair of footage comes twice."""


def model_of(run: Path, stage: str) -> Path:
    """Return a stage's finished model. The UsageError for a missing model names the command that creates it."""
    folder = run / stage / "model"
    if not folder.is_dir():
        raise UsageError(f"{folder} is not there: finish the stage with python -m train {stage} RECIPE {run} first.")
    return folder


def start_of(run: Path, stage: str) -> Path:
    """Return the model with which a stage starts."""
    return model_of(run, _BEFORE[stage])


def check_recipe(recipe: TrainingRecipe, run: Path, stage: str) -> None:
    """Record the settings that a stage starts with.

    Raises UsageError if the stage was started with other settings, since all its legs are one training, or if two of
    the recipe's tables share a pair.
    """
    check_tables(recipe.data)
    folder, settings = run / stage, _settings_of(recipe, stage)
    path = folder / _SETTINGS_FILE
    if path.is_file() and any(other.name != _SETTINGS_FILE for other in folder.iterdir()):
        before: dict[str, Any] = json.loads(path.read_text("utf-8"))
        # A setting that was not known then had its default.
        changed = (
            name for name in settings if name not in _FREE and before.get(name, settings[name]) != settings[name]
        )
        if name := next(changed, ""):
            raise UsageError(
                f"{folder} was started with {name} = {before.get(name)!r}, and the recipe now has "
                f"{settings[name]!r}. Restore the setting, or give another RUN."
            )
    elif is_first_process():
        folder.mkdir(parents=True, exist_ok=True)
        write_file(path, (json.dumps(settings, indent=1) + "\n").encode())


def check_unseen(recipe: TrainingRecipe, run: Path, parts: Sequence[str] = tuple(_TABLES)) -> None:
    """Raise UsageError if a stage, or another of the run's `parts`, had pairs of another table than the recipe names.

    Only then the check of the recipe's tables says that no stage has seen its test pairs.
    """
    check_tables(recipe.data)
    for part in parts:
        path = run / part / _SETTINGS_FILE
        for name, digest in _table_digests(recipe, part).items():
            if path.is_file() and json.loads(path.read_text("utf-8")).get(name, digest) != digest:
                again = "calibrate again" if part == "calibrate" else "give the recipe and the tables of the training"
                raise UsageError(
                    f"{path.parent} had other pairs than data.{_TABLES[part]} of recipe {recipe.name} has now, so it "
                    f"is not known which pairs are unseen: {again}."
                )


def record_tables(recipe: TrainingRecipe, run: Path, part: str) -> None:
    """Record the tables from which a part of a run that is no stage has its pairs."""
    (run / part).mkdir(parents=True, exist_ok=True)
    write_file(run / part / _SETTINGS_FILE, (json.dumps(_table_digests(recipe, part)) + "\n").encode())


def learnt_from_tables(run: Path) -> bool:
    """Whether the last stage of a run had its pairs from a table."""
    path = run / STAGES[-1] / _SETTINGS_FILE
    return path.is_file() and json.loads(path.read_text("utf-8")).get("data.source", "world") != "world"


def _table_digests(recipe: TrainingRecipe, stage: str) -> dict[str, str]:
    """Return the digest of the table from which a stage has its pairs, by a setting's name; {} for the world."""
    if recipe.data.source == "world":
        return {}
    name = _TABLES[stage]
    return {f"data.{name}.sha256": file_sha256(locate_set(Path(getattr(recipe.data, name))).table)}


def _settings_of(recipe: TrainingRecipe, stage: str) -> dict[str, Any]:
    """Return the settings on which a stage's results depend, by their names in the recipe's file, as plain JSON."""
    tables = {"model": recipe.model, "data": recipe.data, _OWN[stage]: getattr(recipe, _OWN[stage])}
    settings = {f"{name}.{key}": value for name, table in tables.items() for key, value in asdict(table).items()}
    return json.loads(json.dumps({**settings, **_table_digests(recipe, stage), "profile": recipe.profile.sha256}))


def traces_of(recipe: TrainingRecipe, run: Path) -> Path:
    """Return the file of kept traces. The UsageError for missing traces names the command that samples them."""
    path = run / "sample" / "traces.jsonl"
    sampled = len(read_rows(ledger(path)))
    needed = min(recipe.rejection.queries, len(cases_for(recipe, "sample")))
    if sampled < needed:
        raise UsageError(
            f"{sampled} of {needed} queries are sampled: finish python -m train sample RECIPE {run} first."
        )
    return path


def starting_model(recipe: TrainingRecipe, run: Path) -> Path | str:
    """Return the model of a run's first stage: the recipe's source, or a new model, created here if it is missing."""
    if recipe.model.source:
        return recipe.model.source
    folder = run / "new"
    if not (folder / "config.json").is_file():
        from train.policy.model import create_checkpoint  # noqa: PLC0415  torch, only where it is needed
        from train.world import TRAIN, World  # noqa: PLC0415

        create_checkpoint(recipe, folder, World(TRAIN, _VOCABULARY_CASES, hidden=recipe.data.hidden))
    return folder


def cases_for(recipe: TrainingRecipe, stage: str, count: int | None = None, *, device: str = "cpu") -> Cases:
    """Return the cases of a stage, or of "test": the stage's own seeds of the world, or its table of pairs.

    A table's test pairs are of two parts, "test" for figures and "calibrate" for temperatures. `count` is the number of
    seeds, where the default is the recipe's, or the most pairs of a table.
    """
    if recipe.data.source != "world":
        from train.published_pairs import load_published_pairs  # noqa: PLC0415  the decoder

        name = _TABLES[stage]
        return load_published_pairs(
            Path(getattr(recipe.data, name)),
            Path(recipe.data.traces) if name == "cold_start" else None,
            workspace=recipe.profile.workspace,
            part=_PARTS.get(stage),
            most=count,
        )
    from train.world import GRPO, SAMPLE, TEST, TRAIN, World  # noqa: PLC0415  NumPy

    own = {
        "cold-start": (TRAIN, recipe.cold_start.samples),
        "sample": (SAMPLE, recipe.rejection.queries),
        "refine": (SAMPLE, recipe.rejection.queries),
        "grpo": (GRPO, recipe.grpo.steps * recipe.grpo.queries * (1 + recipe.grpo.resamples)),
        "test": (TEST, 2_000),
    }
    first, size = own[stage]
    data = recipe.data
    footage = None
    if data.footage and stage != "test":
        from train.footage.footage_pairs import FootagePairs  # noqa: PLC0415  the decoder

        footage = FootagePairs(Path(data.footage), "train", first=first, count=_FOOTAGE_CASES)
    return World(
        first, count or size, hidden=data.hidden, device=device, footage=footage, footage_every=data.footage_every
    )
