"""The result of a comparison, as typed values, and its JSON form.

Knows the schema (`schema/judgement.schema.json`) and its version. In every field video 1 is the first clip given
and video 2 the second, whichever order the judge was shown them in. Refuses to know how it is printed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vrt_lite.judge import Pair, Round
from vrt_lite.protocol import tags
from vrt_lite.protocol.frames import FrameRef
from vrt_lite.protocol.verdict import Verdict
from vrt_lite.sampled import Workspace

if TYPE_CHECKING:
    from vrt_lite.profile import Profile
    from vrt_lite.video import ClipInfo

SCHEMA_VERSION = 2
STAGES = ("load", "decode", "resize", "vision", "prefill", "generate", "other")


@dataclass(frozen=True, slots=True)
class JudgedClip:
    """One input: what the file is, how it was sampled, and what to know about it."""

    info: ClipInfo
    workspace: Workspace
    warnings: tuple[str, ...]

    def shrunk_from(self, profile: Profile) -> bool:
        """Whether any of its frames is shown with fewer pixels than `profile` shows them with."""
        shown = ((False, self.workspace.size), (True, self.workspace.tool_size))
        return any(
            math.prod(size) < math.prod(profile.frame_size(self.info.width, self.info.height, called=called))
            for called, size in shown
        )


@dataclass(frozen=True, slots=True)
class JudgedOrder:
    """One order of the pair: the rounds in it, and its verdict in terms of the clips as given.

    `first` is the clip (0 or 1) that the judge was shown as video 1.
    """

    first: int
    rounds: tuple[Round, ...]
    verdict: Verdict

    def given(self, frame: FrameRef) -> FrameRef:
        """A frame of a round in terms of the clips as given."""
        return FrameRef(frame.clip ^ self.first, frame.index)


@dataclass(frozen=True, slots=True)
class BackendUsed:
    """The server that judged: its address without credentials, what kind it is, and how it got the videos.

    `kind` and `form` are "" if it was never asked.
    """

    url: str
    model: str
    kind: str
    form: str


@dataclass(frozen=True, slots=True)
class ModelUsed:
    """Which judge it was: its name, its files' names and digests, and its profile's.

    A judge on a server (`backend`) has no files here: their names and digests are "".
    """

    name: str
    text: str
    text_sha256: str
    projector: str
    projector_sha256: str
    profile: str
    profile_sha256: str
    backend: BackendUsed | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What `compare` returns. `orders` is empty when the two clips are one file: no model ran."""

    verdict: Verdict
    orders: tuple[JudgedOrder, ...]
    disagreements: tuple[str, ...]
    clips: tuple[JudgedClip, JudgedClip]
    prompt: str
    model: ModelUsed
    settings: Mapping[str, Any]
    warnings: tuple[str, ...]
    seconds: Mapping[str, float]
    total_seconds: float

    @property
    def winner(self) -> int:
        """1 or 2 for the better video overall; 0 for a tie, and if `verdict.overall.undecided`."""
        return self.verdict.overall.winner

    @property
    def counters(self) -> dict[str, int]:
        """What was computed and what was found computed already, over all rounds."""
        usages = [r.reply.usage for order in self.orders for r in order.rounds]
        names = ("frames_encoded", "frames_reused", "tokens_prefilled", "tokens_reused", "tokens_generated")
        return {name: sum(getattr(usage, name) for usage in usages) for name in names}

    def to_json(self) -> dict[str, Any]:
        """Plain data that follows the schema."""
        return {
            "schema_version": SCHEMA_VERSION,
            "prompt": self.prompt or None,
            **_model(self.model),
            "profile": {"name": self.model.profile, "sha256": self.model.profile_sha256},
            "inputs": [_clip(clip) for clip in self.clips],
            "settings": dict(self.settings),
            "verdict": _verdict(self.verdict),
            "orders": [
                {
                    "first": order.first + 1,
                    "verdict": _verdict(order.verdict),
                    "rounds": [round_json(r, order, self.clips) for r in order.rounds],
                }
                for order in self.orders
            ],
            "disagreements": list(self.disagreements),
            "warnings": list(self.warnings),
            "timings": {**self.seconds, "total": round(self.total_seconds, 6)},
            "counters": self.counters,
        }


def round_json(r: Round, order: JudgedOrder, clips: tuple[JudgedClip, JudgedClip]) -> dict[str, Any]:
    """One round as plain data: also a line of the trace."""
    notes = r.parsed.notes
    usage = r.reply.usage
    recommendation = None if isinstance(r.parsed, tags.Answer) else r.parsed.recommendation
    return {
        "number": r.number,
        "outcome": r.outcome,
        "frames": [_frame(order.given(frame), clips) for frame in r.shown],
        "text": r.reply.text,
        "snapshot": notes.snapshot,
        "thought": notes.thought,
        "answer": dict(r.parsed.marks.choices) if isinstance(r.parsed, tags.Answer) else None,
        "recommendation": recommendation
        and {"choices": dict(recommendation.choices), "confidence": recommendation.confidence},
        "call": r.parsed.payload if isinstance(r.parsed, tags.FrameCall) else None,
        "correction": r.correction or None,
        "stop": r.reply.stop,
        "tokens_in": usage.tokens_prefilled + usage.tokens_reused,
        "tokens_prefilled": usage.tokens_prefilled,
        "tokens_out": usage.tokens_generated,
        "frames_encoded": usage.frames_encoded,
    }


def pair_of(prompt: str, clips: tuple[JudgedClip, JudgedClip]) -> Pair:
    """The pair as the judge is told of it, in the order of the clips as given."""
    a, b = (clip.info for clip in clips)
    return Pair(prompt, (a.duration_seconds, b.duration_seconds), ((a.width, a.height), (b.width, b.height)))


def warnings_of(
    prompt: str, clips: tuple[JudgedClip, JudgedClip], profile: Profile, *, own: Profile, limited: bool
) -> Iterator[str]:
    """What the prompt, the clips and a profile that differs from the judge's own warn of.

    `limited` says that a user has limited the pixels.
    """
    if limited and any(clip.shrunk_from(own) for clip in clips):
        yield (
            f"The judge sees less detail than it was trained on: frames of at most {profile.max_pixels} pixels instead "
            f"of {own.max_pixels}, asked-for ones of {profile.tool_max_pixels} instead of {own.tool_max_pixels}."
        )
    if profile.first_frames != own.first_frames:
        yield "The model's prompt names another number of first frames than were shown (--first-frames)."
    if not prompt:
        yield "No prompt was given: alignment was judged without one."
    if clips[0].info.sha256 == clips[1].info.sha256:
        yield "Both clips are the same file: a tie, said without running the model."
    if clips[0].info.dynamic_range != clips[1].info.dynamic_range:
        ranges = " and ".join(clip.info.dynamic_range.upper() for clip in clips)
        yield f"The clips differ in dynamic range ({ranges}): what looks better may be the range."
    for number, clip in enumerate(clips, start=1):
        if clip.info.frames < profile.first_frames:
            yield f"Video {number} has {clip.info.frames} frame(s): the last was repeated."
        yield from (f"Video {number}: {warning}" for warning in clip.warnings)


def stages(
    orders: Sequence[JudgedOrder], *, load: float, decode: float, resize: float, waited: float, total: float
) -> dict[str, float]:
    """Seconds by stage. Loading and decoding run side by side, so the stages may add up to more than the total."""
    usages = [r.reply.usage for order in orders for r in order.rounds]
    engine = {
        "vision": sum(u.vision_seconds for u in usages),
        "prefill": sum(u.prefill_seconds for u in usages),
        "generate": sum(u.generate_seconds for u in usages),
    }
    other = max(total - waited - sum(engine.values()), 0.0)
    found = {"load": load, "decode": decode, "resize": resize, **engine, "other": other}
    return {name: round(seconds, 6) for name, seconds in found.items()}


def _model(model: ModelUsed) -> dict[str, Any]:
    """Files for a judge on this machine; for one on a server nulls, and the server."""
    if model.backend is None:
        text: dict[str, str] | None = {"file": model.text, "sha256": model.text_sha256}
        projector: dict[str, str] | None = {"file": model.projector, "sha256": model.projector_sha256}
        return {"model": {"name": model.name, "text": text, "projector": projector}}
    b = model.backend
    server = {"url": b.url, "model": b.model or None, "kind": b.kind or None, "form": b.form or None}
    return {"model": {"name": model.name, "text": None, "projector": None}, "backend": server}


def _frame(frame: FrameRef, clips: tuple[JudgedClip, JudgedClip]) -> dict[str, Any]:
    workspace = clips[frame.clip].workspace
    return {
        "video": frame.clip + 1,
        "index": frame.index,
        "source_frame": workspace.source[frame.index],
        "seconds": round(workspace.seconds[frame.index], 6),
    }


def _clip(clip: JudgedClip) -> dict[str, Any]:
    info = clip.info
    return {
        "path": str(info.path),
        "sha256": info.sha256,
        "size_bytes": info.size_bytes,
        "width": info.width,
        "height": info.height,
        "fps": round(info.fps, 6),
        "duration_seconds": round(info.duration_seconds, 6),
        "frames": info.frames,
        "variable_rate": info.variable_rate,
        "dynamic_range": info.dynamic_range,
        "shown_size": list(clip.workspace.size),
        "tool_size": list(clip.workspace.tool_size),
        "warnings": list(clip.warnings),
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    preferences = {key: p.to_json() for key, p in verdict.preferences.items()}
    return {
        "source": verdict.source,
        "confidence": verdict.confidence,
        "overall": preferences.pop(tags.OVERALL),
        "dimensions": preferences,
    }
