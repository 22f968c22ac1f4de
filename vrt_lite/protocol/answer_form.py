r"""The forms in which published judges answer other than by VR-Thinker's loop, as values of a profile.

"pair": one reply about two clips. "clip": one reply, or the state at given tokens, about one clip; a pair's verdict is
then derived. Templates say where in a reply the answer stands. Texts of a template stand for themselves; `\s*` is any
white space; `{choice}` is 1 or 2, `{one}` the share of video 1, `{score}` a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal, get_args

from vrt_lite.protocol.messages import DIMENSIONS, OVERALL, Choice, Key, Odds
from vrt_lite.protocol.tags import AFTERWORD, Answer, Malformed, Marks, Notes
from vrt_lite.protocol.verdict import Preference, Verdict, make_verdict, prefer

Form = Literal["pair", "clip"]
Show = Literal["images", "videos"]
Positions = Literal["grid", "sequential"]
Rounding = Literal["nearest", "down"]

_CAPTURE = re.compile(r"\{(choice|one|score)\}|(\\s\*)|(\s+)")
# Possessive, so that no text can make a pattern go back. A choice that a template's copy leaves open is none: "1/2".
_NUMBER: Final = r"-?+\d{1,6}+(?:\.\d{1,9}+)?+(?!\d)"
_PATTERNS: Final = {
    "choice": r"(?P<choice>[12])(?![\d/])",
    "one": f"(?P<one>{_NUMBER})",
    "score": f"(?P<score>{_NUMBER})",
}
_WORD_BEFORE = re.compile(r"(\w+)\W*\{choice\}")
_THOUGHT_ENDS = "</think>"
_NAME = re.compile(r"\w[\w -]{0,39}")


@dataclass(frozen=True, slots=True)
class Template:
    """Where a reply answers one dimension: `text` holds one capture, `tie` is what is written in its place for a tie.

    Without `tie` the judge knows none. A number of `{score}` or `{one}` is from `least` to `most`.
    """

    text: str = ""
    tie: str = ""
    least: float = 0.0
    most: float = 1.0


@dataclass(frozen=True, slots=True)
class Head:
    """A score that is read from the model's state at a token, and how it was normalised.

    Its loss was Bradley-Terry with ties: video 1 wins with the probability sigmoid(difference of raw scores - `tie`).
    """

    token: str = ""
    mean: float = 0.0
    std: float = 1.0
    tie: float = 0.0


@dataclass(frozen=True, slots=True)
class Total:
    """The overall score: the `sum` of these. Its probabilities need a fitted `scale`; 0 is none."""

    sum: tuple[str, ...] = ()
    scale: float = 0.0
    tie: float = 0.0


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How a judge answers in one reply. Dimensions are TA, VQ, MQ, OA (overall), or have names of the profile's own.

    It is shown `frames` of each clip, evenly spaced; with `fps` so many a second: an even number from 4 to `frames`, no
    more than the clip has. `rounding` says which: qwen-vl-utils took the nearest, and rounds down since 0.0.10.
    `positions` "sequential" counts every token on all axes alike. A "pair" has `choice` alone; a "clip" has `score` or
    `head`, and its overall score may be a `overall` sum.
    """

    form: Form = "pair"
    show: Show = "videos"
    frames: int = 8
    fps: float = 0.0
    rounding: Rounding = "nearest"
    positions: Positions = "grid"
    choice: Mapping[str, Template] = field(default_factory=dict[str, Template])
    score: Mapping[str, Template] = field(default_factory=dict[str, Template])
    head: Mapping[str, Head] = field(default_factory=dict[str, Head])
    overall: Total = Total()

    @property
    def names(self) -> tuple[str, ...]:
        """What it answers, in its own order."""
        own = (*self.choice, *self.score, *self.head)
        return (*own, OVERALL) if self.overall.sum else own

    @property
    def keys(self) -> tuple[Key, ...]:
        """What it answers of TA, VQ, MQ and OA."""
        return tuple(key for key in (*DIMENSIONS, OVERALL) if key in self.names)

    @property
    def tokens(self) -> dict[str, str]:
        """The token of each head."""
        return {name: head.token for name, head in self.head.items()}

    @property
    def openings(self) -> tuple[str, str] | None:
        """The words with which a winner and a tie begin, where the overall answer knows a tie."""
        template = self.choice.get(OVERALL, Template())
        word = _WORD_BEFORE.search(template.text)
        return (word[1], template.tie.split()[0]) if template.tie and word else None

    def count_frames(self, seconds: float, *, most: int, frames: int) -> int:
        """How many frames of a clip of so many seconds and `frames` are shown, at most `most`."""
        if not self.fps:
            return most
        # Containers round times: by a hundredth of a pair no clip is longer or shorter.
        pairs = round(seconds * self.fps / 2, 2)
        pairs = math.floor(pairs) if self.rounding == "down" else round(pairs)
        return 2 * max(min(max(pairs, 2), most // 2, frames // 2), 1)


@dataclass(frozen=True, slots=True)
class ClipScore:
    """A clip's score in one dimension, higher is better.

    Of a difference d video 1 wins with the probability sigmoid(d · scale - tie); without a scale it has none.
    """

    value: float
    scale: float = 0.0
    tie: float = 0.0


Scores = Mapping[str, ClipScore]


def read_pair(text: str, form: AnswerForm) -> Answer | Malformed:
    """Read a reply about two clips. Never raises, on any text; time is linear in its length.

    What stands before the end of a thought is no answer. Answers that contradict each other are none.
    """
    text = text[: find_pair_end(text, form)]
    choices: dict[str, Choice] = {}
    offsets: dict[str, int] = {}
    notes = Notes(thought=_thought(text))
    for name, template in form.choice.items():
        found = list(_find_choices(text, template))
        if not found:
            return Malformed(f"gives no answer for {name} in the judge's own form", None, notes)
        if any(choice != found[0][0] for choice, _ in found):
            return Malformed(f"gives answers for {name} that contradict each other", None, notes)
        choices[name], offsets[name] = found[0]
    return Answer(Marks(choices, offsets), notes)


def find_pair_end(text: str, form: AnswerForm) -> int | None:
    """Find where a reply about two clips is over, however it goes on; None if that is not reached."""
    found = (_find_choices(text, template) for template in form.choice.values())
    last = max(min((at for _, at in choices), default=len(text)) for choices in found)
    thinks = "<think>" in text[:last] and _THOUGHT_ENDS not in text
    return None if thinks or last + AFTERWORD > len(text) else last + AFTERWORD


def pair_odds(text: str, answer: Answer, given: Mapping[int, Odds], form: AnswerForm) -> dict[int, Odds]:
    """The probabilities of each choice of an answer, by its offset, from those that the model gave where it wrote.

    Those of the digits 1 and 2 are for a winner; if the judge knows a tie, those of the words before say whether there
    is one. Of a share they are the share.
    """
    odds: dict[int, Odds] = {}
    for name, at in answer.marks.offsets.items():
        template = form.choice[name]
        if "{one}" in template.text:
            share = _read_share(text, at, template)
            odds[at] = (0.0, share, 1 - share)
        elif not answer.marks.choices[name]:
            odds |= {at: given[at]} if at in given else {}
        elif at in given and sum(given[at][1:]) > 0:
            _, one, two = given[at]
            word = _WORD_BEFORE.search(template.text)
            opening: Odds | None = (0.0, 0.5, 0.5)
            if template.tie:
                opening = given.get(text[:at].lower().rfind(word[1].lower())) if word else None
            if opening:
                left = (1 - opening[0]) / (one + two)
                odds[at] = (opening[0], one * left, two * left)
    return odds


def read_scores(text: str, form: AnswerForm) -> dict[str, ClipScore] | Malformed:
    """Read the scores of a reply about one clip. Never raises, on any text; time is linear in its length."""
    text = _after_thought(text)
    scores: dict[str, ClipScore] = {}
    for name, template in form.score.items():
        found = {float(match["score"]) for match in compile_template(template.text).finditer(text)}
        if len(found) != 1:
            return Malformed(f"gives {'contradicting scores' if found else 'no score'} for {name}")
        [value] = found
        if not template.least <= value <= template.most:
            return Malformed(f"scores {name} with {value:g}, not {template.least:g} to {template.most:g}")
        scores[name] = ClipScore(value)
    return _add_total(scores, form)


def normalise(raw: Mapping[str, float], form: AnswerForm) -> dict[str, ClipScore] | Malformed:
    """The scores of the heads from their raw values."""
    scores: dict[str, ClipScore] = {}
    for name, head in form.head.items():
        if not math.isfinite(raw.get(name, math.nan)):
            return Malformed(f"has no finite score at {head.token}")
        scores[name] = ClipScore((raw[name] - head.mean) / head.std, head.std, head.tie)
    return _add_total(scores, form)


def _add_total(scores: dict[str, ClipScore], form: AnswerForm) -> dict[str, ClipScore]:
    total = form.overall
    if not total.sum:
        return scores
    return {**scores, OVERALL: ClipScore(sum(scores[name].value for name in total.sum), total.scale, total.tie)}


def compare_scores(one: Scores, two: Scores) -> Verdict:
    """The verdict that follows from the scores of two clips. Exchanged clips give its mirror to the last bit."""
    keys = (*DIMENSIONS, OVERALL)
    return make_verdict({key: _prefer_higher(one[key], two[key]) for key in keys if key in one and key in two}, "final")


def _prefer_higher(one: ClipScore, two: ClipScore) -> Preference:
    difference = one.value - two.value
    if not one.scale:
        return prefer(1 if difference > 0 else 2 if difference < 0 else 0)
    first, second = _sigmoid(difference * one.scale - one.tie), _sigmoid(-difference * one.scale - one.tie)
    odds = (max(1 - (first + second), 0.0), first, second)
    return prefer(1 if first > max(odds[0], second) else 2 if second > max(odds[0], first) else 0, odds)


def _sigmoid(x: float) -> float:
    return math.exp(-max(-x, 0.0)) / (1 + math.exp(-abs(x)))


def _find_choices(text: str, template: Template) -> Iterator[tuple[Choice, int]]:
    """Each choice behind the thought, and where it stands."""
    start = len(text) - len(_after_thought(text))
    for match in compile_template(template.text).finditer(text, start):
        if "one" in match.groupdict():
            share = _read_share(text, match.start("one"), template)
            if 0 <= share <= 1:
                yield (1 if share > 1 / 2 else 2 if share < 1 / 2 else 0), match.start("one")
        else:
            yield (1 if match["choice"] == "1" else 2), match.start("choice")
    if template.tie:
        for match in compile_template(template.tie).finditer(text, start):
            yield 0, match.start()


def _read_share(text: str, at: int, template: Template) -> float:
    match = re.compile(_NUMBER).match(text, at)
    assert match
    return (float(match[0]) - template.least) / (template.most - template.least)


def _after_thought(text: str) -> str:
    before, end, after = text.partition(_THOUGHT_ENDS)
    return after if end else before


def _thought(text: str) -> str:
    before, end, _ = text.partition(_THOUGHT_ENDS)
    return before.replace("<think>", "", 1).strip() if end else ""


@cache
def compile_template(template: str) -> re.Pattern[str]:
    """The pattern of a template: texts in any case, each white space as much of it as there is."""
    pieces: list[str] = []
    end = 0
    for piece in _CAPTURE.finditer(template):
        pieces.append(re.escape(template[end : piece.start()]))
        pieces.append(_PATTERNS[piece[1]] if piece[1] else r"\s{0,64}+" if piece[2] else r"\s{1,64}+")
        end = piece.end()
    return re.compile("".join((*pieces, re.escape(template[end:]))), re.IGNORECASE)


def check_form(form: AnswerForm) -> None:
    """Check that a form's values are allowed and fit together; ValueError, naming the value."""
    kinds = {"form": Form, "show": Show, "positions": Positions, "rounding": Rounding}
    for name, allowed in ((name, get_args(kind)) for name, kind in kinds.items()):
        if getattr(form, name) not in allowed:
            raise ValueError(f"answer.{name} = {getattr(form, name)!r} is not {' or '.join(allowed)}.")
    if not 1 <= form.frames <= 256 or not 0 <= form.fps <= 60 or (form.fps and (form.frames < 4 or form.frames % 2)):
        raise ValueError("answer.frames is not 1 to 256 (with fps an even number from 4), or fps not 0 to 60.")
    tables = {"choice": form.choice, "score": form.score, "head": form.head}
    given = [name for name, table in tables.items() if table]
    if given not in ([["choice"]] if form.form == "pair" else [["score"], ["head"]]):
        raise ValueError('answer needs tables choice for a "pair"; score or head, not both, for a "clip".')
    for kind, templates in (("choice", form.choice), ("score", form.score)):
        for name, template in templates.items():
            captures = [match[1] for match in _CAPTURE.finditer(template.text) if match[1]]
            if captures not in ([["choice"], ["one"]] if kind == "choice" else [["score"]]):
                raise ValueError(f"answer.{kind}.{name}.text = {template.text!r} needs one capture: {{{kind}}}.")
            if not template.least < template.most:
                raise ValueError(f"answer.{kind}.{name}.least is not below most.")
    for name, head in form.head.items():
        if not head.token or not head.std > 0 or not head.tie >= 0:
            raise ValueError(f"answer.head.{name} needs a token, std above 0, and tie from 0.")
    _check_names(form)


def _check_names(form: AnswerForm) -> None:
    if form.overall.sum and (form.form == "pair" or not set(form.overall.sum) <= {*form.score, *form.head}):
        raise ValueError("answer.overall.sum does not name scores of a clip.")
    for name in form.names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"answer: the name {name!r} is not 1 to 40 letters, digits, spaces, - or _.")
    if OVERALL not in form.names or len(set(form.names)) < len(form.names):
        raise ValueError("answer gives no OA, or gives it twice: what is better overall must be answered once.")
