"""What judgements were made with, their warnings, and whether they can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from vrt_lite.records.judgement import Record
from vrt_lite.records.pairs import Result


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
