"""Renders the frames of real footage with faults: `footage_pairs` draws which."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from numpy.typing import NDArray
from PIL import Image

from train.tiny.footage.decoded_frames import load_frames
from train.tiny.footage.survey import SurveyedClip
from train.tiny.world.coding import encode_faults
from train.tiny.world.defects import CODECS, VISUAL, content_time, flicker_factor, strength, tick_of
from train.tiny.world.drawn_frames import RenderedFrames
from train.tiny.world.effects import apply_fault, blur_pictures, sharpen_pictures
from train.tiny.world.render import GHOST, places
from train.tiny.world.values import TICKS, ClipSpec, Rgb
from vrt_lite.interfaces import FrameStore
from vrt_lite.profile import Profile
from vrt_lite.video.frame_conversion import resize

AREA = 252 * 140
"""Pixels of a picture to which faults are applied; sometimes each side is 1.5 times as long."""
LARGE = 1.5
"""The larger of the two sizes, as a factor of each side."""

Pixels = NDArray[np.uint8]
Source = tuple[int, int]
"""The part of a span, 0 or 1 (after the cut to a joined clip), and the number of a frame of the part's clip."""


@dataclass(frozen=True, slots=True)
class Variation:
    """Another view of a clip. `gain` is by channel, and `order` selects its channels for red, green and blue.

    `corner` is the upper left corner of a piece of the pictures of 1.5 times the size, in pixels; None is the whole.
    The others make the clip look as if another camera had filmed it: light is raised to the power `gamma`, `contrast`
    and `saturation` are factors, `softness` is the standard deviation of a blur in halves of the shorter side,
    `crispness` is the gain of an unsharp mask, and `grain` is the standard deviation of noise, of a range of 1.
    """

    flip: bool = False
    order: tuple[int, int, int] = (0, 1, 2)
    gain: Rgb = (1.0, 1.0, 1.0)
    corner: tuple[int, int] | None = None
    gamma: float = 1.0
    contrast: float = 1.0
    saturation: float = 1.0
    softness: float = 0.0
    crispness: float = 0.0
    grain: float = 0.0


@dataclass(frozen=True, slots=True)
class JoinedClip:
    """Another clip from frame `start` on, which a span shows from its cut on."""

    clip: SurveyedClip
    start: int


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a clip from frame `start` on, with its faults. The shots of `spec` only mark its cuts.

    `variation` is what makes one clip many: mirrored, in other colours, a piece of its larger pictures, or as another
    camera would film it. A span with a `joined` clip has one cut.
    """

    clip: SurveyedClip
    start: int
    spec: ClipSpec
    variation: Variation = Variation()
    joined: JoinedClip | None = None

    @property
    def clips(self) -> tuple[SurveyedClip, ...]:
        """The clips of its parts."""
        return (self.clip, self.joined.clip) if self.joined else (self.clip,)

    @property
    def cut(self) -> int:
        """The number of frames before the second shot."""
        return math.ceil((self.spec.shots[1].start - 0.5) * (self.spec.frames - 1) / (TICKS - 1))

    def source(self, position: float) -> Source:
        """Return the part and its clip's frame for a time in ticks, with the effect of motion faults."""
        return self.frame(content_time(self.spec, position))

    def frame(self, moment: float) -> Source:
        """Return the part and its clip's frame for a moment of the undamaged clip, in ticks."""
        return self._locate(self._index(moment))

    def motion(self, first: int, last: int) -> float:
        """Return the motion from one tick of the undamaged clip to another, in grey levels (`SurveyedClip.motion`)."""
        later = map(self._locate, range(self._index(first) + 1, self._index(last) + 1))
        return sum(self.clips[part].motion[number] for part, number in later)

    def detail(self) -> float:
        """Return the mean detail of its frames, in grey levels (`SurveyedClip.detail`)."""
        return fmean(self.clips[part].detail[number] for part, number in map(self._locate, range(self.spec.frames)))

    def _index(self, moment: float) -> int:
        """Return the frame of the span for a moment of the undamaged clip, in ticks."""
        share = min(max(moment / (TICKS - 1), 0.0), 1.0)
        return round(share * (self.spec.frames - 1))

    def _locate(self, index: int) -> Source:
        """Return the part and its clip's frame for a frame of the span."""
        if self.joined and index >= self.cut:
            return 1, self.joined.start + index - self.cut
        return 0, self.start + index


def picture_size(clip: SurveyedClip, scale: float) -> tuple[int, int]:
    """Return a size with the clip's aspect ratio, about AREA pixels, and even sides, which the encoder needs."""
    ratio = min(max(clip.width / clip.height, 0.4), 2.5)
    height = math.sqrt(AREA / ratio) * scale
    return 2 * round(height * ratio / 2), 2 * round(height / 2)


class ConvertedPictures:
    """The pictures of a span's clips as light in 0 to 1, in a variation, (1, 3, height, width).

    Each is converted once.
    """

    def __init__(self, folder: Path, span: Span) -> None:
        """Map the clips' frames in `folder`, at the size of the span. Raises VideoError."""
        self._size, self._variation = (span.spec.width, span.spec.height), span.variation
        stored = picture_size(span.clip, LARGE) if span.variation.corner else self._size
        self._pictures = [load_frames(folder, clip, stored) for clip in span.clips]
        self._converted: dict[Source, torch.Tensor] = {}

    def __getitem__(self, source: Source) -> torch.Tensor:
        if source not in self._converted:
            part, number = source
            self._converted[source] = _to_light(self._pictures[part][number], number, self._size, self._variation)
        return self._converted[source]


@dataclass(frozen=True, slots=True)
class FootageOpener:
    """Opens a pair's frames: a `TrainingCase.open` that can be sent to another process.

    Both spans are of the same clips, in the same size and variation.
    """

    folder: Path
    spans: tuple[Span, Span]

    @contextmanager
    def __call__(self, profile: Profile) -> Generator[FrameStore]:
        """Open the frames at a profile's size, for a `with` block. Raises VideoError."""
        pictures = ConvertedPictures(self.folder, self.spans[0])
        yield RenderedFrames(
            (self.spans[0].spec, self.spans[1].spec),
            profile,
            lambda number, times, size: render_span(pictures, self.spans[number], times, size),
        )


def render_span(
    pictures: ConvertedPictures, span: Span, positions: Sequence[float], size: tuple[int, int]
) -> list[Pixels]:
    """Render frames at times in ticks from a span's pictures, with all faults, resized to `size`."""
    spec = span.spec

    def film(times: Sequence[float]) -> Pixels:
        return np.stack([_render_picture(span, time, pictures) for time in times])

    return [resize(Image.fromarray(picture), size) for picture in encode_faults(spec, positions, film)]


@torch.inference_mode()
def _render_picture(span: Span, position: float, pictures: ConvertedPictures) -> Pixels:
    """Render one picture with all faults except those of a real encoder."""
    spec, tick = span.spec, tick_of(position)
    here = [defect for defect in spec.defects if defect.at(tick)]
    found = pictures[span.source(position)]
    for defect in here:
        if defect.kind == "ghosting":
            late = content_time(spec, position) - strength(defect)
            found = (1 - GHOST) * found + GHOST * pictures[span.frame(late)]
    if any(defect.kind in ("jitter", "warping") for defect in here):
        x, y = places(spec, [tick], (spec.width, spec.height), "cpu")
        unit = min(spec.width, spec.height)
        grid = torch.stack(torch.broadcast_tensors(x * unit / spec.width, y * unit / spec.height), dim=-1)
        found = F.grid_sample(found, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    for defect in here:
        if defect.kind in VISUAL and defect.kind not in CODECS:
            found = apply_fault(defect, found, [position])
    bright = (found * flicker_factor(spec, tick)).clamp(0, 1)
    return (bright[0].permute(1, 2, 0) * 255 + 0.5).to(torch.uint8).numpy()


def _to_light(picture: Pixels, number: int, size: tuple[int, int], variation: Variation) -> torch.Tensor:
    """Convert a clip's picture with this number to light in 0 to 1, in a variation, (1, 3, height, width)."""
    left, top = variation.corner or (0, 0)
    piece = picture[top : top + size[1], left : left + size[0]]
    piece = piece[:, :: -1 if variation.flip else 1][..., variation.order].astype(np.float32)
    light = (piece * (np.array(variation.gain, np.float32) / 255)).clip(0, 1) ** variation.gamma
    return _imitate_camera(torch.from_numpy(light).permute(2, 0, 1)[None], variation, number)


def _imitate_camera(light: torch.Tensor, variation: Variation, number: int) -> torch.Tensor:
    """Change a picture (1, 3, height, width) as another camera would.

    Its `number` is the seed of its grain, so that a held picture stays the same.
    """
    if variation.contrast != 1:
        light = 0.5 + variation.contrast * (light - 0.5)
    if variation.saturation != 1:
        grey = light.mean(1, keepdim=True)
        light = grey + variation.saturation * (light - grey)
    if variation.softness:
        light = blur_pictures(light, variation.softness)
    if variation.crispness:
        light = sharpen_pictures(light, variation.crispness)
    if variation.grain:
        light = light + variation.grain * torch.randn(light.shape, generator=torch.Generator().manual_seed(number))
    return light.clamp(0, 1)
