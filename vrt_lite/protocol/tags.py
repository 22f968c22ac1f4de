"""Reads what the judge wrote. Every text is an `Answer`, a `FrameCall` or `Malformed`.

Knows the tags and their spelling variants (the paper's samples capitalise tags, put spaces around `=`, reorder keys,
and close `</ answer>`). What is inside `<think>` or `<snapshot>` is never an answer or a call. `read_call` reads a
call for frames, and grants it or refuses it with a reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, cast

from vrt_lite.protocol.messages import KEYS, Choice, FrameRef, from_number

_TOOL = "select_frames"
_ARGUMENT = "target_frames"
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
"""The fixed text of a reply, as the prompt requires it; the digits are examples."""


@dataclass(frozen=True, slots=True)
class Marks:
    """One answer: the choice per key (TA, VQ, MQ, OA), where each digit is in the text, and CF if given."""

    choices: Mapping[str, Choice]
    offsets: Mapping[str, int]
    confidence: int | None = None


@dataclass(frozen=True, slots=True)
class Notes:
    """The free text of a reply: the judge's description of what it saw, and its reasoning."""

    snapshot: str = ""
    thought: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A final answer."""

    marks: Marks
    notes: Notes = Notes()


@dataclass(frozen=True, slots=True)
class FrameCall:
    """A tool call, whose JSON is not read yet, and the recommendation that came with it."""

    payload: str
    recommendation: Marks | None = None
    notes: Notes = Notes()


@dataclass(frozen=True, slots=True)
class Malformed:
    """Neither an answer nor a call. `reason` completes the sentence "The reply …"; `recommendation` may be used."""

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
    marks = finals[-1] if finals else recommended[-1] if recommended else None
    if any(final.choices != finals[0].choices for final in finals):
        # If final answers contradict each other, none of them is used.
        return Malformed("holds final answers that contradict each other", None, notes)
    if finals and calls:
        return Malformed("holds both a final answer and a tool call", marks, notes)
    if finals:
        return Answer(finals[0], notes)
    if len(calls) > 1:
        return Malformed("holds more than one tool call", marks, notes)
    if calls and not calls[0].closed:
        return Malformed("does not close its tool call", marks, notes)
    if calls:
        return FrameCall(calls[0].body, marks, notes)
    return Malformed(_what_is_missing(text, recommended, problems), marks, notes)


def concluded(text: str) -> bool:
    """Whether an unfinished reply holds its final answer already: then more text does not change the verdict.

    An answer quoted in a note that is still open does not count.
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
    for match in _FIELD.finditer(block.body):
        key, value = match[1].upper(), match[2].rstrip(".")
        if key == "CF":
            confidence = int(value) if value in {"1", "2", "3", "4", "5"} else None
            continue
        if value not in {"0", "1", "2"}:
            return f"answers {key} with something other than 0, 1 or 2"
        choice = cast(Choice, int(value))
        if choices.setdefault(key, choice) != choice:
            return f"answers {key} twice, differently"
        offsets.setdefault(key, block.start + match.start(2))
    if missing := [key for key in KEYS if key not in choices]:
        return f"leaves out {', '.join(missing)} in its answer"
    return Marks(MappingProxyType(choices), MappingProxyType(offsets), confidence)


def _blocks(text: str) -> Iterator[_Block]:
    """Top-level blocks in order. An unclosed note ends at the next tag; an unclosed answer or call is marked so."""
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
            # A note goes on to its own closing tag, whatever tags it quotes.
            closed = last_close.get(kind, -1) >= i
            while closed and tags[end][:2] != (kind, True):
                end += 1
        else:
            closed = i < len(tags) and tags[i][1] and (tags[i][0] == kind or {tags[i][0], kind} <= _ANSWERS)
        yield _Block(kind, start, text[start : tags[end][2] if end < len(tags) else len(text)], closed)
        i = end + closed


@dataclass(frozen=True, slots=True)
class Granted:
    """The frames of a good call, in its order."""

    frames: tuple[FrameRef, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A bad call. `reason` completes the sentence "The tool call …"."""

    reason: str


def read_call(payload: str, *, workspace: int, limit: int) -> Granted | Refused:
    """Read the JSON of one call. Never raises. `workspace` is the frames per video, `limit` the frames per call."""
    try:
        call: object = json.loads(payload)
    except (ValueError, RecursionError):
        return Refused("is not valid JSON")
    if not isinstance(call, dict):
        return Refused("is not a JSON object with a name and arguments")
    fields = cast(dict[str, object], call)
    if fields.get("name") != _TOOL:
        return Refused(f"does not name the one tool there is, {_TOOL}")
    arguments = fields.get("arguments")
    targets = cast(dict[str, object], arguments).get(_ARGUMENT) if isinstance(arguments, dict) else None
    if not isinstance(targets, list) or not targets:
        return Refused(f"has no list of integers under arguments.{_ARGUMENT}")
    numbers = cast(list[object], targets)
    if len(numbers) > limit:
        return Refused(f"asks for {len(numbers)} frames; at most {limit} are allowed in one call")
    frames: list[FrameRef] = []
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            return Refused("holds a frame index that is not an integer")
        if not 1 <= number <= 2 * workspace:
            return Refused(f"holds a frame index outside 1 to {2 * workspace}")
        frames.append(from_number(number, workspace))
    if len(set(frames)) < len(frames):
        return Refused("names a frame twice")
    return Granted(tuple(frames))
