"""One judged pair of a set, as it is kept in a run, and what is counted over: labels beside verdicts.

Values only. In every field clip 1 is A and clip 2 is B as the table gives them, whichever was shown first; `order` says
which. Knows how a case becomes plain JSON and back; refuses to know where it is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, cast

from vrt_lite.evaluation.layouts import LabelledPair
from vrt_lite.protocol.messages import Odds
from vrt_lite.protocol.tags import Choice
from vrt_lite.protocol.verdict import MIRROR, Preference, join

Order = Literal["given", "swapped"]
Orders = Literal["given", "swapped", "random", "both"]
Failure = Literal["", "missing clip", "broken clip", "no verdict"]
UNDECIDED: Final = -1
"""The winner where both orders name opposite ones: equal to no label, so that it is never counted as right."""


@dataclass(frozen=True, slots=True)
class Case:
    """A pair with its labels, and what a judge said of it in one order, or why it said nothing.

    `prompt` is a short digest, which tells pairs of one prompt. `clip_seconds` is the longer clip's length, None if it
    was not opened. `key` is the judgement's in the store, "" if there is none.
    """

    row: int
    name: str
    order: Order
    labels: Mapping[str, int]
    prompt: str
    prompt_characters: int
    group: str = ""
    failure: Failure = ""
    why: str = ""
    key: str = ""
    winners: Mapping[str, int] = field(default_factory=dict[str, int])
    odds: Mapping[str, Odds | None] = field(default_factory=dict[str, "Odds | None"])
    source: str = ""
    rounds: int = 0
    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0
    clip_seconds: float | None = None

    @property
    def item(self) -> str:
        """What it goes by among its run's items."""
        return f"{self.row}:{self.order}"

    def margin(self, key: str) -> float | None:
        """P(A) - P(B), or None where the judge gave no probabilities. Rounded, so that equal ones are equal."""
        odds = self.odds.get(key)
        return None if odds is None else round(odds[1] - odds[2], 9)

    def to_json(self) -> dict[str, Any]:
        """Plain data, without what is empty."""
        return {name: value for name, value in asdict(self).items() if value not in ("", {}, None)}


def case_of(table: Mapping[str, Any]) -> Case:
    """A case from its plain data."""
    facts: dict[str, Any] = dict(table)
    odds: Mapping[str, list[float] | None] = facts.pop("odds", {})
    return Case(**facts, odds={k: None if o is None else (o[0], o[1], o[2]) for k, o in odds.items()})


def asked(pair: LabelledPair, order: Order) -> Case:
    """A case of which nothing is known yet."""
    digest = hashlib.sha256(pair.prompt.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    return Case(pair.row, pair.name, order, pair.labels, digest, len(pair.prompt), pair.group)


def mirrored(winners: Mapping[str, int], odds: Mapping[str, Odds | None]) -> tuple[dict[str, int], dict[str, Any]]:
    """Winners and odds with the two clips exchanged."""
    return (
        {key: MIRROR[winner] for key, winner in winners.items()},
        {key: None if o is None else (o[0], o[2], o[1]) for key, o in odds.items()},
    )


def averaged(one: Case, other: Case) -> Case:
    """Both orders of a pair in one, by the rule of `compare --both-orders` (vrt_lite.protocol.verdict.join).

    If one order gave no verdict, the other's stands; costs add up.
    """
    if one.failure or other.failure:
        return other if one.failure else one
    odds: dict[str, Odds | None] = {}
    winners: dict[str, int] = {}
    for key in one.winners:
        joined = join(_preference(one, key), _preference(other, key))
        odds[key] = joined.odds
        winners[key] = UNDECIDED if joined.undecided else joined.winner
    return replace(
        one,
        winners=winners,
        odds=odds,
        rounds=one.rounds + other.rounds,
        calls=one.calls + other.calls,
        tokens=one.tokens + other.tokens,
        seconds=one.seconds + other.seconds,
    )


def _preference(case: Case, key: str) -> Preference:
    return Preference(cast("Choice", case.winners[key]), case.odds.get(key))
