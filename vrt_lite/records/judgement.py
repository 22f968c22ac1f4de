"""The record of a comparison. Its fields are the keys of its JSON; the JSON Schema is generated from these types.

Also what is done with records: their clips are exchanged, those of both orders joined, and what they warn of computed
anew where it depends on order or verdict.

Video 1 is always the first clip given, video 2 the second, in both orders. 0 is a tie, null was not judged. What a
judge wrote (text, snapshot, answer, recommendation) speaks of the order in which the clips were shown.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Annotated, Any, Final, Literal, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from vrt_lite.errors import UsageError, Warned
from vrt_lite.judge import Outcome
from vrt_lite.machine import KvType
from vrt_lite.measures import MeasuredPair, find_contradictions
from vrt_lite.measures.flags import Flag, describe_flags
from vrt_lite.measures.measured_preference import MeasuredPreference
from vrt_lite.protocol.answer_form import ClipScore, compare_scores
from vrt_lite.protocol.messages import Choice, Dimension, Key
from vrt_lite.protocol.verdict import Confidence, SkippedOrder, Verdict, join_orders
from vrt_lite.reading import read_plain
from vrt_lite.settings import BothOrders, EffortName, Source

SCHEMA_VERSION: Final = 6

Video = Literal[1, 2]
ServerKind = Literal["vllm", "sglang", "llama", "openai"]
"""vLLM; SGLang; llama.cpp's own server or llama-cpp-python's; any other."""
FormName = Literal["lossless video file", "frames of a video", "single images"]
"""How a server got a video. "frames of a video" is in older records alone."""
_LARGEST = 2**53  # larger numbers are not exact in JSON
_ABSENT_IF_EMPTY = ("backend", "measures", "measured", "scope", "skipped_order", "scores")
Count = Annotated[int, Meta(ge=0, le=_LARGEST)]
Amount = Annotated[float, Meta(ge=0, le=_LARGEST)]
Size = tuple[Count, Count]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_BY_VIDEO = ("one_order", "dynamic_ranges_differ", "few_frames", "clip", "flagged", "measured_otherwise")
"""The kinds whose text depends on which clip is video 1, or on the verdict."""


class Wordings(TypedDict):
    """The dimensions as the judge read them."""

    TA: Dimension
    VQ: Dimension
    MQ: Dimension


@dataclass(frozen=True, slots=True)
class FileUsed:
    """A file of the model. Of a split text model: its first part, and the sha256 of all parts' sha256 in order."""

    file: str
    sha256: Sha256


@dataclass(frozen=True, slots=True)
class ModelUsed:
    """Which judge it was. `text` and `projector` are null for a judge on a server (`backend`)."""

    name: str
    text: FileUsed | None
    projector: FileUsed | None


@dataclass(frozen=True, slots=True)
class ServerUsed:
    """The server that judged: its address without credentials, its kind, and how it got a video.

    Null: the server was not asked.
    """

    url: Annotated[str, Meta(pattern="^https?://[^@?#]+$")]
    model: str | None
    kind: ServerKind | None
    form: FormName | None


@dataclass(frozen=True, slots=True)
class ProfileUsed:
    """The profile that the judge had, with the settings applied."""

    name: str
    sha256: Sha256


@dataclass(frozen=True, slots=True)
class JudgedClip:
    """One clip: the file, and how it was shown.

    `shown_size` is the (width, height) of the frames shown first, `tool_size` of those of a tool call. `flags` are the
    faults that are measured of the clip by itself.
    """

    path: str
    sha256: Sha256
    size_bytes: Count
    width: Count
    height: Count
    fps: Amount
    duration_seconds: Amount
    frames: Count
    variable_rate: bool
    dynamic_range: Literal["sdr", "pq", "hlg"]
    shown_size: Size
    warnings: tuple[str, ...]
    tool_size: Size | None = None
    flags: tuple[Flag, ...] = ()

    @property
    def name(self) -> str:
        """The last part of the path, whichever system wrote it; of numbered pictures the last two."""
        return "/".join(self.path.replace("\\", "/").rstrip("/").split("/")[-1 - ("%" in self.path) :]) or self.path


@dataclass(frozen=True, slots=True)
class EngineUsed:
    """How the engine ran, and whether `vrt-lite tune` chose it. Null: the engine chose.

    The bytes are the estimate of what judging takes at most, of memory and on each GPU.
    """

    threads: Annotated[int, Meta(ge=1)] | None
    repack: bool
    flash_attention: bool | None
    ubatch: Annotated[int, Meta(ge=1)]
    kv_type: KvType
    tuned: bool
    gpu_layers: Count | None
    projector_on_gpu: bool | None
    memory_bytes: Count
    gpu_memory_bytes: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class SettingsUsed:
    """The settings in force. Pixels are what was shown, also where memory limited them; `engine.kv_type` likewise.

    `kv_type` is what was requested. `ctx` is null if the conversation's bound decided. `engine` is null if no engine
    ran on this machine. `max_new_tokens` is the length of a reply, `confidence` the probability from which on the first
    order leaves no doubt (`both_orders` "auto"). `sources` says where the model and each setting come from that is not
    at its default: from the call itself (an option), a variable of the environment, the settings file, the effort, or
    `vrt-lite tune`.
    """

    preset: str | None
    dimensions: Wordings
    workspace: Count
    first_frames: Count
    window: Count
    rounds: Count
    max_pixels: Count
    ctx: int | None
    gpu_layers: int | None
    threads: int | None
    kv_type: KvType | None
    temperature: Amount
    seed: Count
    both_orders: BothOrders
    cache: bool
    tool_max_pixels: Count | None = None
    engine: EngineUsed | None = None
    effort: EffortName = "full"
    max_new_tokens: Count | None = None
    confidence: Amount | None = None
    sources: dict[str, Source] = field(default_factory=dict[str, Source])
    evidence: bool = False


@dataclass(frozen=True, slots=True)
class ShownFrame:
    """A frame that was shown: its place in the workspace, its place in the file, and its time."""

    video: Video
    index: Count
    source_frame: Count
    seconds: Amount


class Choices(TypedDict):
    """An answer as it was written; null in a dimension that was not judged."""

    TA: Choice | None
    VQ: Choice | None
    MQ: Choice | None
    OA: Choice


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What the judge recommended before its final answer."""

    choices: Choices
    confidence: Confidence | None


@dataclass(frozen=True, slots=True)
class JudgedRound:
    """One round: which frames were new, and what the judge wrote. `correction` is why the reply could not be used.

    `report` is what was measured, as the judge read it with these frames; null if it read none.
    """

    number: Count
    outcome: Outcome
    frames: tuple[ShownFrame, ...]
    text: str
    snapshot: str
    thought: str
    answer: Choices | None
    recommendation: Recommendation | None
    call: str | None
    correction: str | None
    stop: str
    tokens_in: Count
    tokens_prefilled: Count
    tokens_out: Count
    frames_encoded: Count
    report: str | None = None


@dataclass(frozen=True, slots=True)
class JudgedOrder:
    """One order of the pair. `first` is the video that the judge was shown as video 1."""

    first: Video
    verdict: Verdict
    rounds: Annotated[tuple[JudgedRound, ...], Meta(min_length=1)]


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds by stage. Loading and decoding run side by side: the stages may add up to more than the total.

    Of a batch for several conversations each counts an equal part. With a server "prefill" and "generate" are the
    seconds of requests, which overlap if both orders are judged at once.
    """

    load: Amount
    decode: Amount
    resize: Amount
    vision: Amount
    prefill: Amount
    generate: Amount
    other: Amount
    total: Amount


@dataclass(frozen=True, slots=True)
class Counters:
    """What was computed, and what was reused."""

    frames_encoded: Count
    frames_reused: Count
    tokens_prefilled: Count
    tokens_reused: Count
    tokens_generated: Count


@dataclass(frozen=True, slots=True)
class Judgement:
    """What `vrt-lite compare --json` prints.

    `orders` is empty if the two clips are one file: no model ran. `disagreements` are the keys on which the two orders
    choose differently; only opposite winners make a preference undecided. `warning_kinds` has the kind of each warning.
    `backend` is null if the judge ran here. `scope` says what the judge sees.
    `skipped_order` says why the second order was left out on purpose. `scores` are those of the two clips, from a judge
    that judges each by itself; then the one order has a round for each clip, its mirror is the other order, and one
    clip beside itself is that clip's own judgement. These and `measures` are absent if empty.
    """

    prompt: str | None
    model: ModelUsed
    profile: ProfileUsed
    inputs: tuple[JudgedClip, JudgedClip]
    settings: SettingsUsed
    verdict: Verdict
    orders: Annotated[tuple[JudgedOrder, ...], Meta(max_length=2)]
    disagreements: tuple[Key, ...]
    warnings: tuple[str, ...]
    timings: Timings
    counters: Counters
    warning_kinds: tuple[str, ...] = ()
    backend: ServerUsed | None = None
    measures: tuple[MeasuredPair, ...] | None = None
    measured: MeasuredPreference | None = None
    scope: str = ""
    skipped_order: SkippedOrder | None = None
    scores: tuple[dict[str, ClipScore], dict[str, ClipScore]] | None = None
    schema_version: Annotated[int, Meta(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)] = SCHEMA_VERSION

    def __post_init__(self) -> None:
        """Check that each warning has a kind."""
        if len(self.warning_kinds) != len(self.warnings):
            raise ValueError("each of `warnings` needs one of `warning_kinds`")

    @property
    def winner(self) -> int:
        """1 or 2 for the better video overall; 0 for a tie, and if `verdict.overall.undecided`."""
        return self.verdict.overall.winner

    @property
    def warned(self) -> tuple[Warned, ...]:
        """The warnings with their kinds."""
        return tuple(map(Warned, self.warning_kinds, self.warnings))

    def to_json(self) -> PlainData:
        """Plain data that follows the schema, and is read as the same judgement."""
        return {name: value for name, value in to_plain(self).items() if value or name not in _ABSENT_IF_EMPTY}

    @staticmethod
    def from_json(data: object) -> Judgement:
        """The judgement that `to_json` wrote, in this version. UsageError for anything else."""
        hint = "Give what `compare --json` printed, or a run's name."
        try:
            return read_plain(data, Judgement)
        except (msgspec.ValidationError, RecursionError, OverflowError, UnicodeError) as error:
            raise UsageError(f"This is no judgement of vrt-lite ({error}). {hint}") from error


PlainData = dict[str, Any]
"""What JSON has of a record or of an answer, by name."""


def to_plain(record: object) -> Any:
    """Return a record's dicts, lists, texts and numbers, as JSON has them; a path is a text."""
    return json.loads(json.dumps(msgspec.to_builtins(record, enc_hook=str)))  # msgspec's JSON has no lone surrogates


class Record(msgspec.Struct, frozen=True):
    """A record that is kept or shown; its fields are the keys of its JSON."""

    def to_json(self) -> PlainData:
        """Return plain data."""
        return to_plain(self)


_Sums = TypeVar("_Sums", Timings, Counters)


def exchange_clips(judgement: Judgement) -> Judgement:
    """The same judgement with the clips given the other way round."""
    exchanged = replace(
        judgement,
        inputs=(judgement.inputs[1], judgement.inputs[0]),
        verdict=judgement.verdict.mirrored(),
        orders=tuple(_exchange(order) for order in judgement.orders),
        measures=judgement.measures and tuple(pair.mirrored() for pair in judgement.measures),
        measured=judgement.measured and judgement.measured.mirrored(),
        scores=judgement.scores and (judgement.scores[1], judgement.scores[0]),
    )
    return recompute_warnings(exchanged)


def join_judgements(one: Judgement, other: Judgement) -> Judgement:
    """Two judgements of the same clips, given in the same order and shown in opposite orders, as one.

    Of clips that were judged by themselves each is the other's mirror.
    """
    if one.scores:
        return one
    both = join_orders(one.verdict, other.verdict)
    assert both, "each judgement has a verdict"
    joined = replace(
        _join_work(one, other),
        verdict=both.verdict,
        orders=tuple(sorted((*one.orders, *other.orders), key=lambda order: order.first)),
        disagreements=both.disagreements,
        measures=one.measures or other.measures,
        measured=one.measured or other.measured,
        scope=one.scope or other.scope,
        skipped_order=None,
    )
    return recompute_warnings(joined)


def join_clips(one: Judgement, two: Judgement) -> Judgement:
    """The judgement of a pair, from those of its clips: each is that of one clip beside itself."""
    assert one.scores
    assert two.scores
    scores, first, [other] = (one.scores[0], two.scores[0]), one.orders[0], two.orders[0].rounds
    second = replace(other, number=2, frames=tuple(replace(f, video=2) for f in other.frames))
    verdict = compare_scores(*scores)
    joined = replace(
        _join_work(one, two),
        inputs=(one.inputs[0], two.inputs[0]),
        verdict=verdict,
        orders=(JudgedOrder(1, verdict, (*first.rounds, second)),),
        scores=scores,
    )
    return recompute_warnings(joined)


def _join_work(one: Judgement, other: Judgement) -> Judgement:
    """The first judgement, with the warnings of both and with what both took."""
    joined = replace(one, timings=_add(one.timings, other.timings), counters=_add(one.counters, other.counters))
    return _set_warnings(joined, dict.fromkeys((*one.warned, *other.warned)))


def recompute_warnings(judgement: Judgement) -> Judgement:
    """Recompute the warnings that depend on the verdict or on which clip is video 1, after one of them has changed."""
    return state_warnings(judgement, judgement.warned)


def state_warnings(judgement: Judgement, warnings: Sequence[Warned]) -> Judgement:
    """The same judgement with these warnings, of which those that depend on verdict or clips are computed."""
    stated = [warning for warning in warnings if warning.kind not in _BY_VIDEO]
    if len(judgement.orders) == 1 and any(warning.kind == "one_order" for warning in warnings):
        stated.append(warn_of_one_order(judgement.orders[0].first))
    stated += warn_of_clips(judgement.inputs, _count_first(judgement))
    stated += warn_of_measures(judgement.verdict, judgement.measures, judgement.measured)
    return _set_warnings(judgement, stated)


def add_warning(judgement: Judgement, warning: Warned) -> Judgement:
    """The same judgement with one more warning."""
    return _set_warnings(judgement, (*judgement.warned, warning))


def _set_warnings(judgement: Judgement, warnings: Collection[Warned]) -> Judgement:
    kinds = tuple(warning.kind for warning in warnings)
    return replace(judgement, warnings=tuple(warning.text for warning in warnings), warning_kinds=kinds)


def warn_of_clips(clips: Sequence[JudgedClip], first_frames: int) -> Iterator[Warned]:
    """Warnings about the two clips; the judge sees `first_frames` frames of each at first."""
    if clips[0].dynamic_range != clips[1].dynamic_range:
        ranges = " and ".join(clip.dynamic_range.upper() for clip in clips)
        text = f"The clips differ in dynamic range ({ranges}): what looks better may be the range."
        yield Warned("dynamic_ranges_differ", text)
    for number, clip in enumerate(clips, start=1):
        if clip.frames < first_frames:
            yield Warned("few_frames", f"Video {number} has {clip.frames} frame(s): the last was repeated.")
        yield from (Warned("clip", f"Video {number}: {warning}") for warning in clip.warnings)
        if clip.flags:
            yield Warned("flagged", f"Video {number} is flagged: {describe_flags(clip.flags)}.")


def warn_of_measures(
    verdict: Verdict, measures: tuple[MeasuredPair, ...] | None, measured: MeasuredPreference | None
) -> Iterator[Warned]:
    """A warning for each dimension in which what was measured contradicts the verdict plainly."""
    if measured:
        lines = find_contradictions(verdict, measures or (), measured.plain_winners)
        yield from (Warned("measured_otherwise", line) for line in lines)


def warn_of_one_order(first: Video) -> Warned:
    """The warning that only the order with video `first` (1 or 2) shown first gave a verdict."""
    return Warned("one_order", f"With video {3 - first} shown first there was no verdict: only the other order counts.")


def _count_first(judgement: Judgement) -> int:
    """How many frames of a clip were shown first at least: a judge may be shown fewer of a short clip."""
    shown = [sum(f.video == v for f in order.rounds[0].frames) for order in judgement.orders for v in (1, 2)]
    return min((count for count in shown if count), default=judgement.settings.first_frames)


def _add(one: _Sums, other: _Sums) -> _Sums:
    return type(one)(*(a + b for a, b in zip(astuple(one), astuple(other), strict=True)))


def _exchange(order: JudgedOrder) -> JudgedOrder:
    rounds = tuple(
        replace(r, frames=tuple(replace(f, video=2 if f.video == 1 else 1) for f in r.frames)) for r in order.rounds
    )
    return JudgedOrder(2 if order.first == 1 else 1, order.verdict.mirrored(), rounds)
