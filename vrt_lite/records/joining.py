"""Exchanges the clips of a judgement, joins those of both orders, and warns of what depends on order or verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple, replace
from typing import TypeVar

from vrt_lite.errors import Warned
from vrt_lite.measures import MeasuredPair, find_contradictions
from vrt_lite.measures.flags import describe_flags
from vrt_lite.measures.measured_preference import MeasuredPreference
from vrt_lite.protocol.answer_form import compare_scores
from vrt_lite.protocol.verdict import Verdict, join_orders
from vrt_lite.records.judgement import Counters, JudgedClip, JudgedOrder, Judgement, Timings, Video

_Sums = TypeVar("_Sums", Timings, Counters)
_BY_VIDEO = ("one_order", "dynamic_ranges_differ", "few_frames", "clip", "flagged", "measured_otherwise")
"""The kinds whose text depends on which clip is video 1, or on the verdict."""


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
