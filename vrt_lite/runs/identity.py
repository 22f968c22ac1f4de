"""What all judgements of a run have in common: the judge, and facts such as the prompt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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

    def resume(self, now: Identity, name: str) -> Identity:
        """Return what is given now, with all facts of the run `name`, such as the prompts of groups not given now.

        UsageError, which says what differs, if the run has another judge or another value of a fact. A judge with the
        same key is the same, wherever its files are.
        """
        differing = _list_differences(self.facts, now.facts)
        if self.judge and now.judge and self.judge != now.judge:
            files = ["other files or another profile of the same judge"]
            differing += _list_differences(self.described, now.described) or files
        if differing:
            raise UsageError(
                f"Run {name!r} was made with {' and '.join(differing)}. "
                "Give another --name, or none; what both need is judged once."
            )
        return replace(now, facts={**self.facts, **now.facts})


def _list_differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Describe each fact that has another value now. A fact of one side is no difference."""
    pairs = [(fact, value, now[fact]) for fact, value in before.items() if fact in now]
    return [f"{fact} {_quote(old)} (not {_quote(new)})" for fact, old, new in pairs if old != new]


def _quote(value: str) -> str:
    """Return a value in one line, between quotation marks unless it is one word or number."""
    line = " ".join(value.split())
    if len(line) > _LONGEST_VALUE:
        line = f"{line[:_LONGEST_VALUE]}…"
    return line if re.fullmatch(r"[\w./:-]*\w", line) else repr(line)
