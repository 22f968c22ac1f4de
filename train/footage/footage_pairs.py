"""Pairs of real footage: a span of a real clip beside the same span with a fault, or beside another cut of the clip.

Faults, their levels, the labels and the script of a perfect judge come from `train.world`. `packages` fetches the
clips.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, median

import numpy as np

from train.footage.footage_frames import LARGE, FootageOpener, Span, Variation, picture_size
from train.footage.packages import Split
from train.footage.survey import SurveyedClip, load_survey
from train.training_cases import LazyCases, TrainingCase
from train.world import captions, case_of, draw_faults, exchanged
from train.world.defects import MOTION, VISUAL
from train.world.draw_faults import draw_single_fault
from train.world.labels import labels, labels_of, labels_of_first_frames, points
from train.world.lessons import TWINS
from train.world.values import GAPS, TICKS, WINDOWS, Camera, ClipSpec, Defect, Ground, Lesson, Scene, Shot

LEAST_MOTION = 0.6
"""Grey levels from tick to tick (`SurveyedClip.motion`), below which a held picture is not visible."""
LEAST_DETAIL = 2.5
"""Grey levels from pixel to pixel (`SurveyedClip.detail`), below which a blur is not visible."""
TIES = 0.12
"""Share of the pairs that are two cuts of one clip without a fault."""
_SHORTEST_SECONDS, _LONGEST_SECONDS = 1.6, 8.0
_NEEDS_DETAIL = frozenset({"blur", "blocks", "h264", "h265", "sharpening"})
_NEEDS_MOTION = frozenset({"stutter", "freeze", "reversal", "ghosting"})
_TRAINING_TIES = 0.25
"""TIES in training: two cuts have differences that are no faults, and a judge takes them for faults otherwise."""
_TONES = ((0.75, 1.35), (0.85, 1.4), (0.6, 1.6))
"""The ranges of gamma, contrast and saturation of a variation."""
_TEXTURES = (0.01, 1.0, 0.03)
"""The most softness, crispness and grain of a variation: less than slight blur, sharpening and noise."""
_CUT = 18.0  # grey levels from a frame to the next: more, and far more than usual, is a cut
_TRIES = 20


class FootagePairs(LazyCases):
    """`count` cases from seed `first` on, from the clips of a split, fetched and surveyed in `folder`.

    The same seed gives the same case as long as the clips are the same. `hidden` is the share of pairs with a visual
    fault that the first frames do not show; they never show most motion faults. In a `lesson`, every pair is a clip and
    the same clip with one fault. Raises UsageError without clips.
    """

    def __init__(
        self,
        folder: Path,
        split: Split,
        *,
        first: int = 0,
        count: int = 100,
        hidden: float = 0.35,
        lesson: Lesson = "mixed",
    ) -> None:
        self._folder, self._split, self._hidden = folder, split, hidden
        self._lesson: Lesson = lesson
        self._seeds = range(first, first + count)
        self.clips = tuple(clip for clip in load_survey(folder, split) if clip.frames >= TICKS)

    def __len__(self) -> int:
        return len(self._seeds)

    def make(self, place: int) -> TrainingCase:
        """Build the case of a seed."""
        seed = self._seeds[place]
        drawn, spans = draw(self.clips, seed, hidden=self._hidden, lesson=self._lesson, varied=self._split == "train")
        return case_of_spans(self._folder, f"footage:{self._split}:{seed}", drawn, spans)


def case_of_spans(folder: Path, key: str, drawn: Scene, spans: tuple[Span, Span]) -> TrainingCase:
    """Build the case of a scene whose clips are these spans."""
    a, b = (span.spec.frames / span.clip.fps for span in spans)
    case = case_of(drawn)
    return replace(
        case,
        key=key,
        pair=replace(case.pair, durations=(a, b)),
        open=FootageOpener(folder, spans),
        exchanged=partial(case_of_spans, folder, key, exchanged(drawn), (spans[1], spans[0])),
    )


def draw(
    clips: Sequence[SurveyedClip],
    seed: int,
    *,
    hidden: float = 0.35,
    lesson: Lesson = "mixed",
    varied: bool = False,
) -> tuple[Scene, tuple[Span, Span]]:
    """Draw the pair of a seed. Its pictures cannot decide its caption.

    If `varied`, it is shown in a variation, more pairs have no fault, and only a share TWINS of the others show the
    same frames; the rest are two cuts of one clip.

    All random numbers are NumPy's.
    """
    rng = np.random.default_rng((seed, 7))
    span = _draw_span(rng, clips)
    kind, ties = rng.random(), _TRAINING_TIES if varied else TIES
    twins = not varied or bool(rng.random() < TWINS)
    if lesson != "mixed":
        spans = _draw_lesson(rng, span, lesson, twins=twins)
    elif kind < ties:
        spans = (span, _cut_differently(rng, span))
    else:
        share = (kind - ties) / (1 - ties)
        visual, moving = not 0.47 <= share < 0.88, share >= 0.47
        spans = _draw_faulty_spans(rng, span, visual=visual, moving=moving, hidden=hidden, twins=twins)
    scene = Scene(seed, captions.draw_unrelated_caption(rng), None, (spans[0].spec, spans[1].spec), False)
    if varied:
        variation = _vary(np.random.default_rng((seed, 9)), spans[0])
        spans = (replace(spans[0], variation=variation), replace(spans[1], variation=variation))
    return replace(scene, hidden=labels_of_first_frames(scene) != labels_of(scene)), spans


def draw_single_span(rng: np.random.Generator, clips: Sequence[SurveyedClip]) -> tuple[Span, set[str]]:
    """Draw a varied span of one of the clips. Returns also the kinds of faults that are visible in it."""
    span = _draw_span(rng, clips)
    return replace(span, variation=_vary(rng, span)), _allowed(span)


def _draw_span(rng: np.random.Generator, clips: Sequence[SurveyedClip]) -> Span:
    """Draw a span of a clip of any package: every package has the same probability."""
    groups = sorted({clip.group for clip in clips})
    group = groups[int(rng.integers(len(groups)))]
    inside = [clip for clip in clips if clip.group == group]
    return _span(rng, inside[int(rng.integers(len(inside)))])


def _vary(rng: np.random.Generator, span: Span) -> Variation:
    """Draw a variation of a span."""
    flip, corner = bool(rng.random() < 0.5), None
    order = tuple(map(int, rng.permutation(3))) if rng.random() < 0.3 else (0, 1, 2)
    red, green, blue = rng.uniform(0.7, 1.1) * rng.uniform(0.85, 1.15, 3)
    width, height = span.spec.width, span.spec.height
    if (width, height) == picture_size(span.clip, 1.0) and rng.random() < 0.6:
        large = picture_size(span.clip, LARGE)
        corner = (int(rng.integers(large[0] - width + 1)), int(rng.integers(large[1] - height + 1)))
    gamma, contrast, saturation = (float(rng.uniform(low, high)) for low, high in _TONES)
    texture = (float(rng.uniform(0, most)) if rng.random() < 0.4 else 0.0 for most in _TEXTURES)
    colours = (float(red), float(green), float(blue))
    return Variation(flip, (order[0], order[1], order[2]), colours, corner, gamma, contrast, saturation, *texture)


def _span(rng: np.random.Generator, clip: SurveyedClip) -> Span:
    """Draw a span of a clip whose cuts are as in the world. After some tries, the cuts of the last span are ignored."""
    longest = min(_LONGEST_SECONDS, clip.frames / clip.fps)
    size = picture_size(clip, 1.0 if rng.random() < 0.6 else LARGE)
    span: Span | None = None
    for _ in range(_TRIES):
        seconds = rng.uniform(min(_SHORTEST_SECONDS, longest), longest)
        frames = min(max(TICKS, round(seconds * clip.fps)), clip.frames)
        span = _cut_out(clip, int(rng.integers(clip.frames - frames + 1)), frames, size)
        if _cuts_early(span.spec):
            return span
    assert span is not None
    return _remove_cuts(span)


def _cuts_early(spec: ClipSpec) -> bool:
    """Whether a clip has at most two cuts, in different gaps and before the gaps' windows, as in the world."""
    gaps = [GAPS.index(gap) for shot in spec.shots[1:] for gap in GAPS if gap[0] <= shot.start <= gap[1]]
    early = all(any(low <= shot.start <= WINDOWS[g][0] for g, (low, _) in enumerate(GAPS)) for shot in spec.shots[1:])
    return early and len(gaps) == len(set(gaps)) == len(spec.shots) - 1 < len(GAPS)


def _remove_cuts(span: Span) -> Span:
    return replace(span, spec=replace(span.spec, shots=span.spec.shots[:1]))


def _cut_differently(rng: np.random.Generator, span: Span) -> Span:
    """Cut the same clip in another way: a little earlier or later, and shorter or longer."""
    clip, spec = span.clip, span.spec
    frames = min(max(TICKS, round(spec.frames * rng.uniform(0.8, 1.25))), clip.frames)
    start = min(max(span.start + round(rng.uniform(-0.5, 0.5) * frames), 0), clip.frames - frames)
    found = _cut_out(clip, start, frames, (spec.width, spec.height))
    return found if _cuts_early(found.spec) else _remove_cuts(found)


def _cut_out(clip: SurveyedClip, start: int, frames: int, size: tuple[int, int]) -> Span:
    motion = clip.motion[start : start + frames]
    usual = median(motion[1:])
    cuts = [i for i in range(1, frames) if motion[i] > max(_CUT, 5 * usual)]
    ground, camera = Ground("photo", clip.path), Camera((0.5, 0.5), 1.0, pan=(1.0, 0.0))
    ticks = sorted({math.ceil((TICKS - 1) * i / (frames - 1)) for i in cuts})
    shots = tuple(Shot(tick, ground, camera) for tick in (0, *(tick for tick in ticks if tick)))
    return Span(clip, start, ClipSpec(*size, max(1, round(clip.fps)), frames, shots))


def _draw_lesson(rng: np.random.Generator, span: Span, lesson: Lesson, *, twins: bool) -> tuple[Span, Span]:
    """Return the span with one fault and, without one, the span or (without `twins`) another cut of its clip."""
    allowed = _allowed(span)
    while True:
        a, b = draw_single_fault(rng, span.spec, lesson, twins=twins)
        if {defect.kind for defect in (*a, *b)} <= allowed:
            break
    other = span if twins else _cut_differently(rng, span)
    first, second = (span, other) if a else (other, span)
    return _with_defects(first, a), _with_defects(second, b)


def _draw_faulty_spans(
    rng: np.random.Generator, span: Span, *, visual: bool, moving: bool, hidden: float, twins: bool
) -> tuple[Span, Span]:
    """Return the span twice, with faults as in the world: visual faults if `visual`, motion faults if `moving`.

    Only kinds that are visible in this span are drawn. Without `twins` one is another cut of its clip.
    """
    other = span if twins else _cut_differently(rng, span)
    allowed = _allowed(span) & _allowed(other)
    while True:
        concealed = bool(rng.random() < (0.85 if moving else hidden))
        drawn = draw_faults.draw_motion_faults(rng, concealed)
        specs = (span.spec, other.spec)
        pair = draw_faults.draw_all_faults(rng, specs, drawn, twins=twins, tints=True, concealed=concealed)
        kinds = {defect.kind for own in pair for defect in own}
        if (
            kinds <= allowed
            and (visual, moving) == (bool(kinds & {*VISUAL}), bool(kinds & {*MOTION}))
            and _is_clear(pair)
        ):
            alike = not {*labels(points(pair[0], 0), points(pair[1], 0)).values()} - {0}
            if twins and alike:  # two equal clips would be no pair
                other = _cut_differently(rng, span)
            return _with_defects(span, pair[0]), _with_defects(other, pair[1])


def _allowed(span: Span) -> set[str]:
    """Return the kinds of faults that are visible in a span."""
    inside = slice(span.start + 1, span.start + span.spec.frames)
    still = fmean(span.clip.motion[inside]) * span.spec.frames / TICKS < LEAST_MOTION
    plain = fmean(span.clip.detail[inside]) < LEAST_DETAIL
    return {*VISUAL, *MOTION} - (_NEEDS_MOTION if still else set()) - (_NEEDS_DETAIL if plain else set())


def _with_defects(span: Span, defects: tuple[Defect, ...]) -> Span:
    return replace(span, spec=replace(span.spec, defects=defects))


def _is_clear(pair: tuple[tuple[Defect, ...], tuple[Defect, ...]]) -> bool:
    """Whether the overall label is clear: if the dimensions disagree, by at least two points or a tie."""
    a, b = (points(own, 0) for own in pair)
    return (a.vq - b.vq) * (a.mq - b.mq) >= 0 or abs(a.total - b.total) != 1
