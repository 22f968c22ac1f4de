"""Small pairs of coloured frames with scripts of two and three rounds, and a recipe for a model that reads them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from train.data import TrainingCase
from train.recipe import Running, StartingModel, Supervised, Tables, TrainingRecipe
from vrt_lite.judge import Pair
from vrt_lite.profile import PIXELS_PER_TOKEN, Clock, Profile
from vrt_lite.protocol.messages import FrameRef

SIZES = ((84, 56), (56, 84), (112, 56))
"""(width, height) of a case's frames, in turn: 6 and 8 cells."""

PROFILE = Profile(
    name="coloured",
    system_prompt='Say "which".\n',
    user_prompt="\n{n} frames. Prompt: {caption}\nBetter?",
    workspace=8,
    first_frames=2,
    frames_per_call=4,
    min_pixels=6 * PIXELS_PER_TOKEN,
    max_pixels=8 * PIXELS_PER_TOKEN,
    clock=Clock("exact"),
    tool_text="Frames:",
    forgotten_text="(gone)",
    final_text="",
    rounds=4,
    max_new_tokens=96,
)
SHAPE = {
    "layers": 2,
    "width": 64,
    "heads": 2,
    "kv_heads": 1,
    "feed_forward": 96,
    "rope_section": (4, 6, 6),
    "vocabulary": 420,
    "tower_depth": 2,
    "tower_width": 64,
    "tower_heads": 2,
    "tower_feed_forward": 96,
    "tower_full": (1,),
}
SUPERVISED = Supervised(samples=8, learning_rate=1e-2, warmup=0.25, batch=2, step=4, weight_decay=0.01)
RECIPE = TrainingRecipe(
    name="coloured",
    profile=PROFILE,
    model=StartingModel(source="coloured", precision="float32"),
    data=Tables(cold_start="-", traces="-", sample="-", grpo="-", test="-"),
    cold_start=SUPERVISED,
    running=Running(save_steps=1),
)


@dataclass(frozen=True)
class Frames:
    """Frames of one colour a clip, darker by index."""

    colours: tuple[int, int]
    size: tuple[int, int]

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        width, height = self.size
        y, x = np.mgrid[:height, :width]
        made: list[NDArray[np.uint8]] = []
        for frame in frames:
            red = (x * 3 + self.colours[frame.clip]) % 256
            made.append(np.stack([red, y * 2 % 256, np.full_like(x, 25 * frame.index)], axis=-1).astype(np.uint8))
        return made


def _call(*frames: int) -> str:
    asked = f'{{"name": "select_frames", "arguments": {{"target_frames": {list(frames)}}}}}'
    return (
        "<snapshot>\nVideo 1: red.\n</snapshot>\n<think>\nIs it?\n</think>\n"
        f"<recommend answer>TA=0, VQ=1, MQ=0, OA=1, CF=2</recommend answer>\n<tool_call>\n{asked}\n</tool_call>"
    )


def _final(winner: int) -> str:
    return (
        f"<snapshot>\nVideo {winner}: blue é.\n</snapshot>\n<think>\nYes.\n</think>\n"
        f"<final answer>TA=0, VQ={winner}, MQ=0, OA={winner}</final answer>"
    )


def case(number: int) -> TrainingCase:
    """One case: even ones take two rounds, odd ones three, so that the window forgets."""
    winner = 1 + number % 2
    calls = [_call(2 + number % 3, 10)] + [_call(3, 11, 12)] * (number % 2)

    @contextlib.contextmanager
    def frames(profile: Profile) -> Iterator[Frames]:
        yield Frames((17 * number % 256, 90), SIZES[number % len(SIZES)])

    pair = Pair(f"a red square no. {number}", (2.0, 3.0 + number % 2))
    labels = {"TA": 0, "VQ": winner, "MQ": 0, "OA": winner}
    return TrainingCase(f"coloured:{number}", pair, labels, frames, script=(*calls, _final(winner)))


def cases(count: int) -> list[TrainingCase]:
    return [case(number) for number in range(count)]
