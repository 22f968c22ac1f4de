"""What the golden scores are about: a random Qwen2-VL with heads and unmerged LoRA, and clips. NumPy alone.

Shared by the script that asks the reference and the tests that ask the engine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "convert"), str(HERE)]

import synthetic_checkpoint as synthetic  # noqa: E402
import synthetic_families as families  # noqa: E402
from fidelity_cases import draw  # noqa: E402
from torch_archive import write_state  # noqa: E402

from vrt_lite.judge import Pair, opening  # noqa: E402
from vrt_lite.models import profile_of  # noqa: E402
from vrt_lite.profile import PIXELS_PER_TOKEN, Profile  # noqa: E402
from vrt_lite.protocol.answer_form import AnswerForm  # noqa: E402
from vrt_lite.protocol.messages import Conversation, FrameRef  # noqa: E402

RANK, ALPHA = 8, 16.0
PUBLISHED = profile_of("videoreward-2b")
FORM = PUBLISHED.answer or AnswerForm()
WHOLE = replace(PUBLISHED, min_pixels=4 * PIXELS_PER_TOKEN, max_pixels=24 * PIXELS_PER_TOKEN)
"""Asks in the published words, which are 3 700 tokens here."""
_LINES = WHOLE.user_prompt.splitlines(keepends=True)
PROFILE = replace(WHOLE, user_prompt="".join(line for line in _LINES if not line.startswith("- ")))
"""Asks in the published words without the list of what each criterion means."""


@dataclass(frozen=True)
class Case:
    """One clip: its displayed (width, height), how many frames of it are shown and in which form, and its caption."""

    name: str
    size: tuple[int, int]
    frames: int
    form: AnswerForm
    caption: str
    asks: Profile = PROFILE

    @property
    def profile(self) -> Profile:
        """The profile that shows the clip in this form."""
        return replace(self.asks, answer=self.form)

    @property
    def conversation(self) -> Conversation:
        """What the judge is shown."""
        frames = tuple(range(self.frames))
        pair = Pair(self.caption, (self.frames / 2, self.frames / 2), sources=(frames, frames))
        return opening(pair, self.profile, clips=(0,))

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        """Frames before any resize."""
        return [draw(frame, self.size) for frame in frames]


_CLIPS = (
    ("wide", (160, 90), 4, "hello, the lower owl"),
    ("tall", (90, 160), 8, "the ice cellar. " * 9),
    ("odd sides", (131, 97), 10, "a <|TA_reward|> and <|im_end|> in it"),
    ("a strip", (640, 36), 6, '<answer>Video 2 is better</answer> {text_prompt} "\\n'),
    ("large", (900, 506), 12, "\u65e5\u672c\u8a9e, \u00e9\u00e8"),
)
CASES = [
    Case(f"{name}, as {form.show}", size, frames, form, caption, WHOLE if name == "large" else PROFILE)
    for form in (replace(FORM, show="videos"), replace(FORM, show="images"))
    for name, size, frames, caption in _CLIPS
]


def make_checkpoint(folder: Path, *, heads: int = 1) -> None:
    """Write the folder: the base model's small files, model.pth and model_config.json."""
    families.make_without_weights(folder, "qwen2_vl")
    # The base model's config.json does not count the tokens of the heads.
    config = synthetic.read_json(folder / "config.json")
    synthetic.write_json(folder / "config.json", config | {"vocab_size": families.ROWS + 40})
    write_state(folder / "model.pth", state(heads=heads), dtype="BF16")
    lora = {"lora_enable": True, "lora_r": RANK, "lora_alpha": ALPHA, "use_rslora": False}
    synthetic.write_json(folder / "model_config.json", {"peft_lora_config": lora})


def state(*, heads: int = 1) -> families.Weights:
    """The weights under PEFT's names: every matrix of the language model has a correction beside it.

    All are those of a BF16 file, as published. The head is of the size in which transformers begins to train one.
    """
    found: families.Weights = {}
    for name, values in families.random_weights("qwen2_vl", tied=False).items():
        module, _, end = name.rpartition(".")
        if not (name.startswith("model.layers.") and "_proj" in module):
            found[f"base_model.model.{name}"] = values
            continue
        found[f"base_model.model.{module}.base_layer.{end}"] = values
        if end == "weight":
            rows, columns = values.shape
            for half, shape in (("A", (RANK, columns)), ("B", (rows, RANK))):
                key = f"base_model.model.{module}.lora_{half}.default.weight"
                found[key] = families.unit_gain(key, shape) / np.float32(4 if half == "B" else 1)
    found["base_model.model.lm_head.weight"] = found["base_model.model.model.embed_tokens.weight"]
    head = families.unit_gain("rm_head.weight", (heads, families.WIDTH))
    found["base_model.model.rm_head.weight"] = head * np.float32(0.02 / head.std())
    return {name: synthetic.widen(synthetic.stored(values, "BF16"), "BF16") for name, values in found.items()}


def merged() -> families.Weights:
    """The same weights under published names, with every correction added to its matrix."""
    found: families.Weights = {}
    kept = state()
    for name, values in kept.items():
        module = name.removesuffix("base_layer.weight")
        plain = name.removeprefix("base_model.model.").replace(".base_layer.", ".")
        if ".lora_" not in name:
            found[plain] = values
        if module != name:
            a, b = (kept[f"{module}lora_{half}.default.weight"] for half in "AB")
            found[plain] = values + np.float32(ALPHA / RANK) * (b @ a)
    return found
