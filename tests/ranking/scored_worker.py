"""A judge that scores each clip by its brightness: a run a clip, without a model."""

from __future__ import annotations

import shutil
from pathlib import Path

from vrt_lite.errors import NoVerdictError
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.protocol.messages import Conversation, Reply

BUNDLED = Path(__file__).parents[2] / "vrt_lite" / "bundled" / "vrt-tiny-0"
HEADS = """
name = "heads"
user_prompt = "{prompt} <|VQ|> <|TA|>"
[answer]
form = "clip"
frames = 4
[answer.head.VQ]
token = "<|VQ|>"
mean = 100.0
std = 50.0
tie = 1.609
[answer.head.TA]
token = "<|TA|>"
[answer.overall]
sum = ["VQ", "TA"]
"""


class BrightnessScore:
    """Reads a clip's brightness off at VQ and 1 at TA. A clip darker than `dark` cannot be judged."""

    def __init__(self, *, dark: int = 0) -> None:
        self.asked: list[int] = []
        self._dark = dark

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        assert sampling.heads == {"VQ": "<|VQ|>", "TA": "<|TA|>"}
        shown = [frame for message in conversation for frame in message.frames]
        grey = round(float(frames.pixels(shown)[0].mean()) / 10) * 10
        self.asked.append(grey)
        if grey < self._dark:
            raise NoVerdictError("No verdict: it is too dark.")
        return Reply("", scores={"VQ": float(grey), "TA": 1.0})


def make_scorer(folder: Path, profile: str = HEADS) -> Path:
    """A folder with a model whose profile scores clips."""
    folder.mkdir(exist_ok=True)
    for file in BUNDLED.glob("*.gguf"):
        shutil.copy(file, folder)
    (folder / "profile.toml").write_text(profile)
    return folder
