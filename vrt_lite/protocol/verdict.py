"""Verdicts: which video is better, per dimension and overall, and the model's probabilities.

The rule that joins both orders of a pair is here (`join`), and so are the words for a choice (`describe`). All code
that compares, ranks, reports, exports or evaluates uses these two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypedDict, cast

from vrt_lite.protocol.messages import KEYS, OVERALL, Choice, Key, Odds
from vrt_lite.protocol.tags import Marks

Source = Literal["final", "recommended", "identical"]
TIE_SUFFIX: Final = "_tie"
"""Added to a key, it names what is for ties in that key only."""
UNREAD_SUFFIX: Final = "_unread"
"""Added to a key, or to a tie's, it names what is for pairs whose caption the judge is not shown, because it
does not understand it."""
TEMPERATURES: Final = frozenset(
    f"{key}{tie}{unread}" for key in KEYS for tie in ("", TIE_SUFFIX) for unread in ("", UNREAD_SUFFIX)
)
"""The names of temperatures in a profile."""
MIRROR: Final[tuple[Choice, Choice, Choice]] = (0, 2, 1)
"""What each choice is with the two videos exchanged."""


Confidence = Literal[1, 2, 3, 4, 5]
Probabilities = TypedDict("Probabilities", {"tie": float, "1": float, "2": float})


@dataclass(frozen=True, slots=True)
class Preference:
    """One choice: 1 or 2 for the better video, 0 for a tie or an undecided pair. `prefer` makes one.

    `probabilities` are the model's own at that digit, null if it gave none. `undecided`: the two orders name opposite
    winners. Then `leans` is the video with the larger mean probability, or 0 if neither; else it is null.

    ValueError for values that contradict each other.
    """

    winner: Choice
    undecided: bool = False
    leans: Choice | None = None
    probabilities: Probabilities | None = None

    def __post_init__(self) -> None:
        if self.undecided != (self.leans is not None) or (self.undecided and self.winner):
            raise ValueError("an undecided preference has the winner 0 and says where it leans")
        if self.odds and not all(0 <= share <= 1 for share in self.odds):
            raise ValueError("a probability is not between 0 and 1")

    @property
    def odds(self) -> Odds | None:
        """The probabilities of (tie, video 1, video 2), to be indexed by a choice."""
        p = self.probabilities
        return None if p is None else (p["tie"], p["1"], p["2"])

    def mirrored(self) -> Preference:
        """The same preference with the two videos exchanged."""
        odds = None if self.odds is None else (self.odds[0], self.odds[2], self.odds[1])
        return prefer(MIRROR[self.winner], odds, None if self.leans is None else MIRROR[self.leans])


def prefer(winner: Choice, odds: Odds | None = None, leans: Choice | None = None) -> Preference:
    """A preference from probabilities of (tie, video 1, video 2)."""
    shares: Probabilities | None = None
    if odds is not None:
        tie, one, two = odds
        shares = {"tie": tie, "1": one, "2": two}
    return Preference(winner, leans is not None, leans, shares)


class Dimensions(TypedDict):
    """The preference in each dimension."""

    TA: Preference
    VQ: Preference
    MQ: Preference


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which video is better overall, and in each dimension.

    `source`: "final" if the judge ended on it; "recommended" if it was only the last recommendation and no final
    answer came; "identical" if the two clips are one file and no model ran. `confidence` is the judge's own.
    """

    source: Source
    confidence: Confidence | None
    overall: Preference
    dimensions: Dimensions

    @property
    def preferences(self) -> dict[str, Preference]:
        """The preferences by key: TA, VQ, MQ and OA (overall)."""
        d = self.dimensions
        return {"TA": d["TA"], "VQ": d["VQ"], "MQ": d["MQ"], OVERALL: self.overall}

    def mirrored(self) -> Verdict:
        """The same verdict with the two videos exchanged."""
        return make_verdict({k: p.mirrored() for k, p in self.preferences.items()}, self.source, self.confidence)


@dataclass(frozen=True, slots=True)
class SkippedOrder:
    """Why the second order was not judged: the first one's choice has a `probability` that reaches the `confidence`."""

    probability: float
    confidence: float

    def __post_init__(self) -> None:
        if not 0 <= self.confidence <= self.probability <= 1:
            raise ValueError("a skipped order has a probability below its confidence")


def skip_second_order(first: Verdict, confidence: float) -> SkippedOrder | None:
    """Why the second order need not be judged after the first; None if the first one leaves a doubt.

    It leaves none if it is a final answer whose overall choice, be it a tie, has at least the probability `confidence`.
    """
    odds = first.overall.odds
    probability = odds[first.overall.winner] if odds else 0.0
    certain = first.source == "final" and probability >= confidence
    return SkippedOrder(probability, confidence) if certain else None


def make_verdict(
    preferences: Mapping[str, Preference], source: Source, confidence: Confidence | None = None
) -> Verdict:
    """A verdict from its preferences by key: TA, VQ, MQ and OA."""
    p = preferences
    return Verdict(source, confidence, p[OVERALL], {"TA": p["TA"], "VQ": p["VQ"], "MQ": p["MQ"]})


def from_marks(
    marks: Marks,
    odds: Mapping[int, Odds],
    source: Source,
    *,
    temperatures: Mapping[str, float] | None = None,
    unread: bool = False,
) -> Verdict:
    """A verdict from an answer and the probabilities that the model gave at its digits, softened by `temperatures`."""
    preferences = {key: prefer(marks.choices[key], odds.get(marks.offsets[key])) for key in KEYS}
    for key, preference in preferences.items():
        if preference.odds:
            temperature = choose_temperature(temperatures or {}, key, preference.winner, unread=unread)
            preferences[key] = prefer(preference.winner, soften(preference.odds, temperature))
    return make_verdict(preferences, source, cast("Confidence | None", marks.confidence))


def choose_temperature(temperatures: Mapping[str, float], key: str, winner: Choice, *, unread: bool = False) -> float:
    """The temperature of an answer's key; 1 if there is none. A tie (0) may have its own, by "TA_tie" and so on.

    A judge that overlooks a difference calls a tie, so its ties are right less often than its winners. With a caption
    that was not understood (`unread`) the pair may be of any kind: then "TA_unread" and "TA_tie_unread" come first.
    """
    names = (key,) if winner else (key + TIE_SUFFIX, key)
    if unread:
        names = (*(name + UNREAD_SUFFIX for name in names), *names)
    return next((temperatures[name] for name in names if name in temperatures), 1.0)


def soften(odds: Odds, temperature: float) -> Odds:
    """The probabilities as logits divided by a temperature would give them; above 1 they become less certain.

    Guo et al., "On calibration of modern neural networks", 2017 (arXiv 1706.04599). The likeliest choice stays.
    """
    most = max(odds)
    if temperature == 1 or most <= 0:
        return odds
    tie, one, two = ((share / most) ** (1 / temperature) for share in odds)
    total = tie + one + two
    return (tie / total, one / total, two / total)


def without_alignment(verdict: Verdict) -> Verdict:
    """The verdict of a judge that could not judge alignment: a tie there, without probabilities.

    If neither visual nor motion quality supports the overall choice, alignment made it. Then the overall choice comes
    from the mean of the probabilities of these two, and without probabilities it is a tie.
    """
    p = verdict.preferences
    overall, quality = verdict.overall, (p["VQ"], p["MQ"])
    if overall.winner not in {preference.winner for preference in quality}:
        mean = _mean(quality[0].odds, quality[1].odds)
        overall = prefer(_likeliest(mean) if mean else 0, mean)
    return make_verdict({**p, "TA": prefer(0), OVERALL: overall}, verdict.source, verdict.confidence)


def disagreements(first: Verdict, second: Verdict) -> tuple[Key, ...]:
    """The keys on which two verdicts about the same (unswapped) pair choose differently."""
    return tuple(k for k in KEYS if first.preferences[k].winner != second.preferences[k].winner)


def average(first: Verdict, second: Verdict) -> Verdict:
    """Both orders in one verdict, about the same (unswapped) pair: `join` for each key."""
    preferences = {key: join(first.preferences[key], second.preferences[key]) for key in KEYS}
    sources = {first.source, second.source}
    confidences: list[Confidence] = [v.confidence for v in (first, second) if v.confidence is not None]
    source: Source = "recommended" if "recommended" in sources else first.source
    return make_verdict(preferences, source, min(confidences, default=None))


def join(first: Preference, second: Preference) -> Preference:
    """Both orders' choices about the same (unswapped) pair in one.

    The probabilities are averaged, and the likeliest choice wins; two equal ones are a tie. This also decides between a
    tie in one order and a winner in the other. Opposite winners are undecided whatever the mean: nobody wins, but the
    result leans to the video with the larger mean.

    If an order has no probabilities, there is no mean. Then the same choice twice is the result, a tie and a winner are
    a tie, and opposite winners are undecided and lean to neither.

    Symmetric in its arguments, so that exchanging the clips mirrors the result exactly.
    """
    mean = _mean(first.odds, second.odds)
    if {first.winner, second.winner} == {1, 2}:
        return prefer(0, mean, _likeliest((0.0, mean[1], mean[2])) if mean else 0)
    if mean:
        return prefer(_likeliest(mean), mean)
    return prefer(first.winner if first.winner == second.winner else 0)


def describe(preference: Preference, names: tuple[str, str] = ("video 1", "video 2")) -> str:
    """The choice in words: a video's name, "tie", "undecided", or "undecided, leans to video 1 (0.57)"."""
    if preference.leans is None:
        return names[preference.winner - 1] if preference.winner else "tie"
    if not preference.leans:
        return "undecided"
    share = f" ({preference.odds[preference.leans]:.2f})" if preference.odds else ""
    return f"undecided, leans to {names[preference.leans - 1]}{share}"


def odds_of(winner: int, odds: Odds | None) -> Odds:
    """The odds; if there are none that can be used, 1 for the winner and 0 for the others."""
    if odds is not None and sum(odds) > 0:
        return odds
    return (float(winner == 0), float(winner == 1), float(winner == 2))


def _mean(a: Odds | None, b: Odds | None) -> Odds | None:
    """The mean of both, None unless both can be used."""
    if a is None or b is None or not (sum(a) > 0 and sum(b) > 0):
        return None
    return ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2, (a[2] + b[2]) / 2)


def _likeliest(odds: Odds) -> Choice:
    """The likeliest choice; a tie if two are equal."""
    tie, one, two = odds
    return 1 if one > max(two, tie) else 2 if two > max(one, tie) else 0


TIE: Final = make_verdict({key: prefer(0, (1.0, 0.0, 0.0)) for key in KEYS}, "identical")
"""The verdict on two clips that are the same file, where no model runs."""
