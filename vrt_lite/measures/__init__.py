"""What is measured of two clips, beside what the judge says of them. A judge may read a report of it.

Here are the measures that people are shown, and when a difference between two clips counts.

    clip_measures   one pass over a clip; stills, moving (with camera and flow) and overlays measure what it collects
    moments         a clip's worst moments, which a report names
    definitions     all measures by name
    kept            what was measured, by the clip's content
    measuring       both clips of a pair, beside the judge
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from msgspec import Meta

from vrt_lite.protocol.messages import OVERALL, Choice
from vrt_lite.protocol.verdict import MIRROR, Verdict

MeasureName = Literal["sharpness", "noise", "blockiness", "banding", "flicker", "frozen", "repeated", "shake"]
Value = Annotated[float, Meta(ge=0)] | None
_FAR = 3
"""So many times what counts is far."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What a measure means. A difference counts from `least` on, and from a `share` of the larger value on.

    `key` is the dimension that it bears on, `worse` says what the video with the worse value is.
    """

    key: Literal["VQ", "MQ"]
    unit: str
    worse: str
    least: float
    share: float = 0.25
    digits: int = 1
    larger_is_better: bool = False


MEASURES: Final[dict[MeasureName, Measure]] = {
    "sharpness": Measure("VQ", "of 1", "blurrier", 0.06, 0.15, 2, larger_is_better=True),
    "noise": Measure("VQ", "levels", "noisier", 1.0),
    "blockiness": Measure("VQ", "times", "blockier", 0.2, 0.1, 2),
    "banding": Measure("VQ", "levels", "more banded", 0.3, 0.25, 2),
    "flicker": Measure("MQ", "levels", "more flickering", 1.0),
    "frozen": Measure("MQ", "s", "longer frozen", 0.4, 0.25, 2),
    "repeated": Measure("MQ", "% of frames", "more stuttering", 8.0),
    "shake": Measure("MQ", "% of the side", "shakier", 0.25, 0.25, 2),
}
"""By name. Luma has 256 levels; "of the side" is of the longer one."""


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """One measure of both videos; null: it could not be measured. `better` is 0 if the difference is too small.

    Levels are of 256. A share of 1 is all. "banding" is the root mean square of the steps between flat stretches,
    "frozen" the longest time without change, "repeated" how many frames repeat the one before, "shake" the change of
    speed of the whole picture from frame to frame.
    """

    name: MeasureName
    unit: str
    values: tuple[Value, Value]
    better: Choice | None

    def mirrored(self) -> MeasuredPair:
        """The same measure with the two videos exchanged."""
        better = None if self.better is None else MIRROR[self.better]
        return replace(self, values=(self.values[1], self.values[0]), better=better)


def compare_values(name: MeasureName, values: tuple[float | None, float | None]) -> MeasuredPair:
    """Return a measure of both videos with the better one."""
    measure = MEASURES[name]
    one, two = (value if value is None else round(float(value), 6) for value in values)
    return MeasuredPair(name, measure.unit, (one, two), _choose_better(measure, one, two))


def _choose_better(measure: Measure, one: float | None, two: float | None, *, times: float = 1) -> Choice | None:
    """Return the better video; 0 if the difference is less than so many `times` what counts."""
    if one is None or two is None:
        return None
    if abs(one - two) < max(times * measure.least, measure.share * max(one, two)):
        return 0
    return 1 if (one > two) == measure.larger_is_better else 2


def find_contradictions(
    verdict: Verdict, measured: Sequence[MeasuredPair], better: Mapping[str, Choice]
) -> tuple[str, ...]:
    """Return a sentence for each dimension in which what was measured contradicts the verdict plainly.

    `better` has the video that is better beyond doubt by what was measured, by key. The sentence names the measures in
    which the other one is far worse: three times what counts.
    """
    lines: list[str] = []
    for key, best in better.items():
        preference = verdict.preferences.get(key)
        if not preference or preference.choice == best or (preference.undecided and not preference.leans):
            continue
        video = 3 - best
        where = "Overall" if key == OVERALL else f"In {key}"
        says = (
            f"{'leans to' if preference.undecided else 'prefers'} video {video}" if preference.choice else "calls a tie"
        )
        far = [
            _describe_worse(pair, video)
            for pair in measured
            if key in (MEASURES[pair.name].key, OVERALL)
            and _choose_better(MEASURES[pair.name], *pair.values, times=_FAR) == best
        ]
        why = " and ".join(far) or "worse"
        lines.append(f"{where} the judge {says}, but video {video} is measured as {why}.")
    return tuple(lines)


def _describe_worse(pair: MeasuredPair, video: int) -> str:
    measure = MEASURES[pair.name]
    own, other = (f"{pair.values[clip] or 0:.{measure.digits}f}" for clip in (video - 1, 2 - video))
    return f"far {measure.worse} ({pair.name} {own} against {other} {measure.unit})"
