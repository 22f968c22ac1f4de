"""A judge of a few thousand weights that has learned, in seconds, to answer at once or after two calls for frames.

It names the first or the second video for everything, either as often: what it answers is a coin's throw that sampling
can keep and a reward can weight. Knows how it is taught; torch only inside functions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from train.data import TrainingCase, replay
from train.recipe import Grpo, Rejection, Rollouts, Running, StartingModel, Tables, TrainingRecipe
from vrt_lite.interfaces import FrameStore
from vrt_lite.judge import Pair
from vrt_lite.profile import Clock, Profile, default_profile
from vrt_lite.protocol.messages import FrameRef, Generated

PROFILE = replace(
    default_profile(),
    name="taught",
    system_prompt="Judge.",
    user_prompt="Which is better? {caption}",
    tool_text="Frames:",
    forgotten_text="(gone)",
    final_text="",
    correction_text="Again: {reason}.",
    workspace=8,
    first_frames=2,
    frames_per_call=2,
    rounds=4,
    retries=1,
    window=1,
    max_new_tokens=64,
    clock=Clock("fixed", 2.0, 1.0),
)
SHAPE = {
    "layers": 2,
    "width": 64,
    "heads": 2,
    "kv_heads": 1,
    "feed_forward": 128,
    "rope_section": (4, 6, 6),
    "vocabulary": 480,
    "tower_depth": 2,
    "tower_width": 32,
    "tower_heads": 2,
    "tower_feed_forward": 64,
    "tower_full": (1,),
}
RECIPE = TrainingRecipe(
    name="taught",
    profile=PROFILE,
    model=StartingModel(source="taught", seed=3, precision="float32"),
    data=Tables(cold_start="-", traces="-", sample="-", grpo="-", test="-"),
    sample=Rejection(queries=6, samples=4),
    grpo=Grpo(steps=2, queries=2, group=4, learning_rate=1e-4, resamples=1, batch=3, steps_per_generation=4),
    rollouts=Rollouts(batch=8),
    running=Running(save_steps=4),
)
_CALL = (
    "<snapshot>seen</snapshot><think>more</think>"
    "<recommend answer>TA={d}, VQ={d}, MQ={d}, OA={d}, CF=1</recommend answer>"
    '<tool_call>{{"name": "select_frames", "arguments": {{"target_frames": [{frames}]}}}}</tool_call>'
)
_FINAL = "<snapshot>seen</snapshot><think>done</think><final answer>TA={d}, VQ={d}, MQ={d}, OA={d}</final answer>"


@dataclass(frozen=True)
class Squares:
    """Frames of 56x84: one colour a case and clip, brighter with every position."""

    seed: int

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        return [np.full((56, 84, 3), (3 * self.seed + 90 * f.clip + 9 * f.index) % 256, np.uint8) for f in frames]


def case(seed: int) -> TrainingCase:
    """A pair whose first video is the better one."""

    @contextlib.contextmanager
    def opened(profile: Profile) -> Iterator[FrameStore]:
        yield Squares(seed)

    labels = {"TA": 1, "VQ": 1, "MQ": 1, "OA": 1}
    return TrainingCase(f"square:{seed}", Pair("a square", (1.0, 2.0)), labels, opened, script=script(1, calls=2))


def script(digit: int, *, calls: int) -> tuple[str, ...]:
    """What the judge is taught to write."""
    asked = ("2, 3", "10")[:calls]
    return (*(_CALL.format(d=digit, frames=frames) for frames in asked), _FINAL.format(d=digit))


def teach(folder: Path, *, steps: int = 180) -> Path:
    """Write the judge's checkpoint; the folder."""
    import torch
    from small_checkpoint import write_checkpoint

    from train.model import load, save
    from train.rendering import Collator, Renderer, segments
    from train.tiny.batched_tower import batch_frames
    from train.tiny.restoring import NewModelShape

    pair = case(0)
    new = write_checkpoint(folder / "new", NewModelShape(**SHAPE), PROFILE, [pair], seed=3)
    model, tokenizer = load(new, trainable=True)
    batch_frames(model.model.visual)
    renderer, collate = Renderer(tokenizer, PROFILE), Collator(tokenizer.id("<|endoftext|>"))
    rows = []
    with pair.open(PROFILE) as frames:
        for replies in (script(digit, calls=calls) for digit in (1, 2) for calls in (0, 2)):
            visible, _ = replay(pair, replies, PROFILE)
            rows += [renderer.render(s, frames) for s in segments(visible, [Generated(text) for text in replies])]
    torch.manual_seed(0)
    batch = collate(rows)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for _ in range(steps):
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    save(model, folder / "new", folder / "taught")
    return folder / "taught"
