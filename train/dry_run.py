"""Says what a training will take before anything is loaded: memory a GPU, tokens a step, hours, from shapes alone.

Counted are weights, gradients, AdamW, the widest activations, the logits of replies, and the KV cache of rollouts.
Hours are those of the arithmetic and of reading the weights for each written token: real runs take longer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import AutoConfig, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from train.recipe import Supervised, TrainingRecipe
from vrt_lite.errors import ModelError
from vrt_lite.profile import Profile

TERA_FLOPS, TERABYTES_A_SECOND = 150.0, 1.5
"""What a GPU of 80 GB achieves in such runs, not its peak."""
_TEXT_TOKENS, _REPLY_TOKENS, _ROUNDS = 700, 400, 2
"""Of a prompt; of a reply (paper, section 3.3); replies of a usual trace, with a call for frames between them."""
_GB = 1e9


@dataclass(frozen=True, slots=True)
class TrainedShape:
    """Parameters of the text model and the tower, in all and those that are learned, and what a token takes."""

    text: int
    tower: int
    learned: int
    layers: int
    width: int
    vocabulary: int
    cache_bytes: int


@dataclass(frozen=True, slots=True)
class StageForecast:
    """What a stage takes: steps, tokens that a step reads, gigabytes on a GPU, and hours."""

    stage: str
    steps: int
    tokens: int
    gigabytes: float
    hours: float


def read_shape(recipe: TrainingRecipe) -> TrainedShape:
    """Read a checkpoint's shape from its config.json: the model is made of no memory. Raises ModelError."""
    source = recipe.model.source
    try:
        config = AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise ModelError(f"{source} has no config.json that can be read: {str(error).splitlines()[0]}") from error
    if not isinstance(config, Qwen2_5_VLConfig):
        raise ModelError(f"{source} is no Qwen2.5-VL checkpoint: its config.json is of {config.model_type}.")
    with torch.device("meta"):
        model = Qwen2_5_VLForConditionalGeneration(config)
    tower = sum(weight.numel() for weight in model.model.visual.parameters())
    text = sum(weight.numel() for weight in model.parameters()) - tower
    matrices = [
        module.weight for module in model.model.language_model.layers.modules() if hasattr(module, "in_features")
    ]
    adapter = recipe.model.lora_rank * sum(sum(weight.shape) for weight in matrices)
    how = config.text_config
    head = how.hidden_size // how.num_attention_heads
    return TrainedShape(
        text,
        tower,
        adapter or text + tower * recipe.model.tower,
        how.num_hidden_layers,
        how.hidden_size,
        how.vocab_size,
        2 * 2 * how.num_hidden_layers * how.num_key_value_heads * head,
    )


@dataclass(frozen=True, slots=True)
class TraceLength:
    """The tokens of a trace, and those of them that are replies."""

    tokens: int
    replies: int


def usual_trace(profile: Profile) -> TraceLength:
    """Return the length of a usual trace: its prompt, the frames shown first, one call's frames, and its replies."""
    first = profile.first_patches * profile.max_pixels // profile.pixels_per_token
    replies = _ROUNDS * _REPLY_TOKENS
    return TraceLength(_TEXT_TOKENS + first + profile.frames_per_call * profile.tool_cells + replies, replies)


def forecast(
    recipe: TrainingRecipe, shape: TrainedShape, trace: TraceLength, *, gpus: int, sharded: bool
) -> list[StageForecast]:
    """Return what each stage takes on so many GPUs, over which weights and their states are `sharded` or not."""
    length, parameters = trace.tokens, shape.text + shape.tower
    of_gpu = gpus if sharded else 1
    adapted = recipe.model.lora_rank > 0
    size = 4 if recipe.model.precision == "float32" else 2
    state = 16 * shape.learned / of_gpu + (size * parameters / of_gpu if adapted else 0)
    # With checkpointing a layer's input is kept for each layer, and all within one layer.
    kept = shape.layers if recipe.model.gradient_checkpointing else 8 * shape.layers
    gathered = size * parameters / shape.layers if sharded else 0

    def activations(rows: int) -> float:
        return rows * (length * shape.width * size * (kept + 16) + trace.replies * shape.vocabulary * 10)

    def seconds(tokens: float, *, passes: float) -> float:
        return 2 * passes * parameters * tokens / (gpus * TERA_FLOPS * 1e12)

    def written(trials: float) -> float:
        """Return the seconds in which so many trials are written."""
        at_once = gpus * recipe.rollouts.batch
        reading = 2 * parameters / (TERABYTES_A_SECOND * 1e12) + recipe.rollouts.batch * length * shape.cache_bytes / (
            TERABYTES_A_SECOND * 1e12
        )
        return seconds(trials * length, passes=1) + -(-trials // at_once) * trace.replies * reading

    learning = 4 if recipe.model.gradient_checkpointing else 3
    stages: list[StageForecast] = []

    def supervised(stage: str, how: Supervised) -> StageForecast:
        steps = -(-how.samples * how.epochs // how.step)
        tokens = how.step * length
        memory = state + gathered + activations(how.batch)
        return StageForecast(stage, steps, tokens, memory / _GB, steps * seconds(tokens, passes=learning) / 3600)

    cache = recipe.rollouts.batch * length * shape.cache_bytes
    stages.append(supervised("cold-start", recipe.cold_start))
    trials = recipe.sample.queries * recipe.sample.samples
    hours = written(trials) / 3600
    at_once = gpus * recipe.rollouts.batch
    stages.append(
        StageForecast("sample", -(-trials // at_once), at_once * length, (size * parameters + cache) / _GB, hours)
    )
    stages.append(supervised("refine", recipe.refine))
    how = recipe.grpo
    trials = how.queries * how.group
    reference = size * parameters / of_gpu if how.kl and not adapted else 0
    writing = cache + (size * parameters if sharded else 0)
    memory = state + reference + max(gathered + activations(how.batch), writing)
    step = written(trials) + seconds(trials * length, passes=learning + bool(how.kl))
    stages.append(StageForecast("grpo", how.steps, trials * length, memory / _GB, how.steps * step / 3600))
    return stages


def describe(recipe: TrainingRecipe, *, gpus: int, sharded: bool) -> list[str]:
    """Return the forecast as lines of text."""
    shape, trace = read_shape(recipe), usual_trace(recipe.profile)
    lines = [
        f"{(shape.text + shape.tower) / 1e9:.2f}B parameters, {shape.learned / 1e9:.3f}B learned; "
        f"{trace.tokens} tokens a trace; {gpus} GPU{'s' * (gpus > 1)}{', sharded' * sharded}",
        f"{'stage':12}{'steps':>8}{'tokens a step':>16}{'GB a GPU':>10}{'hours':>8}",
    ]
    for each in forecast(recipe, shape, trace, gpus=gpus, sharded=sharded):
        lines.append(f"{each.stage:12}{each.steps:8}{each.tokens:16}{each.gigabytes:10.1f}{each.hours:8.1f}")
    return lines
