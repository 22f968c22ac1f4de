"""A judged pair as a report shows it: typed values out of the JSON of a judgement.

Knows the JSON (`schema/judgement.schema.json`) and how two orders of one pair make one. What is read comes from a file
that anybody may have written: every field is checked, and a wrong one ends in a UsageError. Refuses to know HTML.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from vrt_lite.errors import UsageError
from vrt_lite.protocol.tags import DIMENSIONS, KEYS, OVERALL, Choice
from vrt_lite.protocol.verdict import Preference, Source, Verdict, average, disagreements

_T = TypeVar("_T")
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Footage:
    """One clip as it was when it was judged. `shown` is the width and height that the model saw."""

    path: str
    sha256: str
    width: int
    height: int
    fps: float
    seconds: float
    frames: int
    size_bytes: int
    shown: tuple[int, int]
    warnings: tuple[str, ...]

    @property
    def name(self) -> str:
        """The last part of the path, whichever system wrote it."""
        return self.path.replace("\\", "/").rstrip("/").rpartition("/")[2] or self.path


@dataclass(frozen=True, slots=True)
class Still:
    """A frame that was shown: of video 1 or 2 as given, its place in the workspace and in the file, and its moment."""

    video: int
    index: int
    source: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Turn:
    """One round: what was newly shown, and what the judge wrote. Choices are as written: in the order shown."""

    number: int
    outcome: str
    stills: tuple[Still, ...]
    text: str
    snapshot: str
    thought: str
    answer: Mapping[str, int] | None
    recommended: Mapping[str, int] | None
    confidence: int | None
    call: str | None
    correction: str | None
    stop: str
    tokens: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Order:
    """The rounds with video `first` shown as video 1, and their verdict about the videos as given."""

    first: int
    verdict: Verdict
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A judged pair. `facts` are the model, settings, timings and counters, as plain data that is only shown."""

    prompt: str
    clips: tuple[Footage, Footage]
    verdict: Verdict
    orders: tuple[Order, ...]
    disagreements: tuple[str, ...]
    warnings: tuple[str, ...]
    names: Mapping[str, str]
    workspace: int
    facts: Mapping[str, Any]


def read_case(judgement: Any) -> Case:
    """A case from the JSON of a judgement; UsageError for anything else."""
    try:
        return _case(judgement)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(
            f"This is no judgement of vrt-lite ({reason}). Give what `compare --json` printed, or a run's name."
        ) from error


def together(one: Case, other: Case) -> Case:
    """Two judgements of the same clips, given in the same order, in one case."""
    return replace(
        one,
        verdict=average(one.verdict, other.verdict),
        orders=tuple(sorted((*one.orders, *other.orders), key=lambda order: order.first)),
        disagreements=disagreements(one.verdict, other.verdict),
        warnings=tuple(dict.fromkeys((*one.warnings, *other.warnings))),
        facts={**one.facts, "timings": _summed(one, other, "timings"), "counters": _summed(one, other, "counters")},
    )


def exchanged(case: Case) -> Case:
    """The same case with the clips given the other way round."""
    orders = tuple(
        Order(
            3 - order.first,
            order.verdict.mirrored(),
            tuple(replace(t, stills=tuple(replace(s, video=3 - s.video) for s in t.stills)) for t in order.turns),
        )
        for order in case.orders
    )
    return replace(case, clips=(case.clips[1], case.clips[0]), verdict=case.verdict.mirrored(), orders=orders)


def _summed(one: Case, other: Case, name: str) -> dict[str, Any]:
    a, b = one.facts[name], other.facts[name]
    return {key: a.get(key, 0) + b.get(key, 0) for key in {**a, **b}}


def _case(judgement: Json) -> Case:
    a, b = _listed(judgement["inputs"], _footage)
    settings = _object(judgement["settings"])
    dimensions = _object(settings["dimensions"])
    verdict, orders = _verdict(judgement["verdict"]), _listed(judgement["orders"], _order)
    return Case(
        prompt=_text(judgement["prompt"] or ""),
        clips=(a, b),
        # Joined again, so that a file of an earlier version follows the same rule.
        verdict=average(orders[0].verdict, orders[1].verdict) if len(orders) == 2 else verdict,
        orders=orders,
        disagreements=tuple(key for key in KEYS if key in judgement["disagreements"]),
        warnings=_listed(judgement["warnings"], _text),
        names={**{key: _text(dimensions[key]["name"]) for key in DIMENSIONS}, OVERALL: "Overall"},
        workspace=_count(settings["workspace"]),
        facts={
            "model": _object(judgement["model"]),
            "profile": _object(judgement["profile"]),
            "settings": settings,
            "timings": {key: _number(value) for key, value in _object(judgement["timings"]).items()},
            "counters": {key: _count(value) for key, value in _object(judgement["counters"]).items()},
        },
    )


def _footage(clip: Json) -> Footage:
    width, height = _listed(clip["shown_size"], _count)
    return Footage(
        path=_text(clip["path"]),
        sha256=_text(clip["sha256"]),
        width=_count(clip["width"]),
        height=_count(clip["height"]),
        fps=_number(clip["fps"]),
        seconds=_number(clip["duration_seconds"]),
        frames=_count(clip["frames"]),
        size_bytes=_count(clip["size_bytes"]),
        shown=(width, height),
        warnings=_listed(clip["warnings"], _text),
    )


def _order(order: Json) -> Order:
    return Order(_one_of(order["first"], (1, 2)), _verdict(order["verdict"]), _listed(order["rounds"], _turn))


def _turn(r: Json) -> Turn:
    recommendation = r["recommendation"]
    return Turn(
        number=_count(r["number"]),
        outcome=_one_of(r["outcome"], ("final", "tool", "correction")),
        stills=_listed(r["frames"], _still),
        text=_text(r["text"]),
        snapshot=_text(r["snapshot"]),
        thought=_text(r["thought"]),
        answer=None if r["answer"] is None else _choices(r["answer"]),
        recommended=None if recommendation is None else _choices(recommendation["choices"]),
        confidence=None if recommendation is None else _confidence(recommendation["confidence"]),
        call=None if r["call"] is None else _text(r["call"]),
        correction=None if r["correction"] is None else _text(r["correction"]),
        stop=_text(r["stop"]),
        tokens=(_count(r["tokens_in"]), _count(r["tokens_out"])),
    )


def _still(frame: Json) -> Still:
    video = _one_of(frame["video"], (1, 2))
    return Still(video, _count(frame["index"]), _count(frame["source_frame"]), _number(frame["seconds"]))


def _verdict(verdict: Json) -> Verdict:
    given = {**_object(verdict["dimensions"]), OVERALL: verdict["overall"]}
    source: Source = _one_of(verdict["source"], ("final", "recommended", "identical"))
    return Verdict({key: _preference(given[key]) for key in KEYS}, source, _confidence(verdict["confidence"]))


def _preference(preference: Json) -> Preference:
    odds = preference["probabilities"]
    return Preference(
        _choice(preference["winner"]),
        None if odds is None else (_share(odds["tie"]), _share(odds["1"]), _share(odds["2"])),
    )


def _choices(answer: Json) -> Mapping[str, int]:
    return {key: _choice(answer[key]) for key in KEYS}


def _choice(value: Any) -> Choice:
    return _one_of(value, cast("tuple[Choice, ...]", (0, 1, 2)))


def _confidence(value: Any) -> int | None:
    return None if value is None else _one_of(value, (1, 2, 3, 4, 5))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{str(value)[:40]!r} is not an object")
    return cast("dict[str, Any]", value)


def _listed(value: Any, read: Callable[[Any], _T]) -> tuple[_T, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{str(value)[:40]!r} is not a list")
    return tuple(read(item) for item in cast("list[Any]", value))


def _one_of(value: Any, allowed: Sequence[_T]) -> _T:
    if isinstance(value, bool) or value not in allowed:
        raise ValueError(f"{str(value)[:40]!r} is not one of {', '.join(map(str, allowed))}")
    return allowed[allowed.index(value)]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:40]!r} is not a text")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"{str(value)[:40]!r} is not a number from 0")
    return float(value)


def _share(value: Any) -> float:
    return min(_number(value), 1.0)


def _count(value: Any) -> int:
    number = _number(value)
    if number != int(number):
        raise ValueError(f"{value!r} is not a whole number")
    return int(number)
