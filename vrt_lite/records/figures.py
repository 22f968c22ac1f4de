"""An evaluation's figures as values; each class's fields are the keys of its JSON.

Shares are from 0 to 1. A KEY is OA, TA, VQ or MQ; a mapping by KEY has those that the table labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from vrt_lite.records.judgement import Record
from vrt_lite.records.labelled import Orders
from vrt_lite.records.pairs import Conditions

VERSION: Final = 4
Measure = Literal["tau", "diff", "calibrated", "sign"]


class Share(msgspec.Struct, frozen=True):
    """`right` of `of` pairs, and the 95 % interval. `value` is right / of, from 0 to 1; None without pairs."""

    value: float | None
    right: int
    of: int
    low: float
    high: float


class FittedShare(Share, frozen=True, omit_defaults=True):
    """What `calibrated` returns: |m| up to `threshold` counts as a tie. None without pairs."""

    threshold: float | None = None


class AnswerShare(Share, frozen=True):
    """The accuracy of giving every pair this answer; the answer is None without a label to choose it by."""

    answer: int | None


class AnswerShares(msgspec.Struct, frozen=True):
    """Both measures of an answer that needs no judge."""

    tau: AnswerShare
    diff: AnswerShare


class Baselines(msgspec.Struct, frozen=True):
    """The accuracy without a judge: of a tie for every pair, and of the commonest label (for diff, of 1 and 2)."""

    pairs: int
    tie: AnswerShares
    commonest: AnswerShares


class Coverage(msgspec.Struct, frozen=True):
    """How many `pairs` were judged in a dimension, of those that are `labelled` in it and were put to the judge.

    The others were `not_judged`, as their verdict leaves this dimension out, or `failed`, as they have no verdict.
    """

    pairs: int
    labelled: int
    not_judged: int
    failed: int


class Part(Coverage, frozen=True):
    """Some pairs: how many were judged, and of the judged ones the accuracy and the baselines.

    `undecided` is the number of verdicts that name no winner and no tie. They never count as right.
    """

    undecided: int
    tau: Share
    diff: Share
    baselines: Baselines


class Accuracy(Part, frozen=True):
    """All measures of one dimension, of the pairs that were judged in it.

    `tau_all` and `diff_all` also count failures, as wrong. `calibrated` and `sign` are computed from probabilities;
    `probabilities` is the number of pairs that have them. `prompts` is the number of different prompts.
    """

    tau_all: Share
    diff_all: Share
    calibrated: FittedShare
    sign: Share
    probabilities: int
    prompts: int


class Subset(Part, frozen=True, rename={"least": "from"}):
    """The longest 10 % by the longer clip (`of` is "clip", in seconds) or by the prompt ("prompt", in characters)."""

    name: str
    of: str
    least: float


class Band(Part, frozen=True):
    """A quarter of the labelled pairs, by length."""

    low: float
    high: float


class GroupPart(Part, frozen=True):
    """The pairs of one of the table's groups."""

    name: str


class PairCounts(msgspec.Struct, frozen=True):
    """How many pairs were chosen, have a verdict, failed, and are left to judge."""

    chosen: int
    judged: int
    failed: int
    left: int


class Spread(msgspec.Struct, frozen=True):
    """How a cost is distributed over the judgements."""

    mean: float
    median: float
    p95: float


class Cost(msgspec.Struct, frozen=True):
    """The cost of a judgement, which is one pair in one order. The spreads are None without a judgement."""

    judgements: int
    tool_rate: Share
    recommended: Share
    rounds: Spread | None
    calls: Spread | None
    seconds: Spread | None
    tokens: Spread | None
    rounds_histogram: Mapping[str, int]


class Position(msgspec.Struct, frozen=True):
    """How many verdicts, and how many labels, are for the video shown first; ties are not counted."""

    verdicts: Share
    labels: Share


class OrderEffect(msgspec.Struct, frozen=True):
    """How much larger tau is with B shown first, and its 95 % interval, over pairs that both orders judged."""

    pairs: int
    tau: float | None
    low: float
    high: float


class OrderFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """Figures by order. The last three are computed from pairs judged in both orders.

    `averaged` joins both orders of each pair: undecided are those whose orders name opposite winners. `disagree` is by
    every KEY, of the pairs that both orders judged in it; None for a KEY without one.
    """

    given: Part
    swapped: Part
    averaged: Part | None = None
    effect: OrderEffect | None = None
    disagree: Mapping[str, Share | None] | None = None


class NamedFailure(msgspec.Struct, frozen=True):
    """A pair that was not judged, and why; `order` is "both" where both orders failed alike."""

    row: int
    name: str
    order: str
    kind: str
    why: str


class Failures(msgspec.Struct, frozen=True):
    """How many failures of each kind, and the first 200."""

    counts: Mapping[str, int]
    first: tuple[NamedFailure, ...]


class PublishedFigure(msgspec.Struct, frozen=True):
    """The accuracy of a model as it is published: a share from 0 to 1, beside the measure that it can be of.

    `note` is what was found about it; empty if nothing was.
    """

    model: str
    measure: Measure
    value: float
    source: str
    note: str = ""


class Published(msgspec.Struct, frozen=True):
    """Published figures of a set and split, for the overall judgment.

    `left_out` says which printed figures stand nowhere, and why. `other_splits` are the other splits with published
    figures, which cannot be compared with figures on this one.
    """

    figures: tuple[PublishedFigure, ...]
    left_out: tuple[str, ...]
    other_splits: tuple[str, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """The models that have a figure."""
        return tuple(dict.fromkeys(figure.model for figure in self.figures))

    def find_value(self, model: str, measure: str) -> float | None:
        """Find a model's figure beside a measure."""
        return next((f.value for f in self.figures if (f.model, f.measure) == (model, measure)), None)


class Figures(Record, frozen=True):
    """All figures of an evaluation.

    With the order "both", figures are about the order "given" unless they join both orders. `main` is the KEY that
    subsets, bands, groups and orders are about: the first of OA, TA, VQ and MQ that is labelled and was judged.
    `left_out` counts the rows of the table that cannot be judged, by kind. `coverage` has every labelled KEY.
    `accuracy` and `confusion` have them too, but are None for a KEY that no pair was judged in. `baselines` are
    about all labelled pairs of the table, judged or not. A confusion table has labels 1, 2, 0 as rows and verdicts
    1, 2, 0 as columns; an undecided verdict is in none. `bands` is by "clip" and "prompt". `groups` are the 200
    largest. `orders` is None unless pairs were judged in both orders or in a random one. `published` is None for a
    set without published figures. `conditions` has the warnings of the judgements, and says whether these can be
    compared. `scope` is what the judge says that it sees.
    """

    version: int
    set: str
    title: str
    split: str
    order: Orders
    main: str
    pairs: PairCounts
    left_out: Mapping[str, int]
    coverage: Mapping[str, Coverage]
    accuracy: Mapping[str, Accuracy | None]
    baselines: Mapping[str, Baselines]
    confusion: Mapping[str, tuple[tuple[int, ...], ...] | None]
    subsets: tuple[Subset, ...]
    bands: Mapping[str, tuple[Band, ...]]
    groups: tuple[GroupPart, ...]
    cost: Cost
    position: Position
    orders: OrderFigures | None
    failures: Failures
    published: Published | None
    conditions: Conditions
    scope: str = ""
