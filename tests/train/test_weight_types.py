"""Learned weights are float32: a step at a rate of 1e-6 moves them, and bfloat16 would round it away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from coloured import RECIPE, SUPERVISED, cases  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from train.policy.model import load  # noqa: E402
from train.policy.weight_types import choose_weight_type  # noqa: E402
from train.supervised import supervise  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
LARGE = replace(RECIPE, model=replace(RECIPE.model, precision="bfloat16"))
RATE = 1e-6


@pytest.fixture
def stored(start: Path, tmp_path: Path) -> Path:
    """The new model's checkpoint with bfloat16 weights, as a 7B is published."""
    folder = tmp_path / "stored"
    folder.mkdir()
    for path in start.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    weights = load_file(start / "model.safetensors")
    save_file({name: w.bfloat16() for name, w in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_a_step_at_a_small_rate_moves_nearly_all_weights(stored: Path, tmp_path: Path) -> None:
    step = replace(SUPERVISED, learning_rate=RATE, warmup=0.0, weight_decay=0.0, samples=4)
    assert supervise(step, cases(4), start=stored, run=tmp_path / "run", recipe_all=LARGE)
    before, after = (load_file(path / "model.safetensors") for path in (stored, tmp_path / "run" / "model"))
    assert {w.dtype for w in after.values()} == {torch.float32}
    moves = torch.cat([(after[name] - before[name].float()).flatten() for name in before])
    kept = torch.cat([(after[name].bfloat16() != before[name]).flatten() for name in before])
    assert moves.abs().max() < 2 * RATE
    assert (moves != 0).float().mean() > 0.999
    assert kept.float().mean() < 0.03  # what of this step would be left in bfloat16


def test_only_what_is_learned_without_copies_is_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: Path
) -> None:
    monkeypatch.delenv("ACCELERATE_USE_DEEPSPEED", raising=False)
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(16_000_000_000)  # a sparse file

    def kind(folder: Path, *, learned: bool, gpu: bool = True) -> object:
        return choose_weight_type(LARGE, folder, learned=learned, gpu=gpu)

    assert kind(tmp_path, learned=True) is torch.float32
    assert kind(tmp_path, learned=False) is torch.bfloat16
    assert kind(stored, learned=False) == "auto"
    assert kind(tmp_path, learned=False, gpu=False) is torch.float32
    assert choose_weight_type(RECIPE, tmp_path, learned=False, gpu=True) is torch.float32
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    assert kind(tmp_path, learned=True) is torch.bfloat16


def test_an_adapter_is_float32_beside_bfloat16_weights(stored: Path) -> None:
    """The base keeps its type on a GPU; the adapter that PEFT adds to it is what learns."""
    peft = pytest.importorskip("peft")
    from transformers import Qwen2_5_VLForConditionalGeneration

    base = Qwen2_5_VLForConditionalGeneration.from_pretrained(stored, dtype=torch.bfloat16, local_files_only=True)
    from train.policy.model import _with_adapter

    adapted = _with_adapter(base, replace(LARGE, model=replace(LARGE.model, lora_rank=2)), None, trainable=True)
    learned = {name: w for name, w in adapted.named_parameters() if w.requires_grad}
    assert learned and all("lora_" in name and w.dtype is torch.float32 for name, w in learned.items())
    assert isinstance(adapted, peft.PeftModel)
    model, _ = load(replace(LARGE, model=replace(LARGE.model, lora_rank=2)), stored, trainable=True)
    assert {w.dtype for w in model.parameters() if w.requires_grad} == {torch.float32}
