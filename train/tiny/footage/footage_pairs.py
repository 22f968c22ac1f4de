"""Pairs of real footage: a span of a real clip beside the same span with a fault, or beside another cut of the clip.

Faults, their levels and the labels come from `train.tiny.world`. `packages` fetches the clips.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from train.tiny.footage.footage_frames import Span
from train.tiny.footage.footage_spans import cut_differently, draw_span, draw_variation, join_some, shows_when_called
from train.tiny.footage.packages import Split
from train.tiny.footage.survey import SurveyedClip, load_survey
from train.tiny.world import captions, draw_faults
from train.tiny.world.defects import MOTION, VISUAL
from train.tiny.world.labels import labels, labels_of, labels_of_first_frames, points
from train.tiny.world.values import TICKS, Defect, Scene

TIES = 0.12
"""Share of the pairs that are two cuts of one clip without a fault."""
_TRAINING_TIES = 0.25
"""TIES in training: two cuts have differences that are no faults, and a judge takes them for faults otherwise."""
_TWINS = 0.65
"""Share of the faulty pairs in training that show the same frames. The others teach to look at each clip alone."""


def load_clips(folder: Path, split: Split) -> tuple[SurveyedClip, ...]:
    """Return the surveyed clips of a split that are long enough. Raises UsageError without any."""
    return tuple(clip for clip in load_survey(folder, split) if clip.frames >= TICKS)


def draw(
    clips: Sequence[SurveyedClip], seed: int, *, hidden: float = 0.35, varied: bool = False
) -> tuple[Scene, tuple[Span, Span]]:
    """Draw the pair of a seed. Its pictures cannot decide its caption.

    If `varied`, the clips are shown in a variation, some pairs continue with another clip after a cut, more pairs have
    no fault, and only a share _TWINS of the others show the same frames; the rest are two cuts of one clip.

    All random numbers are NumPy's.
    """
    rng = np.random.default_rng((seed, 7))
    span = draw_span(rng, clips)
    if varied:
        span = join_some(np.random.default_rng((seed, 12)), span, clips)
    kind, ties = rng.random(), _TRAINING_TIES if varied else TIES
    twins = not varied or bool(rng.random() < _TWINS)
    if kind < ties:
        spans = (span, cut_differently(rng, span))
    else:
        share = (kind - ties) / (1 - ties)
        visual, moving = not 0.47 <= share < 0.88, share >= 0.47
        spans = _draw_faulty_spans(rng, span, visual=visual, moving=moving, hidden=hidden, twins=twins)
    scene = Scene(seed, captions.draw_unrelated_caption(rng), None, (spans[0].spec, spans[1].spec), False)
    if varied:
        variation = draw_variation(np.random.default_rng((seed, 9)), spans[0])
        spans = (replace(spans[0], variation=variation), replace(spans[1], variation=variation))
    return replace(scene, hidden=labels_of_first_frames(scene) != labels_of(scene)), spans


def _draw_faulty_spans(
    rng: np.random.Generator, span: Span, *, visual: bool, moving: bool, hidden: float, twins: bool
) -> tuple[Span, Span]:
    """Return the span twice, with faults as in the world: visual faults if `visual`, motion faults if `moving`.

    Only faults that are visible in the span are drawn. Without `twins` one is another cut of its clip.
    """
    other = span if twins else cut_differently(rng, span)
    while True:
        concealed = bool(rng.random() < (0.85 if moving else hidden))
        drawn = draw_faults.draw_motion_faults(rng, concealed)
        specs = (span.spec, other.spec)
        pair = draw_faults.draw_all_faults(rng, specs, drawn, twins=twins, tints=True, concealed=concealed)
        kinds = {defect.kind for own in pair for defect in own}
        shown = all(shows_when_called(s, d) for s, own in zip((span, other), pair, strict=True) for d in own)
        if shown and (visual, moving) == (bool(kinds & {*VISUAL}), bool(kinds & {*MOTION})) and _is_clear(pair):
            alike = not {*labels(points(pair[0], 0), points(pair[1], 0)).values()} - {0}
            if twins and alike:  # two equal clips would be no pair
                other = cut_differently(rng, span)
            return _with_defects(span, pair[0]), _with_defects(other, pair[1])


def _with_defects(span: Span, defects: tuple[Defect, ...]) -> Span:
    return replace(span, spec=replace(span.spec, defects=defects))


def _is_clear(pair: tuple[tuple[Defect, ...], tuple[Defect, ...]]) -> bool:
    """Whether the overall label is clear: if the dimensions disagree, by at least two points or a tie."""
    a, b = (points(own, 0) for own in pair)
    return (a.vq - b.vq) * (a.mq - b.mq) >= 0 or abs(a.total - b.total) != 1
