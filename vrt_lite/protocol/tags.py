"""Reads what the judge wrote. Total: every text is an `Answer`, a `FrameCall` or `Malformed`.

Knows the tags and their spelling variants (the paper's samples capitalise tags, put spaces around `=`,
reorder keys, and close `</ answer>`). Refuses to know whether a call makes sense: that is `tool`'s.
What stands inside `<think>` or `<snapshot>` is never an answer or a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, cast

Choice = Literal[0, 1, 2]
"""0 is a tie, 1 and 2 name the better video."""

DIMENSIONS = ("TA", "VQ", "MQ")
OVERALL = "OA"
KEYS = (*DIMENSIONS, OVERALL)

_Kind = Literal["snapshot", "think", "recommend", "final", "answer", "call"]

_NOTES: frozenset[_Kind] = frozenset({"snapshot", "think"})
_ANSWERS: frozenset[_Kind] = frozenset({"recommend", "final", "answer"})

# Bounded repeats only: a pattern that backtracks would let a model's text stall the controller.
_TAG = re.compile(
    r"<[ \t\n]{0,4}(?P<close>/?)[ \t\n]{0,4}"
    r"(?:(?P<snapshot>snapshot)|(?P<think>think)|(?P<recommend>recommend(?:ed)?[ _]answer)"
    r"|(?P<final>final[ _]answer)|(?P<answer>answer)|(?P<call>tool_call))[ \t\n]{0,4}>",
    re.IGNORECASE,
)
_FIELD = re.compile(r"\b(TA|VQ|MQ|OA|CF)[ \t]{0,8}[=:][ \t]{0,8}([^\s,;<]{0,16})", re.IGNORECASE)


FORMAT = (
    "<snapshot>\nVideo 1:",
    "</snapshot>\n<think>\n",
    "</snapshot>\n\n<think>\n",
    "</think>\n<recommend answer>TA=0, VQ=0, MQ=0, OA=0, CF=1</recommend answer>\n<tool_call>\n"
    '{"name": "select_frames", "arguments": {"target_frames": [1, 2, 3]}}\n</tool_call>',
    "</think>\n<final answer>TA=0, VQ=0, MQ=0, OA=0</final answer>",
)
"""What a reply holds between its own words, as the prompt asks for it; digits are anything."""


@dataclass(frozen=True, slots=True)
class Marks:
    """One answer: the choice per key (TA, VQ, MQ, OA), where each digit stands in the text, and CF if given."""

    choices: Mapping[str, Choice]
    offsets: Mapping[str, int]
    confidence: int | None = None


@dataclass(frozen=True, slots=True)
class Notes:
    """The free text of a reply: what the judge says it saw, and its reasoning."""

    snapshot: str = ""
    thought: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A final answer."""

    marks: Marks
    notes: Notes = Notes()


@dataclass(frozen=True, slots=True)
class FrameCall:
    """A tool call, its JSON still unread, and the recommendation that came with it."""

    payload: str
    recommendation: Marks | None = None
    notes: Notes = Notes()


@dataclass(frozen=True, slots=True)
class Malformed:
    """Neither an answer nor a call. `reason` completes the sentence "The reply …"; `recommendation` may stand."""

    reason: str
    recommendation: Marks | None = None
    notes: Notes = Notes()


Parsed = Answer | FrameCall | Malformed


@dataclass(frozen=True, slots=True)
class _Block:
    kind: _Kind
    start: int
    body: str
    closed: bool


def parse(text: str) -> Parsed:
    """Read one reply. Never raises, on any text; time is linear in its length."""
    blocks = list(_blocks(text))
    notes = Notes(
        snapshot="\n".join(b.body.strip() for b in blocks if b.kind == "snapshot"),
        thought="\n".join(b.body.strip() for b in blocks if b.kind == "think"),
    )
    finals, recommended, problems = _answers(blocks)
    calls = [b for b in blocks if b.kind == "call"]
    standing = finals[-1] if finals else recommended[-1] if recommended else None
    choices = [dict(marks.choices) for marks in finals]
    if any(other != choices[0] for other in choices):
        # Contradicting finals: neither may stand in for the other.
        return Malformed("holds final answers that contradict each other", None, notes)
    if finals and calls:
        return Malformed("holds both a final answer and a tool call", standing, notes)
    if finals:
        return Answer(finals[0], notes)
    if len(calls) > 1:
        return Malformed("holds more than one tool call", standing, notes)
    if calls and not calls[0].closed:
        return Malformed("does not close its tool call", standing, notes)
    if calls:
        return FrameCall(calls[0].body, standing, notes)
    return Malformed(_what_is_missing(text, recommended, problems), standing, notes)


def concluded(text: str) -> bool:
    """Whether a reply, as far as it is written, holds its final answer: what follows would not change the verdict.

    An answer quoted in a note that is still open is none yet.
    """
    return all(b.closed for b in _blocks(text) if b.kind in _NOTES) and isinstance(parse(text), Answer)


def _what_is_missing(text: str, recommended: list[Marks], problems: list[str]) -> str:
    if not text.strip():
        return "is empty"
    if problems:
        return problems[-1]
    if recommended:
        return "recommends an answer but neither calls the tool nor gives a final answer"
    return "holds neither a final answer nor a tool call"


def _answers(blocks: list[_Block]) -> tuple[list[Marks], list[Marks], list[str]]:
    """Final answers, recommendations, and what is wrong with the rest."""
    finals: list[Marks] = []
    recommended: list[Marks] = []
    problems: list[str] = []
    for block in blocks:
        if block.kind not in _ANSWERS:
            continue
        marks = _marks(block)
        if isinstance(marks, str):
            problems.append(marks)
        elif not block.closed:
            problems.append("does not close its answer")
        elif block.kind == "recommend" or (block.kind == "answer" and marks.confidence is not None):
            # The paper's samples use a bare <Answer> for both; only a recommendation has a confidence.
            recommended.append(marks)
        else:
            finals.append(marks)
    return finals, recommended, problems


def _marks(block: _Block) -> Marks | str:
    """The answer in a block, or what is wrong with it."""
    choices: dict[str, Choice] = {}
    offsets: dict[str, int] = {}
    confidence: int | None = None
    for found in _FIELD.finditer(block.body):
        key, value = found[1].upper(), found[2].rstrip(".")
        if key == "CF":
            confidence = int(value) if value in {"1", "2", "3", "4", "5"} else None
            continue
        if value not in {"0", "1", "2"}:
            return f"answers {key} with something other than 0, 1 or 2"
        choice = cast(Choice, int(value))
        if choices.setdefault(key, choice) != choice:
            return f"answers {key} twice, differently"
        offsets.setdefault(key, block.start + found.start(2))
    if missing := [key for key in KEYS if key not in choices]:
        return f"leaves out {', '.join(missing)} in its answer"
    return Marks(MappingProxyType(choices), MappingProxyType(offsets), confidence)


def _blocks(text: str) -> Iterator[_Block]:
    """Top-level blocks in order. An unclosed note ends at the next tag; an unclosed answer or call is kept, marked."""
    tags: list[tuple[_Kind, bool, int, int]] = [
        (cast(_Kind, tag.lastgroup), bool(tag["close"]), tag.start(), tag.end()) for tag in _TAG.finditer(text)
    ]
    last_close = {kind: i for i, (kind, close, _, _) in enumerate(tags) if close}
    i = 0
    while i < len(tags):
        kind, close, _, start = tags[i]
        i += 1
        if close:
            continue
        end = i
        if kind in _NOTES:
            # A note runs to its own closing tag, past whatever it quotes.
            closed = last_close.get(kind, -1) >= i
            while closed and tags[end][:2] != (kind, True):
                end += 1
        else:
            closed = i < len(tags) and tags[i][1] and (tags[i][0] == kind or {tags[i][0], kind} <= _ANSWERS)
        yield _Block(kind, start, text[start : tags[end][2] if end < len(tags) else len(text)], closed)
        i = end + closed
