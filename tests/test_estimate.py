"""Memory known before loading: by hand, against a real run's peak, and what is chosen or said when it is short."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vrt_lite.cli import run
from vrt_lite.embeddings import MEMORY_BYTES
from vrt_lite.errors import OutOfMemoryError
from vrt_lite.fitting import EnginePlan, choose_plan, fits
from vrt_lite.fitting.memory_estimate import Estimate, count_context_tokens, estimate_memory, read_shape
from vrt_lite.fitting.pull_options import list_pull_options
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
[SEVEN] = (option.shape for option in list_pull_options("vr-thinker-7b", "q4_k_m").options)
"""A 7B, by its config.json alone."""
PROFILE = default_profile()


def term(said: Estimate, name: str) -> int:
    cpu, _ = said.terms[name]
    return cpu


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
    assert (TINY.width, TINY.feed_forward, TINY.heads, TINY.kv_width, TINY.layers) == (256, 768, 4, 128, 6)
    said = estimate_memory(TINY, JUDGE.profile, CPU)
    assert (term(said, "weights"), term(said, "projector")) == (TINY.text_bytes, TINY.projector)


def test_keys_and_values_by_hand() -> None:
    # 28 layers, 4 heads of 128 for keys and as many for values, two bytes each: 57 344 bytes a token.
    assert term(seven(context=8192), "keys and values") == 57_344 * 8192
    assert term(seven(context=8192, kv_type="q8_0"), "keys and values") == 57_344 * 8192 * 17 // 32
    assert term(seven(context=8100), "keys and values") == 57_344 * 8192  # the engine rounds up to 256


def test_the_context_is_the_conversations_own_bound() -> None:
    tokens = count_context_tokens(SEVEN, PROFILE)
    # One reply at its longest, four of usual length, and what stands around each.
    frames, calls, replies = 4 * 768, 8 * (512 + 2), 2048 + 4 * 512 + 5 * 64
    assert frames + calls + replies < tokens < frames + calls + replies + 1500
    assert tokens % 256 == 0
    assert count_context_tokens(TINY, replace(JUDGE.profile, rounds=100)) == TINY.trained_context
    smaller = PROFILE.with_max_pixels(768 * 784, tool_pixels=784 * 256)
    assert tokens - count_context_tokens(SEVEN, smaller) == 8 * 256
    assert PROFILE.context_bound(1000, 256) - replace(PROFILE, window=0).context_bound(1000, 256) == 2048


def test_what_each_setting_costs() -> None:
    plain, flash = seven(), seven(flash_attention=True)
    assert seven(repack=True).cpu_bytes - plain.cpu_bytes == SEVEN.packed
    # Without flash attention every head's products of keys and queries are there at once.
    matrix = 4 * 256 * plain.context * 28
    assert term(plain, "evaluation of text") - term(flash, "evaluation of text") > matrix / 2
    changes = ({"context": 32_768}, {"ubatch": 2048}, {"kv_type": "f16"}, {"flash_attention": False})
    less = seven(context=4096, ubatch=512, kv_type="q8_0", flash_attention=True).cpu_bytes
    for change in changes:
        given: dict[str, object] = {"context": 4096, "ubatch": 512, "kv_type": "q8_0", "flash_attention": True}
        assert seven(**given | change).cpu_bytes > less, change
    assert seven(replace(PROFILE, rounds=2)).cpu_bytes < seven(replace(PROFILE, rounds=5)).cpu_bytes


def test_large_frames_take_bounded_memory() -> None:
    pictures = (8 + 8 * 4) * 4096 * PIXELS_PER_TOKEN * 3
    assert term(seven(with_cells(4096)), "frames and embeddings") == MEMORY_BYTES + pictures
    smaller = with_cells(4096).with_max_pixels(4096 * PIXELS_PER_TOKEN, tool_pixels=PIXELS_PER_TOKEN)
    pictures = (8 * 4096 + 8 * 4) * PIXELS_PER_TOKEN * 3
    assert term(seven(smaller), "frames and embeddings") == (4 * 4096 + 8 * 4) * SEVEN.width * 4 + pictures
    # A temporal patch of 720 tokens is read in parts: 1.4 GB at once, before. What grows is the width of the products
    # of keys and queries, with the conversation.
    large, small = seven(with_cells(720)), seven(with_cells(256))
    longer, evaluated = large.context - small.context, term(large, "evaluation of text")
    assert longer > 0
    assert evaluated - term(small, "evaluation of text") < 4 * 256 * 30 * longer
    assert evaluated < 0.6 * GB


def test_layers_on_the_gpu_leave_the_processors_memory() -> None:
    every = seven(gpu_layers=None)
    assert (term(every, "weights"), term(every, "keys and values")) == (SEVEN.embedding, 0)
    assert every.terms["weights"][1] == SEVEN.layer_bytes + SEVEN.output
    # The output is the first to go: 14 of the 28 layers with it.
    assert term(seven(gpu_layers=15), "weights") == SEVEN.embedding + SEVEN.layer_bytes // 2
    assert term(seven(gpu_layers=None, projector_on_gpu=False), "projector") == SEVEN.projector
    assert seven().gpu_bytes == 0


def chosen(memory: MachineMemory, **settings: Any) -> EnginePlan:
    plan = choose_plan(SEVEN, PROFILE, Settings(**settings), memory)
    assert fits(plan.estimate, memory) or "memory_tight" in {warning.kind for warning in plan.warnings}
    return plan


def with_card(gb: float) -> MachineMemory:
    return MachineMemory(32 * GB, 32 * GB, Gpu("A made-up card", int(gb * GB)))


def test_the_order_of_what_is_given_up() -> None:
    enough = chosen(MachineMemory(16 * GB, 16 * GB))
    assert (enough.warnings, enough.profile, enough.settings) == ((), PROFILE, CPU)
    short = MachineMemory(enough.estimate.cpu_bytes - 1, 16 * GB)
    quantised = chosen(short)
    assert (quantised.settings.kv_type, quantised.profile) == ("q8_0", PROFILE)
    crowded = chosen(MachineMemory(quantised.estimate.cpu_bytes - 1, 16 * GB))
    assert (crowded.settings, crowded.profile) == (enough.settings, PROFILE)  # what the judge sees stays
    crowded = chosen(MachineMemory(2 * GB, 16 * GB))
    assert (crowded.profile, crowded.warnings[-1].kind) == (PROFILE, "memory_tight")
    assert crowded.warnings[-1].text.endswith("close other programs, or it will be slow.")
    # What a user has set stays.
    fixed = chosen(short, kv_type="f16")
    assert (fixed.settings.kv_type, fixed.profile) == ("f16", PROFILE)


def test_a_gpu_takes_what_fits_on_it() -> None:
    """Further sizes are in the table of docs/gpu.md, which is compared in test_pull_options.py."""
    plan = chosen(with_card(8))
    assert (plan.settings.gpu_layers, plan.settings.projector_on_gpu) == (None, True)  # None: all that there are
    assert (plan.settings.kv_type, plan.profile, plan.warnings) == ("f16", PROFILE, ())
    # Published files of this shape: 4.68 GB of text, of which the embeddings stay here, and 1.35 GB of projector.
    on_card = {name: gpu for name, (_, gpu) in plan.estimate.terms.items()}
    assert on_card["weights"] == pytest.approx(4.68 * GB - term(plan.estimate, "weights"), rel=0.01)
    assert on_card["projector"] == pytest.approx(1.35 * GB, rel=0.01)
    assert on_card["keys and values"] == 57_344 * plan.estimate.context
    assert sum(on_card.values()) == plan.estimate.gpu_bytes < 8 * GB
    # A smaller one loses the projector before layers, and no layer that would still fit.
    small = chosen(with_card(2))
    [warning] = small.warnings
    layers = small.settings.gpu_layers
    assert f"{layers} layers are on it, without the projector (--gpu-layers N" in warning.text
    assert (small.settings.projector_on_gpu, small.profile) == (False, PROFILE)
    more = replace(small.settings, gpu_layers=(layers or 0) + 1, kv_type="q8_0")
    assert not fits(estimate_memory(SEVEN, PROFILE, more), with_card(2))
    assert chosen(with_card(0.1)).settings.gpu_layers == 0


def test_what_does_not_fit_says_what_takes_less() -> None:
    less = (
        r"--effort quick takes less, and so do a smaller quantisation, and lower --max-pixels, --ctx and --gpu-layers\."
    )
    with pytest.raises(OutOfMemoryError, match=rf"at least \d\.\d\d GB of memory; .* has 5\.00 GB\. {less}"):
        chosen(MachineMemory(5 * GB, 5 * GB))
    memory = MachineMemory(9 * GB, 9 * GB)
    with pytest.raises(OutOfMemoryError, match=less):
        chosen(memory, ctx=120_000, kv_type="f16")
    assert chosen(memory, kv_type="f16")
    few = MachineMemory(16 * GB, 16 * GB, Gpu("a card", GB))
    with pytest.raises(OutOfMemoryError, match=r"at least .* and \d\.\d\d GB on the GPU; .* 1\.00 GB free on a card\."):
        chosen(few, gpu_layers=20)
    assert chosen(few)
    with pytest.raises(OutOfMemoryError, match=r"\A.*\Z") as caught:
        plan_engine(JUDGE, Settings(), memory=MachineMemory(10**8, 10**8))
    assert caught.value.status == 5


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


def test_the_table_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "--gpu-layers", "0", "--memory", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"weights", "projector", "keys and values", "in all"} <= {line[:22].strip() for line in lines}
    assert any(line.startswith("free here") and line.endswith("8.00 GB") for line in lines)
    assert max(map(len, lines)) < 100
    judge = find()
    context, pixels = count_context_tokens(read_shape(judge), judge.profile), judge.profile.max_pixels
    assert f"for context {context} tokens, {pixels} pixels a frame, keys and values f16, repacked weights off" in lines
    heads, *efforts = (line.split() for line in lines[-4:])
    assert heads == ["EFFORT", "ROUNDS", "REPLY", "PIXELS", "KV", "MEMORY", "FITS"]
    # Trained on one size, the bundled judge keeps it with every effort.
    told = [" ".join(row[:4]) for row in efforts]
    assert told == ["quick 2 512 35840", "balanced 3 512 35840", "full 4 512 35840"]


def test_the_estimate_as_json_and_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "--json", "--gpu-layers", "0", "--kv-type", "q8_0", "--ctx", "4096"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["fits"]
    assert said["bytes"] == sum(t["bytes"] for t in said["terms"])
    assert (said["context"], said["engine"]["kv_type"], said["gpu_bytes"]) == (4096, "q8_0", 0)
    assert run(["estimate", "--memory", "0.05", "--json"]) == 5
    out, err = capsys.readouterr()
    assert not json.loads(out)["fits"]
    assert err.count("\n") == 1
    assert "Judging takes at least" in err
    assert run(["estimate", "--max-pixels", "1"]) == 2
    assert run(["estimate", "no-such-model"]) == 4
