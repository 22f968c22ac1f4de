"""One pair of a labelled set in one order: its labels, as kept in a run, and what was judged of it.

In every field clip 1 is A and clip 2 is B as in the table, whichever was shown first; `order` says which was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from vrt_lite.errors import MissingClipError, VideoError, WorkerEndedError
from vrt_lite.protocol.verdict import Preference, Verdict
from vrt_lite.records.judgement import Record
from vrt_lite.records.pairs import Result

Order = Literal["given", "swapped"]
Orders = Literal["given", "swapped", "random", "both"]
Failure = Literal["", "missing clip", "broken clip", "no verdict", "engine died"]
_FAILURES: Final[Mapping[str, Failure]] = {
    MissingClipError.kind: "missing clip",
    VideoError.kind: "broken clip",
    WorkerEndedError.kind: "engine died",
}
UNDECIDED: Final = -1
"""The winner if nobody wins though it is no tie. It equals no label, so that it never counts as right."""


class EvalAbout(Record, frozen=True):
    """What the run of an evaluation is about: the set, the pairs taken from it, and the judge.

    `labels` counts the table's pairs labelled 1, 2 and 0, by KEY. `judge` is the judge's key, `model` the name to show,
    `scope` what the judge says that it sees. `left_out` counts the rows that cannot be judged, by kind;
    `left_out_rows` describes the first of them. `chosen` is the number of pairs to judge.
    """

    set: str = ""
    title: str = ""
    split: str = ""
    labels: Mapping[str, tuple[int, int, int]] = {}
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
    left_out: Mapping[str, int] = {}
    left_out_rows: tuple[str, ...] = ()
    chosen: int = 0


class EvalCase(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pair with its labels in one order, and the key of its judgement in the store, or why a clip is `missing`.

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
    missing: str = ""
    key: str = ""
    clip_seconds: float | None = None

    @property
    def item(self) -> str:
        """The key of this case among the items of its run."""
        return f"{self.row}:{self.order}"


class ScoredCase(EvalCase, frozen=True, kw_only=True):
    """A case with its result. `verdict` is about A and B in the table's order; None for a failure, which says `why`."""

    result: Result | None = None
    verdict: Verdict | None = None
    failure: Failure = ""
    why: str = ""

    def preference(self, key: str) -> Preference | None:
        """Return the preference in this key; None for a failed case, and for what the verdict does not judge."""
        return self.verdict.preferences.get(key) if self.verdict else None

    def winner(self, key: str) -> int:
        """Return 1 for A, 2 for B, 0 for a tie, or UNDECIDED. Only for a key that is judged."""
        preference = self.preference(key)
        assert preference, f"{key} of {self.item} was not judged"
        return UNDECIDED if preference.undecided else preference.winner

    def margin(self, key: str) -> float | None:
        """Return P(A) - P(B), or None without probabilities. Rounded, so that equal ones are equal."""
        preference = self.preference(key)
        return round(preference.odds[1] - preference.odds[2], 9) if preference and preference.odds else None


def score_case(case: EvalCase, result: Result | None) -> ScoredCase:
    """Combine a case with its result. A case whose result was forgotten is not judged yet."""
    told = msgspec.structs.astuple(case)
    if case.missing or not result:
        return ScoredCase(*told, failure="missing clip" if case.missing else "", why=case.missing)
    if not result.verdict:
        return ScoredCase(*told, result=result, failure=_FAILURES.get(result.failure, "no verdict"), why=result.error)
    verdict = result.verdict.mirrored() if case.order == "swapped" else result.verdict
    return ScoredCase(*told, result=result, verdict=verdict)
