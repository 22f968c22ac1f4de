"""The record of a ranking: the clips of each group in their order, and what it was made of. Its JSON has these fields.

A rating is in natural-log odds, with mean 0 over the group's clips and a 95 % interval; or it is the score of a judge
that judges each clip by itself, whose interval nobody has measured. What was not judged is absent or null.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from vrt_lite.measures.flags import Flag
from vrt_lite.protocol.messages import DIMENSIONS
from vrt_lite.protocol.verdict import Preference
from vrt_lite.records.judgement import PlainData, Record, to_plain
from vrt_lite.records.pairs import Conditions, OrderCounts


class RankedClip(msgspec.Struct, frozen=True):
    """A clip in a group: its file, its content, and a name that no other clip of the group has.

    `flags` are the faults that are measured of the clip by itself.
    """

    name: str
    path: Path
    sha256: str
    flags: tuple[Flag, ...] = ()


class ExcludedClip(msgspec.Struct, frozen=True):
    """A clip that is left out: broken, flagged, a copy of another one, or alone in its group.

    Only `broken` is a fault.
    """

    path: Path
    group: str
    reason: str
    broken: bool = False


class Rated(msgspec.Struct, frozen=True):
    """A strength and its 95 % interval, in natural-log odds; or a score, without an interval."""

    strength: float
    low: float | None = None
    high: float | None = None

    @property
    def span(self) -> tuple[float, float]:
        """The interval, or what is drawn of a score."""
        return (self.strength, self.strength) if self.low is None or self.high is None else (self.low, self.high)


class Standing(msgspec.Struct, frozen=True, rename={"letters": "together", "winning": "better_than_next"}):
    """A clip's place. Clips that share one of their `letters` cannot be told apart; scores have none.

    `clip` is its place in the ladder's `clips`. `ratings` is by key: OA, and those of TA, VQ and MQ that any pair was
    judged in; scores also by the judge's own names. Won, tied, lost and undecided count pairs, overall. `winning` is
    the probability that the clip is better than the next one.
    """

    rank: int
    clip: int
    name: str
    path: Path
    letters: tuple[str, ...]
    ratings: Mapping[str, Rated]
    won: int
    tied: int
    lost: int
    undecided: int
    winning: float | None


class UnrankedClip(msgspec.Struct, frozen=True):
    """A clip without a verdict in any pair, by its place in the ladder's `clips`, and why."""

    clip: int
    name: str
    reason: str


class LadderPair(msgspec.Struct, frozen=True):
    """What was judged of two clips, by their places i < j in the ladder's `clips`, both orders joined.

    `preferences` is by key, empty without a verdict; `disagreements` are the keys on which the orders choose
    differently. `judgements` are the keys of those with clip i and clip j shown first, null where there is none, and
    `errors` say why one has no verdict.
    """

    clips: tuple[int, int]
    preferences: Mapping[str, Preference]
    disagreements: tuple[str, ...]
    judgements: tuple[str | None, str | None]
    errors: tuple[str, ...]


class Ladder(msgspec.Struct, frozen=True, omit_defaults=True, rename={"first": "shown_first"}):
    """The ranking of one group. A clip's number is its place in `clips`, which are in the order given.

    `best` has the best clip, then those that cannot be told apart from it. In each of the `cycles`, each clip beats the
    next one and the last beats the first. `orders` says how often the orders of a pair disagree. `first` is how much it
    helps to be shown first (log odds, overall); None if each clip was judged by itself. `conditions` says whether the
    judgements can be compared. `pairs` are those judged.
    """

    group: str
    prompt: str
    clips: tuple[RankedClip, ...]
    standings: tuple[Standing, ...]
    best: tuple[int, ...]
    unranked: tuple[UnrankedClip, ...]
    cycles: tuple[tuple[int, ...], ...]
    orders: OrderCounts
    first: Rated | None
    judgements: int
    failures: int
    possible_pairs: int
    conditions: Conditions
    pairs: tuple[LadderPair, ...] = ()

    @property
    def ranked(self) -> tuple[RankedClip, ...]:
        """The clips, best first; without those of `unranked`."""
        return tuple(self.clips[standing.clip] for standing in self.standings)

    @property
    def judged(self) -> tuple[str, ...]:
        """The keys of the dimensions that any pair was judged in."""
        return tuple(key for key in DIMENSIONS if self.standings and key in self.standings[0].ratings)

    @property
    def flagged(self) -> tuple[int, ...]:
        """The clips with a measured fault, in the order given."""
        return tuple(number for number, clip in enumerate(self.clips) if clip.flags)

    def to_json(self, *, pairs: bool = True) -> PlainData:
        """Return plain data. Without `pairs` it stays small."""
        return to_plain(self if pairs else replace(self, pairs=()))


class Ranking(Record, frozen=True, omit_defaults=True):
    """The result: a ladder for each group, in the order given, the clips left out, and the run that keeps it.

    `run` is that run's name, `judge` the name of the judge's model, and `scope` says what that sees.

    `found` is the number of judgements that existed before, `unread` of those without a verdict as a clip could not be
    read, `died` of those at which the engine died. `before` is the ranking by a quicker judge that chose these clips.
    """

    run: str
    judge: str
    scope: str
    ladders: tuple[Ladder, ...]
    left_out: tuple[ExcludedClip, ...]
    found: int
    unread: int
    died: int
    before: Ranking | None = None

    def after(self, before: Ranking) -> Ranking:
        """Return this ranking as that of the best clips of another one."""
        return replace(self, before=before)


class Progress(msgspec.Struct, frozen=True):
    """How far work has come: `done` of at most `most` judgements, or bytes of a model, which `words` name.

    A ranking takes fewer judgements if the order is certain before. `seconds_left` is None until known.
    """

    done: int
    most: int
    seconds_left: float | None = None
    words: str = ""
