"""What a user may set about a judgement, and where the server of a remote judge is. Imports no engine and no HTTP."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypedDict
from urllib.parse import urlsplit

from vrt_lite.errors import UsageError
from vrt_lite.machine import KvType
from vrt_lite.profile import Profile, check, preset
from vrt_lite.protocol.messages import DIMENSIONS, Dimension, show_key
from vrt_lite.protocol.report import ReportWords
from vrt_lite.protocol.verdict import SkippedOrder, Verdict, skip_second_order

_COUNTS = ("workspace", "first_frames", "window", "rounds")
_IN_PROFILE = (*_COUNTS, "max_pixels", "tool_max_pixels")
_NO_VERDICT = (
    "profile",
    *("both_orders", "confidence", "cache", "cache_mb", "gpu_layers", "threads", "sources"),
    *("effort", "preset", "dimensions", "evidence", *_IN_PROFILE),
)
"""Settings that change no verdict of one order, or change it only through the profile."""
DECIDED_BY_EFFORT: Final = ("max_pixels", "tool_max_pixels", "rounds", "max_new_tokens")
"""What an effort decides, other than "full", where it is not set."""
_OUTDONE_BY_EFFORT: Final = ("max_pixels", "tool_max_pixels", "first_frames", "rounds")
"""Settings that an effort sets back to what it decides if they come from further away than itself."""
LOCAL_SETTINGS: Final = ("ctx", "gpu_layers", "kv_type", "threads")
"""Settings that only an engine on this machine can use."""
MOST_JOBS: Final = 256
"""The most pairs that are sent to a server at once: as many sequences as vLLM runs at once by default. More would wait
there, while each takes a thread, a connection and two open clips here."""
ServerKind = Literal["vllm", "sglang", "llama", "openai"]
"""vLLM; SGLang; llama.cpp's own server or llama-cpp-python's; any other."""
FormName = Literal["lossless video file", "frames of a video", "single images"]
"""How a server got a video. "frames of a video" is in older records alone."""
RemoteKind = Literal["auto", "vllm", "sglang", "llama"]
EffortName = Literal["quick", "balanced", "full"]
BothOrders = bool | Literal["auto"]
Source = Literal["option", "environment", "file", "effort", "tuned"]
"""Where a setting comes from: the call itself, a variable, the settings file, an effort, or `vrt-lite tune`."""
_ORDER: Final = ("option", "environment", "file", None)
"""Where a value comes from, the strongest first; None is a default."""


@dataclass(frozen=True, slots=True)
class Limits:
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
        p = profile
        pixels = self._share_of(p)
        return replace(
            p,
            max_pixels=pixels,
            tool_max_pixels=max(min(p.tool_max_pixels, pixels), p.tool_min_pixels),
            rounds=min(p.rounds, self.rounds),
            max_new_tokens=min(p.max_new_tokens, self.reply_tokens),
        )

    def _share_of(self, profile: Profile) -> int:
        most, token = profile.max_pixels, profile.pixels_per_token
        share = most * self.pixel_thirds // 3 // token * token
        return share if share >= profile.min_pixels else most


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


@dataclass(frozen=True, slots=True)
class Wording:
    """A dimension as the judge read it."""

    name: str
    explain: str


class Wordings(TypedDict):
    """The wording of each dimension."""

    TA: Wording
    VQ: Wording
    MQ: Wording


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
    def limits_pixels(self) -> bool:
        """Whether a limit on pixels was set, other than by an effort."""
        return self.max_pixels is not None or self.tool_max_pixels is not None

    def skip_second_order(self, first: Verdict | None) -> SkippedOrder | None:
        """Why the second order is left out on purpose after the first gave this verdict, or none; None if it is not."""
        return skip_second_order(first, self.confidence) if first and self.both_orders == "auto" else None

    def find_sources(self, *, tuned: bool) -> dict[str, Source]:
        """Where each setting comes from that is not at its default. What no source is known of was given with the call.

        `tuned` tells whether the engine ran as tuned.
        """
        names = [f.name for f in fields(self) if f.name not in ("sources", "cache_mb", "profile")]
        given = [name for name in names if getattr(self, name) != getattr(_DEFAULTS, name)]
        decided = () if self.effort == "full" else DECIDED_BY_EFFORT
        sources: dict[str, Source] = dict.fromkeys(decided, "effort")
        if tuned:
            sources["threads"] = "tuned"
        sources.update(dict.fromkeys(given, "option"))
        return {**sources, **self.sources}

    def applied_to(self, profile: Profile) -> Profile:
        """The profile with these settings in it; UsageError for a value that cannot be used."""
        if self.effort not in EFFORTS:
            raise UsageError(f"Effort {self.effort!r} is unknown; choose one of {', '.join(EFFORTS)}.")
        if self.both_orders not in (False, True, "auto"):
            raise UsageError(f"both_orders={self.both_orders!r} is not possible; give True, False or 'auto'.")
        if not 0.5 < self.confidence < 1:
            raise UsageError(
                f"confidence={self.confidence!r} is not possible; give a probability above 0.5 and below 1."
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
        dimensions = preset(self.preset) if self.preset else profile.dimensions
        if self.evidence and profile.evidence and not profile.evidence.allowed:
            raise UsageError(f"{profile.name} cannot read a report of what was measured: leave --evidence out.")
        evidence = profile.evidence or (ReportWords() if self.evidence else None)
        own = {key: show_key(key, dimension) for key, dimension in self.dimensions.items()}
        try:
            return check(replace(profile, **given, dimensions={**dimensions, **own}, evidence=evidence))
        except ValueError as error:
            stored = [
                name.replace("_", "-") for name, source in self.sources.items() if source in ("environment", "file")
            ]
            hint = f" Not given with this command: {', '.join(stored)}. See: vrt-lite config" if stored else ""
            raise UsageError(f"These settings cannot be used: {error}{hint}") from error


_DEFAULTS: Final = Settings()


def choose_settings(values: Mapping[str, Any], sources: Mapping[str, Source | None], *, remote: bool) -> Settings:
    """The settings of a command, from the values of its options and where each comes from; None is a default.

    An effort decides what was set further from the command than itself: with the option `--effort full` the model's own
    holds, whatever a variable or the settings file says. For a judge on a server (`remote`), what is set for all
    commands about the engine here does not hold.
    """
    effort = _ORDER.index(sources.get("effort"))
    dropped = [name for name in _OUTDONE_BY_EFFORT if _ORDER.index(sources.get(name)) > effort]
    if remote:
        dropped += [name for name in LOCAL_SETTINGS if sources.get(name) != "option"]
    left = {name: source for name, source in sources.items() if source and name not in dropped}
    used: dict[str, Any] = {**values, **dict.fromkeys(dropped), "sources": left}
    return Settings(**used)


def read_dimension(text: str) -> tuple[str, Dimension]:
    """The key and the wording in KEY=NAME:TEXT. Raises UsageError."""
    key, equals, words = text.partition("=")
    name, colon, explain = words.partition(":")
    key = key.strip().upper()
    if not (equals and colon and name.strip() and explain.strip()) or key not in DIMENSIONS:
        raise UsageError(
            f"--dimension {text!r} is not KEY=NAME:TEXT with KEY one of {', '.join(DIMENSIONS)}; "
            'for example --dimension "VQ=Sharpness: how crisp the picture is".'
        )
    return key, Dimension(name.strip(), explain.strip())


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
