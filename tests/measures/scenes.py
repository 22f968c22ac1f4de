"""Moving pictures of three kinds, and known faults of a known strength in them, for the tests of the measures."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Luma = NDArray[np.uint8]
Pictures = list[Luma]
FRAMES: Final = 48
FPS: Final = 16
ROWS, COLUMNS = 240, 416


@cache
def scenes() -> dict[str, Pictures]:
    """The scenes by name: a soft texture under a moving camera, shapes before a smooth sky, and a crowd of shapes."""
    return {"texture": _texture(), "sky": _sky(), "shapes": _shapes()}


def _texture() -> Pictures:
    """A pan over noise with the amplitudes of natural pictures: 1 / frequency."""
    rng = np.random.default_rng(1)
    side = 640
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None]) + 1 / side
    wide = np.fft.irfft2(np.fft.rfft2(rng.normal(size=(side, side))) / frequency, s=(side, side))
    wide = 128 + 36 * wide / wide.std()
    return blur([_levels(wide[20 : 20 + ROWS, 2 * t : 2 * t + COLUMNS]) for t in range(FRAMES)], 0.8)


def _sky() -> Pictures:
    """Dark hills below a smooth sky, and a bird that flies through it."""
    y, x = np.mgrid[:ROWS, :COLUMNS].astype(float)
    sky = 210 - 90 * y / ROWS + 12 * np.sin(x / 140)
    rng = np.random.default_rng(2)
    ground = 60 + 14 * np.kron(rng.normal(size=(ROWS // 3, -(-COLUMNS // 3))), np.ones((3, 3)))[:, :COLUMNS]
    hills = y > 170 + 18 * np.sin(x / 37) + 8 * np.sin(x / 11)
    base = np.where(hills, ground, sky)
    return [_levels(np.where((x - 40 - 6 * t) ** 2 + 3 * (y - 70 - t) ** 2 < 300, 40, base)) for t in range(FRAMES)]


def _shapes() -> Pictures:
    """Shaded discs of many sizes, some of which move before a camera that stands still."""
    y, x = np.mgrid[:ROWS, :COLUMNS].astype(float)
    rng = np.random.default_rng(3)
    discs = [(*rng.uniform((0, 0, 6, 30), (ROWS, COLUMNS, 40, 225)), *rng.uniform(-2, 2, 2)) for _ in range(70)]
    pictures: Pictures = []
    for t in range(FRAMES):
        picture = np.full((ROWS, COLUMNS), 120.0)
        for i, (row, column, radius, shade, down, right) in enumerate(discs):
            moved = t if i % 4 == 0 else 0
            inside = (y - row - down * moved) ** 2 + (x - column - right * moved) ** 2 < radius**2
            picture[inside] = (shade + 0.2 * (x - column))[inside]
        pictures.append(_levels(picture))
    return pictures


def blur(pictures: Pictures, sigma: float) -> Pictures:
    """Blur each picture by a Gaussian of `sigma` pixels."""
    return [np.asarray(Image.fromarray(p).filter(ImageFilter.GaussianBlur(sigma))) for p in pictures]


def add_noise(pictures: Pictures, levels: float) -> Pictures:
    """Add normal noise of a standard deviation of `levels`."""
    rng = np.random.default_rng(4)
    return [_levels(p + rng.normal(0, levels, p.shape)) for p in pictures]


def encode_low(pictures: Pictures, crf: float) -> Pictures:
    """Encode as H.264 with this CRF, without the filter that hides blocks, and decode."""
    return _through_codec(pictures, {"crf": str(crf), "preset": "veryfast", "x264-params": "no-deblock=1"})


def encode_well(pictures: Pictures, crf: float = 14) -> Pictures:
    """Encode as H.264 as most files are, and decode."""
    return _through_codec(pictures, {"crf": str(crf), "preset": "veryfast"})


def posterise(pictures: Pictures, step: float) -> Pictures:
    """Round each level to a multiple of `step`."""
    return [_levels(np.round(p / step) * step) for p in pictures]


def change_light(pictures: Pictures, levels: float) -> Pictures:
    """Make frames brighter or darker by up to `levels`, in an irregular order."""
    offsets = np.random.default_rng(5).uniform(-levels, levels, len(pictures))
    return [_levels(p + offset) for p, offset in zip(pictures, offsets, strict=True)]


def hold(pictures: Pictures, frames: float) -> Pictures:
    """Show every `frames`-th picture for as many frames."""
    return [pictures[int(t // frames * frames)] for t in range(len(pictures))]


def freeze(pictures: Pictures, frames: float) -> Pictures:
    """Hold one picture for this many frames, once."""
    start = 12
    return [pictures[start if start <= t < start + frames else t] for t in range(len(pictures))]


def jitter(pictures: Pictures, pixels: float) -> Pictures:
    """Move each picture by up to `pixels` in any direction."""
    rng = np.random.default_rng(6)
    return [
        np.asarray(
            Image.fromarray(p).transform(
                (COLUMNS, ROWS), Image.Transform.AFFINE, (1, 0, dx, 0, 1, dy), Image.Resampling.BICUBIC
            )
        )
        for p, (dx, dy) in zip(pictures, rng.uniform(-pixels, pixels, (len(pictures), 2)), strict=True)
    ]


def interlace(pictures: Pictures, frames: float) -> Pictures:
    """Take every second row from so many frames later."""
    later = [*pictures[int(frames) :], *pictures[-1:] * int(frames)]
    return [np.where(np.arange(len(p))[:, None] % 2, q, p) for p, q in zip(pictures, later, strict=True)]


def veil(pictures: Pictures, share: float) -> Pictures:
    """Mix with light grey."""
    return [_levels(p + share * (200.0 - p)) for p in pictures]


def expose(pictures: Pictures, gain: float) -> Pictures:
    """Multiply the light around a middle grey; what is too bright or too dark is cut."""
    return [_levels(128 + gain * (p.astype(float) - 128)) for p in pictures]


def sharpen(pictures: Pictures, gain: float) -> Pictures:
    """Add what a blur takes away."""
    return [_levels(p + gain * (p.astype(float) - q)) for p, q in zip(pictures, blur(pictures, 1.2), strict=True)]


def stamp(pictures: Pictures, strength: float) -> Pictures:
    """Put a grid of thin bright and dark strokes on every picture, at the same place."""
    strokes = np.zeros((ROWS, COLUMNS))
    strokes[60:180:12, 100:300] = strength
    strokes[66:180:12, 100:300] = -strength
    return [_levels(p + strokes) for p in pictures]


def add_logo(pictures: Pictures, levels: float) -> Pictures:
    """Put a bright frame with a bar into a corner."""
    logo = np.zeros((ROWS, COLUMNS))
    logo[12:52, 340:400] = levels
    logo[20:44, 348:392] = 0
    logo[28:36, 348:392] = levels
    return [_levels(p + logo) for p in pictures]


def lose_blocks(pictures: Pictures, share: float) -> Pictures:
    """Keep the 16x16 blocks of an earlier picture at random places, other ones in each frame."""
    rng = np.random.default_rng(7)
    out: Pictures = []
    for t, picture in enumerate(pictures):
        lost = np.kron(rng.random((ROWS // 16, COLUMNS // 16)) < share, np.ones((16, 16))).astype(bool)
        out.append(np.where(lost, pictures[max(t - 9, 0)][:, ::-1], picture))
    return out


def skip(pictures: Pictures, frames: float) -> Pictures:
    """Leave out so many frames at four places."""
    step = len(pictures) // 5
    jumps = np.array([int(frames) * (t // step) for t in range(len(pictures))])
    return [pictures[int(min(t * 0.5 + jump, len(pictures) - 1))] for t, jump in enumerate(jumps)]


def speed_up(pictures: Pictures, factor: float) -> Pictures:
    """Show the second half faster than the first."""
    half = len(pictures) // 2
    times = [t * 0.5 if t < half else half * 0.5 + (t - half) * 0.5 * factor for t in range(len(pictures))]
    low = np.minimum(np.array(times, int), len(pictures) - 2)
    return [
        _levels(pictures[i] * (1.0 - share) + pictures[i + 1] * share)
        for i, share in zip(low, np.clip(np.array(times) - low, 0, 1), strict=True)
    ]


def repeat_part(pictures: Pictures, frames: float) -> Pictures:
    """Show so many frames again and again."""
    return [pictures[t % int(frames)] for t in range(len(pictures))]


def turn_back(pictures: Pictures, frames: float) -> Pictures:
    """Run backwards after so many frames."""
    return [pictures[t if t < frames else max(2 * int(frames) - t, 0)] for t in range(len(pictures))]


def light_a_part(pictures: Pictures, levels: float) -> Pictures:
    """Make the left half of some frames brighter or darker."""
    half = (np.arange(COLUMNS) < COLUMNS // 2) * 1.0
    offsets = np.random.default_rng(8).uniform(-levels, levels, len(pictures))
    return [_levels(p + offset * half) for p, offset in zip(pictures, offsets, strict=True)]


def refresh(pictures: Pictures, sigma: float) -> Pictures:
    """Blur each frame but every twelfth."""
    soft = blur(pictures, sigma)
    return [p if t % 12 == 0 else q for t, (p, q) in enumerate(zip(pictures, soft, strict=True))]


def soften_slowly(pictures: Pictures, sigma: float) -> Pictures:
    """Blur more and more."""
    return [blur([p], 0.01 + sigma * t / len(pictures))[0] for t, p in enumerate(pictures)]


def vanish(pictures: Pictures, radius: float) -> Pictures:
    """Paint over a quarter of the picture from the middle of the clip on."""
    y, x = np.mgrid[:ROWS, :COLUMNS]
    hidden = (y - 120) ** 2 + (x - 200) ** 2 < radius**2
    return [p if t < len(pictures) // 2 else np.where(hidden, 110, p).astype(np.uint8) for t, p in enumerate(pictures)]


def bend_a_part(pictures: Pictures, pixels: float) -> Pictures:
    """Move a part as large as a face to and fro by up to `pixels`."""
    y, x = np.mgrid[:ROWS, :COLUMNS]
    mask = np.clip(1.6 - np.hypot((y - 120) / 45, (x - 210) / 45), 0, 1)
    columns = [
        np.rint(x + pixels * mask * np.sin(0.35 * t)).clip(0, COLUMNS - 1).astype(int) for t in range(len(pictures))
    ]
    return [picture[y, column] for picture, column in zip(pictures, columns, strict=True)]


def wobble(pictures: Pictures, pixels: float) -> Pictures:
    """Bend each picture by slow waves that run through it."""
    y, x = np.mgrid[:ROWS, :COLUMNS].astype(float)
    out: Pictures = []
    for t, picture in enumerate(pictures):
        down = y + pixels * np.sin(x / 33 + 0.7 * t) * np.sin(y / 41 + 0.4 * t)
        right = x + pixels * np.cos(y / 29 - 0.6 * t) * np.sin(x / 47 + 0.5 * t)
        out.append(picture[down.round().astype(int).clip(0, ROWS - 1), right.round().astype(int).clip(0, COLUMNS - 1)])
    return out


def boil(pictures: Pictures, levels: float) -> Pictures:
    """Add another coarse texture to each picture."""
    rng = np.random.default_rng(9)
    return [_levels(p + np.kron(rng.normal(0, levels, (ROWS // 8, COLUMNS // 8)), np.ones((8, 8)))) for p in pictures]


FAULTS: Final[dict[str, tuple[Callable[[Pictures, float], Pictures], tuple[float, ...]]]] = {
    "sharpness": (blur, (1.0, 2.0, 4.0)),
    "noise": (add_noise, (4.0, 8.0, 16.0)),
    "blockiness": (encode_low, (38.0, 44.0, 50.0)),
    "banding": (posterise, (5.0, 8.0, 14.0)),
    "flicker": (change_light, (3.0, 8.0, 20.0)),
    "repeated": (hold, (2.0, 3.0, 6.0)),
    "frozen": (freeze, (8.0, 16.0, 30.0)),
    "shake": (jitter, (2.0, 4.0, 8.0)),
}
"""By measure: the fault that it is for, and strengths from weak to strong."""


def _levels(values: Any) -> Luma:
    return np.clip(np.round(values), 0, 255).astype(np.uint8)


def _through_codec(pictures: Pictures, options: dict[str, str]) -> Pictures:
    written = io.BytesIO()
    with av.open(written, "w", format="mp4") as out:
        stream: Any = out.add_stream("libx264", rate=FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = COLUMNS, ROWS, "yuv420p"
        for picture in pictures:
            frame = av.VideoFrame.from_ndarray(picture, format="gray8")
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    written.seek(0)
    with av.open(written) as file:
        return [frame.to_ndarray(format="gray8") for frame in file.decode(video=0)]
