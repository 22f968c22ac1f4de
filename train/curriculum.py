"""A curriculum: lessons one after the other, each until a plain question is answered.

The question: of a clip and the same clip with one fault, which has it? It is asked of pairs that are never learnt
from, every some pairs. RUN/lessons.jsonl has a line for each time: pairs seen, lesson, how many of how many were right,
by kind of fault, in the world and on footage that is held back (which decides nothing). When 95 of 100 of the world's
are right, or a lesson has had its most pairs, the next one begins. Which lesson a pair is drawn from goes with its
index, so that a resumed run draws what the unbroken one does. Knows transformers' callbacks; refuses to know how an
answer is got.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import Sampler
from transformers import TrainerCallback

from train.cases import Case, Cases
from train.recipe import Supervised
from train.traces import append_rows, keep_rows, read_rows
from train.world import LESSONS, Lesson

LOG = "lessons.jsonl"
MASTERED = 0.95
QUESTIONS, ON_FOOTAGE = 100, 40
_AHEAD = 32
"""Steps from an examination to the lesson that it brings: more than are drawn ahead."""

Answer = Callable[[Any, Sequence[Case]], Sequence[bool]]
"""Given the model and the cases of an examination: whether each is answered rightly."""


class Syllabus(Sampler[int]):
    """The order in which `count` cases are learnt, lesson by lesson: index = lesson · count + place in the order."""

    def __init__(self, count: int, *, step: int, patience: int) -> None:
        self._count, self._ahead, self._patience = count, _AHEAD * step, patience
        self.starts = [0]
        """The place from which each lesson on is drawn."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for place in range(self._count):
            yield self.lesson(place) * self._count + place

    def lesson(self, place: int) -> int:
        """The number of the lesson that a place is drawn from."""
        return sum(start <= place for start in self.starts) - 1

    def take(self, row: Mapping[str, Any]) -> None:
        """Note an examination: whether the next lesson begins."""
        current = len(self.starts) - 1
        if LESSONS[current] != row["lesson"] or current == len(LESSONS) - 1:
            return
        if row["right"] >= MASTERED * row["of"] or row["pairs"] - self.starts[current] >= self._patience:
            self.starts.append(row["pairs"] + self._ahead)


class Examination(TrainerCallback):
    """Asks the plain question every `asked` pairs; `answer` says how it went."""

    def __init__(
        self, recipe: Supervised, syllabus: Syllabus, cases: Callable[[Lesson], Cases], answer: Answer, run: Path
    ) -> None:
        self._every, self._step = recipe.asked, recipe.batch * recipe.accumulation
        self._syllabus, self._cases, self._answer, self._path = syllabus, cases, answer, run / LOG

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Take up what was found before the checkpoint that training goes on from."""
        seen = state.global_step * self._step
        kept = [row for row in read_rows(self._path) if row["pairs"] <= seen]
        if state.is_world_process_zero:
            keep_rows(self._path, len(kept))
        self._syllabus.starts[1:] = []
        for row in kept:
            self._syllabus.take(row)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Ask, if it is time."""
        pairs = state.global_step * self._step
        if pairs // self._every == (pairs - self._step) // self._every:
            return
        lesson = LESSONS[len(self._syllabus.starts) - 1]
        cases = list(self._cases(lesson))
        right = self._answer(getattr(model, "module", model), cases)  # DDP's wrapper has it inside
        row = {"pairs": pairs, "lesson": lesson, **tally(cases, right)}
        self._syllabus.take(row)
        if state.is_world_process_zero:
            append_rows(self._path, [row])
            footage = row["footage"]
            told = f"{row['right']} of {row['of']} right, on footage {footage['right']} of {footage['of']}"
            print(f"{pairs} pairs, lesson {lesson}: {told}", file=sys.stderr, flush=True)


def tally(cases: Sequence[Case], right: Sequence[bool]) -> dict[str, Any]:
    """Right of how many, by kind of fault, for the world's cases and for footage's."""
    found: dict[str, Any] = {}
    for name, real in (("world", False), ("footage", True)):
        own = [(case, good) for case, good in zip(cases, right, strict=True) if case.key.startswith("footage") == real]
        kinds: dict[str, list[int]] = {}
        for case, good in own:
            count = kinds.setdefault("+".join(case.defects), [0, 0])
            count[0], count[1] = count[0] + good, count[1] + 1
        part = {"right": sum(good for _, good in own), "of": len(own), "kinds": dict(sorted(kinds.items()))}
        found |= {name: part} if real else part
    return found


class Lessons(Sequence[Case]):
    """The cases of all lessons, one after the other: as `Syllabus` counts them."""

    def __init__(self, by_lesson: Sequence[Cases], numbers: Sequence[int]) -> None:
        self._by_lesson, self._numbers = by_lesson, numbers

    def __len__(self) -> int:
        return len(self._by_lesson) * len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        lesson, place = divmod(index, len(self._numbers))
        return self._by_lesson[lesson][int(self._numbers[place])]


@dataclass(frozen=True, slots=True)
class Curriculum:
    """`by_lesson` are the cases of each lesson, equally many; `questions` those of an examination in a lesson."""

    by_lesson: tuple[Cases, ...]
    questions: Callable[[Lesson], Cases]

    def syllabus(self, count: int, recipe: Supervised) -> Syllabus:
        """The order in which `count` cases are learnt."""
        return Syllabus(count, step=recipe.batch * recipe.accumulation, patience=recipe.patience)

    def lessons(self, numbers: Sequence[int]) -> Lessons:
        """The cases that a syllabus counts, in each lesson those of `numbers`."""
        return Lessons(self.by_lesson, numbers)

    def examination(self, recipe: Supervised, syllabus: Syllabus, answer: Answer, run: Path) -> Examination:
        """The callback that asks."""
        return Examination(recipe, syllabus, self.questions, answer, run)
