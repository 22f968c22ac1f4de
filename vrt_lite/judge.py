"""The loop: a pair of sampled clips in; rounds and a verdict out.

In each round the judge sees the transcript through its memory window and writes a reply: a final answer, a call for
frames, or neither. After a call or neither, the loop adds a message and goes on. The loop does no work of its own: it
yields what it wants answered and is sent the reply, by `follow` or by whoever has another way to get replies.

A judge whose profile has an `answer` gives one reply: about the pair, or about each clip by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from vrt_lite.errors import ContextFullError, NoVerdictError
from vrt_lite.interfaces import (
    Backend,
    Encoding,
    Event,
    FrameStore,
    Observe,
    OrderEnded,
    Prefill,
    RoundBegan,
    RoundEnded,
    Sampling,
    Wrote,
    ignore,
)
from vrt_lite.profile import Profile
from vrt_lite.protocol import tags
from vrt_lite.protocol.answer_form import (
    AnswerForm,
    ClipScore,
    Scores,
    compare_scores,
    find_pair_end,
    normalise,
    pair_odds,
    read_pair,
    read_scores,
)
from vrt_lite.protocol.messages import (
    Conversation,
    FrameRef,
    Generated,
    Image,
    Key,
    Message,
    Part,
    Reply,
    Text,
    Video,
    apply_window,
    fill,
    render_user,
    shown_first,
)
from vrt_lite.protocol.report import Measured, write_report
from vrt_lite.protocol.verdict import Verdict, from_marks, without_alignment
from vrt_lite.scheduler import InThread, Work, run_alone

Outcome = Literal["final", "tool", "correction"]

_LONGEST_LIST = 200
"""Characters of a model's own frame numbers that a refusal repeats to it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What the judge needs to know of two clips: one caption, and each clip's duration in seconds.

    `sizes` are each clip's (width, height) in pixels: a profile's `tool_text` may name the size of what is shown.
    What was `measured` is reported to a judge whose profile says so. `sources` has the frame of the clip at each place
    of its workspace. `same`: both are one clip.
    """

    caption: str
    durations: tuple[float, float]
    sizes: tuple[tuple[int, int], tuple[int, int]] | None = None
    measured: Measured | None = None
    sources: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    same: bool = False

    def swapped(self) -> Pair:
        """The same pair with the clips exchanged."""
        (a, b), sizes, sources = self.durations, self.sizes, self.sources
        return Pair(
            self.caption,
            (b, a),
            sizes and (sizes[1], sizes[0]),
            self.measured and self.measured.mirrored(),
            sources and (sources[1], sources[0]),
            self.same,
        )

    def drop_repeated(self, frames: tuple[FrameRef, ...]) -> tuple[FrameRef, ...]:
        """The frames without those that show a frame of the clip again: a short clip's workspace repeats some."""
        if not self.sources:
            return frames
        first: dict[tuple[int, int], FrameRef] = {}
        for frame in frames:
            first.setdefault((frame.clip, self.sources[frame.clip][frame.index]), frame)
        return tuple(first.values())

    def seconds_per_patch(self, clip: int, frames: tuple[FrameRef, ...], workspace: int) -> float:
        """Seconds between temporal patches of two frames each: 2 / sample_fps, the reference's clock.

        For frames spread over the whole clip, sample_fps = shown frames / total frames · fps. For frames of a tool
        call, the mean gap between them is used instead of the clip's length.
        """
        indices = [frame.index for frame in frames]
        span = max(indices) - min(indices)
        if span == workspace - 1 or len(indices) == 1:
            return 2 * self.durations[clip] / len(indices)
        return 2 * self.durations[clip] * span / (workspace * (len(indices) - 1))

    def seconds_of(self, frames: tuple[FrameRef, ...], workspace: int) -> tuple[float, ...]:
        """The second at which each frame of a clip is shown: its number in the clip by the clip's mean rate."""
        clip = frames[0].clip
        source = self.sources[clip] if self.sources else tuple(range(workspace))
        return tuple(source[frame.index] * self.durations[clip] / (source[-1] + 1) for frame in frames)


@dataclass(frozen=True, slots=True)
class Round:
    """One round: the frames newly shown, the reply, what was read from it, and the correction if it was bad.

    What it chose in the dimensions that are `not_judged` means nothing. `report` is what was measured, as the judge
    read it with these frames. `scores` are those of the clip, from a judge that judges it by itself.
    """

    number: int
    shown: tuple[FrameRef, ...]
    reply: Reply
    parsed: tags.Parsed
    correction: str = ""
    not_judged: tuple[Key, ...] = ()
    report: str = ""
    scores: Scores = field(default_factory=dict[str, ClipScore])

    @property
    def outcome(self) -> Outcome:
        """How it went: "final", "tool", or "correction"."""
        if self.correction:
            return "correction"
        return "final" if isinstance(self.parsed, tags.Answer) else "tool"

    @property
    def marks(self) -> tags.Marks | None:
        """The final answer, else the recommended one."""
        return self.parsed.marks if isinstance(self.parsed, tags.Answer) else self.parsed.recommendation


@dataclass(frozen=True, slots=True)
class Trial:
    """One judgement of one order of a pair."""

    rounds: tuple[Round, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Ask:
    """What a trial wants answered in round `number`: all that its judge may see. `shown` are the frames new in it."""

    number: int
    shown: tuple[FrameRef, ...]
    conversation: Conversation
    sampling: Sampling


Judging: TypeAlias = Generator[Ask | Round, Reply | None, Trial]
"""A trial in progress. An `Ask` is sent its reply, or thrown ContextFullError. A `Round` has ended: it is sent None."""
Answer: TypeAlias = Callable[[Ask, Observe], Work[Reply]]
"""Answers what a trial asks, and tells an observer of it."""


def judge(pair: Pair, profile: Profile, *, sampling: Sampling | None = None) -> Judging:
    """Judge a pair; NoVerdictError if no round gave a final or recommended answer.

    A caption that the profile does not understand is not shown, and alignment is not judged. Clips that are judged one
    by one have a round each, and the verdict follows from their scores.
    """
    if profile.answer and profile.pointwise:
        rounds: list[Round] = []
        for clip in (0,) if pair.same else (0, 1):
            rounds.append((yield from _judge_clip(clip, pair, profile, profile.answer, sampling)))
        return Trial(tuple(rounds), compare_scores(rounds[0].scores, rounds[-1].scores))
    if profile.answer:
        return (yield from _judge_once(pair, profile, profile.answer, sampling))
    understood = profile.understands(pair.caption)
    pair = pair if understood else replace(pair, caption="")
    sampling = replace(sampling or Sampling(profile.max_new_tokens), concluded=tags.concluded)
    transcript: Conversation = opening(pair, profile)
    rounds: list[Round] = []
    strikes = 0
    for number in range(1, profile.rounds + 1):
        shown = transcript[-1].frames
        visible = apply_window(transcript, window=profile.window, stand_in=profile.forgotten_text)
        try:
            written = yield Ask(number, shown, visible, sampling)
        except ContextFullError:
            if not _standing(rounds):
                raise
            break
        assert written
        reply = _cut(written)
        parsed = tags.parse(reply.text)
        following, correction = respond(parsed, pair, profile, before=transcript, last=number == profile.rounds - 1)
        unread: tuple[Key, ...] = () if understood else ("TA",)
        report = "" if rounds else report_of(pair, profile)
        rounds.append(Round(number, shown, reply, parsed, correction, unread, report))
        yield rounds[-1]
        if isinstance(parsed, tags.Answer):
            break
        strikes = strikes + 1 if isinstance(parsed, tags.Malformed) else 0
        if strikes > profile.retries:
            break
        transcript = (*transcript, Message("assistant", (Generated(reply.text, reply.tokens),)), following)
    verdict = _verdict(rounds, profile, unread=not understood)
    return Trial(tuple(rounds), verdict if understood else without_alignment(verdict))


def _judge_clip(
    clip: int, pair: Pair, profile: Profile, form: AnswerForm, sampling: Sampling | None
) -> Generator[Ask | Round, Reply | None, Round]:
    """Score one clip of a pair by itself."""
    sampling = replace(sampling or Sampling(profile.max_new_tokens), heads=form.tokens)
    conversation = opening(pair, profile, clips=(clip,))
    shown = conversation[-1].frames
    reply = yield Ask(clip + 1, shown, conversation, sampling)
    assert reply
    scores = normalise(reply.scores, form) if form.head else read_scores(reply.text, form)
    if isinstance(scores, tags.Malformed):
        yield Round(clip + 1, shown, reply, scores, f"it {scores.reason}")
        raise _no_answer(scores)
    scored = Round(clip + 1, shown, reply, tags.Answer(tags.Marks({}, {})), scores=scores)
    yield scored
    return scored


def _judge_once(pair: Pair, profile: Profile, form: AnswerForm, sampling: Sampling | None) -> Judging:
    """Judge a pair in one reply."""
    conversation = opening(pair, profile)
    shown = conversation[-1].frames

    def end(text: str) -> int | None:
        return find_pair_end(text, form)

    def concluded(text: str) -> bool:
        return end(text) is not None

    sampling = sampling or Sampling(profile.max_new_tokens)
    sampling = replace(sampling, concluded=concluded, openings=form.openings)
    reply = yield Ask(1, shown, conversation, sampling)
    assert reply
    reply = replace(reply, text=reply.text[: end(reply.text)])
    parsed = read_pair(reply.text, form)
    if isinstance(parsed, tags.Malformed):
        yield Round(1, shown, reply, parsed, f"it {parsed.reason}")
        raise _no_answer(parsed)
    judged = Round(1, shown, reply, parsed, report=report_of(pair, profile))
    yield judged
    odds = pair_odds(reply.text, parsed, reply.odds, form)
    return Trial((judged,), from_marks(parsed.marks, odds, "final", temperatures=profile.temperatures))


def _no_answer(reply: tags.Malformed) -> NoVerdictError:
    return NoVerdictError(f"No verdict: the reply {reply.reason}. Is the profile's [answer] that of this model?")


def judge_with(
    pair: Pair,
    profile: Profile,
    backend: Backend,
    frames: FrameStore,
    *,
    sampling: Sampling | None = None,
    order: int = 0,
    observe: Observe = ignore,
    on_round: Callable[[Round], None] = lambda _: None,
) -> Trial:
    """Judge a pair with the replies of a back end. Raises NoVerdictError."""
    answer = answer_with(backend, frames)
    trial = follow(pair, profile, answer, sampling=sampling, order=order, observe=observe, on_round=on_round)
    return run_alone(trial)


def answer_with(backend: Backend, frames: FrameStore) -> Answer:
    """Answer with the replies of a back end, which are waited for."""

    def answer(ask: Ask, observe: Observe) -> Work[Reply]:
        def reply(tell: Observe) -> Reply:
            return backend.reply(ask.conversation, frames, sampling=ask.sampling, observe=tell)

        return (yield InThread(reply, observe))

    return answer


def follow(
    pair: Pair,
    profile: Profile,
    answer: Answer,
    *,
    sampling: Sampling | None = None,
    order: int = 0,
    observe: Observe = ignore,
    on_round: Callable[[Round], None] = lambda _: None,
) -> Work[Trial]:
    """Judge a pair with the replies of `answer`. Raises NoVerdictError.

    `observe` is told of the rounds and of what `answer` tells, all with this `order`.
    """
    told = _with_order(observe, order)
    if not profile.understands(pair.caption):
        from vrt_lite.withholding import observe_without_alignment  # noqa: PLC0415 - most captions are understood

        told = observe_without_alignment(told)
    judging = judge(pair, profile, sampling=sampling)
    try:
        wanted = next(judging)
        while True:
            if isinstance(wanted, Round):
                on_round(wanted)
                told(RoundEnded(order, wanted.number, wanted.outcome))
                wanted = next(judging)
                continue
            told(RoundBegan(order, wanted.number, wanted.shown))
            try:
                reply = yield from answer(wanted, told)
            except ContextFullError as error:
                wanted = judging.throw(error)
            else:
                wanted = judging.send(reply)
    except StopIteration as end:
        observe(OrderEnded(order))
        return end.value
    except NoVerdictError:
        observe(OrderEnded(order))
        raise


def _with_order(observe: Observe, order: int) -> Observe:
    """Tell what is told of a reply with the order that it belongs to."""

    def tell(event: Event) -> None:
        observe(replace(event, order=order) if isinstance(event, Encoding | Prefill | Wrote) else event)

    return tell if order else observe


def _cut(reply: Reply) -> Reply:
    """The reply up to where it is over, so that the pieces in which it arrived make no difference.

    Its tokens stay what a cache holds: no message follows a reply that was cut.
    """
    end = tags.find_end(reply.text)
    if end is None:
        return reply
    return replace(reply, text=reply.text[:end], odds={at: odds for at, odds in reply.odds.items() if at < end})


def opening(pair: Pair, profile: Profile, *, clips: tuple[int, ...] = (0, 1)) -> Conversation:
    """The first two turns: the system prompt; the videos of the clips, the task, and what was measured."""
    videos = [part for clip in clips for part in _first_shown(clip, pair, profile)]
    task = render_user(
        profile.user_prompt,
        caption=pair.caption or profile.no_caption,
        dimensions=profile.dimensions,
        workspace=profile.workspace,
    )
    # Last, so that all before it is the same with another report. Plain text, as a caption is.
    report = report_of(pair, profile)
    measured = (Text(report, trusted=False),) if report else ()
    # Without a prompt VR-Thinker's turn is there, and empty. Other judges' templates have none.
    system = (Message("system", (Text(profile.system_prompt),)),) if profile.system_prompt or not profile.answer else ()
    return (*system, Message("user", (*videos, *task, *measured)))


def _first_shown(clip: int, pair: Pair, profile: Profile) -> tuple[Part, ...]:
    """What is shown of a clip first: a video, or single images."""
    if not profile.answer:
        frames = shown_first(profile.workspace, profile.first_frames, clip)
        return (_video(frames, pair, profile, profile.workspace),)
    count = len(pair.sources[clip]) if pair.sources else profile.first_frames
    frames = shown_first(count, count, clip)
    if profile.answer.show == "images":
        return tuple(Image(frame) for frame in frames)
    return (_video(frames, pair, profile, count),)


def report_of(pair: Pair, profile: Profile) -> str:
    """The report of what was measured of a pair; "" for a judge that reads none, or if nothing was measured."""
    if not (profile.evidence and profile.reports and pair.measured):
        return ""
    frames = profile.frames_per_call
    return write_report(pair.measured, profile.evidence, workspace=profile.workspace, most_frames=frames)


def respond(
    parsed: tags.Parsed, pair: Pair, profile: Profile, *, before: Conversation, last: bool
) -> tuple[Message, str]:
    """The next message to the judge, and the correction in it if the reply could not be used.

    `before` is the transcript up to the reply.
    """
    ending = (Text(profile.final_text),) if last and profile.final_text else ()
    template = profile.correction_text
    match parsed:
        case tags.FrameCall(payload):
            call = tags.read_call(payload, workspace=profile.workspace, limit=profile.frames_per_call)
            if isinstance(call, tags.Granted):
                return _tool_message(call.frames, pair, profile, before=before, ending=ending), ""
            template, reason = profile.error_text, _word_refusal(call, profile)
        case tags.Malformed(reason):
            reason = f"it {reason}"
        case tags.Answer():
            reason = ""
    text = fill(template, reason=reason, limit=profile.frames_per_call, n=2 * profile.workspace)
    separated = tuple(Text(f"\n{part.text}") for part in ending)
    return Message("user", (Text(text), *separated)), reason


def _word_refusal(refused: tags.Refused, profile: Profile) -> str:
    """Why a call is refused, in the profile's words if it has any for this."""
    words = profile.refusals.get(refused.kind or "", f"the tool call {refused.reason}")
    frames = ", ".join(map(str, refused.frames))
    shown = frames if len(frames) <= _LONGEST_LIST else f"{frames[:_LONGEST_LIST]}…"
    most, n = profile.frames_per_call, 2 * profile.workspace
    return fill(words, count=len(refused.frames), limit=most, n=n, frames=f"[{shown}]")


def _tool_message(
    frames: tuple[FrameRef, ...], pair: Pair, profile: Profile, *, before: Conversation, ending: tuple[Text, ...]
) -> Message:
    """The message with the frames of a call, in the profile's form and wording."""
    called = tuple(
        replace(frame, called=True) for frame in (pair.drop_repeated(frames) if profile.distinct_frames else frames)
    )
    shown: tuple[Part, ...] = tuple(Image(frame) for frame in called)
    if profile.tool_form == "video":
        clips = [tuple(frame for frame in called if frame.clip == clip) for clip in (0, 1)]
        shown = tuple(_video(clip, pair, profile, profile.workspace) for clip in clips if clip)
    first = sum(isinstance(part, Video | Image) for message in before for part in message.parts)
    places: dict[str, int] = {"first": first, "last": first + len(shown) - 1}
    if pair.sizes:
        size = profile.frame_size(*pair.sizes[called[0].clip], called=True)
        places |= dict(zip(("width", "height"), size, strict=True))
    words = fill(profile.tool_text, **places)
    return Message("user", (*((Text(words),) if words else ()), *shown, *ending), tool_outcome=True)


def _video(frames: tuple[FrameRef, ...], pair: Pair, profile: Profile, workspace: int) -> Video:
    times = pair.seconds_of(frames, workspace) if profile.clock.rule == "text" else ()
    return Video(frames, pair.seconds_per_patch(frames[0].clip, frames, workspace), times)


def _standing(rounds: list[Round]) -> tuple[Round, tags.Marks] | None:
    """The last round that recommends an answer, and the answer."""
    for past in reversed(rounds):
        if past.marks:
            return past, past.marks
    return None


def _verdict(rounds: list[Round], profile: Profile, *, unread: bool) -> Verdict:
    standing = _standing(rounds)
    if standing is None:
        last = rounds[-1].parsed
        reason = f" The last reply {last.reason}." if isinstance(last, tags.Malformed) else ""
        raise NoVerdictError(
            f"No verdict: {len(rounds)} round(s) gave neither a final nor a recommended answer.{reason} "
            "Use a full model (--model) or more --rounds."
        )
    past, marks = standing
    source = "final" if isinstance(past.parsed, tags.Answer) else "recommended"
    return from_marks(marks, past.reply.odds, source, temperatures=profile.temperatures, unread=unread)
