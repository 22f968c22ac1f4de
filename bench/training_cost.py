"""Measures a step of each stage of training with a LoRA, on the processor: its seconds and its largest resident set.

Loading is left out: while it lasts, the file of the checkpoint is in memory beside the weights.

The weights are random (`python -m bench checkpoint`), so what is learned means nothing. Each stage runs in a process of
its own, as `train` runs it, beside what `train.dry_run` computes for the same shape. Random weights write noise: the
replies of GRPO are given, half of them right, so that the group teaches; logits and cache are computed all the same.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.measurements import forget_peak, peak_resident_bytes
from bench.side import run_module

STAGES = ("cold-start", "sample", "refine", "grpo")
_EXAMPLES = Path(__file__).parents[1] / "examples"
_LABELS = "TA=1, VQ=1, MQ=1, OA=1"
_FINAL = "<snapshot>A star moves up.</snapshot><think>It is steady.</think><final answer>{}</final answer>"
_RANK = 64
_REPLY_TOKENS, _GROUP = 160, 2


def measure_training(checkpoint: Path, *, max_pixels: int) -> list[dict[str, Any]]:
    """Measure each stage from a checkpoint; frames have at most `max_pixels`. Returns plain data, one a stage."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for stage in STAGES:
            job = {"stage": stage, "checkpoint": str(checkpoint), "max_pixels": max_pixels, "folder": folder}
            rows.append(run_module("bench.training_cost", job, name=stage))
    return rows


def take_step(job: Mapping[str, Any]) -> dict[str, Any]:
    """Take a step of a stage in this process. Returns its seconds, bytes at most, and the bytes that are computed."""
    from train.dry_run import forecast, read_shape  # noqa: PLC0415 - torch

    stage, run, checkpoint = job["stage"], Path(job["folder"]) / job["stage"], Path(job["checkpoint"])
    recipe = _make_recipe(job)
    run.mkdir()
    cases = _load_pair(run)
    trace = _measure_trace(recipe, checkpoint, cases[0])
    stages = forecast(recipe, read_shape(recipe), trace, gpus=1, sharded=False)
    computed = next(of.gigabytes * 1e9 for of in stages if of.stage == stage)
    take = _load_stage(stage, recipe, cases, checkpoint, run)
    forget_peak()
    began = time.perf_counter()
    take()
    seconds, peak = time.perf_counter() - began, peak_resident_bytes()
    return {"stage": stage, "seconds": seconds, "bytes": peak, "computed": computed, "tokens": trace.tokens}


def _load_stage(stage: str, recipe: Any, cases: Any, start: Path, run: Path) -> Callable[[], object]:
    """Load the model of a stage. Returns what takes the step."""
    from train import grpo, sft  # noqa: PLC0415 - torch
    from train.rollout import roll_out  # noqa: PLC0415
    from train.sample import open_policy  # noqa: PLC0415

    if stage == "sample":
        policy, queries = open_policy(recipe, start), {"pair": cases[0]}
        return partial(roll_out, policy, queries, recipe.profile, samples=_GROUP, temperature=1.0, seed=0)
    if stage == "grpo":
        return grpo.prepare(recipe, cases, start=start, run=run, policy=_make_policy()).train
    how = recipe.cold_start if stage == "cold-start" else recipe.refine
    return sft.prepare(how, cases, recipe=recipe, start=start, run=run).train


def _make_recipe(job: Mapping[str, Any]) -> Any:
    """Make the recipe of one step of each stage, with frames of at most so many pixels.

    The random checkpoint's tokenizer has a token for most letters: VR-Thinker's prompt would be thousands.
    """
    from dataclasses import replace  # noqa: PLC0415

    from train import recipe as made  # noqa: PLC0415
    from vrt_lite.profile import default_profile  # noqa: PLC0415

    profile = replace(
        default_profile().with_max_pixels(job["max_pixels"]),
        rounds=1,
        max_new_tokens=_REPLY_TOKENS,
        system_prompt="Judge.",
        user_prompt="Which is better? {caption}",
    )
    model = made.StartingModel(
        source=job["checkpoint"], precision="float32", lora_rank=_RANK, gradient_checkpointing=True
    )
    once = made.Supervised(samples=1, step=1)
    return made.TrainingRecipe(
        model=model,
        data=made.Tables(cold_start="-", traces="-", sample="-", grpo="-", test="-"),
        profile=profile,
        cold_start=once,
        refine=once,
        grpo=made.Grpo(steps=1, queries=1, group=_GROUP, steps_per_generation=1, resamples=0),
        rollouts=made.Rollouts(batch=_GROUP),
    )


def _load_pair(folder: Path) -> Any:
    """Load the example pair as a table with its trace."""
    from train.data import load_cases, read_table  # noqa: PLC0415

    row = (_EXAMPLES / "star.mp4", _EXAMPLES / "circle.mp4", "A blue star moves up.", 1, 1, 1, 1)
    table, traces = folder / "pairs.csv", folder / "given.jsonl"
    table.write_text(f"a,b,prompt,TA,VQ,MQ,overall\n{','.join(map(str, row))}\n", encoding="utf-8")
    [pair] = read_table(table).pairs
    trace = {"key": pair.row.name, "replies": [_FINAL.format(_LABELS)]}
    traces.write_text(json.dumps(trace) + "\n", encoding="utf-8")
    return load_cases(table, traces)


def _measure_trace(recipe: Any, checkpoint: Path, case: Any) -> Any:
    from train.dry_run import TraceLength  # noqa: PLC0415
    from train.policy_tokenizer import TOKENIZER_FILE, PolicyTokenizer  # noqa: PLC0415
    from train.rendering import Renderer  # noqa: PLC0415
    from train.sft import render  # noqa: PLC0415

    renderer = Renderer(PolicyTokenizer(checkpoint / TOKENIZER_FILE), recipe.profile)
    [row] = render(case, renderer, recipe.profile)
    return TraceLength(len(row.learned), int(row.learned.sum()))


def _make_policy() -> Any:
    """Make the policy whose replies are given: each second one of a batch is right."""
    import torch  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    from train.writing import Policy  # noqa: PLC0415

    class GivenPolicy(Policy):
        """Computes the logits of each token, and takes the given one."""

        def _pick(self, logits: Any, replies: Sequence[Any]) -> Any:
            answers = [_FINAL.format(_LABELS.replace("1", f"{1 + number % 2}")) for number in range(len(replies))]
            given = [[*self.tokenizer.tokens(answer, special=False), self._end] for answer in answers]
            tokens = torch.tensor([ids[len(reply.tokens)] for ids, reply in zip(given, replies, strict=True)])
            found = self._distribution(logits, 1.0)
            return tokens, found.gather(1, tokens[:, None])[:, 0]

    return GivenPolicy


if __name__ == "__main__":
    print(json.dumps(take_step(json.load(sys.stdin))))
