"""What the text model of the small judge learns from: shown pairs, a report of each, and what a judge writes then.

The report comes from numbers and not from pictures: it is drawn here, mostly right, sometimes unsure or wrong. The
judge repeats it, whatever the pictures show; alignment it judges by looking.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from train.tiny.fault_kinds import FAULTS
from train.tiny.seen_pairs import FIRST, SeenFrames, SeenPair, Split, draw_pair
from train.tiny.spoiled_pictures import Chance
from train.tiny.world.describing import count_mismatches, describe_caption, list_mismatches
from vrt_lite.interfaces import FrameStore
from vrt_lite.judge import Pair
from vrt_lite.measures.preference import STRENGTHS
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import KEYS, Choice, FrameRef, Odds
from vrt_lite.protocol.report import DEGREES_FROM, MEASURED_KEYS, Measured, MeasuredFault, choose_places, find_part
from vrt_lite.protocol.verdict import join_with_alignment, likeliest, prefer

_UNMEASURED, _RIGHT, _AGREES = 0.03, 0.75, 0.85
_NAMED: Final = (0.7, 0.15)
_MOMENTS = 0.75
PARTS: Final = (*(((part + 1 / 4) / 3, (part + 3 / 4) / 3) for part in range(3)), ())
"""The moments for which a judge asks by what it is told: two in a third of the clip, or some spread over it."""
_NAMES: Final = tuple(sorted({kind.name for kind in FAULTS.values()}))


@dataclass(frozen=True, slots=True)
class TextCase:
    """A pair with its report, what the judge writes round by round, and the probabilities of its answers' digits.

    `alignment` is the label of TA.
    """

    pair: Pair
    alignment: Choice
    replies: tuple[str, ...]
    odds: Mapping[str, Odds]


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The frames of a pair with exchanged clips, taken from the open frames of the pair."""

    frames: FrameStore

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        """Return the pixels of frames, as `vrt_lite.interfaces.FrameStore` requires."""
        return self.frames.pixels([replace(frame, clip=1 - frame.clip) for frame in frames])


@dataclass(frozen=True, slots=True)
class TextPair:
    """A pair in both orders. `shown` is the first of them; `profile` has its workspace."""

    profile: Profile
    shown: SeenPair
    orders: tuple[TextCase, TextCase]

    def open_frames(self) -> tuple[FrameStore, FrameStore]:
        """Return the frames of both orders; they are made on request."""
        frames = SeenFrames(self.shown, self.profile)
        return frames, Exchanged(frames)


@dataclass(frozen=True, slots=True)
class TextCases:
    """Pairs by number, of a part's seeds. Without a folder of footage none is filmed."""

    profile: Profile
    footage: Path | None
    part: Split = "train"

    def draw(self, number: int) -> TextPair:
        """Draw a pair."""
        shown = draw_pair(number, self.part, self.footage)
        chance = np.random.default_rng((FIRST[self.part] + number, 45))
        a, b = shown.clips
        pair = Pair(shown.caption, (a.seconds, b.seconds), (a.size, b.size), _draw_measured(chance, shown))
        orders = _write_case(pair, self.profile, shown), _write_case(pair.swapped(), self.profile, shown.swapped())
        return TextPair(self.profile, shown, orders)


def _draw_measured(chance: Chance, shown: SeenPair) -> Measured | None:
    """Draw what measuring might say of a pair: its odds, in most pairs the fault of the worse video, and moments."""
    if chance.random() < _UNMEASURED:
        return None
    a, b = (clip.painting.keys if clip.painting else () for clip in shown.clips)
    truth = {key: 0 if (key in a) == (key in b) else 1 if key in b else 2 for key in ("VQ", "MQ")}
    odds = {key: _draw_odds(chance, truth[key]) for key in truth}
    signs = {likeliest(odds[key]) for key in odds} - {0}
    overall = signs.pop() if len(signs) == 1 else int(chance.integers(3))
    odds["OA"] = _draw_odds(chance, overall if chance.random() < _AGREES else int(chance.integers(3)), sure=True)
    faults: list[MeasuredFault] = []
    if better := likeliest(odds["OA"]):
        for share in _NAMED:
            if chance.random() < share:
                faulty = 2 if (better == 1) == (chance.random() < 0.9) else 1
                faults.append(MeasuredFault(faulty, str(chance.choice(_NAMES)), str(chance.choice(STRENGTHS))))
    one, two = (tuple(float(share) for share in chance.random(int(chance.random() < _MOMENTS))) for _ in range(2))
    return Measured({key: odds[key] for key in MEASURED_KEYS}, tuple(faults), (one, two))


def _draw_odds(chance: Chance, truth: int, *, sure: bool = False) -> Odds:
    """Draw the probabilities of tie, video 1 and video 2: of any degree, and mostly for what is true."""
    said = truth if sure or chance.random() < _RIGHT else int(chance.integers(3))
    bounds = (0.4, *DEGREES_FROM, 1.0)
    degree = int(chance.integers(len(bounds) - 1))
    most = chance.uniform(bounds[degree], bounds[degree + 1])
    rest = (1 - most) * np.array([share := chance.uniform(0.3, 0.7), 1 - share])
    one, two = (float(part) for part in np.minimum(rest, 0.99 * most))
    odds = [one, two]
    odds.insert(said, 1 - one - two)
    return odds[0], odds[1], odds[2]


def _write_case(pair: Pair, profile: Profile, shown: SeenPair) -> TextCase:
    wrong = [count_mismatches(shown.caption_looks, clip.looks) for clip in shown.clips]
    alignment: Choice = 0 if wrong[0] == wrong[1] else 1 if wrong[0] < wrong[1] else 2
    odds = _judge(pair.measured, alignment)
    return TextCase(pair, alignment, _write_replies(pair, profile, shown, wrong, odds), odds)


def _judge(measured: Measured | None, alignment: Choice) -> dict[str, Odds]:
    """Return the probabilities with which a judge answers: what it read, joined with what it saw of alignment."""
    odds = measured.odds if measured else dict.fromkeys(MEASURED_KEYS, (1.0, 0.0, 0.0))
    seen = prefer(alignment, (float(alignment == 0), float(alignment == 1), float(alignment == 2)))
    joined = join_with_alignment(prefer(likeliest(odds["OA"]), odds["OA"]), seen)
    return {**odds, "TA": seen.odds or odds["OA"], "OA": joined.odds or odds["OA"]}


def _write_replies(
    pair: Pair, profile: Profile, shown: SeenPair, wrong: Sequence[int], odds: Mapping[str, Odds]
) -> tuple[str, ...]:
    """Write what a judge writes that read the report: it repeats it, describes what it sees, and joins both."""
    measured = pair.measured
    says = {key: likeliest(odds[key]) for key in KEYS}
    read = measured.odds if measured else {}
    lines = ["Measured: " + (", ".join(f"{key}={likeliest(read[key])}" for key in read) or "nothing") + "."]
    lines += [f"Video {fault.video}: {_name(fault)}." for fault in measured.faults] if measured else []
    lines += [f"Video {number}: {clip.description}." for number, clip in enumerate(shown.clips, start=1)]
    thought = [describe_caption(shown.caption_looks)]
    if shown.caption_looks:
        listed = (list_mismatches(shown.caption_looks, clip.looks, held=True) for clip in shown.clips)
        thought += [f"Video {n}: {', '.join(each)}. TA {wrong[n - 1]}." for n, each in enumerate(listed, start=1)]
    apart = f" by {abs(wrong[0] - wrong[1])}" if says["TA"] else ""
    total = f"Sum: TA={says['TA']}{apart}, VQ={says['VQ']}, MQ={says['MQ']}, OA={says['OA']}."
    answer = ", ".join(f"{key}={says[key]}" for key in KEYS)
    first = f"<snapshot>\n{_join(lines)}\n</snapshot>\n<think>\n{_join([*thought, total])}\n</think>\n"
    if measured is None:
        return (f"{first}<final answer>{answer}</final answer>",)
    places = (choose_places(PARTS[find_part(each)], profile.workspace, 4) for each in measured.moments)
    numbers = [[clip * profile.workspace + place + 1 for place in own] for clip, own in enumerate(places)]
    payload = {"name": "select_frames", "arguments": {"target_frames": [n for each in numbers for n in each]}}
    call = f"<tool_call>\n{json.dumps(payload)}\n</tool_call>"
    recommended = f"<recommend answer>{answer}, CF={_confidence(read['OA'])}</recommend answer>"
    again = [
        f"Video {n}: frames {', '.join(map(str, numbers[n - 1]))}: {clip.name}."
        for n, clip in enumerate(shown.clips, start=1)
    ]
    last = f"<snapshot>\n{_join(again)}\n</snapshot>\n<think>\n{total}\n</think>\n<final answer>{answer}</final answer>"
    return (f"{first}{recommended}\n{call}", last)


def _join(lines: Sequence[str]) -> str:
    return "\n".join(lines)


def _name(fault: MeasuredFault) -> str:
    return f"{fault.strength} {fault.name} measured"


def _confidence(odds: Odds) -> int:
    """Return CF, 1 to 5: the degree of the better video, 3 for a tie."""
    best = likeliest(odds)
    return 1 + sum(odds[best] >= bound for bound in DEGREES_FROM) if best else 3
