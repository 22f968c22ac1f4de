"""What was measured of a pair, and the report of it that a judge may read in its first turn.

A report says in words which video is measured as better, in eleven steps for each of VQ, MQ and OA, which faults have a
name, and which frames are worth asking for. It is a pure function of what was measured and of a profile's words.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal, Self, cast

from vrt_lite.protocol.messages import Odds, fill
from vrt_lite.protocol.verdict import likeliest

MeasuredKey = Literal["VQ", "MQ", "OA"]
MEASURED_KEYS: Final[tuple[MeasuredKey, ...]] = ("VQ", "MQ", "OA")
"""The keys in which a pair can be measured."""
DEGREES_FROM: Final = (0.6, 0.75, 0.85, 0.95)
"""The probabilities of the better video from which on the second to the fifth degree is said."""
_SPREAD: Final = (1 / 4, 3 / 4, 1 / 2, 0.0, 1.0)
"""Shares of a clip's length, in the order in which they are named where nothing worse is known of the clip."""


@dataclass(frozen=True, slots=True)
class MeasuredFault:
    """What is wrong with a video beside the other one: "video 2: strong blocks"."""

    video: Literal[1, 2]
    name: str
    strength: str

    def mirrored(self) -> Self:
        """The same with the two videos exchanged."""
        return replace(self, video=1 if self.video == 2 else 2)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of a pair. `odds` are of (tie, video 1, video 2) for each of VQ, MQ and OA.

    `moments` are each video's worst moments, the worst first, as shares of its length.
    """

    odds: Mapping[MeasuredKey, Odds]
    faults: tuple[MeasuredFault, ...] = ()
    moments: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())

    def mirrored(self) -> Measured:
        """The same with the two videos exchanged."""
        return Measured(
            mirror_odds(self.odds),
            tuple(fault.mirrored() for fault in self.faults),
            (self.moments[1], self.moments[0]),
        )


def mirror_odds(odds: Mapping[MeasuredKey, Odds]) -> dict[MeasuredKey, Odds]:
    """Exchange the two videos in the odds of each key."""
    return {key: (tie, two, one) for key, (tie, one, two) in odds.items()}


@dataclass(frozen=True, slots=True)
class ReportWords:
    """The words of a report: plain English, unless a profile has its own.

    `text` has {vq}, {mq} and {oa}, each of which is `better` with one of five `degrees`, or `alike`; {faults}, each of
    which is a `fault`; and {frames}, which is `frames` with the {numbers} of those at the worst moments. A judge that
    cannot copy numbers is told instead in which of four `parts` the worst moment of {one} and of {two} lies. A judge
    that is not `allowed` a report is never shown one.
    """

    allowed: bool = True
    text: str = (
        "\n\nInstruments measured the technical quality of both videos. They know nothing of the prompt and may be "
        "wrong.\nVisual quality (VQ): {vq}. Motion quality (MQ): {mq}. Both together: {oa}.{faults}{frames}"
    )
    better: str = "video {video} is {degree} better"
    degrees: tuple[str, ...] = ("barely", "slightly", "clearly", "strongly", "plainly")
    alike: str = "both are alike"
    fault: str = "\nVideo {video} has a fault: {name}, {strength}."
    frames: str = "\nFrames worth a look: {numbers}."
    parts: tuple[str, ...] = ("early", "in the middle", "late", "throughout")

    def check(self) -> ReportWords:
        """Return the words, if a file's can be used; ValueError, naming the value, if not."""
        for name, value in cast("dict[str, object]", asdict(self)).items():
            default = getattr(_ENGLISH, name)
            if isinstance(default, str) and not isinstance(value, str):
                raise ValueError(f"evidence.{name} = {value!r} is not a text")
            if isinstance(default, tuple):
                count, texts = len(cast("tuple[str, ...]", default)), cast("tuple[object, ...]", value)
                if len(texts) != count or not all(isinstance(text, str) for text in texts):
                    raise ValueError(f"evidence.{name} = {texts!r} are not {count} texts")
        if missing := [key for key in MEASURED_KEYS if f"{{{key.lower()}}}" not in self.text]:
            raise ValueError(f"evidence.text has no {{{missing[0].lower()}}}")
        return self


_ENGLISH: Final = ReportWords()
EXAMPLE: Final = Measured(
    dict.fromkeys(MEASURED_KEYS, (0.0, 1.0, 0.0)), (MeasuredFault(2, "oversharpening", "strong"),)
)
"""What a long report is of, for estimates."""


def write_report(measured: Measured, words: ReportWords, *, workspace: int, most_frames: int) -> str:
    """Write the report of a pair whose videos have `workspace` frames each, of which a call has at most so many."""
    steps = {key.lower(): _write_step(measured.odds[key], words) for key in MEASURED_KEYS}
    faults = "".join(fill(words.fault, video=f.video, name=f.name, strength=f.strength) for f in measured.faults)
    numbers = [
        str(clip * workspace + place + 1)
        for clip, moments in enumerate(measured.moments)
        for place in choose_places(moments, workspace, most_frames // 2)
    ]
    one, two = (words.parts[find_part(moments)] for moments in measured.moments)
    frames = fill(words.frames, numbers=", ".join(numbers), one=one, two=two) if numbers else ""
    return fill(words.text, **steps, faults=faults, frames=frames)


def _write_step(odds: Odds, words: ReportWords) -> str:
    better = likeliest(odds)
    degree = words.degrees[bisect_right(DEGREES_FROM, odds[better])]
    return fill(words.better, video=better, degree=degree) if better else words.alike


def find_part(moments: Sequence[float]) -> int:
    """Find the third of a clip in which its worst moment lies, 0 to 2; 3 if it has none."""
    return min(int(3 * moments[0]), 2) if moments else 3


def choose_places(moments: Sequence[float], workspace: int, most: int) -> tuple[int, ...]:
    """Choose at most so many places of a workspace: two neighbours at each moment, then some spread over the clip.

    Neighbours show motion, and the frames that are shown first are far apart.
    """
    chosen: set[int] = set()
    for share in (*moments, *_SPREAD):
        first = min(round(share * (workspace - 1)), workspace - 2)
        if first >= 0 and len(chosen) + 2 <= most and not chosen & {first, first + 1}:
            chosen |= {first, first + 1}
    return tuple(sorted(chosen))
