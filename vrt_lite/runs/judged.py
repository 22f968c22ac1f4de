"""What is asked of a judge and what came of it, by content. Standard library only, and pure.

Knows how the light columns are read from a judgement's JSON. Refuses to know where they are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from vrt_lite.protocol.messages import Odds
from vrt_lite.protocol.tags import DIMENSIONS, KEYS, OVERALL, Choice
from vrt_lite.protocol.verdict import Preference, Source, Verdict


@dataclass(frozen=True, slots=True)
class Question:
    """One order of one pair, made from one prompt, put to one judge.

    `first` and `second` are the sha256 of the clips shown as video 1 and video 2, `judge` is `Judge.key()`.
    """

    first: str
    second: str
    prompt: str
    judge: str

    @property
    def key(self) -> str:
        """Digest of the four: two questions with one key have one answer."""
        text = json.dumps([self.first, self.second, self.prompt, self.judge])
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Result:
    """The light columns of one judgement, about the clips in the order in which they were shown.

    `winners` has TA, VQ, MQ and OA: 1, 2, or 0 for a tie; it is empty when there was no verdict, and `error` then is
    the line that says why. `odds` has the same keys, None where the judge gave no probabilities. `source` is "final",
    "recommended", "identical" (one file twice), or "" without a verdict. `calls` counts granted calls for frames.
    `tokens` is what was read and written, over all rounds, whether a cache spared the work or not.
    """

    key: str
    first: str
    second: str
    prompt: str
    winners: Mapping[str, int]
    odds: Mapping[str, Odds | None]
    source: str
    rounds: int
    calls: int
    tokens: int
    seconds: float
    error: str = ""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict about the clips as shown, without the judge's own confidence; None if there was none."""
        if not self.winners:
            return None
        winners = cast("Mapping[str, Choice]", self.winners)
        preferences = {key: Preference(winners[key], self.odds.get(key)) for key in KEYS}
        return Verdict(preferences, cast("Source", self.source))


def result_of(question: Question, judgement: Mapping[str, Any] | None, *, error: str = "") -> Result:
    """The light columns of a judgement's JSON, or of a failure. ValueError if both orders are in it, or neither given.

    The clips as given are the clips as shown: `Judge.compare(first, second)` without both orders.
    """
    asked = (question.key, question.first, question.second, question.prompt)
    if judgement is None:
        if not error:
            raise ValueError("neither a judgement nor an error")
        return Result(*asked, winners={}, odds={}, source="", rounds=0, calls=0, tokens=0, seconds=0.0, error=error)
    orders: list[dict[str, Any]] = judgement["orders"]
    if len(orders) > 1 or any(order["first"] != 1 for order in orders):
        raise ValueError("a judgement of both orders answers no single question")
    verdict = judgement["verdict"]
    preferences = {**{key: verdict["dimensions"][key] for key in DIMENSIONS}, OVERALL: verdict["overall"]}
    rounds: list[dict[str, Any]] = [r for order in orders for r in order["rounds"]]
    return Result(
        *asked,
        winners={key: preference["winner"] for key, preference in preferences.items()},
        odds={key: _odds(preference["probabilities"]) for key, preference in preferences.items()},
        source=verdict["source"],
        rounds=len(rounds),
        calls=sum(r["outcome"] == "tool" for r in rounds),
        tokens=sum(r["tokens_in"] + r["tokens_out"] for r in rounds),
        seconds=judgement["timings"]["total"],
    )


def _odds(probabilities: Mapping[str, float] | None) -> Odds | None:
    return None if probabilities is None else (probabilities["tie"], probabilities["1"], probabilities["2"])
