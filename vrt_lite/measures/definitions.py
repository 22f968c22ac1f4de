"""What each measure of a clip means. `stills`, `moving` and `overlays` compute them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Source = Literal["pictures", "pairs", "thumbnails", "file"]


@dataclass(frozen=True, slots=True)
class Definition:
    """A measure: its unit, what it is, and from what it is taken.

    "pictures" are five of the clip as stored, "pairs" six of neighbours. Two values are compared by their logarithm if
    there is a `floor`: log(value + floor); else as they are.
    """

    unit: str
    meaning: str
    source: Source
    floor: float | None = None


def _log(unit: str, meaning: str, source: Source, floor: float) -> Definition:
    return Definition(unit, meaning, source, floor)


DEFINITIONS: Final[Mapping[str, Definition]] = {
    # Detail and noise
    "sharpness": Definition("of 1", "local contrast that a blur of nine pixels takes away, at 360 rows", "pictures"),
    "noise": _log("levels", "standard deviation of the noise in the quietest fifth of the tiles", "pictures", 0.3),
    "gradient_1": Definition("correlation", "of the clipped gradient with that one pixel farther", "pictures"),
    "gradient_2": Definition("correlation", "of the clipped gradient with that two pixels farther", "pictures"),
    "gradient_3": Definition("correlation", "of the clipped gradient with that three pixels farther", "pictures"),
    "gradient_4": Definition("correlation", "of the clipped gradient with that four pixels farther", "pictures"),
    "detail": _log("levels", "fine detail of the tile that nine tenths have less than", "pictures", 0.05),
    "texture": _log("levels", "fine detail of the tile that four tenths have less than", "pictures", 0.05),
    "evenness": Definition(
        "of 1", "squared mean over mean square of the steps in tiles of middle contrast", "pictures"
    ),
    "detail_slope": Definition("log", "fine detail over that at half the resolution", "pictures"),
    "halo": Definition("of the step", "swing back beside steep edges: oversharpening", "pictures"),
    "seams": Definition("of 1", "steep edges that the picture swings back beside by half their step", "pictures"),
    "edges": _log("levels", "second difference that 95 % of the pixels have less than", "pictures", 0.5),
    # Codecs
    "blockiness": _log("times", "steps at the edges of 8x8 blocks over those inside", "pictures", 0.0),
    "grid_16": Definition("log", "steps at the edges of 16x16 blocks over those inside", "pictures"),
    "comb": Definition("log", "zigzag between rows over that between columns: interlacing", "pictures"),
    "wide_comb": Definition("log", "the same between every second row: of a picture that was enlarged", "pictures"),
    "steps": Definition("log", "least change from line to line over that around: repeated lines", "pictures"),
    "block_change": Definition("log", "change of the most changed 16x16 blocks over that of usual ones", "pairs"),
    "grid_change": Definition("log", "steps of the change at the edges of 16x16 blocks over those inside", "pairs"),
    "quiet_change": _log(
        "levels", "change that a fifth of the pixels have less than, and the share that changes", "pairs", 0.3
    ),
    # Bands and codes
    "banding": _log(
        "levels", "root mean square of the steps between two flats of three pixels and more", "pictures", 0.05
    ),
    "band_small": _log("share", "pixels at a step of one or two codes between flats", "pictures", 2e-4),
    "band_large": _log("share", "pixels at a larger step between flats", "pictures", 2e-4),
    "code_gaps": _log("nats", "entropy that smoothing the histogram of luma gains", "pictures", 0.02),
    "codes": Definition("of 1", "codes of luma in use", "pictures"),
    "top_code": Definition("of 1", "root of the share of the commonest code of luma", "pictures"),
    # Light and colour
    "contrast": Definition("of 1", "standard deviation of luma", "pictures"),
    "brightness": Definition("of 1", "mean of luma", "pictures"),
    "dark": Definition("of 1", "luma that a tenth of the pixels are darker than", "pictures"),
    "white": _log("share", "pixels at white", "pictures", 0.003),
    "black": _log("share", "pixels at black", "pictures", 0.003),
    "saturation": _log("levels", "colour that 95 % of the pixels have less of", "pictures", 1.0),
    "colours": _log("levels", "standard deviation of colour", "pictures", 1.0),
    "cast": _log("levels", "mean colour", "pictures", 1.0),
    "tint": _log("share", "median colour over luma", "pictures", 0.01),
    "neutral": _log("share", "pixels with next to no colour for their light", "pictures", 0.01),
    "white_point": _log("levels", "colour of the brightest twentieth", "pictures", 1.0),
    "colour_detail": Definition("log", "fine detail of colour over that of light", "pictures"),
    "colour_noise": _log("levels", "fine detail of colour of the tile that a fifth have less than", "pictures", 0.05),
    "colour_shift": _log("pixels", "how far the edges of colour lie beside those of light", "pictures", 0.1),
    "colour_lag": _log("of 1", "how much more alike the edges are if colour is moved", "pictures", 0.005),
    "colour_drift": _log("levels", "standard deviation of the mean colour in time", "thumbnails", 0.1),
    "colour_flicker": _log("levels", "mean colour of a frame against its neighbours'", "thumbnails", 0.02),
    # Frames in time
    "frozen": _log("s", "longest time in which a frame is repeated", "thumbnails", 0.04),
    "repeated": _log("% of frames", "frames that repeat the one before", "thumbnails", 1.0),
    "same": Definition("of 1", "frames that differ by less than 0.06 levels from the one before", "thumbnails"),
    "interval": Definition("log s", "time between two frames that differ", "thumbnails"),
    "change": _log("levels", "mean difference of neighbours", "thumbnails", 0.1),
    "unevenness": Definition("of the mean", "standard deviation of the difference of neighbours", "thumbnails"),
    "alternation": Definition("of the mean", "change of the difference from frame to frame", "thumbnails"),
    "jump": _log("times", "third largest difference over the median", "thumbnails", 0.1),
    "lone_jump": _log("times", "largest ratio of a difference to those beside it", "thumbnails", 0.1),
    "echo": Definition("correlation", "largest between differences four frames to 0.9 s apart", "thumbnails"),
    "return": _log("of 1", "likeness of the frames before and after a moment; 0 where time turns", "thumbnails", 0.02),
    "detour": Definition("log", "squared difference over two frames over that over one", "thumbnails"),
    # Light and detail in time
    "flicker": _log("levels", "light of a frame against its neighbours', median of the picture", "thumbnails", 0.05),
    "local_flicker": _log("log", "the same by parts, without what all parts share", "thumbnails", 0.001),
    "fine": Definition("log levels", "fine detail of thumbnails", "thumbnails"),
    "fading": _log("log", "change of fine detail from the first to the last sixth", "thumbnails", 0.02),
    "boiling": _log("log", "fine detail of a cell against its neighbours in time, median", "thumbnails", 0.002),
    "pulse": _log("log", "fine detail of the picture against its neighbours in time", "thumbnails", 0.001),
    "largest_pulse": _log("log", "the same, the largest", "thumbnails", 0.001),
    "vanishing": _log("log", "largest change of fine detail of some cells over four frames", "thumbnails", 0.02),
    # Camera, motion and overlays
    "shake": _log("% of the side", "change of the picture's speed from frame to frame, mean", "thumbnails", 0.01),
    "jerk": _log("% of the side", "the same by axis, median", "thumbnails", 0.01),
    "zigzag": Definition("correlation", "of the picture's speed with that one frame before", "thumbnails"),
    "near_flow": _log("% of the side", "motion beside the camera's over 1/24 s, lower third", "thumbnails", 0.01),
    "near_change": _log("levels", "difference over 1/24 s that motion does not explain", "thumbnails", 0.1),
    "far_flow": _log("% of the side", "motion beside the camera's over 0.3 s, lower third", "thumbnails", 0.01),
    "far_twist": _log("pixels", "how unevenly that motion stretches the picture", "thumbnails", 0.01),
    "far_change": _log("levels", "difference over 0.3 s that motion does not explain", "thumbnails", 0.1),
    "wavering": _log("% of the side", "change of the motion beside the camera's", "thumbnails", 0.02),
    "spot_light": _log("log", "change of light in time, of a few cells", "thumbnails", 0.01),
    "spot_motion": _log("% of the side", "motion beside the camera's over 0.3 s, of a few cells", "thumbnails", 0.02),
    "spot_wavering": _log(
        "% of the side", "change of the motion beside the camera's, of a few cells", "thumbnails", 0.02
    ),
    "fixed_edges": Definition("of 1", "steadiness of the steadiest edges over the usual", "thumbnails"),
    "fixed_corner": _log("levels", "steady edges of the corner that has most of them", "thumbnails", 1.0),
    "light_strokes": _log("levels", "bright thin strokes that every frame has", "thumbnails", 1.0),
    "dark_strokes": _log("levels", "dark thin strokes that every frame has", "thumbnails", 1.0),
    "dots": _log("share", "pixels that stand out from all around in every frame", "thumbnails", 5e-5),
    "doubled": Definition("log", "highest echo of the picture in itself, in deviations of the rest", "thumbnails"),
    # The file
    "rows": Definition("log", "pixels of the shorter side over 360", "file"),
    "rate": Definition("log", "frames a second over 24", "file"),
    "length": Definition("log", "frames over 48", "file"),
}


def comparable(name: str, value: float) -> float:
    """Return a value on the scale on which two clips are compared."""
    floor = DEFINITIONS[name].floor
    return value if floor is None else math.log(max(value, 0.0) + floor + 1e-9)
