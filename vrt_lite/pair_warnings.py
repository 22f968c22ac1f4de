"""Warnings about a pair: its prompt, its clips, and measures that contradict the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vrt_lite.errors import Warned
from vrt_lite.judgement import JudgedClip, Judgement, Video
from vrt_lite.measures import MeasuredPair, find_contradictions
from vrt_lite.profile import Profile
from vrt_lite.protocol.verdict import Verdict

_BY_VIDEO = ("one_order", "dynamic_ranges_differ", "few_frames", "clip", "measured_otherwise")
"""The kinds whose text depends on which clip is video 1, or on the verdict."""


def warn_of_prompt(
    prompt: str, clips: Sequence[JudgedClip], profile: Profile, own: Profile, *, limited: bool
) -> Iterator[Warned]:
    """Warnings about the prompt, and about a profile that differs from `own`, the checkpoint's.

    `limited` tells whether the user has limited the pixels.
    """
    if limited and any(_shrunk(clip, own) for clip in clips):
        yield Warned(
            "fewer_pixels",
            f"The judge sees less detail than it was trained on: frames of at most {profile.max_pixels} pixels instead "
            f"of {own.max_pixels}, asked-for ones of {profile.tool_max_pixels} instead of {own.tool_max_pixels}.",
        )
    if profile.first_frames != own.first_frames:
        text = "The model's prompt names another number of first frames than were shown (--first-frames)."
        yield Warned("other_first_frames", text)
    if not profile.understands(prompt):
        why = "The judge does not understand this prompt" if prompt else "No prompt was given"
        yield Warned("alignment_not_judged" if prompt else "no_prompt", f"{why}: alignment (TA) is not judged.")
    elif not prompt:
        yield Warned("no_prompt", "No prompt was given: alignment was judged without one.")
    if clips[0].sha256 == clips[1].sha256:
        yield Warned("same_file", "Both clips are the same file: a tie, said without running the model.")


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


def warn_of_measures(verdict: Verdict, measures: tuple[MeasuredPair, ...] | None) -> Iterator[Warned]:
    """A warning for each dimension in which the measures contradict the verdict plainly."""
    yield from (Warned("measured_otherwise", line) for line in find_contradictions(verdict, measures or ()))


def warn_of_one_order(first: Video) -> Warned:
    """The warning that only the order with video `first` (1 or 2) shown first gave a verdict."""
    return Warned("one_order", f"With video {3 - first} shown first there was no verdict: only the other order counts.")


def renew_warnings(judgement: Judgement) -> Judgement:
    """Renew the warnings that depend on the verdict, or on which clip is video 1, after one of these has changed."""
    stated = [Warned(*pair) for pair in zip(judgement.warning_kinds, judgement.warnings, strict=True)]
    warnings = [warning for warning in stated if warning.kind not in _BY_VIDEO]
    if "one_order" in judgement.warning_kinds and len(judgement.orders) == 1:
        warnings.append(warn_of_one_order(judgement.orders[0].first))
    warnings += warn_of_clips(judgement.inputs, judgement.settings.first_frames)
    warnings += warn_of_measures(judgement.verdict, judgement.measures)
    return replace(
        judgement,
        warnings=tuple(warning.text for warning in warnings),
        warning_kinds=tuple(warning.kind for warning in warnings),
    )


def _shrunk(clip: JudgedClip, profile: Profile) -> bool:
    """Whether any frame of a clip is shown with fewer pixels than `profile` shows it with."""
    shown = ((False, clip.shown_size), (True, clip.tool_size or clip.shown_size))
    return any(
        math.prod(size) < math.prod(profile.frame_size(clip.width, clip.height, called=called))
        for called, size in shown
    )
