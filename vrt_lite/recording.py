"""Makes the record of a comparison from what the clips, the loop and the model gave."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from vrt_lite.errors import Warned
from vrt_lite.interfaces import Stopwatch
from vrt_lite.judge import Pair, Round, Trial
from vrt_lite.measures import MeasuredPair
from vrt_lite.measures.flags import Flag, find_flags
from vrt_lite.measures.measured_preference import MeasuredPreference
from vrt_lite.modes import Mode
from vrt_lite.pair_frames import Workspace
from vrt_lite.profile import Profile
from vrt_lite.protocol import tags
from vrt_lite.protocol.messages import KEYS, FrameRef, Usage
from vrt_lite.protocol.report import Measured
from vrt_lite.protocol.verdict import (
    TIE,
    BothOrders,
    Confidence,
    Verdict,
    decide_by_measures,
    join_orders,
    make_verdict,
    withdraw_contradicted,
)
from vrt_lite.records.judgement import (
    Choices,
    Counters,
    EngineUsed,
    JudgedClip,
    JudgedOrder,
    JudgedRound,
    Judgement,
    ProfileUsed,
    Recommendation,
    SettingsUsed,
    ShownFrame,
    Timings,
    Video,
    Wordings,
    state_warnings,
    warn_of_one_order,
)
from vrt_lite.settings import Settings

if TYPE_CHECKING:
    from vrt_lite.video import Clip, ClipInfo


@dataclass(frozen=True, slots=True)
class ShownPair:
    """Two clips as a judge is shown them: what the files are, how they are sampled, and the prompt.

    What was `measured` is for a judge that reads a report of it.
    """

    prompt: str
    clips: tuple[ClipInfo, ClipInfo]
    workspaces: tuple[Workspace, Workspace]
    measured: Measured | None = None

    def for_judge(self) -> Pair:
        """The pair for the loop, in the order given."""
        a, b = self.clips
        return Pair(
            self.prompt,
            (a.duration_seconds, b.duration_seconds),
            ((a.width, a.height), (b.width, b.height)),
            self.measured,
            (self.workspaces[0].source, self.workspaces[1].source),
            a.sha256 == b.sha256,
        )


def make_judgement(
    pair: ShownPair,
    clips: tuple[Clip, Clip],
    trials: Mapping[int, Trial],
    *,
    mode: Mode,
    settings: Settings,
    stopwatch: Stopwatch,
    measures: tuple[MeasuredPair, ...] | None = None,
    measured: MeasuredPreference | None = None,
) -> Judgement:
    """The record of a comparison. `trials` are keyed by the clip (0 or 1) shown as video 1; empty for one file twice.

    Call it last: decoding may add warnings to the clips.
    """
    used = mode.describe()
    a, b = (
        record_clip(clip, space, find_flags({of.name: of.values[number] for of in measures or ()}))
        for number, (clip, space) in enumerate(zip(clips, pair.workspaces, strict=True))
    )
    rounds = [trial.rounds for trial in trials.values()]
    usages = [[r.reply.usage for r in of] for of in rounds]
    orders = tuple(record_order(first, trial, pair, mode.profile, measured) for first, trial in trials.items())
    pointwise = mode.profile.pointwise  # then the mirror is the other order
    skipped = settings.skip_second_order(trials[0].verdict) if list(trials) == [0] and not pointwise else None
    warnings = [*used.warnings, *warn_of_default_profile(mode, settings, used.model.name)] if orders else []
    if len(orders) == 1 and settings.both_orders and not skipped and not pointwise:
        warnings.append(warn_of_one_order(orders[0].first))
    chosen = (settings.max_pixels, settings.tool_max_pixels)
    limited = bool(orders) and (settings.effort != "full" or chosen != (None, None))
    warnings += warn_of_prompt(pair.prompt, (a, b), mode.profile, mode.own, limited=limited)
    one, other = (*(order.verdict for order in orders), None, None)[:2]
    joined = join_orders(one, other) or BothOrders(_tie_of(mode.profile, pair.prompt))
    made = Judgement(
        prompt=pair.prompt or None,
        model=used.model,
        profile=ProfileUsed(mode.profile.name, mode.profile.sha256),
        inputs=(a, b),
        settings=record_settings(settings, mode.profile, used.engine),
        verdict=joined.verdict,
        orders=orders,
        disagreements=joined.disagreements,
        warnings=(),
        timings=_read_timings(stopwatch, usages, clips),
        counters=Counters(**{f.name: sum(getattr(of, f.name) for of in chain(*usages)) for f in fields(Counters)}),
        backend=used.backend,
        measures=measures,
        measured=measured,
        scope=mode.profile.scope if orders else "",
        skipped_order=skipped,
        scores=(dict(rounds[0][0].scores), dict(rounds[0][-1].scores)) if pointwise and orders else None,
    )
    return state_warnings(made, warnings)


def warn_of_default_profile(mode: Mode, settings: Settings, model: str) -> Iterator[Warned]:
    """Warn of a model that has no profile of its own, and so is judged with VR-Thinker's."""
    if not (mode.files.has_profile if mode.files else "model" in settings.sources):
        text = f"{model} has no profile.toml, so it was asked as VR-Thinker is: its prompts, frames and rounds."
        yield Warned("default_profile", text)


def _tie_of(profile: Profile, prompt: str) -> Verdict:
    """The verdict about one file given twice, in what the judge answers."""
    unread = () if profile.understands(prompt) else ("TA",)
    return make_verdict({key: TIE.preferences[key] for key in profile.keys if key not in unread}, TIE.source)


def warn_of_prompt(
    prompt: str, clips: Sequence[JudgedClip], profile: Profile, own: Profile, *, limited: bool
) -> Iterator[Warned]:
    """Warnings about the prompt, and about a profile that differs from `own`, the checkpoint's.

    `limited` tells whether the user has limited the pixels.
    """
    if limited and any(_shrunk(clip, own) for clip in clips):
        # Nothing is said of its training: of asked-for frames no range is published.
        limits = (
            ("frames", profile.max_pixels, own.max_pixels),
            ("asked-for frames", profile.tool_max_pixels, own.tool_max_pixels),
        )
        fewer = ", ".join(
            f"{what} of at most {now} pixels instead of {most}" for what, now, most in limits if now < most
        )
        yield Warned("fewer_pixels", f"The judge sees less detail than its profile gives it: {fewer}.")
    if profile.first_frames != own.first_frames:
        text = "The model's prompt names another number of first frames than were shown (--first-frames)."
        yield Warned("other_first_frames", text)
    if not profile.understands(prompt):
        why = "The judge does not understand this prompt" if prompt else "No prompt was given"
        yield Warned("alignment_not_judged" if prompt else "no_prompt", f"{why}: prompt alignment (TA) is not judged.")
    elif not prompt:
        what = "alignment was" if "TA" in profile.keys else "the clips were"
        yield Warned("no_prompt", f"No prompt was given: {what} judged without one.")
    if clips[0].sha256 == clips[1].sha256 and not profile.pointwise:
        yield Warned("same_file", "Both clips are the same file: a tie, said without running the model.")


def record_clip(clip: Clip, workspace: Workspace, flags: tuple[Flag, ...]) -> JudgedClip:
    """One clip, with all warnings that decoding gave, and the `flags` that were measured."""
    info = clip.info
    return JudgedClip(
        path=str(info.path),
        sha256=info.sha256,
        size_bytes=info.size_bytes,
        width=info.width,
        height=info.height,
        fps=round(info.fps, 6),
        duration_seconds=round(info.duration_seconds, 6),
        frames=info.frames,
        variable_rate=info.variable_rate,
        dynamic_range=info.dynamic_range,
        shown_size=workspace.size,
        tool_size=workspace.tool_size,
        warnings=clip.warnings,
        flags=flags,
    )


def record_order(
    first: int, trial: Trial, pair: ShownPair, profile: Profile, measured: MeasuredPreference | None = None
) -> JudgedOrder:
    """One order; `first` is the clip (0 or 1) shown as video 1. Its verdict is about the clips as given.

    What was `measured` decides, or takes a winner back, where the profile says so.
    """
    rounds = tuple(record_round(r, first, pair) for r in trial.rounds)
    verdict = trial.verdict.mirrored() if first else trial.verdict
    if measured:
        verdict = decide_by_measures(verdict, measured.preferences, profile.decides)
    if measured and profile.trusts_measures:
        verdict = withdraw_contradicted(verdict, measured.plain_winners)
    return JudgedOrder(_video(first), verdict, rounds)


def record_round(r: Round, first: int, pair: ShownPair) -> JudgedRound:
    """One round; also a line of the trace."""
    recommendation = None if isinstance(r.parsed, tags.Answer) else r.parsed.recommendation
    usage = r.reply.usage
    return JudgedRound(
        number=r.number,
        outcome=r.outcome,
        frames=tuple(_record_frame(frame, first, pair) for frame in r.shown),
        text=r.reply.text,
        snapshot=r.parsed.notes.snapshot,
        thought=r.parsed.notes.thought,
        answer=_choices(r, r.parsed.marks) if isinstance(r.parsed, tags.Answer) and not r.scores else None,
        recommendation=recommendation
        and Recommendation(_choices(r, recommendation), cast("Confidence | None", recommendation.confidence)),
        call=r.parsed.payload if isinstance(r.parsed, tags.FrameCall) else None,
        correction=r.correction or None,
        stop=r.reply.stop,
        tokens_in=usage.tokens_prefilled + usage.tokens_reused,
        tokens_prefilled=usage.tokens_prefilled,
        tokens_out=usage.tokens_generated,
        frames_encoded=usage.frames_encoded,
        report=r.report or None,
    )


def record_settings(settings: Settings, profile: Profile, engine: EngineUsed | None) -> SettingsUsed:
    """Every setting, with the profile's value where the profile decides, and where it comes from."""
    words = profile.dimensions
    dimensions: Wordings = {"TA": words["TA"], "VQ": words["VQ"], "MQ": words["MQ"]}
    values: dict[str, Any] = {
        f.name: getattr(settings, f.name) for f in fields(settings) if f.name not in ("cache_mb", "profile")
    }
    in_profile = ("workspace", "first_frames", "window", "rounds", "max_pixels", "tool_max_pixels", "max_new_tokens")
    values |= {name: getattr(profile, name) for name in in_profile}
    sources = settings.find_sources(tuned=bool(engine and engine.tuned))
    values |= {"dimensions": dimensions, "sources": sources}
    return SettingsUsed(**values, engine=engine)


def _read_timings(watch: Stopwatch, orders: Sequence[Sequence[Usage]], clips: tuple[Clip, Clip]) -> Timings:
    """Seconds by stage; `orders` has what the replies of each order used."""
    total = watch.total
    seconds = {
        "load": watch.seconds["load"],
        "decode": sum(clip.decode_seconds for clip in clips),
        "resize": sum(clip.resize_seconds for clip in clips),
        **watch.divide(total, orders),
        "total": total,
    }
    return Timings(**{stage: round(value, 6) for stage, value in seconds.items()})


def _shrunk(clip: JudgedClip, profile: Profile) -> bool:
    """Whether any frame of a clip is shown with fewer pixels than `profile` shows it with."""
    shown = ((False, clip.shown_size), (True, clip.tool_size or clip.shown_size))
    return any(
        math.prod(size) < math.prod(profile.frame_size(clip.width, clip.height, called=called))
        for called, size in shown
    )


def _choices(r: Round, marks: tags.Marks) -> Choices:
    choices = {**dict.fromkeys(KEYS), **marks.choices, **dict.fromkeys(r.not_judged)}
    return cast("Choices", {key: choices[key] for key in KEYS})


def _record_frame(frame: FrameRef, first: int, pair: ShownPair) -> ShownFrame:
    clip = frame.clip ^ first
    space = pair.workspaces[clip]
    return ShownFrame(_video(clip), frame.index, space.source[frame.index], round(space.seconds[frame.index], 6))


def _video(clip: int) -> Video:
    return 2 if clip else 1
