"""Verdicts: which video is better, per dimension and overall, and how sure the model's own digits are.

Knows how two orders combine. Refuses to know how a verdict was reached or shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from vrt_lite.protocol.messages import Odds
from vrt_lite.protocol.tags import KEYS, OVERALL, Choice, Marks

Source = Literal["final", "recommended", "identical"]
MIRROR: Final[tuple[Choice, Choice, Choice]] = (0, 2, 1)
"""What each choice is with the two videos exchanged."""


@dataclass(frozen=True, slots=True)
class Preference:
    """One choice. `odds` are the model's probabilities of (tie, video 1, video 2) at that digit, if it gave any."""

    winner: Choice
    odds: Odds | None = None

    def mirrored(self) -> Preference:
        """The same preference with the two videos exchanged."""
        odds = None if self.odds is None else (self.odds[0], self.odds[2], self.odds[1])
        return Preference(MIRROR[self.winner], odds)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Preferences by key: TA, VQ, MQ and OA (overall).

    `source` says whether the judge ended on it ("final"), only recommended it in a last round that gave no
    final answer ("recommended"), or never ran because the two clips are one file ("identical").
    """

    preferences: Mapping[str, Preference]
    source: Source
    confidence: int | None = None

    @property
    def overall(self) -> Preference:
        """The overall preference."""
        return self.preferences[OVERALL]

    def mirrored(self) -> Verdict:
        """The same verdict with the two videos exchanged."""
        swapped = {key: preference.mirrored() for key, preference in self.preferences.items()}
        return Verdict(swapped, self.source, self.confidence)


TIE = Verdict({key: Preference(0, (1.0, 0.0, 0.0)) for key in KEYS}, "identical")
"""What the same file twice gets, without the model."""


def from_marks(marks: Marks, odds: Mapping[int, Odds], source: Source) -> Verdict:
    """A verdict from an answer and the probabilities that the model gave at its digits."""
    preferences = {key: Preference(marks.choices[key], odds.get(marks.offsets[key])) for key in KEYS}
    return Verdict(preferences, source, marks.confidence)


def disagreements(first: Verdict, second: Verdict) -> tuple[str, ...]:
    """The keys on which two verdicts about the same (unswapped) pair name different winners."""
    return tuple(k for k in KEYS if first.preferences[k].winner != second.preferences[k].winner)


def average(first: Verdict, second: Verdict) -> Verdict:
    """Both orders in one verdict: mean probabilities, the likeliest choice; a dead heat is a tie.

    Symmetric in its arguments, so that exchanging the clips mirrors the result exactly.
    """
    preferences: dict[str, Preference] = {}
    for key in KEYS:
        a, b = (odds_of(v.preferences[key].winner, v.preferences[key].odds) for v in (first, second))
        mean = mean_of(a, b)
        preferences[key] = Preference(likeliest(mean), mean)
    sources = {first.source, second.source}
    confidences = [v.confidence for v in (first, second) if v.confidence is not None]
    source: Source = "recommended" if "recommended" in sources else first.source
    return Verdict(preferences, source, min(confidences, default=None))


def odds_of(winner: int, odds: Odds | None) -> Odds:
    """The odds, or all on the winner where there are none that can be used."""
    if odds is not None and sum(odds) > 0:
        return odds
    return (float(winner == 0), float(winner == 1), float(winner == 2))


def mean_of(a: Odds, b: Odds) -> Odds:
    """The mean of two odds about the same (unswapped) pair."""
    return ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2, (a[2] + b[2]) / 2)


def likeliest(odds: Odds) -> Choice:
    """The likeliest choice; a dead heat is a tie."""
    tie, one, two = odds
    return 1 if one > max(two, tie) else 2 if two > max(one, tie) else 0
