"""Checks without labels whether a judge works here: whether its verdicts follow changes whose effect is plain.

An exchanged caption lowers alignment, a blurred copy visual quality, a stuttering copy motion; different clips do not
get the same scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vrt_lite.advice import command
from vrt_lite.api import Judge
from vrt_lite.diagnosis.finding import Finding
from vrt_lite.errors import NoVerdictError
from vrt_lite.protocol.verdict import odds_of
from vrt_lite.records.judgement import Judgement

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Frames = Sequence[NDArray[np.uint8]]

_BLUR: Final = 4
"""Pixels to each side that a blurred one is the mean of."""
_STUTTER: Final = 6
_SIDE, _COUNT, _STEP = 224, 24, 6
_MOST_COPIED: Final = 96
_NEXT: Final = command("vrt-lite", "models")
_NAMES: Final = {"TA": "alignment", "VQ": "visual quality", "MQ": "motion quality"}


@dataclass(frozen=True, slots=True)
class CaptionedClip:
    """A clip and the caption that it was made from."""

    clip: Path
    caption: str


def check_judge(judge: Judge, one: CaptionedClip, other: CaptionedClip, folder: Path) -> list[Finding]:
    """Check a judge with two clips of different captions, and with copies of the first, written into the folder."""
    blurred = _copy(one.clip, folder / "blurred.mp4", lambda frames: [_blur(pixels) for pixels in frames])
    stuttering = _copy(
        one.clip, folder / "stuttering.mp4", lambda frames: [frames[n - n % _STUTTER] for n in range(len(frames))]
    )
    try:
        own, exchanged = (judge.compare(one.clip, other.clip, prompt=of.caption) for of in (one, other))
        worse, jerky = (judge.compare(one.clip, copy, prompt=one.caption) for copy in (blurred, stuttering))
    except NoVerdictError as error:
        return [Finding("judge_silent", "problem", str(error), _NEXT)]
    share = _share(exchanged, "TA")
    alignment = _describe(own, "TA", "beside a clip of another caption", share, f", {share:.2f} with that caption")
    # A judge that leaves out a caption that it does not understand says so.
    if "TA" in judge.mode.profile.keys and "TA" in own.verdict.not_judged:
        text = "alignment: not judged, as the judge does not understand these captions"
        alignment = Finding("judge_ta", "note", text)
    quality = _describe(worse, "VQ", "beside its blurred copy")
    found = [alignment, quality, _describe(jerky, "MQ", "beside its stuttering copy")]
    scores = [of for judgement in (own, worse, jerky) for of in judgement.scores or ()]
    if scores and all(of == scores[0] for of in scores):
        text = "different clips get the same scores: the judge does not see them, or answers by rote"
        found.append(Finding("judge_same_scores", "note", text, _NEXT))
    return found


def draw_clips(folder: Path) -> tuple[CaptionedClip, CaptionedClip]:
    """Draw two clips, for a machine that has none: a shape that moves over a ground about as rough as footage."""
    import numpy as np
    from PIL import Image, ImageDraw

    draws, ground = np.random.default_rng(0), Image.new("RGB", (_SIDE, _SIDE), "grey")
    for cells in (112, 56, 28, 14, 7):  # as in footage, the coarser the stronger
        layer = Image.fromarray(draws.integers(256, size=(cells, cells, 3), dtype=np.uint8))
        ground = Image.blend(ground, layer.resize(ground.size), 1 / 2)
    right: list[NDArray[np.uint8]] = []
    up: list[NDArray[np.uint8]] = []
    low, high = _SIDE // 2 - 30, _SIDE // 2 + 30
    for at in range(10, 10 + _STEP * _COUNT, _STEP):
        square, circle = ground.copy(), ground.copy()
        ImageDraw.Draw(square).rectangle((at, low, at + 60, high), (230, 20, 20))
        ImageDraw.Draw(circle).ellipse((low, _SIDE - at - 60, high, _SIDE - at), (20, 40, 230))
        right.append(np.asarray(square))
        up.append(np.asarray(circle))
    return (
        CaptionedClip(_write(folder / "right.mp4", right), "A red square moves right."),
        CaptionedClip(_write(folder / "up.mp4", up), "A blue circle moves up."),
    )


def _describe(judgement: Judgement, key: str, beside: str, least: float = 1 / 2, changed: str = "") -> Finding:
    """Say whether the first clip's share is above the `least`, a half or that of what was `changed`."""
    asked = "" if key in judgement.verdict.preferences else f" (asked overall: {key} is not judged)"
    share, kind = _share(judgement, key), f"judge_{key.lower()}"
    text = f"{_NAMES[key]}{asked}: {share:.2f} for a clip {beside}{changed}"
    if share > least:
        return Finding(kind, "ok", text)
    return Finding(kind, "problem", f"{text}: it should be more", _NEXT)


def _share(judgement: Judgement, key: str) -> float:
    """The probability that video 1 is better, half of a tie's counted for it; overall if the key is not judged."""
    preference = judgement.verdict.preferences.get(key, judgement.verdict.overall)
    tie, one, _ = odds_of(preference.choice, preference.odds)
    return one + tie / 2


def _copy(clip: Path, to: Path, change: Callable[[Frames], Frames]) -> Path:
    """Write a changed copy of a clip's first seconds."""
    from vrt_lite.video import open_clip  # noqa: PLC0415

    with open_clip(clip) as opened:
        count = min(opened.info.frames, _MOST_COPIED)
        frames = opened.frames(range(count), size=(opened.info.width // 2 * 2, opened.info.height // 2 * 2))
        seconds = Fraction(opened.info.duration_seconds / opened.info.frames).limit_denominator(1000)
    return _write(to, change([frames[n] for n in range(count)]), seconds)


def _write(path: Path, frames: Frames, seconds: Fraction = Fraction(1, 12)) -> Path:
    from vrt_lite.video.encoding import write_lossless  # noqa: PLC0415

    path.write_bytes(write_lossless(frames, frame_seconds=seconds))
    return path


def _blur(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    import numpy as np
    from PIL import Image, ImageFilter

    return np.asarray(Image.fromarray(pixels).filter(ImageFilter.BoxBlur(_BLUR)))
