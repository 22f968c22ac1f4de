"""The outcome of judging one case, and the file of outcomes: a line for each case, so that an evaluation can resume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from train.traces import append_rows, read_rows
from train.training_cases import TrainingCase
from train.views import View
from vrt_lite.errors import UsageError
from vrt_lite.judge import Round
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Choice, Odds
from vrt_lite.protocol.tags import FrameCall
from vrt_lite.protocol.verdict import Verdict


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """One judged case. `winners` is empty if there was no verdict, and `error` has the reason.

    `source` is "final" or "recommended"; `calls` counts replies that called for frames, `corrections` those that could
    not be used. `well_formed` says that there were none of these and that the judge ended by itself. `seconds` is what
    this case took alone, 0 for one judged in a batch.
    """

    key: str
    labels: Mapping[str, Choice]
    winners: Mapping[str, Choice] = field(default_factory=dict[str, Choice])
    odds: Mapping[str, Odds] = field(default_factory=dict[str, Odds])
    source: str = ""
    rounds: int = 0
    calls: int = 0
    corrections: int = 0
    well_formed: bool = False
    defects: tuple[str, ...] = ()
    hidden: bool = False
    seconds: float = 0.0
    error: str = ""

    @property
    def all_right(self) -> bool:
        """Whether the winner of every label is right; false without a verdict."""
        return all(self.winners.get(key) == label for key, label in self.labels.items())


Judged = dict[str, CaseOutcome]
"""Outcomes by their case's key, in the order of judging."""


def outcome(
    case: TrainingCase,
    rounds: Sequence[Round],
    verdict: Verdict | None,
    *,
    profile: Profile,
    error: str = "",
    seconds: float = 0,
) -> CaseOutcome:
    """Make the outcome of a case from its rounds and the verdict that they reached.

    `profile` is the one that the judge ran under: where it has one round, a recommendation is all that can be given.
    """
    corrections = sum(r.outcome == "correction" for r in rounds)
    preferences = verdict.preferences if verdict else {}
    ended = verdict is not None and (verdict.source == "final" or profile.rounds == 1)
    return CaseOutcome(
        case.key,
        dict(case.labels),
        winners={key: preference.winner for key, preference in preferences.items()},
        odds={key: preference.odds for key, preference in preferences.items() if preference.odds is not None},
        source=verdict.source if verdict else "",
        rounds=len(rounds),
        calls=sum(isinstance(r.parsed, FrameCall) for r in rounds),
        corrections=corrections,
        well_formed=ended and not corrections,
        defects=case.defects,
        hidden=case.hidden,
        seconds=seconds,
        error="" if verdict else error or "no verdict",
    )


def read_outcomes(path: Path) -> dict[tuple[str, View], Judged]:
    """Read all outcomes of a file, by judge and view. Raises UsageError for a file of another kind."""
    found: dict[tuple[str, View], Judged] = {}
    for number, row in enumerate(read_rows(path), start=1):
        try:
            judge, view = row.pop("judge"), row.pop("view")
            result = _outcome_of(row)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{path}, line {number} is no outcome of an evaluation ({error}).") from error
        found.setdefault((judge, view), {})[result.key] = result
    return found


def append_outcomes(path: Path, results: Iterable[CaseOutcome], *, judge: str, view: View) -> None:
    """Append outcomes to a file and flush them to the disk."""
    append_rows(path, ({"judge": judge, "view": view, **_plain(one)} for one in results))


def _plain(result: CaseOutcome) -> dict[str, Any]:
    """Convert an outcome to plain data, without empty values."""
    kept = {name: value for name, value in asdict(result).items() if value}
    return {"key": result.key, "labels": dict(result.labels), **kept}


def _outcome_of(row: Mapping[str, Any]) -> CaseOutcome:
    facts = dict(row)
    odds = {key: (float(tie), float(one), float(two)) for key, (tie, one, two) in facts.pop("odds", {}).items()}
    return CaseOutcome(odds=odds, defects=tuple(facts.pop("defects", ())), **facts)
