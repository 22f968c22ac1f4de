"""Converts high dynamic range or wide gamut to SDR: transfer curves, primaries and one tone curve, on float images.

The curve, in display light with 1.0 = 203 nits, the reference white of ITU-R BT.2408: the largest of the
three channels m becomes

    f(m) = m                                      up to the knee, 0.6 (122 nits)
    f(m) = 0.6 + 0.4 (1 - exp(-(m - 0.6) / 0.4))  above it

and all three are scaled by f(m) / m, so hues stay. Middle tones keep their brightness; highlights approach 1 smoothly.
Reference white becomes 0.853, code 239 of 255; the codes above it are for the highlights. The output is coded for a
BT.1886 display (power 2.4), BT.709 primaries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrt_lite.video.frame_source import Pixels, Transfer

REFERENCE_WHITE_NITS = 203.0
KNEE = 0.6
_DISPLAY_POWER = 2.4
_HLG_PEAK_NITS = 1000.0
_HLG_SYSTEM_GAMMA = 1.2  # for a 1000-nit display, BT.2100

_LUMA_2020 = np.array([0.2627, 0.6780, 0.0593])
# BT.2087: linear BT.2020 to linear BT.709, both D65.
_TO_709 = np.array([[1.6605, -0.5876, -0.0728], [-0.1246, 1.1329, -0.0083], [-0.0182, -0.1006, 1.1187]])


def to_sdr(signal: NDArray[np.floating[Any]], transfer: Transfer) -> Pixels:
    """BT.2020 R'G'B' (height, width, 3) in 0..1 to BT.709 R'G'B' in 0..255.

    `sdr` is the wide gamut alone: primaries change, brightness does not.
    """
    coded = np.clip(signal.astype(np.float64), 0.0, 1.0)
    if transfer == "pq":  # SMPTE ST 2084, table 4
        m1, m2 = 2610 / 16384, 2523 / 4096 * 128
        c1, c2, c3 = 3424 / 4096, 2413 / 4096 * 32, 2392 / 4096 * 32
        root = coded ** (1 / m2)
        light = 10000 * (np.maximum(root - c1, 0) / (c2 - c3 * root)) ** (1 / m1) / REFERENCE_WHITE_NITS
    elif transfer == "hlg":  # ARIB STD-B67 / BT.2100: inverse camera curve, then the system curve on luminance
        a, b, c = 0.17883277, 0.28466892, 0.55991073
        scene = np.where(coded <= 0.5, coded**2 / 3, (np.exp((coded - c) / a) + b) / 12)
        luminance = np.maximum((scene @ _LUMA_2020)[..., None], 1e-6)
        light = _HLG_PEAK_NITS * luminance ** (_HLG_SYSTEM_GAMMA - 1) * scene / REFERENCE_WHITE_NITS
    else:
        light = coded**_DISPLAY_POWER
    light = np.maximum(light @ _TO_709.T, 0.0)
    if transfer != "sdr":  # the tone curve of the module docstring, on the largest channel so that hues stay
        top = np.maximum(np.max(light, axis=-1, keepdims=True), 1e-6)
        over = np.maximum(top - KNEE, 0.0)
        light *= (np.minimum(top, KNEE) + (1 - KNEE) * (1 - np.exp(-over / (1 - KNEE)))) / top
    shown = np.clip(light, 0.0, 1.0) ** (1 / _DISPLAY_POWER)
    return np.rint(shown * 255).astype(np.uint8)
