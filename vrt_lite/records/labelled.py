"""One pair of a labelled set in one order: its labels, as kept in a run, and what was judged of it.

In every field clip 1 is A and clip 2 is B as in the table, whichever was shown first; `order` says which was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from vrt_lite.protocol.verdict import Preference, Verdict
from vrt_lite.records.pairs import Result

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
