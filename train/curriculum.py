"""A curriculum: lessons one after the other. A lesson ends when the model passes an examination.

An examination has pairs that are never learnt from: two clips, one of them with one fault. The question is which clip
has the fault. RUN/lessons.jsonl has a line for each examination: pairs learnt so far, lesson, and how many
answers were right, by kind of fault, in the world and on test footage (which has no influence). The next lesson
starts when 95 of 100 answers about the world are right, or when the lesson has had its maximum of pairs. Half of
the pairs of a later lesson repeat the earlier ones: without them a model that has begun the last lesson soon calls
strong faults ties. The lesson of a pair depends on its index, so that a resumed run draws the same pairs as an
uninterrupted run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import Sampler
from transformers import TrainerCallback

from train.recipe import Supervised
from train.traces import append_rows, keep_rows, read_rows
from train.training_cases import Cases, TrainingCase
from train.world import LESSONS, Lesson

LOG = "lessons.jsonl"
MASTERED = 0.95
QUESTIONS, ON_FOOTAGE = 100, 40
_AHEAD = 32
"""Steps from a passed examination to the next lesson: more than the data loader prepares in advance."""

Answer = Callable[[Any, Sequence[TrainingCase]], Sequence[bool]]
"""Takes the model and the cases of an examination. Returns for each case whether the answer is right."""


class Syllabus(Sampler[int]):
    """The order in which `count` cases are learnt, lesson by lesson: index = lesson · count + place in the order.

    It starts behind the first `mastered` lessons, which are only repeated.
    """

    def __init__(self, count: int, *, step: int, patience: int, mastered: int = 0) -> None:
        self._count, self._ahead, self._patience, self._mastered = count, _AHEAD * step, patience, mastered
        self.starts: list[int] = []
        """The place at which each lesson starts."""
        self.begin()

    def begin(self) -> None:
        """Forget all examinations."""
        self.starts[:] = [0] * (1 + min(self._mastered, len(LESSONS) - 1))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for place in range(self._count):
            yield self.lesson(place) * self._count + place

    def lesson(self, place: int) -> int:
        """Return the number of the lesson at a place: the current one, or in two of four places an earlier one."""
        current = sum(start <= place for start in self.starts) - 1
        return place // 4 % current if current and place % 4 in (1, 2) else current

    def take(self, row: Mapping[str, Any]) -> None:
        """Decide by the row of an examination whether the next lesson starts."""
        current = len(self.starts) - 1
        if LESSONS[current] != row["lesson"] or current == len(LESSONS) - 1:
            return
        if row["right"] >= MASTERED * row["of"] or row["pairs"] - self.starts[current] >= self._patience:
            self.starts.append(row["pairs"] + self._ahead)


class Examination(TrainerCallback):
    """Examines the model every `asked` pairs; `answer` gets the model's answers."""

    def __init__(
        self, recipe: Supervised, syllabus: Syllabus, cases: Callable[[Lesson], Cases], answer: Answer, run: Path
    ) -> None:
        self._every, self._step = recipe.asked, recipe.batch * recipe.accumulation
        self._syllabus, self._cases, self._answer, self._path = syllabus, cases, answer, run / LOG

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Read the examinations from before the checkpoint at which training continues."""
        learnt = state.global_step * self._step
        kept = [row for row in read_rows(self._path) if row["pairs"] <= learnt]
        if state.is_world_process_zero:
            keep_rows(self._path, len(kept))
        self._syllabus.begin()
        for row in kept:
            self._syllabus.take(row)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Examine the model, if it is time."""
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
            summary = f"{row['right']} of {row['of']} right, on footage {footage['right']} of {footage['of']}"
            print(f"{pairs} pairs, lesson {lesson}: {summary}", file=sys.stderr, flush=True)


def tally(cases: Sequence[TrainingCase], right: Sequence[bool]) -> dict[str, Any]:
    """Count the right answers by kind of fault, for the world's cases and for footage."""
    found: dict[str, Any] = {}
    for name, real in (("world", False), ("footage", True)):
        own = [(case, good) for case, good in zip(cases, right, strict=True) if case.key.startswith("footage") == real]
        kinds: dict[str, list[int]] = {}
        for case, good in own:
            count = kinds.setdefault("+".join(case.defects) or "caption", [0, 0])
            count[0], count[1] = count[0] + good, count[1] + 1
        part = {"right": sum(good for _, good in own), "of": len(own), "kinds": dict(sorted(kinds.items()))}
        found |= {name: part} if real else part
    return found


class Lessons(Sequence[TrainingCase]):
    """The cases of all lessons, one after the other, with the indices of `Syllabus`."""

    def __init__(self, by_lesson: Sequence[Cases], numbers: Sequence[int]) -> None:
        self._by_lesson, self._numbers = by_lesson, numbers

    def __len__(self) -> int:
        return len(self._by_lesson) * len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        lesson, place = divmod(index, len(self._numbers))
        return self._by_lesson[lesson][int(self._numbers[place])]


@dataclass(frozen=True, slots=True)
class Curriculum:
    """The cases of each lesson (all of equal number), and `questions`, the cases of an examination in a lesson."""

    by_lesson: tuple[Cases, ...]
    questions: Callable[[Lesson], Cases]

    def syllabus(self, count: int, recipe: Supervised) -> Syllabus:
        """Create the order in which `count` cases are learnt."""
        step = recipe.batch * recipe.accumulation
        return Syllabus(count, step=step, patience=recipe.patience, mastered=recipe.mastered)

    def lessons(self, numbers: Sequence[int]) -> Lessons:
        """Return the cases for a syllabus: in each lesson those of `numbers`."""
        return Lessons(self.by_lesson, numbers)

    def examination(self, recipe: Supervised, syllabus: Syllabus, answer: Answer, run: Path) -> Examination:
        """Create the callback that examines the model."""
        return Examination(recipe, syllabus, self.questions, answer, run)
