"""What measuring says of a pair: a part of the record of a judgement. `preference` makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from vrt_lite.protocol.messages import Choice, Odds
from vrt_lite.protocol.report import MeasuredFault, MeasuredKey, mirror_odds
from vrt_lite.protocol.verdict import MIRROR, Preference, prefer

HEADS_FILE: Final = Path(__file__).with_name("heads.npz")
PLAIN_FROM: Final = 0.9
"""The probability from which on a measured winner plainly contradicts another choice."""


@dataclass(frozen=True, slots=True)
class NamedFault(MeasuredFault):
    """What is wrong with a video beside the other one, if that is sure: "video 2: blocks, strong"."""

    probability: Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class MeasuredPreference:
    """What measuring says of a pair. `odds` are of a tie, of video 1 and of video 2.

    `winners` has 1 or 2, 0 for a tie, and null where it is not sure. `same_scene` tells whether both clips are versions
    of one scene.
    """

    odds: Mapping[MeasuredKey, Odds]
    winners: Mapping[MeasuredKey, Choice | None]
    same_scene: bool
    faults: tuple[NamedFault, ...] = ()

    @property
    def preferences(self) -> dict[str, Preference]:
        """The preferences by key. Where measuring is not sure of a video, it is undecided and leans to it.

        It leans to no video whose fault is named.
        """
        found: dict[str, Preference] = {}
        faulty = {fault.video for fault in self.faults}
        for key, odds in self.odds.items():
            likeliest: Choice = 1 if odds[1] > max(odds[0], odds[2]) else 2 if odds[2] > max(odds[:2]) else 0
            sure = self.winners[key] == likeliest or not likeliest
            leans = 0 if likeliest in faulty else likeliest
            found[key] = prefer(likeliest, odds) if sure else prefer(0, odds, leans)
        return found

    @property
    def plain_winners(self) -> dict[str, Choice]:
        """The videos that are better beyond doubt, by key."""
        return {key: winner for key, winner in self.winners.items() if winner and self.odds[key][winner] >= PLAIN_FROM}

    def mirrored(self) -> MeasuredPreference:
        """The same with the two videos exchanged."""
        return MeasuredPreference(
            mirror_odds(self.odds),
            {key: winner if winner is None else MIRROR[winner] for key, winner in self.winners.items()},
            self.same_scene,
            tuple(fault.mirrored() for fault in self.faults),
        )
