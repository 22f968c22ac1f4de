"""Verdicts: which video is better, per dimension and overall, and the model's probabilities.

The rule that joins both orders of a pair is here (`join`), and so are the words for a choice (`describe`, `headline`).
All code that compares, ranks, reports, exports or evaluates uses these. What was not judged has no preference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


BETTER_FROM: Final = 0.75
"""The probability of a winner from which on it "is better"."""
NARROWLY_FROM: Final = 0.6
"""The probability of a winner from which on it "is narrowly better"; below it the verdict only "leans to" it."""
NOT_JUDGED: Final = "not judged"
VIDEOS: Final = ("video 1", "video 2")
"""The names of the two clips where they have no others."""

Confidence = Literal[1, 2, 3, 4, 5]
Probabilities = TypedDict("Probabilities", {"tie": float, "1": float, "2": float})


@dataclass(frozen=True, slots=True)
class Preference:
    """One choice: 1 or 2 for the better video, 0 for a tie or an undecided pair. `prefer` makes one.

    `probabilities` are the model's own at that digit, null if it gave none. `undecided`: the two orders name opposite
    winners, or what was measured plainly contradicts the winner of a judge that knows less than the measures. Then
    `leans` is the video that would have won, or 0 if neither; else it is null.

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

    @property
    def choice(self) -> Choice:
        """The winner, or the video that an undecided preference leans to."""
        return self.winner if self.leans is None else self.leans

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
    """The preference in each dimension; null for one that was not judged."""

    TA: Preference | None
    VQ: Preference | None
    MQ: Preference | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which video is better overall, and in each dimension.

    `source`: "final" if the judge ended on it; "recommended" if it was only the last recommendation and no final
    answer came; "identical" if the two clips are one file and no model ran. `confidence` is the judge's own. `own` has
    the preferences in dimensions that are the judge's own, by its names.
    """

    source: Source
    confidence: Confidence | None
    overall: Preference
    dimensions: Dimensions
    own: dict[str, Preference] = field(default_factory=dict[str, Preference])

    @property
    def preferences(self) -> dict[str, Preference]:
        """The preferences by key, of what was judged: TA, VQ, MQ and always OA (overall)."""
        d = self.dimensions
        every = {"TA": d["TA"], "VQ": d["VQ"], "MQ": d["MQ"], OVERALL: self.overall}
        return {key: preference for key, preference in every.items() if preference}

    @property
    def all_preferences(self) -> dict[str, Preference]:
        """The `preferences`, and behind them the judge's `own`."""
        return {**self.preferences, **self.own}

    @property
    def not_judged(self) -> tuple[Key, ...]:
        """The keys of the dimensions that were not judged."""
        return tuple(key for key in KEYS if key not in self.preferences)

    def mirrored(self) -> Verdict:
        """The same verdict with the two videos exchanged."""
        return make_verdict({k: p.mirrored() for k, p in self.all_preferences.items()}, self.source, self.confidence)


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
    """A verdict from its preferences by key; TA, VQ or MQ may be absent, as they were not judged.

    A key that is none of TA, VQ, MQ and OA is a dimension of the judge's own.
    """
    p = preferences
    own = {name: preference for name, preference in p.items() if name not in KEYS}
    return Verdict(source, confidence, p[OVERALL], {"TA": p.get("TA"), "VQ": p.get("VQ"), "MQ": p.get("MQ")}, own)


def from_marks(
    marks: Marks,
    odds: Mapping[int, Odds],
    source: Source,
    *,
    temperatures: Mapping[str, float] | None = None,
    unread: bool = False,
) -> Verdict:
    """A verdict from an answer and the probabilities that the model gave at its digits, softened by `temperatures`."""
    preferences = {key: prefer(choice, odds.get(marks.offsets[key])) for key, choice in marks.choices.items()}
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
    """The verdict of a judge that could not judge alignment: it says nothing about that.

    If neither visual nor motion quality supports the overall choice, alignment made it. Then the overall choice comes
    from the mean of the probabilities of these two, and without probabilities it is a tie.
    """
    judged = {key: preference for key, preference in verdict.all_preferences.items() if key != "TA"}
    overall, quality = verdict.overall, [judged[key] for key in ("VQ", "MQ") if key in judged]
    if overall.winner not in {preference.winner for preference in quality}:
        mean = _mean(quality[0].odds, quality[1].odds) if len(quality) == 2 else None
        overall = prefer(likeliest(mean) if mean else 0, mean)
    return make_verdict({**judged, OVERALL: overall}, verdict.source, verdict.confidence)


def decide_by_measures(verdict: Verdict, measured: Mapping[str, Preference], keys: Sequence[str]) -> Verdict:
    """The verdict of a judge whose numbers decide: `measured` has the preference in each of the `keys`.

    Measuring knows nothing of alignment. If that was judged, the overall choice comes from both.
    """
    preferences = {**verdict.all_preferences, **{key: measured[key] for key in keys}}
    if OVERALL in keys and "TA" in preferences:
        preferences[OVERALL] = join_with_alignment(measured[OVERALL], preferences["TA"])
    return make_verdict(preferences, verdict.source, verdict.confidence)


def join_with_alignment(quality: Preference, alignment: Preference) -> Preference:
    """The overall preference from that in quality and that in alignment, which weigh the same.

    Each is taken for what the other leaves open: a video wins overall if it wins in one and does not lose in the other;
    where they name opposite videos, half of the probability goes to each. A winner that is not likelier than all else
    together is undecided.
    """
    if not alignment.winner:
        return quality
    (q0, q1, q2), (a0, a1, a2) = odds_of(quality.choice, quality.odds), odds_of(alignment.winner, alignment.odds)
    opposite = (q1 * a2 + q2 * a1) / 2
    tie, one, two = q0 * a0, q1 * a1 + q1 * a0 + q0 * a1 + opposite, q2 * a2 + q2 * a0 + q0 * a2 + opposite
    whole = tie + (one + two)  # in this order, so that exchanging the videos exchanges the result to the last bit
    odds = (tie / whole, one / whole, two / whole)
    choice = likeliest(odds)
    return prefer(choice, odds) if not choice or odds[choice] > 1 / 2 else prefer(0, odds, choice)


def withdraw_contradicted(verdict: Verdict, measured: Mapping[str, Choice]) -> Verdict:
    """The verdict without the winners that are contradicted: each is undecided, and leans to the video that had won.

    `measured` has, by key, the video that is measured as plainly better.
    """
    preferences = {
        key: prefer(0, p.odds, p.winner) if p.winner and measured.get(key, p.winner) != p.winner else p
        for key, p in verdict.all_preferences.items()
    }
    return make_verdict(preferences, verdict.source, verdict.confidence)


@dataclass(frozen=True, slots=True)
class BothOrders:
    """The verdict of both orders of a pair, and the keys on which they choose differently. `join_orders` makes it."""

    verdict: Verdict
    disagreements: tuple[Key, ...] = ()


def join_orders(first: Verdict | None, second: Verdict | None) -> BothOrders | None:
    """Both orders in one verdict, about the same (unswapped) pair: `join` for each key that both judged.

    If only one order gave a verdict, that is the result; None if neither did.
    """
    if first is None or second is None:
        only = first or second
        return BothOrders(only) if only else None
    one, other = first.all_preferences, second.all_preferences
    preferences = {key: join(one[key], other[key]) for key in one if key in other}
    sources = {first.source, second.source}
    confidences: list[Confidence] = [v.confidence for v in (first, second) if v.confidence is not None]
    source: Source = "recommended" if "recommended" in sources else first.source
    verdict = make_verdict(preferences, source, min(confidences, default=None))
    differing: tuple[Key, ...] = tuple(k for k in KEYS if k in preferences and one[k].choice != other[k].choice)
    return BothOrders(verdict, differing)


def join(first: Preference, second: Preference) -> Preference:
    """Both orders' choices about the same (unswapped) pair in one.

    The probabilities are averaged, and the likeliest choice wins; two equal ones are a tie. This also decides between a
    tie in one order and a winner in the other. Opposite winners are undecided whatever the mean: nobody wins, but the
    result leans to the video with the larger mean.

    If an order has no probabilities, there is no mean. Then the same choice twice is the result, a tie and a winner are
    a tie, and opposite winners are undecided and lean to neither.

    A choice that an order has withdrawn stays withdrawn: if it would win, the pair is undecided and leans to it.

    Symmetric in its arguments, so that exchanging the clips mirrors the result exactly.
    """
    mean = _mean(first.odds, second.odds)
    choices = {first.choice, second.choice}
    if choices == {1, 2}:
        return prefer(0, mean, likeliest((0.0, mean[1], mean[2])) if mean else 0)
    choice = likeliest(mean) if mean else first.choice if len(choices) == 1 else 0
    withdrawn = {p.leans for p in (first, second) if p.undecided}
    return prefer(0, mean, choice) if choice and choice in withdrawn else prefer(choice, mean)


def describe(preference: Preference | None, names: tuple[str, str] = VIDEOS, *, with_share: bool = True) -> str:
    """The choice in a few words.

    "video 1"; "video 1, narrowly"; "leans to video 1"; "tie"; "undecided"; "undecided, leans to video 1 (0.57)"; "not
    judged". Which of the first three depends on the probability of the winner as it is shown, with two digits.
    `with_share` says whether the fifth form has its probability.
    """
    if preference is None:
        return NOT_JUDGED
    odds, leans = preference.odds, preference.leans
    if leans is not None:
        share = f" ({odds[leans]:.2f})" if odds and with_share else ""
        return f"undecided, leans to {names[leans - 1]}{share}" if leans else "undecided"
    if not preference.winner:
        return "tie"
    name, probability = names[preference.winner - 1], round(odds[preference.winner], 2) if odds else 1.0
    if probability < NARROWLY_FROM:
        return f"leans to {name}"
    return name if probability >= BETTER_FROM else f"{name}, narrowly"


def headline(preference: Preference, names: tuple[str, str] = VIDEOS) -> str:
    """The overall result as a sentence without its full stop, with the probability of what it says.

    "Video 1 is better (0.84)"; "a.mp4 is narrowly better (0.63)"; "Leans to a.mp4 (0.49)"; "A tie (0.62)"; "Undecided,
    leans to a.mp4 (0.57)". A name stays as it is at the beginning of the sentence, unless it is "video 1" or "video 2".
    """
    words, odds = describe(preference, names), preference.odds
    share = f" ({odds[preference.winner]:.2f})" if odds and not preference.undecided else ""
    if not preference.choice or preference.undecided or words.startswith("leans"):
        return f"{'A tie' if words == 'tie' else words[:1].upper() + words[1:]}{share}"
    name = names[preference.winner - 1]
    sentence = f"{name} is {'narrowly ' if words != name else ''}better{share}"
    return sentence[:1].upper() + sentence[1:] if names == VIDEOS else sentence


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


def likeliest(odds: Odds) -> Choice:
    """The likeliest choice; a tie if two are equal."""
    tie, one, two = odds
    return 1 if one > max(two, tie) else 2 if two > max(one, tie) else 0


TIE: Final = make_verdict({key: prefer(0, (1.0, 0.0, 0.0)) for key in KEYS}, "identical")
"""The verdict on two clips that are the same file, where no model runs."""
