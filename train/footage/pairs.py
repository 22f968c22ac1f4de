"""Pairs of real footage: a span of a clip that no one here made beside the same span with a fault, or cut anew.

Faults, their levels, the labels that follow and what a perfect judge writes are the world's (`train.world`); the
pictures are not. Knows where the clips lie and how fast they move; refuses to know where they came from (`packages`).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from numpy.typing import NDArray

from train.cases import Case, OnDemand
from train.footage.frames import kept
from train.footage.packages import Split
from train.footage.survey import Surveyed, surveyed
from train.world import captions, case_of, exchanged, faults
from train.world.coding import filmed
from train.world.defects import CODECS, MOTION, VISUAL, content_time, light, strength, tick_of
from train.world.effects import spoil
from train.world.faults import single
from train.world.labels import labels, labels_at_first, labels_of, points
from train.world.render import GHOST, places
from train.world.store import KeptFrames
from train.world.values import GAPS, TICKS, WINDOWS, Camera, ClipSpec, Defect, Ground, Lesson, Scene, Shot
from vrt_lite.interfaces import FrameStore
from vrt_lite.profile import Profile
from vrt_lite.video.picture import Picture, Turn

AREA = 252 * 140
"""Pixels of a picture when a fault comes into it, or 1.5 times as many each way: what strengths are meant for."""
LEAST_MOTION = 0.6
"""Grey levels from tick to tick (`Surveyed.motion`), below which a held picture could not be told."""
LEAST_DETAIL = 2.5
"""Grey levels from pixel to pixel (`Surveyed.detail`), below which a blur could not be told."""
TIES = 0.12
"""Share of the pairs that are one clip cut twice, without a fault."""
_SHORTEST_SECONDS, _LONGEST_SECONDS = 1.6, 8.0
_NEEDS_DETAIL = frozenset({"blur", "blocks", "h264", "h265", "sharpening"})
_NEEDS_MOTION = frozenset({"stutter", "freeze", "reversal", "ghosting"})
_CUT = 18.0  # grey levels from a frame to the next: more, and far more than usual, is a cut
_TRIES = 20

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Span:
    """Frames of a clip from `start` on, as a clip of its own with its faults.

    The shots of `spec` say where it is cut; they are not drawn.
    """

    clip: Surveyed
    start: int
    spec: ClipSpec

    def source(self, position: float) -> int:
        """Which frame of the clip shows what is to be seen at a time in ticks."""
        return self.frame(content_time(self.spec, position))

    def frame(self, moment: float) -> int:
        """Which frame of the clip shows a moment of what was filmed, in ticks."""
        share = min(max(moment / (TICKS - 1), 0.0), 1.0)
        return self.start + round(share * (self.spec.frames - 1))


class Footage(OnDemand):
    """`count` cases from seed `first` on, from the clips of a split, fetched and surveyed in `folder`.

    The same seed gives the same case as long as the clips are the same. `hidden` is the share of pairs whose visual
    fault the frames shown first do not show; most faults of motion they never do. Of a `lesson`, every pair is a clip
    beside itself with one fault. UsageError without clips.
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
        self.clips = tuple(clip for clip in surveyed(folder, split) if clip.frames >= TICKS)

    def __len__(self) -> int:
        return len(self._seeds)

    def make(self, place: int) -> Case:
        """The case of a seed."""
        seed = self._seeds[place]
        drawn, spans = draw(self.clips, seed, hidden=self._hidden, lesson=self._lesson)
        return _case(self._folder, f"footage:{self._split}:{seed}", drawn, spans)


def _case(folder: Path, key: str, drawn: Scene, spans: tuple[Span, Span]) -> Case:
    a, b = (span.spec.frames / span.clip.fps for span in spans)
    case = case_of(drawn)
    return replace(
        case,
        key=key,
        pair=replace(case.pair, durations=(a, b)),
        open=FootageOpening(folder, spans),
        exchanged=partial(_case, folder, key, exchanged(drawn), (spans[1], spans[0])),
    )


def draw(
    clips: Sequence[Surveyed], seed: int, *, hidden: float = 0.35, lesson: Lesson = "mixed"
) -> tuple[Scene, tuple[Span, Span]]:
    """The pair of a seed, its caption one that the pictures cannot confirm. Chance is NumPy's and nothing else's."""
    rng = np.random.default_rng((seed, 7))
    groups = sorted({clip.group for clip in clips})
    group = groups[int(rng.integers(len(groups)))]  # every package as often, however many clips it has
    inside = [clip for clip in clips if clip.group == group]
    span = _span(rng, inside[int(rng.integers(len(inside)))])
    kind = rng.random()
    if lesson != "mixed":
        allowed = _allowed(span)
        while True:
            pair = single(rng, span.spec, lesson)
            if {defect.kind for own in pair for defect in own} <= allowed:
                break
        spans = (_with(span, pair[0]), _with(span, pair[1]))
    elif kind < TIES:
        spans = (span, _beside(rng, span))
    else:
        share = (kind - TIES) / (1 - TIES)
        spans = _faulty(rng, span, seen=not 0.47 <= share < 0.88, moving=share >= 0.47, hidden=hidden)
    scene = Scene(seed, captions.arbitrary(rng), None, (spans[0].spec, spans[1].spec), False)
    return replace(scene, hidden=labels_at_first(scene) != labels_of(scene)), spans


def _span(rng: np.random.Generator, clip: Surveyed) -> Span:
    """A span of a clip, where its faults can be seen; the cuts of one that cannot be found so are passed over."""
    longest = min(_LONGEST_SECONDS, clip.frames / clip.fps)
    size = _size(clip, 1.0 if rng.random() < 0.6 else 1.5)
    span: Span | None = None
    for _ in range(_TRIES):
        seconds = rng.uniform(min(_SHORTEST_SECONDS, longest), longest)
        frames = min(max(TICKS, round(seconds * clip.fps)), clip.frames)
        span = _cut_out(clip, int(rng.integers(clip.frames - frames + 1)), frames, size)
        if _early(span.spec):
            return span
    assert span is not None
    return _uncut(span)


def _early(spec: ClipSpec) -> bool:
    """Whether it is cut at most twice, each time in a gap of its own and before the gap's window, as in the world."""
    gaps = [GAPS.index(gap) for shot in spec.shots[1:] for gap in GAPS if gap[0] <= shot.start <= gap[1]]
    early = all(any(low <= shot.start <= WINDOWS[g][0] for g, (low, _) in enumerate(GAPS)) for shot in spec.shots[1:])
    return early and len(gaps) == len(set(gaps)) == len(spec.shots) - 1 < len(GAPS)


def _uncut(span: Span) -> Span:
    return replace(span, spec=replace(span.spec, shots=span.spec.shots[:1]))


def _beside(rng: np.random.Generator, span: Span) -> Span:
    """The same clip cut otherwise: from a little earlier or later on, and shorter or longer."""
    clip, spec = span.clip, span.spec
    frames = min(max(TICKS, round(spec.frames * rng.uniform(0.8, 1.25))), clip.frames)
    start = min(max(span.start + round(rng.uniform(-0.5, 0.5) * frames), 0), clip.frames - frames)
    found = _cut_out(clip, start, frames, (spec.width, spec.height))
    return found if _early(found.spec) else _uncut(found)


def _cut_out(clip: Surveyed, start: int, frames: int, size: tuple[int, int]) -> Span:
    motion = clip.motion[start : start + frames]
    usual = median(motion[1:])
    cuts = [i for i in range(1, frames) if motion[i] > max(_CUT, 5 * usual)]
    ground, camera = Ground("photo", clip.path), Camera((0.5, 0.5), 1.0, pan=(1.0, 0.0))
    ticks = sorted({math.ceil((TICKS - 1) * i / (frames - 1)) for i in cuts})
    shots = tuple(Shot(tick, ground, camera) for tick in (0, *(tick for tick in ticks if tick)))
    return Span(clip, start, ClipSpec(*size, max(1, round(clip.fps)), frames, shots))


def _size(clip: Surveyed, scale: float) -> tuple[int, int]:
    """The clip's own aspect with about AREA pixels; even sides, as the encoder takes them."""
    ratio = min(max(clip.width / clip.height, 0.4), 2.5)
    height = math.sqrt(AREA / ratio) * scale
    return 2 * round(height * ratio / 2), 2 * round(height / 2)


def _faulty(rng: np.random.Generator, span: Span, *, seen: bool, moving: bool, hidden: float) -> tuple[Span, Span]:
    """The span twice, with faults as the world draws them: visual ones if `seen`, of motion if `moving`.

    Only kinds that this span can show.
    """
    spec, allowed = span.spec, _allowed(span)
    while True:
        concealed = bool(rng.random() < (0.85 if moving else hidden))
        drawn = faults.of_motion(rng, concealed)
        pair = faults.placed(rng, (spec, spec), drawn, twins=True, tints=True, concealed=concealed)
        kinds = {defect.kind for own in pair for defect in own}
        if (
            kinds <= allowed
            and (seen, moving) == (bool(kinds & {*VISUAL}), bool(kinds & {*MOTION}))
            and _knowable(pair)
        ):
            alike = not {*labels(points(pair[0], 0), points(pair[1], 0)).values()} - {0}
            other = _beside(rng, span) if alike else span  # the same fault twice is no pair of one picture
            return _with(span, pair[0]), _with(other, pair[1])


def _allowed(span: Span) -> set[str]:
    """The kinds of faults that can be seen in a span."""
    inside = slice(span.start + 1, span.start + span.spec.frames)
    still = fmean(span.clip.motion[inside]) * span.spec.frames / TICKS < LEAST_MOTION
    plain = fmean(span.clip.detail[inside]) < LEAST_DETAIL
    return {*VISUAL, *MOTION} - (_NEEDS_MOTION if still else set()) - (_NEEDS_DETAIL if plain else set())


def _with(span: Span, defects: tuple[Defect, ...]) -> Span:
    return replace(span, spec=replace(span.spec, defects=defects))


def _knowable(pair: tuple[tuple[Defect, ...], tuple[Defect, ...]]) -> bool:
    """Whether the overall label stands on more than one point, where dimensions disagree (as in the world)."""
    a, b = (points(own, 0) for own in pair)
    return (a.vq - b.vq) * (a.mq - b.mq) >= 0 or abs(a.total - b.total) != 1


@dataclass(frozen=True, slots=True)
class FootageOpening:
    """Opens a pair's frames: a `Case.open` that another process can be handed."""

    folder: Path
    spans: tuple[Span, Span]

    @contextmanager
    def __call__(self, profile: Profile) -> Generator[FrameStore]:
        """The frames at a profile's size, to be used in a `with` block. Raises VideoError."""
        spec = self.spans[0].spec
        pictures = kept(self.folder, self.spans[0].clip, (spec.width, spec.height))
        yield KeptFrames(
            (self.spans[0].spec, self.spans[1].spec),
            profile,
            lambda number, times, size: _shown(pictures, self.spans[number], times, size),
        )


def _shown(pictures: Pixels, span: Span, positions: Sequence[float], size: tuple[int, int]) -> list[Pixels]:
    """Frames at times in ticks out of a clip's pictures: with all faults put in, fitted to size."""
    spec = span.spec

    def film(times: Sequence[float]) -> Pixels:
        return np.stack([_finished(span, time, pictures) for time in times])

    fit = Picture(spec.width, spec.height, Turn(), "sdr", False).fit
    return [fit(np.ascontiguousarray(picture), size) for picture in filmed(spec, positions, film)]


@torch.inference_mode()
def _finished(span: Span, position: float, pictures: Pixels) -> Pixels:
    """One picture with every fault but those of a real encoder; held and reversed moments are in `Span.source`."""
    spec, tick = span.spec, tick_of(position)
    here = [defect for defect in spec.defects if defect.at(tick)]
    found = _light(pictures[span.source(position)])
    for defect in here:
        if defect.kind == "ghosting":
            late = content_time(spec, position) - strength(defect)
            found = (1 - GHOST) * found + GHOST * _light(pictures[span.frame(late)])
    if any(defect.kind in ("jitter", "warping") for defect in here):
        x, y = places(spec, [tick], (spec.width, spec.height), "cpu")
        unit = min(spec.width, spec.height)
        grid = torch.stack(torch.broadcast_tensors(x * unit / spec.width, y * unit / spec.height), dim=-1)
        found = F.grid_sample(found, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    for defect in here:
        if defect.kind in VISUAL and defect.kind not in CODECS:
            found = spoil(defect, found, [position])
    bright = (found * light(spec, tick)).clamp(0, 1)
    return (bright[0].permute(1, 2, 0) * 255 + 0.5).to(torch.uint8).numpy()


def _light(picture: Pixels) -> torch.Tensor:
    """A picture as light in 0 to 1, (1, 3, height, width)."""
    return torch.from_numpy(picture.astype(np.float32) / 255).permute(2, 0, 1)[None]
