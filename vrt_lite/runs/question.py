"""A question to a judge, by content, and its result: the light columns of a judgement. Pure functions."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, cast

from vrt_lite.errors import VrtError, Warned
from vrt_lite.judgement import Judgement
from vrt_lite.protocol.answer_form import ClipScore, compare_scores
from vrt_lite.protocol.messages import Choice, Odds
from vrt_lite.protocol.verdict import Source, Verdict, make_verdict, prefer

DERIVED: Final = "+"
"""Between the keys of two judgements of clips, it makes the key of the pair that is derived from them."""


@dataclass(frozen=True, slots=True)
class Question:
    """One order of one pair, made from one prompt, put to one judge.

    `first` and `second` are the sha256 of the clips shown as video 1 and video 2, `judge` is `Judge.key_here()`. A
    judge that judges each clip by itself is asked about one: then `second` is "".
    """

    first: str
    second: str
    prompt: str
    judge: str

    @property
    def key(self) -> str:
        """The digest of the four fields: two questions with the same key have the same answer."""
        text = json.dumps([self.first, self.second, self.prompt, self.judge])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def of_clips(self) -> tuple[Question, Question]:
        """The questions about each clip, from whose answers that of a pair is derived."""
        return replace(self, second=""), replace(self, first=self.second, second="")


@dataclass(frozen=True, slots=True)
class Result:
    """The light columns of one judgement, about the clips in the order in which they were shown.

    `winners` has what was judged of TA, VQ, MQ and OA: 1, 2, or 0 for a tie or an undecided preference; `leans` has the
    undecided ones and the video that they lean to. `winners` is empty without a verdict; then `error` is the line that
    says why, and `failure` the kind of that error ("" if an earlier version kept it). `odds` has the same keys, None
    where the judge gave no probabilities. `source` is "final", "recommended", "identical" (one file twice), or ""
    without a verdict. `calls` counts granted calls for frames. `tokens` counts all tokens read and written in all
    rounds, also those that a cache had.

    `max_pixels` (of a frame), `tool_max_pixels` (of a requested frame) and `kv_type` were chosen for the memory; they
    are None and "" where that is not known.

    `scores` are those of a clip that was judged by itself, without winners; of a pair that is derived from two such
    clips they are both, and its `key` is both keys with + between them.
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
    failure: str = ""
    warnings: tuple[Warned, ...] = ()
    max_pixels: int | None = None
    tool_max_pixels: int | None = None
    kv_type: str = ""
    leans: Mapping[str, int] = field(default_factory=dict[str, int])
    scores: tuple[dict[str, ClipScore], ...] = ()

    @property
    def verdict(self) -> Verdict | None:
        """The verdict about the clips as shown, without the judge's own confidence; None if there was none."""
        if not self.winners:
            return None
        winners, leans = cast("Mapping[str, Choice]", self.winners), cast("Mapping[str, Choice]", self.leans)
        preferences = {key: prefer(winner, self.odds.get(key), leans.get(key)) for key, winner in winners.items()}
        return make_verdict(preferences, cast("Source", self.source))


def result_of(question: Question, judgement: Judgement) -> Result:
    """Return the light columns of a judgement of one order; ValueError if both orders are in it.

    The clips as given are the clips as shown: `Judge.compare(first, second)` without both orders.
    """
    if len(judgement.orders) > 1 or any(order.first != 1 for order in judgement.orders):
        raise ValueError("a judgement of both orders answers no single question")
    rounds = [r for order in judgement.orders for r in order.rounds]
    preferences = judgement.verdict.preferences if question.second else {}
    settings = judgement.settings
    warnings = zip(judgement.warning_kinds, judgement.warnings, strict=True)
    return Result(
        question.key,
        question.first,
        question.second,
        question.prompt,
        winners={key: preference.winner for key, preference in preferences.items()},
        odds={key: preference.odds for key, preference in preferences.items()},
        leans={key: preference.leans for key, preference in preferences.items() if preference.leans is not None},
        source=judgement.verdict.source,
        rounds=len(rounds),
        calls=sum(r.outcome == "tool" for r in rounds),
        tokens=sum(r.tokens_in + r.tokens_out for r in rounds),
        seconds=judgement.timings.total,
        warnings=tuple(Warned(kind, text) for kind, text in warnings),
        max_pixels=settings.max_pixels,
        tool_max_pixels=settings.tool_max_pixels,
        kv_type=settings.engine.kv_type if settings.engine else "",
        scores=(judgement.scores or ())[: 1 + bool(question.second)],
    )


def derive_result(one: Result, two: Result) -> Result:
    """Return the light columns of a pair, derived from those of its clips, each judged by itself."""
    derived = replace(
        one,
        key=f"{one.key}{DERIVED}{two.key}",
        second=two.first,
        tokens=one.tokens + two.tokens,
        seconds=one.seconds + two.seconds,
        error=one.error or two.error,
        failure=one.failure or two.failure,
        warnings=tuple(dict.fromkeys((*one.warnings, *two.warnings))),
        scores=(*one.scores, *two.scores),
    )
    if derived.error:
        return derived
    preferences = compare_scores(*derived.scores).preferences
    return replace(
        derived,
        winners={key: preference.winner for key, preference in preferences.items()},
        odds={key: preference.odds for key, preference in preferences.items()},
    )


def failure_of(question: Question, error: VrtError) -> Result:
    """Return the light columns of a question that got no verdict, because of this error."""
    facts = (question.key, question.first, question.second, question.prompt)
    return Result(*facts, {}, {}, "", 0, 0, 0, 0.0, error=escape_surrogates(str(error)), failure=error.kind)


def escape_surrogates(text: str) -> str:
    """Make text that SQLite accepts: a lone surrogate, as in a file name that is not UTF-8, becomes an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class MadeWith:
    """How many judgements were made with these pixels of a frame and of a requested frame, and this KV type."""

    max_pixels: int | None
    tool_max_pixels: int | None
    kv_type: str
    judgements: int


@dataclass(frozen=True, slots=True)
class WarningCount:
    """How many judgements have a warning of this kind, and one such warning."""

    kind: str
    judgements: int
    example: str


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the `judgements` were made with, the commonest first, and their warnings.

    They are `comparable` if all were made with the same pixels, as far as these are known.
    """

    comparable: bool
    made_with: tuple[MadeWith, ...]
    warnings: tuple[WarningCount, ...]
    judgements: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "comparable": self.comparable,
            "made_with": [asdict(conditions) for conditions in self.made_with],
            "warnings": [asdict(warning) for warning in self.warnings],
            "judgements": self.judgements,
        }


def conditions_of(results: Iterable[Result]) -> Conditions:
    """Count the conditions of the results for which the model ran."""
    ran = [result for result in results if result.rounds]
    counts = Counter((result.max_pixels, result.tool_max_pixels, result.kv_type) for result in ran)
    sizes = {(pixels, tool_pixels) for pixels, tool_pixels, _ in counts if pixels is not None}
    examples: dict[str, str] = {}
    warned: Counter[str] = Counter()
    for result in ran:
        found = {warning.kind: warning.text for warning in result.warnings}
        warned.update(found.keys())
        examples = found | examples
    return Conditions(
        comparable=len(sizes) < 2,
        made_with=tuple(MadeWith(*values, judgements=count) for values, count in counts.most_common()),
        warnings=tuple(WarningCount(kind, count, examples[kind]) for kind, count in warned.most_common()),
        judgements=len(ran),
    )
