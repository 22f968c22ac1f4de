"""Lets a judge judge the pairs of a labelled set, and computes the figures.

Every pair becomes a case in the run: judged, or failed with a reason. What was judged before is found in the store, so
the same call resumes an interrupted run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from vrt_lite.evaluation.clips import Clips
from vrt_lite.evaluation.compute import compute_figures
from vrt_lite.evaluation.sets import LabelledPair, LabelledSet, choose_pairs
from vrt_lite.interfaces import Event, TimeRange
from vrt_lite.records.figures import Figures
from vrt_lite.records.labelled import EvalAbout, EvalCase, Order, Orders
from vrt_lite.records.pairs import Result
from vrt_lite.runs.judging import RunClock, Task, judge_all
from vrt_lite.runs.store import CASE, Identity, Run, Store

if TYPE_CHECKING:
    from vrt_lite.api import Judge

_NAMED = 200


@dataclass(frozen=True, slots=True)
class PairSelection:
    """Which pairs are judged, in which order, and how many judgements are made now at most (None: no limit)."""

    order: Orders = "given"
    limit: int | None = None
    sample: int | None = None
    seed: int = 0
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A judge compared with a labelled set: its figures, the run's name, and the name of the judge's model."""

    run: str
    judge: str
    figures: Figures


class EvalWatcher(Protocol):
    """Gets the progress of an evaluation."""

    def begins(self, judgements: int, predicted: TimeRange | None, /) -> None:
        """Called before judging: so many judgements are left, which will take `seconds` if that is known."""

    def count(self, *, failed: bool, seconds_left: float | None) -> None:
        """Called when a pair is done."""

    def observe(self, event: Event, /) -> None:
        """Called with each event of the judge."""


def name_run(found: LabelledSet, selection: PairSelection, judge: str) -> str:
    """Return the name that the same set, selection and judge always get."""
    s = selection
    facts = [found.place.layout.name, found.sha256, s.order, s.limit, s.sample, s.seed, judge]
    return f"eval-{hashlib.sha256(repr(facts).encode()).hexdigest()[:8]}"


def evaluate(
    found: LabelledSet,
    selection: PairSelection,
    *,
    store: Store,
    judge: Judge,
    watcher: EvalWatcher,
    name: str | None = None,
) -> Evaluation:
    """Judge what is not judged yet of a set; return the figures. The same call resumes where an earlier one stopped.

    UsageError if a run of that name is about something else. Raises what `judge_all` raises. Each pair judged before an
    error stays in the run.
    """
    place, key = found.place, judge.key()
    chosen = {name: getattr(selection, name) for name in ("order", "limit", "sample", "seed")}
    # What a run may be resumed with: the same judge, labels and choice of pairs.
    facts = {f"--{name}": "none" if value is None else str(value) for name, value in chosen.items()}
    identity = Identity(key, judge.describe(), {"a table of sha256": found.sha256[:12], **facts})
    pairs = choose_pairs(found.pairs, limit=selection.limit, sample=selection.sample, seed=selection.seed)
    run = store.begin(name or name_run(found, selection, key), kind="eval", identity=identity)
    about = EvalAbout(
        set=place.layout.name,
        title=place.layout.title,
        split=place.layout.split,
        labels=found.label_counts,
        table=str(place.table),
        table_sha256=found.sha256,
        folder=str(place.folder),
        judge=key,
        model=identity.model,
        scope=judge.scope,
        **chosen,
        left_out=found.left_out_counts,
        left_out_rows=tuple(f"{row.kind}: {row.reason}" for row in found.left_out[:_NAMED]),
        chosen=len(pairs),
    )
    run.note(about.to_json())
    cases = [(pair, _new_case(pair, order)) for pair in pairs for order in choose_orders(pair, selection)]
    clips = Clips(place.folder, table=place.table, anywhere=place.layout.own)
    _judge_cases(cases, clips, run, store=store, judge=judge, watcher=watcher, budget=selection.budget)
    return Evaluation(run.name, identity.model, figures_of(run))


def _judge_cases(
    cases: Sequence[tuple[LabelledPair, EvalCase]],
    clips: Clips,
    run: Run,
    *,
    store: Store,
    judge: Judge,
    watcher: EvalWatcher,
    budget: int | None,
) -> None:
    """Judge the cases that are not judged yet, at most `budget` of them, and keep each case that is done in the run."""
    known = {case.item: case for case in run.cases()}
    left = {case.item for _, case in cases if not known.get(case.item, case).key}
    paths = (clips.find(name) for pair, _ in cases for name in (pair.a, pair.b))
    like = next((path for path in paths if isinstance(path, Path)), None)
    clock = RunClock(judge.predict(like) if like else None, jobs=judge.jobs)
    asked = 0  # how often the judge was asked, as far as this is known: a task counts until its result is found

    def count_left() -> int:
        return len(left) if budget is None else min(len(left), max(budget - asked, 0))

    def keep(case: EvalCase, result: Result | None = None) -> None:
        if known.get(case.item) != case:
            run.put(CASE, case.item, case)
            known[case.item] = case
        left.discard(case.item)
        watcher.count(failed=not (result and result.verdict), seconds_left=clock.seconds_left(count_left()))

    def choose_tasks() -> Iterator[Task]:
        """Yield the pairs whose clips exist; the others fail at once. Ends when the budget is used."""
        nonlocal asked
        for pair, case in cases:
            found = [clips.find(name) for name in (pair.a, pair.b)]
            if missing := [why for why in found if isinstance(why, str)]:
                keep(replace(case, missing="; ".join(missing)))
                continue
            if asked == budget:
                return
            asked += 1
            a, b = map(Path, found)
            yield Task(*((a, b) if case.order == "given" else (b, a)), pair.prompt, label=case)

    def keep_result(task: Task, result: Result, now: bool) -> None:
        nonlocal asked
        if not now or not result.first:
            asked -= 1  # the judge did not run
        elif result.verdict:
            clock.add(result.seconds)
        case: EvalCase = task.label
        before = known.get(case.item, case)
        if not result.first:
            keep(replace(case, missing=result.error))
        elif before.key == result.key:
            keep(replace(case, key=result.key, clip_seconds=before.clip_seconds), result)
        else:
            keep(replace(case, key=result.key, clip_seconds=_find_length(run, result.key)), result)

    watcher.begins(count_left(), clock.predict(count_left()))
    judge_all(choose_tasks(), run, store=store, judge=judge, jobs=judge.jobs, done=keep_result, observe=watcher.observe)


def _find_length(run: Run, key: str) -> float | None:
    """Return the seconds of the longer clip of a judgement, None if there is no verdict."""
    judgement = run.judgement(key)
    return max(clip.duration_seconds for clip in judgement.inputs) if judgement else None


def figures_of(run: Run) -> Figures:
    """Compute the figures of what is judged by now, whether the run has ended or not."""
    about = run.read_about(EvalAbout, "an evaluation")
    return compute_figures(run.cases(), {result.key: result for result in run.results()}, about)


def _new_case(pair: LabelledPair, order: Order) -> EvalCase:
    """Make the case of a pair that is not judged yet."""
    digest = hashlib.sha256(pair.prompt.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    return EvalCase(pair.row, pair.name, order, pair.labels, digest, len(pair.prompt), pair.group)


def choose_orders(pair: LabelledPair, selection: PairSelection) -> tuple[Order, ...]:
    """Return the orders in which a pair is judged. A random order depends on the seed and this pair alone."""
    if selection.order == "random":
        coin = hashlib.sha256(f"{selection.seed} {pair.row}".encode()).digest()[0] & 1
        return ("swapped",) if coin else ("given",)
    return ("given", "swapped") if selection.order == "both" else (selection.order,)
