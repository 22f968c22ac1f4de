"""One pair of a labelled set in one order: its labels and its verdict, as kept in a run.

In every field clip 1 is A and clip 2 is B as in the table, whichever was shown first; `order` says which was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from vrt_lite.errors import StoreError
from vrt_lite.evaluation.layouts import LabelledPair
from vrt_lite.protocol.verdict import Preference, Verdict
from vrt_lite.records.pairs import Result
from vrt_lite.runs.run import CASE_ITEMS

if TYPE_CHECKING:
    from vrt_lite.runs.run import Run

Order = Literal["given", "swapped"]
Orders = Literal["given", "swapped", "random", "both"]
Failure = Literal["", "missing clip", "broken clip", "no verdict", "engine died"]
UNDECIDED: Final = -1
"""The winner if nobody wins though it is no tie. It equals no label, so that it never counts as right."""


class EvalCase(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pair with its labels in one order, and the key of its judgement in the store, or why there is none.

    `prompt` is a short digest; pairs of one prompt have the same. `clip_seconds` is the longer clip's length, None if
    it was not opened.
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
    clip_seconds: float | None = None

    @property
    def item(self) -> str:
        """The key of this case among the items of its run."""
        return f"{self.row}:{self.order}"


class ScoredCase(EvalCase, frozen=True, kw_only=True):
    """A case with its result. `verdict` is about A and B in the table's order; None for a failure."""

    result: Result | None = None
    verdict: Verdict | None = None

    def preference(self, key: str) -> Preference | None:
        """Return the preference in this key; None for a failed case, and for what the verdict does not judge."""
        return self.verdict.preferences.get(key) if self.verdict else None

    def is_judged(self, key: str) -> bool:
        """Whether there is a verdict, and it judges this key."""
        return self.preference(key) is not None

    def winner(self, key: str) -> int:
        """Return 1 for A, 2 for B, 0 for a tie, or UNDECIDED. Only for a key that is judged."""
        preference = self.preference(key)
        assert preference, f"{key} of {self.item} was not judged"
        return UNDECIDED if preference.undecided else preference.winner

    def margin(self, key: str) -> float | None:
        """Return P(A) - P(B), or None without probabilities. Rounded, so that equal ones are equal."""
        preference = self.preference(key)
        odds = preference.odds if preference else None
        return None if odds is None else round(odds[1] - odds[2], 9)


def score_case(case: EvalCase, result: Result | None) -> ScoredCase:
    """Combine a case with its result. A case whose result was forgotten is not judged yet."""
    if case.key and result is None:
        case = msgspec.structs.replace(case, failure="", why="")
    verdict = result.verdict if result and not case.failure else None
    if verdict and case.order == "swapped":
        verdict = verdict.mirrored()
    return ScoredCase(*msgspec.structs.astuple(case), result=result, verdict=verdict)


def keep_case(run: Run, case: EvalCase) -> None:
    """Keep a case in its run; `read_cases` reads it."""
    run.put(CASE_ITEMS, case.item, msgspec.to_builtins(case))


def read_cases(run: Run) -> Iterator[EvalCase]:
    """Read the cases of a run, in the order in which they were kept; a ranking has none."""
    return (msgspec.convert(value, EvalCase) for _, value in run.items(CASE_ITEMS))


def new_case(pair: LabelledPair, order: Order) -> EvalCase:
    """Make the case of a pair that is not judged yet."""
    digest = hashlib.sha256(pair.prompt.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    return EvalCase(pair.row, pair.name, order, pair.labels, digest, len(pair.prompt), pair.group)


class EvalAbout(msgspec.Struct, frozen=True):
    """The set, the pairs taken from it, and the judge.

    `labels` counts the table's pairs labelled 1, 2 and 0, by KEY. `judge` is the judge's key, `model` the name to show,
    `scope` what the judge says that it sees.
    `left_out` counts the rows that cannot be judged, by kind; `left_out_rows` describes the first of them. `chosen` is
    the number of pairs to judge.
    """

    set: str = ""
    title: str = ""
    split: str = ""
    labels: Mapping[str, tuple[int, int, int]] = msgspec.field(default_factory=dict[str, tuple[int, int, int]])
    table: str = ""
    table_sha256: str = ""
    folder: str = ""
    judge: str = ""
    model: str = ""
    scope: str = ""
    order: Orders = "given"
    limit: int | None = None
    sample: int | None = None
    seed: int = 0
    left_out: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    left_out_rows: tuple[str, ...] = ()
    chosen: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain data; `read_eval_about` reads it."""
        return msgspec.to_builtins(self)


def read_eval_about(run: Run) -> EvalAbout:
    """Read what an evaluation's run is about; StoreError if it is something else."""
    try:
        return msgspec.convert(run.about, EvalAbout)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise StoreError(f"Run {run.name!r} is not the run of an evaluation: {error}.") from error
