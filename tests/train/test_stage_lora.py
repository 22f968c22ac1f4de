"""An adapter of each stage is merged into a whole checkpoint, whose GGUF pair gives the trained model's verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
pytest.importorskip("gguf")
pytest.importorskip("llama_cpp")

from msgspec.structs import replace  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from taught_judge import PROFILE, RECIPE, case  # noqa: E402

from train.grpo import reinforce  # noqa: E402
from train.model import load  # noqa: E402
from train.recipe import StartingModel, Supervised, TrainingRecipe  # noqa: E402
from train.sample import open_policy  # noqa: E402
from train.sft import supervise  # noqa: E402
from vrt_lite.backends.llamacpp import LlamaCppBackend  # noqa: E402
from vrt_lite.conversion.convert_folder import export_pair  # noqa: E402
from vrt_lite.judge import judge_with  # noqa: E402
from vrt_lite.machine import EngineSettings  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
ADAPTED = replace(RECIPE, model=StartingModel(source="taught", seed=3, precision="float32", lora_rank=4))
CASES = [case(seed) for seed in range(4)]


def _supervise(taught: Path, run: Path, recipe: TrainingRecipe) -> None:
    how = Supervised(samples=4, step=2, batch=2, learning_rate=1e-3, warmup=0.0)
    supervise(how, CASES, recipe=replace(recipe, running=replace(recipe.running, save_steps=1)), start=taught, run=run)


def _reinforce(taught: Path, run: Path, recipe: TrainingRecipe) -> None:
    grpo = replace(recipe.grpo, steps=2, steps_per_generation=2, group=8, learning_rate=1e-2)
    reinforce(replace(recipe, grpo=grpo, running=replace(recipe.running, save_steps=2)), CASES, start=taught, run=run)


@pytest.mark.parametrize("stage", [_supervise, _reinforce])
def test_an_adapter_becomes_a_pair_with_its_verdicts(taught: Path, tmp_path: Path, stage: Any) -> None:
    stage(taught, tmp_path / "run", ADAPTED)
    checkpoint = tmp_path / "run" / "checkpoint-2"
    assert {name.split(".")[-2] for name in load_file(checkpoint / "adapter_model.safetensors")} == {"lora_A", "lora_B"}
    assert not (checkpoint / "model.safetensors").exists()
    before, after = (load_file(folder / "model.safetensors") for folder in (taught, tmp_path / "run" / "model"))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all(name.endswith("_proj.weight") and "visual" not in name for name in changed)

    import peft

    adapted = peft.PeftModel.from_pretrained(load(taught)[0], str(checkpoint))
    merged = adapted.merge_and_unload().state_dict()
    whole = load(tmp_path / "run" / "model")[0].state_dict()
    assert all(torch.allclose(whole[name], merged[name], atol=1e-6) for name in whole)

    text, projector, _ = export_pair(
        tmp_path / "run" / "model", tmp_path / "pair", text_type="f32", projector_type="f32"
    )
    policy = open_policy(RECIPE, tmp_path / "run" / "model")
    settings = EngineSettings(gpu_layers=0, threads=1, exact=True)
    with LlamaCppBackend(text, projector, profile=PROFILE, settings=settings) as engine:
        for each in CASES:
            with each.open(PROFILE) as frames:
                one, other = (judge_with(each.pair, PROFILE, backend, frames) for backend in (policy, engine))
            assert [r.reply.text for r in one.rounds] == [r.reply.text for r in other.rounds]
            winners = [{key: p.winner for key, p in trial.verdict.preferences.items()} for trial in (one, other)]
            assert winners[0] == winners[1]
