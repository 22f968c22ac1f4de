"""Predicts how long a judgement takes on this machine, from the best that is known of its speed.

Earlier judgements by this model tell most, then what `vrt-lite tune` has measured. Without either, a small model is
measured itself, and for a large one the speed of single matrices is, once for a machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from vrt_lite.backends import describe_machine
from vrt_lite.errors import VrtError
from vrt_lite.fitting import EnginePlan
from vrt_lite.fitting.predicted_time import (
    Habits,
    Prediction,
    UnitCosts,
    count_encoded_tokens,
    count_text_tokens,
    count_work,
    measure_stages,
)
from vrt_lite.judgement import Judgement
from vrt_lite.machine import EngineSettings
from vrt_lite.models import ModelFiles
from vrt_lite.models.gguf import Gguf, Tensor, read_gguf
from vrt_lite.profile import Profile
from vrt_lite.tuning import load_tuning
from vrt_lite.tuning.kept_costs import (
    KeptCosts,
    KeptMatrixSpeeds,
    keep_costs,
    keep_matrix_speeds,
    read_costs,
    read_matrix_speeds,
)

_OTHER_SECONDS = 0.15
"""Opening, decoding, resizing and measuring two short clips. Measured with 1280x720."""
_SMALL_BUDGET_SECONDS = 2.0
_SMALL_HABITS = Habits(rounds=2.0, written=130.0)
"""Of a small judge, which writes less. Measured with the bundled ones: 95 and 157 tokens in a round."""
_PATCHES_PER_TOKEN = 4
_WINDOW_PATCHES = 64
_F16 = 1
_BESIDE = 1.15
"""What a layer takes beside its multiplications by weights: norms, positions, copies. Measured with the 7B's widths."""
_ATTENTION = 2.5
"""What attention takes beside its own multiplications: masks, softmax and copies. Measured with the 7B's widths."""
_LATEST = 4
"""A new judgement counts as at least one in so many: a machine may become slower or quicker."""


def predict(files: ModelFiles, plan: EnginePlan, size: tuple[int, int] | None = None) -> Prediction | None:
    """Predict a judgement of clips of this (width, height); without it, of the largest frames.

    None if nothing is known of the speed: with layers on a GPU before the first judgement or `vrt-lite tune`.
    """
    machine = describe_machine()
    kept = read_costs(files, plan.settings, machine)
    costs = kept.costs if kept else _tuned_costs(files, plan) or _estimate_costs(files, plan)
    if costs is None:
        return None
    habits = _SMALL_HABITS if files.is_small else Habits()
    work = count_work(plan.profile, kept.habits if kept else habits, size)
    return Prediction(work, costs, _count_kept_states(plan))


def learn(files: ModelFiles, plan: EnginePlan, judgement: Judgement) -> None:
    """Keep what a judgement has cost, for the next prediction."""
    machine, settings = describe_machine(), plan.settings
    counters, took = judgement.counters, measure_stages(judgement)
    rounds = sum(len(order.rounds) for order in judgement.orders)
    encoded = count_encoded_tokens(judgement, plan.profile)
    if not (encoded and counters.tokens_prefilled and counters.tokens_generated and took.encode):
        return
    kept = read_costs(files, settings, machine)
    judgements = (kept.judgements if kept else 0) + 1
    share = max(1 / judgements, 1 / _LATEST)

    def mix(old: float | None, new: float) -> float:
        return new if old is None else old + share * (new - old)

    old, habits = (kept.costs, kept.habits) if kept else (None, None)
    costs = UnitCosts(
        encode=mix(old and old.encode, took.encode / encoded),
        read=mix(old and old.read, took.read / counters.tokens_prefilled),
        write=mix(old and old.write, took.write / counters.tokens_generated),
        other=mix(old and old.other, took.other),
        source="measured",
    )
    now = Habits(
        rounds=mix(habits and habits.rounds, rounds / len(judgement.orders)),
        written=mix(habits and habits.written, counters.tokens_generated / rounds),
    )
    keep_costs(files, settings, machine, KeptCosts(1, files.name, judgements, costs, now))


def _tuned_costs(files: ModelFiles, plan: EnginePlan) -> UnitCosts | None:
    """What `vrt-lite tune` has measured, at the size of the profile's frames; None without it."""
    tuning = load_tuning(files, describe_machine()) if plan.tuned else None
    if tuning is None:
        return None
    speed = tuning.speed
    tokens = files.profile.max_pixels // files.profile.pixels_per_token
    return UnitCosts(speed.pair_seconds / tokens, 1 / speed.prefill, 1 / speed.decode, _OTHER_SECONDS, "tuned")


def _estimate_costs(files: ModelFiles, plan: EnginePlan) -> UnitCosts | None:
    """The costs by measuring the model if it is small, else by the speed of matrices.

    None where a GPU is used, or repacked weights, with which some engines end the process.
    """
    if any(plan.estimate.gpu_bytes) or plan.settings.repack:
        return None
    try:
        return _measure_small(files, plan) if files.is_small else _add_up(files, plan)
    except (AttributeError, MemoryError, VrtError):
        return None


def _measure_small(files: ModelFiles, plan: EnginePlan) -> UnitCosts:
    """Measure a small model, which takes about a second, and keep the result."""
    from vrt_lite.tuning.measure import Baseline, MeasuringTask, measure_setup  # noqa: PLC0415 - numpy
    from vrt_lite.tuning.search import STAGES, Setup  # noqa: PLC0415

    profile = plan.profile
    tokens = profile.max_pixels // profile.pixels_per_token
    task = MeasuringTask(files.text, profile.system_prompt + profile.user_prompt, tokens, _SMALL_BUDGET_SECONDS)
    seconds, _ = measure_setup(task, Setup(plan.settings, files.projector), STAGES, Baseline())
    costs = UnitCosts(seconds["vision"] / tokens, seconds["prefill"], seconds["decode"], _OTHER_SECONDS, "estimated")
    keep_costs(files, plan.settings, describe_machine(), KeptCosts(1, files.name, 0, costs, _SMALL_HABITS))
    return costs


def _add_up(files: ModelFiles, plan: EnginePlan) -> UnitCosts:
    """Add up the multiplications of a large model, each at the speed of its type."""
    text, projector = read_gguf(files.text), read_gguf(files.projector)
    layers = [tensor for tensor in text.tensors if tensor.name.startswith("blk.") and len(tensor.dimensions) == 2]
    # Of the last layer only keys and values are needed of a token that is read.
    kind = text.values.get("general.architecture")
    last = f"blk.{text.number(f'{kind}.block_count') - 1}."
    needed = [tensor for tensor in layers if not tensor.name.startswith((f"{last}ffn", f"{last}attn_output"))]
    output = [tensor for tensor in text.tensors if tensor.name == "output.weight"] or [
        tensor for tensor in text.tensors if tensor.name == "token_embd.weight"
    ]
    tower = [t for t in projector.tensors if t.name.startswith("v.blk.") and len(t.dimensions) == 2]
    merger = [t for t in projector.tensors if t.name.startswith("mm.") and len(t.dimensions) == 2]
    kinds = {tensor.kind for tensor in (*layers, *output, *tower, *merger)} | {_F16}
    speeds = _matrix_speeds(kinds, plan.settings)
    many = partial(_multiply_seconds, speeds.many)
    one = partial(_multiply_seconds, speeds.one)
    read_tokens = count_text_tokens(plan.profile) + 2 * plan.profile.first_frames * (
        plan.profile.max_pixels // plan.profile.pixels_per_token
    )
    width = text.number(f"{kind}.embedding_length") * text.number(f"{kind}.block_count")
    attended = _ATTENTION * 2 * width * read_tokens / 2 / speeds.many[str(_F16)]
    patch = _BESIDE * many(tower) + _tower_attention(projector, plan.profile, speeds)
    return UnitCosts(
        encode=_PATCHES_PER_TOKEN * patch + _BESIDE * many(merger),
        read=_BESIDE * many(needed) + attended,
        write=_BESIDE * one([*layers, *output]) + attended,
        other=_OTHER_SECONDS,
        source="estimated",
    )


def _tower_attention(projector: Gguf, profile: Profile, speeds: KeptMatrixSpeeds) -> float:
    """Seconds that one patch of a frame attends to others: those of its window, or all where a layer sees all."""
    patches = _PATCHES_PER_TOKEN * profile.max_pixels // profile.pixels_per_token
    layers = projector.number("clip.vision.block_count")
    every = projector.number("clip.vision.n_wa_pattern") or 1
    seen = layers / every * patches + layers * (1 - 1 / every) * _WINDOW_PATCHES
    return _ATTENTION * 2 * projector.number("clip.vision.embedding_length") * seen / speeds.many[str(_F16)]


def _multiply_seconds(speeds: dict[str, float], tensors: Iterable[Tensor]) -> float:
    """Seconds to multiply each of these matrices with one token."""
    return sum(tensor.dimensions[0] * tensor.dimensions[1] / speeds[str(tensor.kind)] for tensor in tensors)


def _matrix_speeds(kinds: set[int], settings: EngineSettings) -> KeptMatrixSpeeds:
    """The speeds for these types with all processors, measured where they are not kept."""
    from vrt_lite.backends.llamacpp.matrix_speed import measure_matrix_speed  # noqa: PLC0415 - the engine

    machine = describe_machine()
    kept = read_matrix_speeds(machine) or KeptMatrixSpeeds(1, machine, {}, {})
    missing = {kind: measure_matrix_speed(kind, threads=machine.cpus) for kind in kinds if str(kind) not in kept.many}
    if missing:
        one = kept.one | {str(kind): speed.one for kind, speed in missing.items()}
        many = kept.many | {str(kind): speed.many for kind, speed in missing.items()}
        kept = KeptMatrixSpeeds(1, machine, one, many)
        keep_matrix_speeds(kept)
    if settings.threads:
        share = settings.threads / machine.cpus
        kept = KeptMatrixSpeeds(
            1, machine, *({kind: speed * share for kind, speed in s.items()} for s in (kept.one, kept.many))
        )
    return kept


def _count_kept_states(plan: EnginePlan) -> int:
    """For how many clips the engine keeps the tokens of video 1: those of a pair, and more if there is room."""
    from vrt_lite.backends.llamacpp.kv_cache import MOST_STATE_BYTES, STATES_OF_A_PAIR  # noqa: PLC0415 - the engine

    prefixes = plan.settings.prefixes
    for term in plan.estimate.terms:
        if term.name == "kept states" and term.cpu:
            return min(prefixes, max(STATES_OF_A_PAIR, MOST_STATE_BYTES // term.cpu))
    return prefixes
