"""What a user may set about a judgement, and where the server of a remote judge is. Imports no engine and no HTTP."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from vrt_lite.errors import UsageError
from vrt_lite.machine import KvType
from vrt_lite.profile import Profile, check, preset
from vrt_lite.protocol.messages import Dimension, show_key
from vrt_lite.protocol.report import ReportWords
from vrt_lite.protocol.verdict import SkippedOrder, Verdict, skip_second_order

_COUNTS = ("workspace", "first_frames", "window", "rounds")
_IN_PROFILE = (*_COUNTS, "max_pixels", "tool_max_pixels")
_BESIDE_PROFILE = ("ctx", "kv_type", "temperature", "seed")
"""Settings that change a verdict of one order other than through the profile."""
LOCAL_SETTINGS: Final = ("ctx", "gpu_layers", "kv_type", "threads")
"""Settings that only an engine on this machine can use."""
MOST_JOBS: Final = 256
"""The most pairs that are sent to a server at once: as many sequences as vLLM runs at once by default. More would wait
there, while each takes a thread, a connection and two open clips here."""
RemoteKind = Literal["auto", "vllm", "sglang", "llama"]
EffortName = Literal["quick", "balanced", "full"]
BothOrders = bool | Literal["auto"]
Source = Literal["option", "environment", "file", "effort", "tuned"]
"""Where a setting comes from: the call itself, a variable, the settings file, an effort, or `vrt-lite tune`."""


class Limits(NamedTuple):
    """How much work a judgement may be: thirds of the checkpoint's own pixels, rounds, and tokens of a reply.

    A tool's frames have at most as many pixels as the others.
    """

    pixel_thirds: int
    rounds: int
    reply_tokens: int

    def applied_to(self, profile: Profile) -> Profile:
        """The profile within these limits.

        Frames do not get smaller than the smallest that the checkpoint was trained on: one that knows a single size
        keeps it. The first frames stay as many as they are, because the prompt tells the judge their number.
        """
        token = profile.pixels_per_token
        share = profile.max_pixels * self.pixel_thirds // 3 // token * token
        pixels = share if share >= profile.min_pixels else profile.max_pixels
        return replace(
            profile,
            max_pixels=pixels,
            tool_max_pixels=max(min(profile.tool_max_pixels, pixels), profile.tool_min_pixels),
            rounds=min(profile.rounds, self.rounds),
            max_new_tokens=min(profile.max_new_tokens, self.reply_tokens),
        )


EFFORTS: Final[Mapping[EffortName, Limits | None]] = {
    # A third of VR-Thinker's pixels is 256 visual tokens a frame, twice the least of its range. In the first of two
    # rounds the judge may still ask for frames. A round writes under 400 tokens in the paper.
    "quick": Limits(1, rounds=2, reply_tokens=512),
    # Two thirds are 512 visual tokens: the paper counts about 500, and clips of 848x480 lose nothing. In three rounds
    # the judge may ask for frames twice; the paper reports needless requests where clips are alike.
    "balanced": Limits(2, rounds=3, reply_tokens=1024),
    "full": None,
}
"""How much work a judgement may be, by name; "full" is the checkpoint's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to judge. None means: the model's profile, or the engine, decides. Counts of frames are per video.

    `profile` takes the place of the model's own.
    `dimensions` replaces wordings by key; a name that does not show its key gets it: "Sharpness (VQ)".
    `max_pixels` bounds all frames, unless `tool_max_pixels` bounds those of a tool call.
    `effort` limits pixels and rounds where they are not set, and the length of a reply.
    `both_orders` set to "auto" judges the second order only if the first leaves a doubt: it has no final answer with
    probabilities, or its overall choice (video 1, video 2 or a tie) is less probable than `confidence`.
    `evidence` puts a report of what was measured into the prompt of a judge that was not trained with one.
    `cache` keeps encoded frames on disk and reuses them, at most `cache_mb` megabytes; it changes no verdict.
    `sources` says where settings come from that were not given with the call; it is for the record alone.
    """

    profile: Profile | None = None
    effort: EffortName = "full"
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
    both_orders: BothOrders = False
    evidence: bool = False
    # High, as a judge that reasons before it answers is mostly too certain. A calibrated one often leaves a doubt.
    confidence: float = 0.95
    cache: bool = True
    cache_mb: int | None = None
    sources: Mapping[str, Source] = field(default_factory=dict[str, Source])

    @property
    def keeps_on_disk(self) -> bool:
        """Whether anything of a clip is kept on disk."""
        return self.cache and self.cache_mb != 0

    def skip_second_order(self, first: Verdict | None) -> SkippedOrder | None:
        """Why the second order is left out on purpose after the first gave this verdict, or none; None if it is not."""
        return skip_second_order(first, self.confidence) if first and self.both_orders == "auto" else None

    def find_sources(self, *, tuned: bool) -> dict[str, Source]:
        """Where each setting comes from that is not at its default. What no source is known of was given with the call.

        `tuned` tells whether the engine ran as tuned.
        """
        given = [f.name for f in fields(self) if getattr(self, f.name) not in (f.default, {})]
        decided = () if self.effort == "full" else ("max_pixels", "tool_max_pixels", "rounds", "max_new_tokens")
        sources: dict[str, Source] = dict.fromkeys(decided, "effort")
        if tuned:
            sources["threads"] = "tuned"
        sources |= {name: "option" for name in given if name not in ("profile", "cache_mb", "sources")}
        return {**sources, **self.sources}

    def applied_to(self, profile: Profile) -> Profile:
        """The profile with these settings in it; UsageError for a value that cannot be used."""
        if self.effort not in EFFORTS:
            raise UsageError(f"Effort {self.effort!r} is unknown; choose one of {', '.join(EFFORTS)}.")
        if self.both_orders not in (False, True, "auto") or not 0.5 < self.confidence < 1:
            raise UsageError(
                f"both_orders={self.both_orders!r} with confidence={self.confidence!r} is not possible; give True, "
                "False or 'auto', and a probability above 0.5 and below 1."
            )
        if not (0 <= self.temperature <= 10 and 0 <= self.seed < 2**32):
            raise UsageError(
                f"temperature={self.temperature!r} with seed={self.seed!r} is not possible; give 0 to 10, and a whole "
                "number from 0 to 4294967295."
            )
        checkpoint = profile = self.profile or profile
        if limits := EFFORTS[self.effort]:
            profile = limits.applied_to(profile)
        given = {name: value for name in _COUNTS if (value := getattr(self, name)) is not None}
        pixels, tool_pixels = profile.max_pixels, profile.tool_max_pixels
        if self.max_pixels is not None:
            pixels, tool_pixels = self.max_pixels, min(checkpoint.tool_max_pixels, self.max_pixels)
        if self.tool_max_pixels is not None:
            tool_pixels = self.tool_max_pixels
        profile = profile.with_max_pixels(pixels, tool_pixels=tool_pixels)
        words = dict(preset(self.preset) if self.preset else profile.dimensions)
        words |= {key: show_key(key, dimension) for key, dimension in self.dimensions.items()}
        if self.evidence and profile.evidence and not profile.evidence.allowed:
            raise UsageError(f"{profile.name} cannot read a report of what was measured: leave --evidence out.")
        evidence = profile.evidence or (ReportWords() if self.evidence else None)
        try:
            return check(replace(profile, **given, dimensions=words, evidence=evidence))
        except ValueError as error:
            hint = " What is set for all commands: vrt-lite config" if self.sources else ""
            raise UsageError(f"These settings cannot be used: {error}{hint}") from error


def key_of(settings: Settings, profile: Profile, *, judge: Mapping[str, str]) -> str:
    """A digest of all that a verdict of one order depends on besides the clips and the prompt.

    `profile` is the one in force; `judge` names the model: its files' digests, or a server and what it serves.
    """
    own = {name: getattr(settings, name) for name in _BESIDE_PROFILE}
    facts = json.dumps({"judge": dict(judge), "profile": profile.sha256, "settings": own}, sort_keys=True)
    return hashlib.sha256(facts.encode()).hexdigest()


def describe_settings(settings: Settings, profile: Profile) -> dict[str, str]:
    """Return in words, by name of option, what a verdict of one order depends on besides clips, prompt and model.

    `profile` is the one in force. Two judges with the same words may still differ, in their model or their profile.
    """
    facts = [(name, getattr(profile, name)) for name in _IN_PROFILE]
    facts += [(name, getattr(settings, name)) for name in _BESIDE_PROFILE]
    told = {f"--{name.replace('_', '-')}": "auto" if value is None else str(value) for name, value in facts}
    return told | {
        "--effort": settings.effort,
        "--evidence": str(profile.reports),
        "--dimension": ", ".join(dimension.name for dimension in profile.dimensions.values()),
    }


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
        """Take a slash from the URL's end. UsageError, without any secret in it, if it cannot be a server's base."""
        url = self.url.strip().rstrip("/")
        object.__setattr__(self, "url", url)
        plain = url.isprintable() and not set(" @?#") & set(url)
        with contextlib.suppress(ValueError):  # raised for a port that is none, and for other nonsense
            parts = urlsplit(url)
            if plain and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
                return
        raise UsageError(
            "The back end's URL is no plain address: give one like http://127.0.0.1:8000/v1, without credentials and "
            "query, as it is shown and stored. A key is read from the environment: VRT_LITE_API_KEY."
        )
