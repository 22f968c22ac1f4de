"""Verdicts: which video is better, per dimension and overall, and how sure the model's own digits are.

The rule that joins both orders of a pair is here (`join`), and so are the words for a choice (`describe`): all that
compares, ranks, reports, exports or evaluates uses these two. How a verdict was reached is left to others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from vrt_lite.protocol.messages import Odds
from vrt_lite.protocol.tags import KEYS, OVERALL, Choice, Marks

Source = Literal["final", "recommended", "identical"]
MIRROR: Final[tuple[Choice, Choice, Choice]] = (0, 2, 1)
"""What each choice is with the two videos exchanged."""


@dataclass(frozen=True, slots=True)
class Preference:
    """One choice. `odds` are the model's probabilities of (tie, video 1, video 2) at that digit, if it gave any.

    `leans` is None for a choice that was made. Where two orders name opposite winners the choice is undecided:
    `winner` is 0, and `leans` is the video with the larger mean probability, or 0 if there is none.
    """

    winner: Choice
    odds: Odds | None = None
    leans: Choice | None = None

    @property
    def undecided(self) -> bool:
        """Whether two orders name opposite winners: neither a win nor a tie."""
        return self.leans is not None

    def mirrored(self) -> Preference:
        """The same preference with the two videos exchanged."""
        odds = None if self.odds is None else (self.odds[0], self.odds[2], self.odds[1])
        return Preference(MIRROR[self.winner], odds, None if self.leans is None else MIRROR[self.leans])

    def to_json(self) -> dict[str, Any]:
        """Plain data that follows the schema of a judgement."""
        named = None if self.odds is None else zip(("tie", "1", "2"), self.odds, strict=True)
        return {
            "winner": self.winner,
            "undecided": self.undecided,
            "leans": self.leans,
            "probabilities": named and {name: round(share, 9) for name, share in named},
        }


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
    """The keys on which two verdicts about the same (unswapped) pair choose differently."""
    return tuple(k for k in KEYS if first.preferences[k].winner != second.preferences[k].winner)


def average(first: Verdict, second: Verdict) -> Verdict:
    """Both orders in one verdict, about the same (unswapped) pair: `join` for each key."""
    preferences = {key: join(first.preferences[key], second.preferences[key]) for key in KEYS}
    sources = {first.source, second.source}
    confidences = [v.confidence for v in (first, second) if v.confidence is not None]
    source: Source = "recommended" if "recommended" in sources else first.source
    return Verdict(preferences, source, min(confidences, default=None))


def join(first: Preference, second: Preference) -> Preference:
    """Both orders' choices about the same (unswapped) pair in one.

    The probabilities are averaged, and the likeliest choice wins; a dead heat is a tie. So an order that says tie and
    one that names a video come to whatever is likelier. Only opposite winners are undecided, whatever the mean: no win,
    but it leans to the video with the larger mean.

    If one of the orders has no probabilities, there is no mean, and none is made up: the same choice twice stands, a
    tie beside a winner is a tie, and what is undecided leans to neither.

    Symmetric in its arguments, so that exchanging the clips mirrors the result exactly.
    """
    mean = _mean(first.odds, second.odds)
    if {first.winner, second.winner} == {1, 2}:
        return Preference(0, mean, _likeliest((0.0, mean[1], mean[2])) if mean else 0)
    if mean:
        return Preference(_likeliest(mean), mean)
    return Preference(first.winner if first.winner == second.winner else 0)


def describe(preference: Preference, names: tuple[str, str] = ("video 1", "video 2")) -> str:
    """The choice in words: a video's name, "tie", "undecided", or "undecided, leans to video 1 (0.57)"."""
    if preference.leans is None:
        return names[preference.winner - 1] if preference.winner else "tie"
    if not preference.leans:
        return "undecided"
    share = f" ({preference.odds[preference.leans]:.2f})" if preference.odds else ""
    return f"undecided, leans to {names[preference.leans - 1]}{share}"


def odds_of(winner: int, odds: Odds | None) -> Odds:
    """The odds, or all on the winner where there are none that can be used."""
    if odds is not None and sum(odds) > 0:
        return odds
    return (float(winner == 0), float(winner == 1), float(winner == 2))


def _mean(a: Odds | None, b: Odds | None) -> Odds | None:
    """The mean of both, None unless both can be used."""
    if a is None or b is None or not (sum(a) > 0 and sum(b) > 0):
        return None
    return ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2, (a[2] + b[2]) / 2)


def _likeliest(odds: Odds) -> Choice:
    """The likeliest choice; a dead heat is a tie."""
    tie, one, two = odds
    return 1 if one > max(two, tie) else 2 if two > max(one, tie) else 0
