"""What a user may set about a judgement, and how it changes a model's profile.

Knows names and defaults; refuses to know the command line and the engine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from vrt_lite.backends.settings import KvType
from vrt_lite.errors import UsageError
from vrt_lite.profile import Profile, check, preset
from vrt_lite.protocol.prompt import Dimension, show_key

_COUNTS = ("workspace", "first_frames", "window", "rounds")
_IN_PROFILE = (*_COUNTS, "max_pixels", "tool_max_pixels")
_NO_VERDICT = ("both_orders", "cache", "gpu_layers", "threads", "preset", "dimensions", *_IN_PROFILE)
"""Settings that change no verdict of one order, or do it through the profile alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to judge. None means: the model's profile, or the engine, decides. Counts of frames are per video.

    `dimensions` replaces wordings by key; a name that does not show its key gets it: "Sharpness (VQ)".
    `max_pixels` bounds all frames, unless `tool_max_pixels` bounds those that a tool call brings.
    `cache` keeps what was encoded on disk and finds it there again; it changes no verdict.
    """

    preset: str | None = None
    dimensions: Mapping[str, Dimension] = field(default_factory=dict[str, Dimension])
    workspace: int | None = None
    first_frames: int | None = None
    window: int | None = None
    rounds: int | None = None
    max_pixels: int | None = None
    tool_max_pixels: int | None = None
    ctx: int | None = None
    gpu_layers: int | None = None
    threads: int | None = None
    kv_type: KvType | None = None
    temperature: float = 0.0
    seed: int = 0
    both_orders: bool = False
    cache: bool = True

    @property
    def limits_pixels(self) -> bool:
        """Whether a limit on pixels was set."""
        return self.max_pixels is not None or self.tool_max_pixels is not None

    def applied_to(self, profile: Profile) -> Profile:
        """The profile with these settings in it; UsageError for a value that cannot be used."""
        given = {name: value for name in _COUNTS if (value := getattr(self, name)) is not None}
        if self.max_pixels is None:
            pixels, tool_pixels = profile.max_pixels, profile.tool_max_pixels
        else:
            pixels = tool_pixels = self.max_pixels
        if self.tool_max_pixels is not None:
            tool_pixels = self.tool_max_pixels
        profile = profile.with_max_pixels(pixels, tool_pixels=tool_pixels)
        dimensions = preset(self.preset) if self.preset else profile.dimensions
        own = {key: show_key(key, dimension) for key, dimension in self.dimensions.items()}
        try:
            return check(replace(profile, **given, dimensions={**dimensions, **own}))
        except ValueError as error:
            raise UsageError(f"These settings cannot be used: {error}") from error


def in_force(settings: Settings, profile: Profile) -> dict[str, object]:
    """Every setting by name, with the value in force where the profile decides."""
    words = {key: {"name": d.name, "explain": d.explain} for key, d in profile.dimensions.items()}
    own = {f.name: getattr(settings, f.name) for f in fields(settings)}
    return {**own, "dimensions": words, **{name: getattr(profile, name) for name in _IN_PROFILE}}


def key_of(settings: Settings, profile: Profile, *, judge: Mapping[str, str]) -> str:
    """A digest of all that a verdict of one order depends on beside the clips and the prompt.

    `profile` is the model's own; `judge` names the model: its files' digests, or a server and what it serves. What is
    chosen to fit a machine's memory is left out: a verdict does not lose its worth when the memory is free again.
    """
    own = {f.name: getattr(settings, f.name) for f in fields(settings) if f.name not in _NO_VERDICT}
    told = {"judge": dict(judge), "profile": settings.applied_to(profile).sha256, "settings": own}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
