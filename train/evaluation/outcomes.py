"""What a judge said of one case, and the file that keeps it: a line a case, so that an evaluation can go on.

Values and their JSON lines. Knows the rounds of `vrt_lite.judge`; refuses to know judges, torch and what is
counted over outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from train.cases import Case
from train.traces import append_rows, read_rows
from vrt_lite.errors import UsageError
from vrt_lite.judge import Round
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Odds
from vrt_lite.protocol.tags import Choice, FrameCall
from vrt_lite.protocol.verdict import Verdict

View = Literal["asked", "random", "none"]
"""What a call brings: the frames asked for; random frames of the same clips in their place; or no call is granted."""
VIEWS: tuple[View, ...] = get_args(View)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case judged. `winners` is empty where there was no verdict, and `error` says why.

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
        """Whether every label that there is was named; false without a verdict."""
        return all(self.winners.get(key) == label for key, label in self.labels.items())


Judged = dict[str, Outcome]
"""Outcomes by their case's key, in the order judged."""


def outcome(
    case: Case,
    rounds: Sequence[Round],
    verdict: Verdict | None,
    *,
    profile: Profile,
    error: str = "",
    seconds: float = 0,
) -> Outcome:
    """What came of a case: its rounds, and the verdict that they reached.

    `profile` is the one that the judge ran under: where it has one round, a recommendation is all that can be given.
    """
    corrections = sum(r.outcome == "correction" for r in rounds)
    preferences = verdict.preferences if verdict else {}
    ended = verdict is not None and (verdict.source == "final" or profile.rounds == 1)
    return Outcome(
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
    """All outcomes of a file by judge and view; none if there is no file. UsageError for a file of another kind."""
    found: dict[tuple[str, View], Judged] = {}
    for number, row in enumerate(read_rows(path), start=1):
        try:
            judge, view = row.pop("judge"), row.pop("view")
            made = _outcome_of(row)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{path}, line {number} is no outcome of an evaluation ({error}).") from error
        found.setdefault((judge, view), {})[made.key] = made
    return found


def append_outcomes(path: Path, made: Iterable[Outcome], *, judge: str, view: View) -> None:
    """Add outcomes behind those of the file; they are on the disk when it returns."""
    append_rows(path, ({"judge": judge, "view": view, **_plain(one)} for one in made))


def _plain(made: Outcome) -> dict[str, Any]:
    """Plain data, without what is empty."""
    kept = {name: value for name, value in asdict(made).items() if value}
    return {"key": made.key, "labels": dict(made.labels), **kept}


def _outcome_of(row: Mapping[str, Any]) -> Outcome:
    facts = dict(row)
    odds = {key: (float(tie), float(one), float(two)) for key, (tie, one, two) in facts.pop("odds", {}).items()}
    return Outcome(odds=odds, defects=tuple(facts.pop("defects", ())), **facts)
