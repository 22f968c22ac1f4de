"""Memory known before loading: by hand, against a real run's peak, and what is chosen or said when it is short."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from vrt_lite.cli import run
from vrt_lite.embeddings import MEMORY_BYTES
from vrt_lite.errors import OutOfMemoryError
from vrt_lite.fitting import EnginePlan, choose_plan, fits
from vrt_lite.fitting.memory_estimate import (
    Estimate,
    ModelShape,
    context_tokens,
    estimate_default_bytes,
    estimate_memory,
    read_shape,
)
from vrt_lite.machine import EngineSettings, Gpu, MachineMemory
from vrt_lite.models import find
from vrt_lite.models.gguf import read_gguf
from vrt_lite.profile import PIXELS_PER_TOKEN, Profile, default_profile
from vrt_lite.settings import Settings
from vrt_lite.tuning import plan_engine

ROOT = Path(__file__).parent.parent
JUDGE = find("vrt-tiny-0")
TINY = read_shape(JUDGE)
CPU = EngineSettings(gpu_layers=0)
GB = 10**9

# A 7B as Q4_K_M with a Q8_0 projector, by the published shape; weights are rounded.
SEVEN = ModelShape(
    layers=(130_000_000,) * 28,
    packed=(105_000_000,) * 28,
    embedding=306_000_000,
    output=447_000_000,
    tied=False,
    width=3584,
    feed_forward=18_944,
    heads=28,
    kv_heads=4,
    head_size=128,
    vision_layers=32,
    vocabulary=152_064,
    merges=151_387,
    trained_context=128_000,
    projector=850_000_000,
    vision_width=1280,
    vision_feed_forward=3420,
    vision_heads=16,
)
PROFILE = default_profile()


def term(said: Estimate, name: str) -> int:
    return next(t.cpu for t in said.terms if t.name == name)


def seven(profile: Profile = PROFILE, **settings: object) -> Estimate:
    return estimate_memory(SEVEN, profile, replace(CPU, **settings))


def with_cells(cells: int) -> Profile:
    return PROFILE.with_max_pixels(cells * PIXELS_PER_TOKEN, tool_pixels=cells * PIXELS_PER_TOKEN)


def test_weights_are_what_the_files_hold() -> None:
    tensors = read_gguf(JUDGE.text).tensors
    assert sum(t.size for t in tensors) == TINY.text_bytes < JUDGE.text.stat().st_size
    # By the published rule: Q8_0 has 34 bytes for 32 values, and the file may round up to the next tensor.
    matrix = next(t for t in tensors if t.name == "blk.0.ffn_up.weight")
    assert matrix.size == 256 * 768 * 34 // 32
    assert (TINY.width, TINY.feed_forward, TINY.heads, TINY.kv_width, len(TINY.layers)) == (256, 768, 4, 128, 6)
    said = estimate_memory(TINY, JUDGE.profile, CPU)
    assert term(said, "weights") == TINY.text_bytes
    assert term(said, "projector") == TINY.projector


def test_keys_and_values_by_hand() -> None:
    # 28 layers, 4 heads of 128 for keys and as many for values, two bytes each: 57 344 bytes a token.
    assert term(seven(context=8192), "keys and values") == 57_344 * 8192
    assert term(seven(context=8192, kv_type="q8_0"), "keys and values") == 57_344 * 8192 * 17 // 32
    assert term(seven(context=8100), "keys and values") == 57_344 * 8192  # the engine rounds up to 256


def test_the_context_is_the_conversations_own_bound() -> None:
    tokens = context_tokens(SEVEN, PROFILE)
    # One reply at its longest, four of usual length, and what stands around each.
    frames, calls, replies = 4 * 768, 8 * (512 + 2), 2048 + 4 * 512 + 5 * 64
    assert frames + calls + replies < tokens < frames + calls + replies + 1500
    assert tokens % 256 == 0
    assert context_tokens(TINY, replace(JUDGE.profile, rounds=100)) == TINY.trained_context
    assert context_tokens(SEVEN, PROFILE) - context_tokens(
        SEVEN, PROFILE.with_max_pixels(768 * 784, tool_pixels=784 * 256)
    ) == (8 * 256)
    assert PROFILE.context_bound(1000, 256) - replace(PROFILE, window=0).context_bound(1000, 256) == 2048


@pytest.mark.parametrize("flash", [None, True, False])
def test_more_context_or_pixels_take_more(flash: bool | None) -> None:
    contexts = [seven(context=n, flash_attention=flash).cpu_bytes for n in (1024, 4096, 16_384, 32_768)]
    pixels = [seven(with_cells(n), flash_attention=flash).cpu_bytes for n in (36, 100, 256, 576, 1600)]
    rounds = [seven(replace(PROFILE, rounds=n), flash_attention=flash).cpu_bytes for n in (1, 2, 5)]
    for sizes in (contexts, pixels, rounds):
        assert sizes == sorted(set(sizes))


def test_what_each_setting_costs() -> None:
    plain = seven()
    assert seven(repack=True).cpu_bytes - plain.cpu_bytes == sum(SEVEN.packed)
    assert seven(kv_type="q8_0").cpu_bytes < plain.cpu_bytes
    assert seven(ubatch=2048).cpu_bytes > plain.cpu_bytes
    # Without flash attention every head's products of keys and queries are there at once.
    matrix = 4 * 256 * plain.context * 28
    assert term(plain, "evaluation of text") - term(seven(flash_attention=True), "evaluation of text") > matrix / 2
    assert seven(flash_attention=True).cpu_bytes < plain.cpu_bytes


def test_the_embeddings_kept_are_bounded() -> None:
    pictures = (8 + 8 * 4) * 4096 * PIXELS_PER_TOKEN * 3
    assert term(seven(with_cells(4096)), "frames and embeddings") == MEMORY_BYTES + pictures
    smaller = with_cells(4096).with_max_pixels(4096 * PIXELS_PER_TOKEN, tool_pixels=PIXELS_PER_TOKEN)
    pictures = (8 * 4096 + 8 * 4) * PIXELS_PER_TOKEN * 3
    assert term(seven(smaller), "frames and embeddings") == (4 * 4096 + 8 * 4) * SEVEN.width * 4 + pictures


def test_evaluating_large_frames_takes_no_larger_evaluations() -> None:
    """A temporal patch of 720 tokens is read in parts: 1.4 GB at once, before."""
    large, small = seven(with_cells(720)), seven(with_cells(256))
    assert large.context > small.context
    # What grows is the width of the products of keys and queries, with the conversation.
    assert term(large, "evaluation of text") - term(small, "evaluation of text") < 4 * 256 * 30 * (
        large.context - small.context
    )
    assert term(large, "evaluation of text") < 0.6 * GB


def test_layers_on_gpus_leave_the_processors_memory() -> None:
    whole = estimate_memory(SEVEN, PROFILE, EngineSettings(), gpu_shares=[1.0])
    assert term(whole, "weights") == SEVEN.embedding
    assert term(whole, "keys and values") == 0
    two = estimate_memory(SEVEN, PROFILE, EngineSettings(), gpu_shares=[3.0, 1.0])
    assert two.gpu_bytes[0] > two.gpu_bytes[1] > GB
    half = estimate_memory(SEVEN, PROFILE, EngineSettings(gpu_layers=14), gpu_shares=[1.0])
    # The output is the first to go: 13 layers with it.
    assert term(half, "weights") == SEVEN.embedding + 15 * SEVEN.layers[0]
    apart = estimate_memory(SEVEN, PROFILE, EngineSettings(projector_on_gpu=False), gpu_shares=[1.0])
    assert term(apart, "projector") == SEVEN.projector
    assert estimate_memory(SEVEN, PROFILE, EngineSettings()).gpu_bytes == ()


def chosen(memory: MachineMemory, *, settings: EngineSettings | None = None, **choose: bool) -> EnginePlan:
    return choose_plan(SEVEN, PROFILE, settings or EngineSettings(), memory, **choose)


def test_the_order_of_what_is_given_up() -> None:
    enough = chosen(MachineMemory(16 * GB, 16 * GB))
    assert (enough.warnings, enough.profile, enough.settings) == ((), PROFILE, EngineSettings())
    quantised = chosen(MachineMemory(enough.estimate.cpu_bytes - 1, 16 * GB))
    assert (quantised.settings.kv_type, quantised.profile) == ("q8_0", PROFILE)
    smaller = chosen(MachineMemory(quantised.estimate.cpu_bytes - 1, 16 * GB))
    assert PROFILE.min_pixels <= smaller.profile.max_pixels < PROFILE.max_pixels
    assert "frames_reduced" in [warning.kind for warning in smaller.warnings]
    assert any("sees less detail" in warning.text for warning in smaller.warnings)
    crowded = chosen(MachineMemory(2 * GB, 16 * GB))
    assert crowded.profile == PROFILE
    assert crowded.warnings[-1].kind == "memory_tight"
    assert crowded.warnings[-1].text.endswith("close other programs, or it will be slow.")


def test_what_a_user_has_set_stays() -> None:
    memory = MachineMemory(seven().cpu_bytes - 1, 16 * GB)
    fixed = chosen(memory, choose_kv_type=False, choose_pixels=False)
    assert (fixed.settings.kv_type, fixed.profile) == ("f16", PROFILE)
    # Values are quantised for flash attention alone.
    without = chosen(memory, settings=EngineSettings(flash_attention=False))
    assert without.settings.kv_type == "f16"


def test_a_gpu_takes_what_fits_on_it() -> None:
    def on(gb: float) -> EnginePlan:
        return chosen(MachineMemory(16 * GB, 16 * GB, (Gpu("GPU", int(gb * GB)),)))

    assert (on(24).settings.gpu_layers, on(24).settings.projector_on_gpu) == (None, True)
    plans = [on(gb) for gb in (24, 6.3, 5.8, 4, 2, 0.1)]
    layers = [29 if p.settings.gpu_layers is None else p.settings.gpu_layers for p in plans]
    assert layers == sorted(layers, reverse=True)
    assert (layers[0], layers[-1]) == (29, 0)
    assert any(p.settings.kv_type == "q8_0" and layers[i] == 29 for i, p in enumerate(plans))
    assert any(p.settings.projector_on_gpu is False and layers[i] > 0 for i, p in enumerate(plans))
    for found, gb in zip(plans, (24, 6.3, 5.8, 4, 2, 0.1), strict=True):
        assert fits(found.estimate, MachineMemory(16 * GB, 16 * GB, (Gpu("GPU", int(gb * GB)),)))
        assert found.profile == PROFILE


def test_what_does_not_fit_names_what_would() -> None:
    with pytest.raises(
        OutOfMemoryError, match=r"at least \d\.\d\d GB.* has 5\.00 GB\. A smaller .* of at most 4\.\d\d GB"
    ):
        chosen(MachineMemory(5 * GB, 5 * GB))
    memory = MachineMemory(9 * GB, 9 * GB)
    with pytest.raises(OutOfMemoryError, match=r"Lower --ctx: \d+ tokens are enough"):
        chosen(memory, settings=EngineSettings(context=120_000), choose_kv_type=False)
    large = with_cells(4096)
    with pytest.raises(OutOfMemoryError, match=r"This would fit: --max-pixels 614656\."):
        choose_plan(SEVEN, large, EngineSettings(), memory, choose_pixels=False)
    # And it does.
    assert choose_plan(SEVEN, large.with_max_pixels(614_656), EngineSettings(), memory, choose_pixels=False)
    few = MachineMemory(0, 16 * GB, (Gpu("GPU", GB),))
    with pytest.raises(OutOfMemoryError, match=r"on GPU; .*Leave out --gpu-layers"):
        chosen(few, settings=EngineSettings(gpu_layers=20))


def test_compare_refuses_with_status_5_before_it_loads() -> None:
    with pytest.raises(OutOfMemoryError) as caught:
        plan_engine(JUDGE, Settings(), memory=MachineMemory(10**8, 10**8))
    assert caught.value.status == 5
    assert "\n" not in str(caught.value)


@pytest.mark.nightly
def test_a_judgement_takes_about_what_was_estimated() -> None:
    """A real run in a process of its own: its largest resident set, mapped weights and libraries counted."""
    program = (
        "from vrt_lite.cli import run\n"
        "status = run(['compare', 'examples/a.mp4', 'examples/b.mp4', '-p', 'A red square.', '--model', 'vrt-tiny-0', "
        "'--no-cache', '-q'])\n"
        "from bench.measurements import peak_resident_bytes\n"
        "print(status, peak_resident_bytes())"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    status, peak = map(int, done.stdout.splitlines()[-1].split())
    estimated = estimate_memory(TINY, JUDGE.profile, CPU, source_pixels=252 * 140).cpu_bytes
    assert status in (0, 6)
    # The conversation may end before it fills its context: the estimate is of what it could have come to.
    # Other systems count shared libraries and mapped files in ways of their own.
    low, high = (0.9, 1.1) if sys.platform == "linux" else (0.4, 2.5)
    assert low < estimated / peak < high


def test_models_tells_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert next(m for m in listed if m["name"] == JUDGE.name)["memory_bytes"] == estimate_default_bytes(
        TINY, JUDGE.profile
    )


def test_the_table_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "--gpu-layers", "0", "--memory", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["MEMORY", "FOR", "PROCESSOR"]
    assert {"weights", "projector", "keys and values", "in all"} <= {line[:22].strip() for line in lines}
    assert any(line.startswith("free here") and line.endswith("8.00 GB") for line in lines)
    assert max(map(len, lines)) < 100
    judge = find()
    context, pixels = context_tokens(read_shape(judge), judge.profile), judge.profile.max_pixels
    assert f"for context {context} tokens, {pixels} pixels a frame, keys and values f16, repacked weights off" in lines
    heads, *efforts = (line.split() for line in lines[-4:])
    assert heads == ["EFFORT", "PIXELS", "ROUNDS", "REPLY", "MEMORY", "FITS"]
    # Trained on one size, the bundled judge keeps it with every effort.
    assert [row[:4] for row in efforts] == [
        ["quick", "35840", "2", "512"],
        ["balanced", "35840", "3", "512"],
        ["full", "35840", "4", "512"],
    ]


def test_the_estimate_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "--json", "--gpu-layers", "0", "--kv-type", "q8_0", "--ctx", "4096", "--repack"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["fits"]
    assert said["bytes"] == sum(t["bytes"] for t in said["terms"])
    assert (said["context"], said["engine"]["kv_type"], said["engine"]["repack"]) == (4096, "q8_0", True)
    assert said["gpu_bytes"] == [0] * len(said["machine"]["gpus"])


def test_what_does_not_fit_ends_with_status_5(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "--memory", "0.05", "--json"]) == 5
    out, err = capsys.readouterr()
    assert not json.loads(out)["fits"]
    assert err.count("\n") == 1
    assert "Judging takes at least" in err
    assert run(["estimate", "--max-pixels", "1"]) == 2
    assert run(["estimate", "no-such-model"]) == 4
