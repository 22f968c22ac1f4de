"""Reads what the judge wrote. Every text is an `Answer`, a `FrameCall` or `Malformed`.

Knows the tags and their spelling variants (the paper's samples capitalise tags, put spaces around `=`, reorder keys,
and close `</ answer>`). What is inside `<think>` or `<snapshot>` is never an answer or a call. A call after an answer
is run, as in the code that the tool comes from. `find_end` says where a reply is over, by its text alone. `read_call`
reads a call for frames, and grants it or refuses it with a reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType
from typing import Literal, cast

from vrt_lite.protocol.messages import KEYS, OVERALL, Choice, FrameRef, from_number

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
_UNFINISHED_TAG = re.compile(r"<[^<>]{0,32}\Z")
_FIELD = re.compile(r"\b(TA|VQ|MQ|OA|CF)[ \t]{0,8}[=:][ \t]{0,8}([^\s,;<]{0,16})", re.IGNORECASE)


AFTERWORD = 200
"""The characters after a final answer in which a call may begin; a reply without one is over at its answer."""

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
    """`start` is the offset of its body, `end` that of what follows it."""

    kind: _Kind
    start: int
    end: int
    body: str
    closed: bool


def parse(text: str) -> Parsed:
    """Read one reply, up to where it is over. Never raises, on any text; time is linear in its length."""
    text = text[: find_end(text)]
    blocks = list(_blocks(text))
    notes = Notes(
        snapshot="\n".join(b.body.strip() for b in blocks if b.kind == "snapshot"),
        thought="\n".join(b.body.strip() for b in blocks if b.kind == "think"),
    )
    calls = [b for b in blocks if b.kind == "call"]
    finals, recommended, problems = _answers(blocks, alone=not calls)
    marks = finals[-1] if finals else recommended[-1] if recommended else None
    if any(final.choices != finals[0].choices for final in finals):
        # If final answers contradict each other, none of them is used.
        return Malformed("holds final answers that contradict each other", None, notes)
    if len(calls) > 1:
        return Malformed("holds more than one tool call", marks, notes)
    if calls and finals and finals[-1].offsets[OVERALL] > calls[0].start:
        return Malformed("gives a final answer after a tool call, without the frames that it asks for", marks, notes)
    if calls and not calls[0].closed:
        return Malformed("does not close its tool call", marks, notes)
    if calls:
        return FrameCall(calls[0].body, marks, notes)
    if finals:
        return Answer(finals[0], notes)
    return Malformed(_what_is_missing(text, recommended, problems), marks, notes)


def find_end(text: str) -> int | None:
    """Find where a reply is over, however it goes on: behind a final answer that no tag follows soon.

    The place depends on the text alone. Once it is found in the beginning of a reply, every longer one has the same.
    None if it is not reached: an answer that is quoted in a note which is still open does not count, and after a call
    or a contradiction the writer ends the reply.
    """
    answer: Marks | None = None
    blocks = list(_blocks(text))
    for block, following in zip_longest(blocks, blocks[1:]):
        if block.kind == "call" or (block.kind in _NOTES and not block.closed):
            return None
        finals, _, _ = _answers([block], alone=False)
        if not finals:
            continue
        answer = answer or finals[0]
        if finals[0].choices != answer.choices:
            return None
        latest = block.end + AFTERWORD
        if len(text) >= latest and (following is None or following.start > latest):
            return block.end
    return None


def concluded(text: str) -> bool:
    """Whether an unfinished reply is over: then nothing that follows is read."""
    return find_end(text) is not None


def _what_is_missing(text: str, recommended: list[Marks], problems: list[str]) -> str:
    if not text.strip():
        return "is empty"
    if problems:
        return problems[-1]
    if recommended:
        return "recommends an answer but neither calls the tool nor gives a final answer"
    return "holds neither a final answer nor a tool call"


def _answers(blocks: list[_Block], *, alone: bool) -> tuple[list[Marks], list[Marks], list[str]]:
    """Final answers, recommendations, and what is wrong with the rest. `alone` tells that the reply has no call."""
    finals: list[Marks] = []
    recommended: list[Marks] = []
    problems: list[str] = []
    bare: list[Marks] = []
    for block in blocks:
        if block.kind not in _ANSWERS:
            continue
        marks = _marks(block)
        if isinstance(marks, str):
            problems.append(marks)
        elif not block.closed:
            problems.append("does not close its answer")
        elif block.kind == "recommend":
            recommended.append(marks)
        elif block.kind == "answer" and marks.confidence is not None:
            bare.append(marks)
        else:
            finals.append(marks)
    # The paper's samples use a bare <Answer> for both. One with a confidence recommends, unless it is the last word:
    # its Figure 2 ends with one.
    if alone and not finals:
        return bare[-1:], recommended + bare[:-1], problems
    return finals, recommended + bare, problems


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
        body = text[start : tags[end][2] if end < len(tags) else len(text)]
        i = end + closed
        yield _Block(kind, start, tags[end][3] if closed else start + len(body), body, closed)


class PartReader:
    """Reads a reply while it is written, as parts: a kind ("" outside of all tags) and a text, as far as it is known.

    An unfinished tag waits for its rest. What a note quotes is not told apart from tags: only `parse` reads the whole.
    """

    def __init__(self) -> None:
        self._held, self._kind = "", ""

    def read(self, written: str) -> list[tuple[str, str]]:
        """Read what is written now. Returns its parts; the first may go on with the last one of the call before."""
        text, parts, start = self._held + written, list[tuple[str, str]](), 0
        for tag in _TAG.finditer(text):
            parts.append((self._kind, text[start : tag.start()]))
            self._kind, start = "" if tag["close"] else str(tag.lastgroup), tag.end()
        unfinished = _UNFINISHED_TAG.search(text, start)
        end = unfinished.start() if unfinished else len(text)
        parts.append((self._kind, text[start:end]))
        self._held = text[end:]
        return [part for part in parts if part[1]]


@dataclass(frozen=True, slots=True)
class Granted:
    """The frames of a good call, in its order."""

    frames: tuple[FrameRef, ...]


Refusal = Literal["too_many", "out_of_range"]
"""A reason to refuse a call for which a profile may have its own words."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A bad call. `reason` completes the sentence "The tool call …"; `frames` are the numbers that it asks for."""

    reason: str
    kind: Refusal | None = None
    frames: tuple[object, ...] = ()


def read_call(payload: str, *, workspace: int, limit: int) -> Granted | Refused:
    """Read the JSON of one call. Never raises. `workspace` is the frames per video, `limit` the frames per call.

    A frame that is named twice is granted twice, as in the code that the tool comes from.
    """
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
    numbers = tuple(cast(list[object], targets))
    if len(numbers) > limit:
        reason = f"asks for {len(numbers)} frames; at most {limit} are allowed in one call"
        return Refused(reason, "too_many", numbers)
    integers = [number for number in numbers if isinstance(number, int) and not isinstance(number, bool)]
    if len(integers) < len(numbers):
        return Refused("holds a frame index that is not an integer")
    if not all(1 <= number <= 2 * workspace for number in integers):
        return Refused(f"holds a frame index outside 1 to {2 * workspace}", "out_of_range", numbers)
    return Granted(tuple(from_number(number, workspace) for number in integers))
