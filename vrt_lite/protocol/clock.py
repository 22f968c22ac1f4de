"""The rule by which a judge's clock turns video time into positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ClockRule = Literal["truncate", "exact", "fixed", "text"]


@dataclass(frozen=True, slots=True)
class Clock:
    """How video time becomes M-RoPE positions (transformers, `get_rope_index` of Qwen2.5-VL).

    "truncate" casts the seconds of a temporal patch to an integer before multiplying, as transformers 4.57
    does, which these checkpoints were trained around; "exact" multiplies first; "fixed" ignores the clip's own
    time and uses `seconds_per_patch`. "text" is Qwen3-VL's: before each temporal patch stands the mean time of its two
    frames, as text, and each patch is a video of its own.
    """

    rule: ClockRule = "truncate"
    tokens_per_second: float = 2.0
    seconds_per_patch: float = 1.0

    def steps(self, patches: int, seconds_per_patch: float) -> tuple[int, ...]:
        """Temporal position of each of `patches` temporal patches, relative to the video's start."""
        seconds = self.count_seconds(seconds_per_patch)
        return tuple(int(i * self.tokens_per_second * seconds) for i in range(patches))

    def count_seconds(self, seconds_per_patch: float) -> float:
        """The seconds of a temporal patch as the rule counts them."""
        if self.rule == "fixed":
            return self.seconds_per_patch
        return int(seconds_per_patch) if self.rule == "truncate" else seconds_per_patch
