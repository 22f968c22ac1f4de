"""What a user may set about a judgement, and where the server of a remote judge is. Imports no engine and no HTTP."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final, Literal
from urllib.parse import urlsplit

from vrt_lite.errors import UsageError
from vrt_lite.machine import KvType
from vrt_lite.profile import Profile, check, preset
from vrt_lite.protocol.messages import Dimension, show_key

_COUNTS = ("workspace", "first_frames", "window", "rounds")
_IN_PROFILE = (*_COUNTS, "max_pixels", "tool_max_pixels")
_NO_VERDICT = ("both_orders", "cache", "gpu_layers", "threads", "preset", "dimensions", *_IN_PROFILE)
"""Settings that change no verdict of one order, or change it only through the profile."""
MOST_JOBS: Final = 256
"""The most pairs that are sent to a server at once: as many sequences as vLLM runs at once by default. More would wait
there, while each takes a thread, a connection and two open clips here."""
ServerKind = Literal["vllm", "sglang", "llama", "openai"]
"""vLLM; SGLang; llama.cpp's own server or llama-cpp-python's; any other."""
FormName = Literal["lossless video file", "frames of a video", "single images"]
RemoteKind = Literal["auto", "vllm", "sglang", "llama"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to judge. None means: the model's profile, or the engine, decides. Counts of frames are per video.

    `dimensions` replaces wordings by key; a name that does not show its key gets it: "Sharpness (VQ)".
    `max_pixels` bounds all frames, unless `tool_max_pixels` bounds those of a tool call.
    `cache` keeps encoded frames on disk and reuses them; it changes no verdict.
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


def key_of(settings: Settings, profile: Profile, *, judge: Mapping[str, str]) -> str:
    """A digest of all that a verdict of one order depends on besides the clips and the prompt.

    `profile` is the one in force; `judge` names the model: its files' digests, or a server and what it serves.
    """
    own = {f.name: getattr(settings, f.name) for f in fields(settings) if f.name not in _NO_VERDICT}
    facts = {"judge": dict(judge), "profile": profile.sha256, "settings": own}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def describe_settings(settings: Settings, profile: Profile) -> dict[str, str]:
    """Return in words, by name of option, what a verdict of one order depends on besides clips, prompt and model.

    `profile` is the one in force. Two judges with the same words may still differ, in their model or their profile.
    """
    own = {f.name: getattr(settings, f.name) for f in fields(settings) if f.name not in _NO_VERDICT}
    facts = {**{name: getattr(profile, name) for name in _IN_PROFILE}, **own}
    told = {f"--{name.replace('_', '-')}": "auto" if value is None else str(value) for name, value in facts.items()}
    return told | {"--dimension": ", ".join(dimension.name for dimension in profile.dimensions.values())}


@dataclass(frozen=True, slots=True)
class Remote:
    """A judge on an OpenAI-compatible server: `url` is its base, `http://host:8000/v1`.

    It holds no secret: a key is in the environment alone, and a URL with credentials in it is refused with UsageError.
    `served_model` is the model's name there; None takes the only one. `kind` says how the server takes frames.
    `connect_seconds` is how long connecting may take in all tries, `silence_seconds` how long the server may send
    nothing, `total_seconds` how long one reply may take in all tries.
    """

    url: str = field(repr=False)
    served_model: str | None = None
    kind: RemoteKind = "auto"
    connect_seconds: float = 10.0
    silence_seconds: float = 300.0
    total_seconds: float = 1800.0
    tries: int = 6
    pause_seconds: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", _check_url(self.url))


def _check_url(url: str) -> str:
    """The URL without a slash at its end. UsageError, without any secret in it, if it cannot be a server's base."""
    hint = "Give --backend a URL like http://127.0.0.1:8000/v1."
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise UsageError(f"The back end's URL cannot be read. {hint}") from None
    if "@" in url or parts.query or parts.fragment:
        raise UsageError(
            "The back end's URL holds credentials or a query, which would be shown and stored. "
            "Give the address alone, and the key in the environment: VRT_LITE_API_KEY."
        )
    if (
        parts.scheme not in {"http", "https"}
        or not host
        or any(c.isspace() or not c.isprintable() for c in url.strip())
    ):
        raise UsageError(f"The back end's URL {url!r} is no http:// or https:// address. {hint}")
    return url.strip().rstrip("/")
