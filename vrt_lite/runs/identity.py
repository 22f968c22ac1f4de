"""What all judgements of a run have in common: the judge, and facts such as the prompt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vrt_lite.errors import UsageError

_LONGEST_VALUE = 60


@dataclass(frozen=True, slots=True)
class Identity:
    """What all judgements of a run have in common.

    `judge` is `Judge.key()`, and `described` is `Judge.describe()`: that judge in words, by name of option. `facts` are
    the prompt, or the labelled set and the choice of its pairs, by name.
    """

    judge: str = ""
    described: Mapping[str, str] = field(default_factory=dict[str, str])
    facts: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def model(self) -> str:
        """The name of the judge's model, "" if it is not known."""
        return self.described.get("--model", "")

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    def with_facts_of(self, before: Identity) -> Identity:
        """Return the same with all facts of an earlier call, such as the prompts of groups that are not given now."""
        return replace(self, facts={**before.facts, **self.facts})


def check_identity(name: str, before: Identity, now: Identity) -> None:
    """Raise UsageError if what the name stands for differs from what is given now. A fact of one side is no difference.

    A judge with the same key is the same, wherever its files are.
    """
    differing = _list_differences(before.facts, now.facts)
    if before.judge and now.judge and before.judge != now.judge:
        differing += _list_differences(before.described, now.described) or [
            "other files or another profile of the same judge"
        ]
    if differing:
        raise UsageError(
            f"Run {name!r} was made with {' and '.join(differing)}. "
            "Give another --name, or none; what both need is judged once."
        )


def _list_differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Describe each fact that has another value now."""
    pairs = [(fact, value, now[fact]) for fact, value in before.items() if fact in now]
    return [f"{fact} {_quote(old)} (not {_quote(new)})" for fact, old, new in pairs if old != new]


def _quote(value: str) -> str:
    """Return a value in one line, between quotation marks unless it is one word or number."""
    line = " ".join(value.split())
    if len(line) > _LONGEST_VALUE:
        line = f"{line[:_LONGEST_VALUE]}…"
    return line if re.fullmatch(r"[\w./:-]*\w", line) else repr(line)
