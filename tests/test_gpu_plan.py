"""What the plan puts on a GPU that does not exist, of the 7B's shape as its config.json describes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vrt_lite.fitting import EnginePlan, fits
from vrt_lite.fitting.memory_estimate import ModelShape, Term, estimate_memory
from vrt_lite.fitting.pull_options import list_pull_options
from vrt_lite.machine import Gpu, KvType, MachineMemory
from vrt_lite.profile import Profile
from vrt_lite.settings import Settings
from vrt_lite.tuning import plan_shape

GB = 10**9
LAYERS = 29
"""Those of the 7B that can be on a GPU: 28, and the output."""


@pytest.fixture(scope="module")
def profile() -> Profile:
    return list_pull_options("vr-thinker-7b", "q4_k_m").profile


def shape_of(quant: str) -> ModelShape:
    [option] = list_pull_options("vr-thinker-7b", quant).options
    return option.shape


def machine_with(vram: float) -> MachineMemory:
    return MachineMemory(32 * GB, 32 * GB, (Gpu("A made-up card", int(vram * GB)),))


def on_gpu(plan: EnginePlan) -> dict[str, int]:
    def size(term: Term) -> int:
        return sum(term.gpus)

    return {term.name: size(term) for term in plan.estimate.terms if size(term)}


def test_a_7b_of_4_bits_fits_8_gb_whole(profile: Profile) -> None:
    plan = plan_shape(shape_of("q4_k_m"), profile, Settings(), machine_with(8))
    assert (plan.settings.gpu_layers, plan.settings.projector_on_gpu) == (None, True)  # None: all that there are
    assert (plan.settings.kv_type, plan.estimate.max_pixels, plan.warnings) == ("f16", profile.max_pixels, ())
    there = on_gpu(plan)
    # Published files of this shape: 4.68 GB of text, of which the embeddings stay here, and 1.35 GB of projector.
    assert there["weights"] == pytest.approx(4.68 * GB - plan.estimate.terms[0].cpu, rel=0.01)
    assert there["projector"] == pytest.approx(1.35 * GB, rel=0.01)
    # 28 layers, 4 heads of 128 for keys and as many for values, two bytes each.
    assert there["keys and values"] == 57_344 * plan.estimate.context
    assert sum(there.values()) == plan.estimate.gpu_bytes[0] < 8 * GB
    assert plan.estimate.cpu_bytes < 2 * GB


@pytest.mark.parametrize(("quant", "vram"), [("q8_0", 8), ("q4_k_m", 6), ("q4_k_m", 4), ("q4_k_m", 2), ("q3_k_m", 4)])
def test_what_does_not_fit_is_given_up_in_order(profile: Profile, quant: str, vram: int) -> None:
    """The projector before layers, and no layer that would still fit."""
    shape, memory = shape_of(quant), machine_with(vram)
    plan = plan_shape(shape, profile, Settings(), memory)
    chosen = plan.settings
    assert fits(plan.estimate, memory)
    assert plan.estimate.max_pixels == profile.max_pixels
    assert chosen.projector_on_gpu is False
    assert "projector_on_processor" in {warning.kind for warning in plan.warnings}
    assert ("layers_on_processor" in {warning.kind for warning in plan.warnings}) == (chosen.gpu_layers is not None)
    shares = [float(gpu.free_bytes) for gpu in memory.gpus]

    def would_fit(layers: int | None, projector: bool, kv_type: KvType = "q8_0") -> bool:
        settings = replace(chosen, gpu_layers=layers, projector_on_gpu=projector, kv_type=kv_type)
        return fits(estimate_memory(shape, profile, settings, gpu_shares=shares), memory)

    if chosen.gpu_layers is None:
        assert not would_fit(None, projector=True)
    else:
        assert 0 < chosen.gpu_layers < LAYERS
        assert not would_fit(chosen.gpu_layers + 1, projector=False)
        assert (chosen.kv_type == "f16") == would_fit(chosen.gpu_layers, projector=False, kv_type="f16")
    assert plan.estimate.gpu_bytes[0] > 0.9 * min(vram * GB, 6 * GB)


def test_more_memory_never_holds_less(profile: Profile) -> None:
    shape = shape_of("q4_k_m")
    plans = [plan_shape(shape, profile, Settings(), machine_with(vram)) for vram in (1, 2, 3, 4, 5, 6, 8, 12)]
    layers = [LAYERS if plan.settings.gpu_layers is None else plan.settings.gpu_layers for plan in plans]
    assert layers == sorted(layers)
    assert layers[0] < layers[2] < layers[4]
    assert [plan.settings.projector_on_gpu is not False for plan in plans[-3:]] == [False, True, True]
