"""Exports a stage's model to the pair that users run, and evaluates that on the test table as `vrt-lite eval` does."""

from __future__ import annotations

import json
from pathlib import Path

from train.recipe import TrainingRecipe
from train.trainer import MODEL
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.disk import write_file
from vrt_lite.records.figures import Figures
from vrt_lite.run_api import evaluate as evaluate_judge

PAIR = "pair"


def export(recipe: TrainingRecipe, stage: Path) -> Path:
    """Export the model of a finished stage to the folder STAGE/pair, unless that is there. Returns the folder."""
    if not (stage / PAIR).is_dir():
        export_pair(stage / MODEL, stage / "pair.part", name=recipe.name)
        (stage / "pair.part").replace(stage / PAIR)
    return stage / PAIR


def evaluate(recipe: TrainingRecipe, stage: Path, *, jobs: int = 1) -> Figures:
    """Judge the test pairs with a stage's model, and write STAGE/figures.json. Goes on where it ended."""
    pair = export(recipe, stage)
    judged = evaluate_judge(recipe.data.test, model=pair, jobs=jobs, store=stage / "judgements.db")
    write_file(stage / "figures.json", (json.dumps(judged.figures.to_json(), indent=1) + "\n").encode())
    return judged.figures
