"""Moving pictures of three kinds, and known faults of a known strength in them, for the tests of the measures."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Final

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Luma = NDArray[np.uint8]
Pictures = list[Luma]
Change = Callable[[Pictures, float], Pictures]
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


def change_levels(change: Callable[[NDArray[np.float64], float], Any]) -> Change:
    """A change that makes other levels of the levels of each picture."""
    return lambda pictures, strength: [_levels(change(p.astype(float), strength)) for p in pictures]


def show_others(time: Callable[[int, float], float]) -> Change:
    """A change that shows at each time the picture of another time."""

    def change(pictures: Pictures, frames: float) -> Pictures:
        return [pictures[min(int(time(t, frames)), len(pictures) - 1)] for t in range(len(pictures))]

    return change


hold = show_others(lambda t, frames: t // frames * frames)
STROKES = np.zeros((ROWS, COLUMNS))
STROKES[60:180:12, 100:300] = 1
STROKES[66:180:12, 100:300] = -1
LOGO = np.zeros((ROWS, COLUMNS))
LOGO[12:52, 340:400] = 1
LOGO[20:44, 348:392] = 0
LOGO[28:36, 348:392] = 1


def blur(pictures: Pictures, sigma: float) -> Pictures:
    return blur_each(pictures, [sigma] * len(pictures))


def blur_each(pictures: Pictures, sigmas: Sequence[float]) -> Pictures:
    blurred = [Image.fromarray(p).filter(ImageFilter.GaussianBlur(s)) for p, s in zip(pictures, sigmas, strict=True)]
    return [np.asarray(picture) for picture in blurred]


def refresh(pictures: Pictures, sigma: float) -> Pictures:
    """Blur each frame but every twelfth."""
    return blur_each(pictures, [sigma if t % 12 else 0 for t in range(len(pictures))])


def soften_slowly(pictures: Pictures, sigma: float) -> Pictures:
    return blur_each(pictures, [sigma * t / len(pictures) for t in range(len(pictures))])


def sharpen(pictures: Pictures, gain: float) -> Pictures:
    """Add what a blur takes away."""
    return [_levels(p + gain * (p.astype(float) - q)) for p, q in zip(pictures, blur(pictures, 1.2), strict=True)]


def add_noise(pictures: Pictures, levels: float, *, side: int = 1) -> Pictures:
    """Add normal noise of a standard deviation of `levels`, another one to each picture, in squares of `side`."""
    rng, square = np.random.default_rng(4), np.ones((side, side))
    rows, columns = pictures[0].shape
    return [_levels(p + np.kron(rng.normal(0, levels, (rows // side, columns // side)), square)) for p in pictures]


def change_light(pictures: Pictures, levels: float, *, columns: int = COLUMNS) -> Pictures:
    """Make the first columns brighter or darker by up to `levels`, in an irregular order."""
    offsets = np.random.default_rng(5).uniform(-levels, levels, len(pictures))
    part = np.arange(COLUMNS) < columns
    return [_levels(p + offset * part) for p, offset in zip(pictures, offsets, strict=True)]


def jitter(pictures: Pictures, pixels: float) -> Pictures:
    """Move each picture by up to `pixels` in any direction."""
    moves = np.random.default_rng(6).uniform(-pixels, pixels, (len(pictures), 2))
    affine, size = Image.Transform.AFFINE, (COLUMNS, ROWS)
    moved = [
        Image.fromarray(p).transform(size, affine, (1, 0, dx, 0, 1, dy), Image.Resampling.BICUBIC)
        for p, (dx, dy) in zip(pictures, moves, strict=True)
    ]
    return [np.asarray(picture) for picture in moved]


def interlace(pictures: Pictures, frames: float, *, side: int = 1) -> Pictures:
    """Take every second row, or every second `side` rows, from so many frames later."""
    later = [*pictures[int(frames) :], *pictures[-1:] * int(frames)]
    return [np.where(np.arange(len(p))[:, None] // side % 2, q, p) for p, q in zip(pictures, later, strict=True)]


def repeat_rows(pictures: Pictures, rows: float) -> Pictures:
    """Show one row of so many, as often."""
    return [np.repeat(picture[:: int(rows)], int(rows), 0)[:ROWS] for picture in pictures]


def double(pictures: Pictures, share: float) -> Pictures:
    """Let the picture show through itself, 18 columns farther."""
    return [_levels(picture + share * (np.roll(picture, 18, 1) - picture.astype(float))) for picture in pictures]


def add_dots(pictures: Pictures, count: float) -> Pictures:
    """Make some squares of two pixels white in all pictures."""
    places = np.random.default_rng(8).integers(8, ROWS - 8, (int(count), 2))
    out = [picture.copy() for picture in pictures]
    for picture in out:
        for row, column in places:
            picture[row : row + 2, column : column + 2] = 255
    return out


def lose_blocks(pictures: Pictures, share: float) -> Pictures:
    """Keep the 16x16 blocks of an earlier picture at random places, other ones in each frame."""
    rng = np.random.default_rng(7)
    out: Pictures = []
    for t, picture in enumerate(pictures):
        lost = np.kron(rng.random((ROWS // 16, COLUMNS // 16)) < share, np.ones((16, 16))).astype(bool)
        out.append(np.where(lost, pictures[max(t - 9, 0)][:, ::-1], picture))
    return out


def speed_up(pictures: Pictures, factor: float) -> Pictures:
    """Show the second half faster than the first."""
    half = len(pictures) // 2
    times = np.array([t * 0.5 if t < half else half * 0.5 + (t - half) * 0.5 * factor for t in range(len(pictures))])
    low = np.minimum(times.astype(int), len(pictures) - 2)
    shares = np.clip(times - low, 0, 1)
    return [_levels(pictures[i] * (1.0 - s) + pictures[i + 1] * s) for i, s in zip(low, shares, strict=True)]


def vanish(pictures: Pictures, radius: float) -> Pictures:
    """Paint over a quarter of the picture from the middle of the clip on."""
    y, x = np.mgrid[:ROWS, :COLUMNS]
    hidden = (y - 120) ** 2 + (x - 200) ** 2 < radius**2
    return [p if t < len(pictures) // 2 else np.where(hidden, 110, p).astype(np.uint8) for t, p in enumerate(pictures)]


def bend_a_part(pictures: Pictures, pixels: float) -> Pictures:
    """Move a part as large as a face to and fro by up to `pixels`."""
    y, x = np.mgrid[:ROWS, :COLUMNS]
    mask = np.clip(1.6 - np.hypot((y - 120) / 45, (x - 210) / 45), 0, 1)
    return [_pick(picture, y, x + pixels * mask * np.sin(0.35 * t)) for t, picture in enumerate(pictures)]


def wobble(pictures: Pictures, pixels: float) -> Pictures:
    """Bend each picture by slow waves that run through it."""
    y, x = np.mgrid[:ROWS, :COLUMNS].astype(float)
    out: Pictures = []
    for t, picture in enumerate(pictures):
        down = y + pixels * np.sin(x / 33 + 0.7 * t) * np.sin(y / 41 + 0.4 * t)
        right = x + pixels * np.cos(y / 29 - 0.6 * t) * np.sin(x / 47 + 0.5 * t)
        out.append(_pick(picture, down, right))
    return out


def encode(pictures: Pictures, crf: float, *, parameters: str = "") -> Pictures:
    """Encode as H.264 with this CRF, and decode."""
    written = io.BytesIO()
    options = {"crf": str(crf), "preset": "veryfast", "x264-params": parameters}
    with av.open(written, "w", format="mp4") as out:
        stream: Any = out.add_stream("libx264", rate=FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = COLUMNS, ROWS, "yuv420p"
        for picture in pictures:
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="gray8")))
        out.mux(stream.encode(None))
    written.seek(0)
    with av.open(written) as file:
        return [frame.to_ndarray(format="gray8") for frame in file.decode(video=0)]


encode_low = partial(encode, parameters="no-deblock=1")
"""Without the filter that hides blocks."""


def _levels(values: Any) -> Luma:
    return np.clip(np.round(values), 0, 255).astype(np.uint8)


def _pick(picture: Luma, rows: NDArray[Any], columns: NDArray[Any]) -> Luma:
    at = np.rint(rows).astype(int).clip(0, ROWS - 1), np.rint(columns).astype(int).clip(0, COLUMNS - 1)
    return picture[at]


FAULTS: Final[dict[str, tuple[Change, float]]] = {
    "blur": (blur, 2.0),
    "noise": (add_noise, 8.0),
    "blocks": (encode_low, 44.0),
    "bands": (change_levels(lambda p, step: np.round(p / step) * step), 9.0),
    "flicker": (change_light, 8.0),
    "holds": (hold, 3.0),
    "freeze": (show_others(lambda t, frames: 12 if 12 <= t < 12 + frames else t), 16.0),
    "jitter": (jitter, 4.0),
    "rows": (interlace, 2),
    "wide rows": (partial(interlace, side=2), 2),
    "repeated rows": (repeat_rows, 3.0),
    "double": (double, 0.3),
    "dots": (add_dots, 40.0),
    "veil": (change_levels(lambda p, share: p + share * (200 - p)), 0.4),
    "bright": (change_levels(lambda p, gain: 128 + gain * (p - 128)), 3.0),
    "sharpening": (sharpen, 2.0),
    "stamp": (change_levels(lambda p, levels: p + levels * STROKES), 60.0),
    "logo": (change_levels(lambda p, levels: p + levels * LOGO), 90.0),
    "lost blocks": (lose_blocks, 0.1),
    "skips": (show_others(lambda t, frames: t * 0.5 + t // 9 * frames), 4.0),
    "speed": (speed_up, 3.0),
    "loop": (show_others(lambda t, frames: t % frames), 10),
    "turn": (show_others(lambda t, frames: t if t < frames else max(2 * frames - t, 0)), 24),
    "part": (partial(change_light, columns=COLUMNS // 2), 20.0),
    "refresh": (refresh, 1.2),
    "softening": (soften_slowly, 3.0),
    "vanishing": (vanish, 70.0),
    "wobble": (wobble, 5.0),
    "boiling": (partial(add_noise, side=8), 12.0),
    "bending": (bend_a_part, 14.0),
}
HARMLESS: Final[dict[str, Callable[[Pictures], Pictures]]] = {
    "recoded": lambda pictures: encode_low(pictures, 16),
    "mirrored": lambda pictures: [np.ascontiguousarray(picture[:, ::-1]) for picture in pictures],
    "trimmed": lambda pictures: pictures[5:],
    "brighter": lambda pictures: [np.minimum(picture, 249) + np.uint8(6) for picture in pictures],
}
