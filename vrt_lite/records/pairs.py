"""What was asked of a judge, the light columns of its answer, and both orders of a pair as one. Pure functions.

A pair is made here alone: rankings, figures, reports, exports, votes and pages all count by it. Also what judgements
were made with, and whether they can be compared.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

import msgspec
from msgspec.structs import replace

from vrt_lite.errors import VrtError, Warned
from vrt_lite.protocol.answer_form import ClipScore, compare_scores
from vrt_lite.protocol.messages import KEYS, OVERALL, Key, Odds
from vrt_lite.protocol.verdict import BothOrders, Preference, Verdict, join_orders
from vrt_lite.records.judgement import Judgement, Record

DERIVED: Final = "+"
"""Between the keys of two judgements of clips, it makes the key of the pair that is derived from them."""


class Question(msgspec.Struct, frozen=True):
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


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """The light columns of one judgement, about the clips in the order in which they were shown.

    Without a `verdict` there is an `error`, the line that says why, and `failure`, the kind of that error. `calls`
    counts granted calls for frames. `tokens` counts all tokens read and written in all rounds, also those that a cache
    had. `max_pixels` (of a frame), `tool_max_pixels` (of a requested frame) and `kv_type` were chosen for the memory;
    they are None and "" where that is not known. `disagreements` are the keys on which both orders choose differently,
    if both were judged at once; None for one order.

    `scores` are those of a clip that was judged by itself, without a verdict; of a pair that is derived from two such
    clips they are both, and its `key` is both keys with + between them.
    """

    key: str
    first: str
    second: str
    prompt: str
    verdict: Verdict | None = None
    rounds: int = 0
    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0
    error: str = ""
    failure: str = ""
    warnings: tuple[Warned, ...] = ()
    max_pixels: int | None = None
    tool_max_pixels: int | None = None
    kv_type: str = ""
    disagreements: tuple[Key, ...] | None = None
    scores: tuple[dict[str, ClipScore], ...] = ()

    @property
    def preferences(self) -> dict[str, Preference]:
        """The preferences by key, of what was judged; empty without a verdict."""
        return self.verdict.preferences if self.verdict else {}

    @property
    def winners(self) -> dict[str, int]:
        """1, 2, or 0 for a tie or an undecided preference, of what was judged of TA, VQ, MQ and OA."""
        return {key: preference.winner for key, preference in self.preferences.items()}

    @property
    def odds(self) -> dict[str, Odds | None]:
        """The probabilities of (tie, video 1, video 2), by the keys of `winners`; None where there are none."""
        return {key: preference.odds for key, preference in self.preferences.items()}

    @property
    def source(self) -> str:
        """What the verdict comes from: "final", "recommended", "identical" (one file twice); "" without a verdict."""
        return self.verdict.source if self.verdict else ""


def result_of(question: Question, answer: Judgement | VrtError) -> Result:
    """Return the light columns of a judgement of one order, the clips as given, or of both; or of why there is none."""
    asked = question.key, question.first, question.second, question.prompt
    if isinstance(answer, VrtError):
        return Result(*asked, error=escape_surrogates(str(answer)), failure=answer.kind)
    judgement = answer
    rounds = [r for order in judgement.orders for r in order.rounds]
    settings = judgement.settings
    return Result(
        *asked,
        verdict=judgement.verdict if question.second else None,
        rounds=len(rounds),
        calls=sum(r.outcome == "tool" for r in rounds),
        tokens=sum(r.tokens_in + r.tokens_out for r in rounds),
        seconds=judgement.timings.total,
        warnings=judgement.warned,
        max_pixels=settings.max_pixels,
        tool_max_pixels=settings.tool_max_pixels,
        kv_type=settings.engine.kv_type if settings.engine else "",
        disagreements=None if {order.first for order in judgement.orders} <= {1} else judgement.disagreements,
        scores=(judgement.scores or ())[: 1 + bool(question.second)],
    )


def derive_result(one: Result, two: Result) -> Result:
    """Return the light columns of a pair, derived from those of its clips, each judged by itself."""
    scores, error = (*one.scores, *two.scores), one.error or two.error
    return replace(
        one,
        key=f"{one.key}{DERIVED}{two.key}",
        second=two.first,
        verdict=None if error else compare_scores(*scores),
        tokens=one.tokens + two.tokens,
        seconds=one.seconds + two.seconds,
        error=error,
        failure=one.failure or two.failure,
        warnings=tuple(dict.fromkeys((*one.warnings, *two.warnings))),
        scores=scores,
    )


def escape_surrogates(text: str) -> str:
    """Make text that SQLite accepts: a lone surrogate, as in a file name that is not UTF-8, becomes an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


class JudgedPair(msgspec.Struct, frozen=True, dict=True):
    """Two clips and their prompt, and what was judged of them, if anything, in each of the two orders.

    `given` showed `first` as video 1, `swapped` showed `second` so. All else is about the clips in this order.
    """

    first: str
    second: str
    prompt: str
    given: Result | None = None
    swapped: Result | None = None

    @property
    def id(self) -> str:
        """What a list names the pair by: the key of its first judgement, or a digest of it if that is derived."""
        key = self.results[0].key
        return hashlib.sha256(key.encode()).hexdigest() if DERIVED in key else key

    @property
    def keys(self) -> tuple[str | None, str | None]:
        """The key of the judgement of each order, None where there is none."""
        return self.given and self.given.key, self.swapped and self.swapped.key

    @property
    def results(self) -> tuple[Result, ...]:
        """The judgements that there are."""
        return tuple(result for result in (self.given, self.swapped) if result)

    @property
    def verdicts(self) -> tuple[Verdict | None, Verdict | None]:
        """The verdict of each order, None where there is none."""
        mirrored = self.swapped.verdict.mirrored() if self.swapped and self.swapped.verdict else None
        return self.given.verdict if self.given else None, mirrored

    @property
    def of_both(self) -> Result | None:
        """The judgement in which both orders were judged at once, if there is one: it counts alone."""
        return next((result for result in self.results if result.disagreements is not None), None)

    @cached_property
    def joined(self) -> BothOrders | None:
        """Both orders joined; None without any verdict."""
        given, swapped = self.verdicts
        if both := self.of_both:
            verdict = swapped if both is self.swapped else given
            return BothOrders(verdict, both.disagreements or ()) if verdict else None
        return join_orders(given, swapped)

    @property
    def preferences(self) -> Mapping[str, Preference]:
        """What both orders prefer, by key; empty without any verdict."""
        return self.joined.verdict.preferences if self.joined else {}

    @property
    def overall(self) -> Preference | None:
        """What both orders prefer overall; None without any verdict."""
        return self.preferences.get(OVERALL)

    @property
    def disagreements(self) -> tuple[str, ...]:
        """The keys on which the orders choose differently."""
        return self.joined.disagreements if self.joined else ()

    @property
    def errors(self) -> tuple[str, ...]:
        """Why an order has no verdict."""
        return tuple(result.error for result in self.results if result.error)

    def mirrored(self) -> JudgedPair:
        """Return the same pair with its clips exchanged."""
        return JudgedPair(self.second, self.first, self.prompt, self.swapped, self.given)


def join_results(results: Iterable[Result]) -> list[JudgedPair]:
    """Join what was judged to pairs, their clips in the order first judged, the pair first judged first.

    There are several judgements of one order if memory was short for some and frames were made smaller. Then the last
    one with a verdict counts, or, without any verdict, the last one.
    """
    found: dict[tuple[str, str, str], JudgedPair] = {}
    for result in results:
        turned = (result.second, result.first, result.prompt)
        swapped = result.first != result.second and turned in found
        key = turned if swapped else (result.first, result.second, result.prompt)
        pair, place = found.get(key) or JudgedPair(*key), "swapped" if swapped else "given"
        before: Result | None = getattr(pair, place)
        if result.verdict or not (before and before.verdict):
            found[key] = replace(pair, **{place: result})
    return list(found.values())


class OrderCounts(msgspec.Struct, frozen=True):
    """How often the two orders of a pair disagree, of the `pairs` that have a verdict in both.

    By OA and those of TA, VQ and MQ that any pair was judged in: `judged` counts the pairs that both orders judged in
    it, `differ` those of them whose orders choose differently, and `undecided` those that are undecided.
    """

    pairs: int
    judged: Mapping[str, int]
    differ: Mapping[str, int]
    undecided: Mapping[str, int]


def count_orders(verdicts: Iterable[tuple[Verdict | None, Verdict | None]]) -> OrderCounts:
    """Count how often both verdicts of a pair, about its clips in the same order, disagree."""
    joined = [both for one, other in verdicts if one and other and (both := join_orders(one, other))]
    preferences = [item for both in joined for item in both.verdict.preferences.items()]
    judged = Counter(key for key, _ in preferences)
    differ = Counter(key for both in joined for key in both.disagreements)
    undecided = Counter(key for key, of in preferences if of.undecided)
    keys = [key for key in KEYS if judged[key] or key == OVERALL]
    return OrderCounts(len(joined), *({key: counts[key] for key in keys} for counts in (judged, differ, undecided)))


class MadeWith(msgspec.Struct, frozen=True):
    """How many judgements were made with these pixels of a frame and of a requested frame, and this KV type."""

    max_pixels: int | None
    tool_max_pixels: int | None
    kv_type: str
    judgements: int


class WarningCount(msgspec.Struct, frozen=True):
    """How many judgements have a warning of this kind, and one such warning."""

    kind: str
    judgements: int
    example: str


class Conditions(Record, frozen=True):
    """What the `judgements` were made with, the commonest first, and their warnings.

    They are `comparable` if all were made with the same pixels, as far as these are known.
    """

    comparable: bool
    made_with: tuple[MadeWith, ...]
    warnings: tuple[WarningCount, ...]
    judgements: int = 0


def conditions_of(results: Iterable[Result]) -> Conditions:
    """Count the conditions of the results for which the model ran."""
    ran = [result for result in results if result.rounds]
    counts = Counter((result.max_pixels, result.tool_max_pixels, result.kv_type) for result in ran)
    sizes = {(pixels, tool_pixels) for pixels, tool_pixels, _ in counts if pixels is not None}
    warned = Counter(kind for result in ran for kind in {warning.kind for warning in result.warnings})
    examples = {warning.kind: warning.text for result in reversed(ran) for warning in result.warnings}
    return Conditions(
        comparable=len(sizes) < 2,
        made_with=tuple(MadeWith(*values, judgements=count) for values, count in counts.most_common()),
        warnings=tuple(WarningCount(kind, count, examples[kind]) for kind, count in warned.most_common()),
        judgements=len(ran),
    )
